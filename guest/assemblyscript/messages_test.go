package assemblyscript_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/languages"
)

// TestMessagesOfAssemblyScript holds what mistakes of beginners are told that the compiler would
// tell of the SDK, or not at all.
func TestMessagesOfAssemblyScript(t *testing.T) {
	const imports = `import { CycleState, NodeInfo, Pod, Status } from "kubewasm/scheduler";` + "\n"
	for name, test := range map[string]struct{ source, want string }{
		"a parameter too few":   {imports + "@scheduler\nclass Zone { filter(pod: Pod, node: NodeInfo): Status | null { return null; } }", "the method filter of Zone has 2 parameters, want filter(state: CycleState, pod: Pod, node: NodeInfo): Status | null"},
		"no parameters":         {imports + "@scheduler\nclass Zone { score(): i64 { return 0; } }", "the method score of Zone has 0 parameters, want score(state: CycleState, pod: Pod, node: NodeInfo): i64"},
		"a method of Go's name": {imports + "@scheduler\nclass Zone { Filter(state: CycleState, pod: Pod, node: NodeInfo): Status | null { return null; } }", "the method Filter of Zone is never called: write filter"},
		"no decorator":          {imports + "class Zone { filter(state: CycleState, pod: Pod, node: NodeInfo): Status | null { return null; } }", "no class has one of the decorators @scheduler, @admission, @hook, @service"},
		"another decorator":     {imports + "@admission\nclass Zone { filter(state: CycleState, pod: Pod, node: NodeInfo): Status | null { return null; } }", "Zone has none of the methods of @admission: validate, mutate, convert"},
	} {
		t.Run(name, func(t *testing.T) {
			// The compiler is found in a directory above.
			dir, err := os.MkdirTemp("testdata", "mistake-")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			if err := errors.Join(
				os.Mkdir(filepath.Join(dir, "assembly"), 0o755),
				os.WriteFile(filepath.Join(dir, "asconfig.json"), []byte(`{"targets": {"release": {}}}`), 0o644),
				os.WriteFile(filepath.Join(dir, "assembly", "index.ts"), []byte(test.source), 0o644),
			); err != nil {
				t.Fatal(err)
			}
			_, err = guestbuild.Build(t.Context(), dir)
			if missing := (*guestbuild.MissingToolError)(nil); errors.As(err, &missing) {
				languages.Check(t, err)
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %s", err, test.want)
			}
		})
	}
}
