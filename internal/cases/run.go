package cases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/abi"
)

// Result is the result of a case.
type Result struct {
	Name string
	// Failures are the deviations from the expectations, none if there are none. Each may have
	// several lines.
	Failures []string
	Took     time.Duration
}

// Run runs each case for which only holds on the module in a file, or the one that is compiled from
// a directory; nil holds for all. The error is for cases that cannot be run: the plugin is not
// loaded then.
func Run(ctx context.Context, f *File, dir, module string, only func(name string) bool, each func(Result)) error {
	var opened *suite
	loading := try(ctx, module, func(t *recorder) { opened = open(t, f, dir, module) })
	defer loading.close()
	if loading.Failed() {
		return errors.New(loading.failures[0])
	}
	if loading.Skipped() {
		return errors.New(loading.skipped)
	}
	for i := range f.Cases {
		c := &f.Cases[i]
		if only != nil && !only(c.Name) {
			continue
		}
		start := time.Now()
		asked := try(ctx, c.Name, func(t *recorder) { opened.ask(t, c) })
		asked.close()
		each(Result{c.Name, asked.failures, time.Since(start)})
	}
	return nil
}

// Test runs the cases of a file against modules, in a subtest for each.
func Test(t *testing.T, file string, modules ...string) {
	t.Helper()
	f, err := Read(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, module := range modules {
		t.Run(filepath.ToSlash(module), func(t *testing.T) {
			opened := open(t, f, filepath.Dir(file), module)
			for i := range f.Cases {
				c := &f.Cases[i]
				t.Run(c.Name, func(t *testing.T) {
					asked := try(t.Context(), c.Name, func(r *recorder) { opened.ask(r, c) })
					asked.close()
					for _, failure := range asked.failures {
						t.Error(failure)
					}
				})
			}
		})
	}
}

// suite is a module with its cases.
type suite struct {
	file *File
	dir  string
	kits kits
}

// ask runs a case on the plugin.
func (s *suite) ask(t *recorder, c *Case) {
	config, objects := c.Config, c.Objects
	if config == nil {
		config = s.file.Config
	}
	if objects.IsZero() {
		objects = s.file.Objects
	}
	q := &question{recorder: t, of: c, suite: s, config: string(config), objects: s.read(t, objects)}
	asked := q.ask
	if c.Traps != "" && len(c.Steps) == 0 {
		asked = func() { q.trapping(c.Traps, q.ask) }
	}
	asked()
}

// read returns a document or the contents of its file.
func (s *suite) read(t testing.TB, d Document) string {
	text, err := d.read(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// question is a case that is being run.
type question struct {
	*recorder
	of      *Case
	suite   *suite
	config  string
	objects string
}

// ask runs the case in the kit of its kind.
func (q *question) ask() {
	kinds := map[string]func(){}
	add := func(what string, there bool, ask func()) {
		if there {
			kinds[what] = ask
		}
	}
	add("steps", len(q.of.Steps) != 0, q.schedule)
	// A Pod and a Node may be those of a scheduler plugin or of a hook.
	kind, _ := q.suite.kits.module.Kind()
	hook := q.of.Node.IsZero() || kind == abi.KindHook || q.of.Container != "" || q.of.Level != ""
	add("node", !hook, q.filter)
	add("pod", !q.of.Pod.IsZero() && hook, q.decide)
	add("create", !q.of.Create.IsZero(), q.review)
	add("update", !q.of.Update.IsZero(), q.review)
	add("delete", !q.of.Delete.IsZero(), q.review)
	add("review", !q.of.Review.IsZero(), q.review)
	add("convert", !q.of.Convert.IsZero(), q.convert)
	add("method", q.of.Method != "", q.call)
	if q.of.Refused != "" {
		kinds = map[string]func(){"refused": q.configure}
	}
	if len(kinds) != 1 {
		q.Fatal("a case has one of steps, pod, pod and node, create, update, delete, review, convert, method and refused")
	}
	for _, ask := range kinds {
		ask()
	}
}

// configure loads a plugin that must refuse its configuration.
func (q *question) configure() {
	err := q.suite.kits.configure(q, q.config)
	if err == nil {
		q.Fatalf("the configuration was taken, want it refused: %s", q.of.Refused)
	}
	q.has("refused the configuration", err.Error(), q.of.Refused)
}

// wantsError reports whether the case expects an error, and compares err with it. An unexpected
// error is fatal.
func (q *question) wantsError(err error) bool {
	switch {
	case err == nil && q.of.Error == "":
		return false
	case err == nil:
		q.Fatalf("no error, want %q", q.of.Error)
	case q.of.Error == "":
		q.Fatalf("error: %v", err)
	}
	q.has("error", err.Error(), q.of.Error)
	return true
}

// has checks that a text contains the expected part.
func (q *question) has(what, got, want string) {
	if !strings.Contains(got, want) {
		q.Errorf("%s: got  %s\nwant in it %s", what, got, want)
	}
}

// trapping runs f, in which a call must trap with a text.
func (q *question) trapping(want string, f func()) {
	outer := q.recorder
	inner := try(outer.ctx, outer.name, func(t *recorder) {
		q.recorder = t
		f()
	})
	q.recorder = outer
	outer.cleanups = append(outer.cleanups, inner.cleanups...)
	got := strings.Join(inner.failures, "\n")
	switch {
	case got == "":
		q.Errorf("no trap, want one with %q", want)
	case !strings.Contains(got, "trapped") && !strings.Contains(got, "wasm"):
		q.Errorf("no trap, but:\n%s", got)
	default:
		q.has("trap", got, want)
	}
}

// same checks that the answer is the expected one.
func (q *question) same(what string, want, got any) {
	if diff := cmp.Diff(want, got); diff != "" {
		q.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// wanted decodes the expectation of the case.
func (q *question) wanted(to any) {
	if q.of.Want.IsZero() {
		return
	}
	decode(q, q.of.Want.json, to, "want")
}

func decode(t testing.TB, document []byte, to any, what string) {
	d := json.NewDecoder(strings.NewReader(string(document)))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		t.Fatal(fmt.Errorf("%s: %w", what, err))
	}
}
