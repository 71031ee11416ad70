package manage_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/webhook/manage"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/shadow"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
)

var histories = flag.Uint64("histories", 40, "how many histories TestHistories tries")

// model is what an operator expects of a policy after the commands that they gave.
type model struct {
	loaded, enabled bool
	// versions are the modules that were in service, the one that is last, at most keptVersions of them.
	versions []string
	// shadow is the module of the shadow, empty for none, and ended is set if it was ended.
	shadow string
	ended  bool
}

const keptVersions = 3

// serve puts a module into service.
func (m *model) serve(module string) {
	m.versions = append(slices.DeleteFunc(m.versions, func(v string) bool { return v == module }), module)
	m.versions = m.versions[max(0, len(m.versions)-keptVersions):]
	m.shadow, m.ended = "", false // It was one of the version before.
}

// answer is what requests are answered with.
func (m *model) answer() string {
	if !m.loaded || !m.enabled {
		return ""
	}
	return m.versions[len(m.versions)-1]
}

// command gives a random command to the manager and to the model, and returns how it reads and
// what went wrong.
func (m *model) command(t *testing.T, f *fixture, r *rand.Rand) (text string, err error) {
	module := fmt.Sprint("m", r.IntN(5))
	refused := func(err error, of error) error {
		if err == nil || of != nil && !errors.Is(err, of) {
			return fmt.Errorf("got error %v, want %v", err, of)
		}
		return nil
	}
	switch r.IntN(12) {
	case 0, 1, 2:
		text, err = "load "+module, f.Load(t.Context(), policyNamed(t, "p"), says(module))
		m.serve(module)
		m.loaded, m.enabled = true, true
	case 3:
		_, err = f.Rollback(t.Context(), "p", "")
		if text = "roll back"; len(m.versions) < 2 {
			return text, refused(err, manage.ErrNotFound)
		}
		m.serve(m.versions[len(m.versions)-2])
	case 4:
		_, err = f.Rollback(t.Context(), "p", digest(says(module)))
		if text = "roll back to " + module; !slices.Contains(m.versions, module) {
			return text, refused(err, manage.ErrNotFound)
		}
		m.serve(module)
	case 5, 6:
		text = "begin a shadow of " + module
		if !m.loaded {
			return text, refused(f.BeginShadow(t.Context(), "p", shadow.Config{Module: host.ModuleConfig{Bytes: says(module)}}), manage.ErrNotFound)
		}
		shadowOf(t, f, shadow.Config{Module: host.ModuleConfig{Bytes: says(module)}})
		m.shadow, m.ended = module, false
	case 7:
		s, err := f.Shadow("p")
		if text = "end the shadow"; m.shadow == "" {
			return text, refused(err, manage.ErrNotFound)
		} else if err != nil {
			return text, err
		}
		m.ended = true
		return text, s.Close(t.Context())
	case 8, 9:
		s, err := f.Shadow("p")
		if text = "promote"; m.shadow == "" {
			return text, refused(err, manage.ErrNotFound)
		} else if err != nil {
			return text, err
		}
		if err = s.Promote(t.Context()); m.ended {
			return text, refused(err, nil)
		}
		m.serve(m.shadow)
		return text, err
	case 10:
		on := r.IntN(2) == 0
		if text, err = fmt.Sprint("enable ", on), f.SetEnabled("p", on); !m.loaded {
			return text, refused(err, manage.ErrNotFound)
		}
		m.enabled = on
	case 11:
		if text, err = "remove", f.Remove("p"); !m.loaded {
			return text, refused(err, manage.ErrNotFound)
		}
		*m = model{}
	}
	return text, err
}

// TestHistories gives a policy random commands, restarts among them, and holds after each that what
// serves is what the last command said. -histories 10000 tries many.
func TestHistories(t *testing.T) {
	t.Parallel()
	rt, err := host.NewRuntime(compiled.Config())
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.WithoutCancel(t.Context()))
	for seed := range *histories {
		var said []string
		if err := history(t, rt, rand.New(rand.NewPCG(seed, 47)), &said); err != nil {
			t.Errorf("seed %d: %s: %v", seed, strings.Join(said, ", "), err)
		}
	}
}

func history(t *testing.T, rt *host.Runtime, r *rand.Rand, said *[]string) (err error) {
	dir, err := os.MkdirTemp(t.TempDir(), "")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	f := &fixture{engine: admission.NewEngine(), dir: dir}
	open := func() (err error) {
		f.Manager, err = manage.New(t.Context(), manage.Config{Runtime: rt, Engine: f.engine, Directory: filepath.Join(dir, "state"), Versions: keptVersions, Interval: time.Minute})
		return err
	}
	if err := open(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close(context.WithoutCancel(t.Context()))) }()
	var m model
	for range 10 {
		text := "restart"
		if r.IntN(10) == 0 {
			if err = f.Close(t.Context()); err == nil {
				err = open()
			}
			m.shadow, m.ended = "", false
		} else {
			text, err = m.command(t, f, r)
		}
		if *said = append(*said, text); err != nil {
			return err
		}
		if got := f.ask("Pod"); got != m.answer() {
			return fmt.Errorf("%q answers, want %q", got, m.answer())
		}
		versions, err := f.Versions("p")
		if m.loaded != (err == nil) {
			return fmt.Errorf("versions: %w", err)
		}
		var got, want []string
		for _, v := range versions {
			got = append(got, v.Digest)
		}
		for _, v := range slices.Backward(m.versions) {
			want = append(want, digest(says(v)))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("versions (-want +got):\n%s", diff)
		}
		for _, info := range f.List() {
			if info.Digest != want[0] || info.Enabled != m.enabled {
				return fmt.Errorf("the list has %s, enabled %t, want %s, %t", info.Digest, info.Enabled, want[0], m.enabled)
			}
		}
	}
	return nil
}
