package guestbuild_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
	"github.com/kubewasm/kubewasm/internal/testkit/languages"
)

// TestStacks holds for each language that the text of a panic, or of what the language has in
// its place, is in the host's error, and that the stack has the names of functions. A small
// function that is inlined otherwise is in the stack of a debug build.
func TestStacks(t *testing.T) {
	languages.Slow(t)
	rt, err := host.NewRuntime(compiled.Config())
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.Background())
	for _, test := range []struct {
		language *guestbuild.Language
		text     string
		// plain is a name in the stack of a plain build, empty if it has none, and debug one in
		// that of a debug build.
		plain, debug string
	}{
		{guestbuild.Go, `panic: the tier is empty`, `main\.\(\*plugin\)\.Decide`, `main\.dividedBy`},
		{guestbuild.C, `panics\.c:12: assertion failed: tier\.n != 0`, `kw_export_hook`, `divided_by`},
		{guestbuild.Rust, `panicked at .*the tier is empty.*lib\.rs:11`, `\.panics::divided_by\(`, `\.panics::divided_by\(`},
		{guestbuild.AssemblyScript, `the tier is empty.*index\.ts:13`, ``, `dividedBy`},
	} {
		for _, debug := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, debug %t", test.language.Title, debug), func(t *testing.T) {
				file, _ := languages.Compile(t, guestbuild.Config{Dir: "testdata/panics/" + test.language.Name, Debug: debug})
				engine, err := hooks.NewEngine(t.Context(), rt, hooks.Config{Plugins: []hooks.PluginConfig{{Config: host.Config{Name: "guest", Module: host.ModuleConfig{File: file}}}}})
				if err != nil {
					t.Fatal(err)
				}
				defer engine.Close(context.Background())
				_, err = engine.Decide(t.Context(), &hookmsg.Request{Stage: abi.PreCreateContainer, Level: abi.LevelContainer})
				var trap *host.TrapError
				if !errors.As(err, &trap) {
					t.Fatalf("got %v, want a trap", err)
				}
				if !regexp.MustCompile(test.text).MatchString(err.Error()) {
					t.Errorf("no %s in the error\n%v", test.text, err)
				}
				name := test.plain
				if debug {
					name = test.debug
				}
				stack := trap.Frames(100)
				if test.language == guestbuild.Go && !debug {
					stack = trap.Output // The panic has printed it.
				}
				if !regexp.MustCompile(name).MatchString(stack) {
					t.Errorf("no %s in the stack\n%s", name, stack)
				}
			})
		}
	}
}

// TestMetadataOfEachLanguage holds that what a guest declares in the way of its language ends in
// the same section.
func TestMetadataOfEachLanguage(t *testing.T) {
	languages.Slow(t)
	for _, language := range guestbuild.Languages {
		t.Run(language.Title, func(t *testing.T) {
			read := func(dir string) *metadata.Metadata {
				file, _ := languages.Compile(t, guestbuild.Config{Dir: dir})
				module, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				m, err := metadata.Find(module)
				if err != nil || m == nil {
					t.Fatalf("metadata: %v, %v", m, err)
				}
				return m
			}
			hook := read("testdata/panics/" + language.Name)
			if !strings.HasPrefix(hook.SDK, "github.com/kubewasm/kubewasm") {
				t.Errorf("the SDK is %q", hook.SDK)
			}
			slices.Sort(hook.Reads)
			want := &metadata.Metadata{
				Name: "panics", Version: "1.2.3", Source: "https://example.com/panics", Licenses: "Apache-2.0 OR MIT",
				Kinds: []string{"hook"}, Reads: []string{"pod_annotations", "pod_labels[tier]"}, Decides: []string{"cfs_quota_us", "cpu_shares"},
				SDK: hook.SDK, ABI: 1,
			}
			slices.Sort(hook.Decides)
			if diff := cmp.Diff(want, hook); diff != "" {
				t.Errorf("metadata of a hook (-want +got):\n%s", diff)
			}
			dir := "../../examples/admission/required-labels"
			if language != guestbuild.Go {
				dir += "/" + language.Name
			}
			var matches []string
			for _, operation := range []string{"CREATE", "UPDATE"} {
				for _, resource := range []string{
					"/pods", "/pods/ephemeralcontainers", "/pods/status", "/replicationcontrollers", "/podtemplates",
					"apps/deployments", "apps/replicasets", "apps/statefulsets", "apps/daemonsets", "batch/jobs", "batch/cronjobs",
				} {
					matches = append(matches, operation+" "+resource)
				}
			}
			slices.Sort(matches)
			if diff := cmp.Diff(matches, each(read(dir).Matches)); diff != "" {
				t.Errorf("matches of a policy (-want +got):\n%s", diff)
			}
		})
	}
}

// each returns an operation on a resource of all versions for each in the rules, however they
// are divided.
func each(rules []metadata.Rule) (all []string) {
	for _, r := range rules {
		for _, operation := range r.Operations {
			for _, group := range r.APIGroups {
				for _, resource := range r.Resources {
					text := operation + " " + group + "/" + resource
					if !slices.Equal(r.APIVersions, []string{"*"}) {
						text += fmt.Sprintf(" of %q", r.APIVersions)
					}
					all = append(all, text)
				}
			}
		}
	}
	slices.Sort(all)
	return all
}
