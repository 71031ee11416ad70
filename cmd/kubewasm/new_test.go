package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// scaffolded runs kubewasm new in an empty directory and returns what it prints.
func scaffolded(t *testing.T, args ...string) string {
	t.Helper()
	t.Chdir(t.TempDir())
	code, out, stderr := kubewasm(t, append([]string{"new"}, args...)...)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	return out
}

// paste runs the commands that kubewasm new has printed, and returns what they print
// together with their exit codes.
func paste(t *testing.T, printed string) string {
	t.Helper()
	_, commands, ok := strings.Cut(printed, "\nNext:\n\n")
	if !ok {
		t.Fatalf("no commands in %s", printed)
	}
	var script strings.Builder
	for line := range strings.Lines(commands) {
		script.WriteString("echo '$ '; " + strings.TrimSpace(line) + "\necho \"exit code $?\"\n")
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script.String())
	cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false", "GOWORK=off")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// TestNewPluginsWork runs the commands that kubewasm new prints as the next ones.
func TestNewPluginsWork(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: links the command in another module")
	}
	tests := map[string]struct {
		verdict string
		codes   []string
	}{
		"scheduler": {`shop/web +n2 +Unschedulable .* node is in zone "b", not in "a"`, []string{"0", "0", "0", "0", "0", "0"}},
		"admission": {`Pod shop/stray +denied 422 .* metadata.labels\[team\]: Required value: every Pod must have it`, []string{"0", "0", "0", "0", "0", "2"}},
		"hook":      {`Pod shop/report container report +decided .* cpu_shares=2`, []string{"0", "0", "0", "0", "0", "0"}},
	}
	for kind, test := range tests {
		t.Run(kind, func(t *testing.T) {
			out := paste(t, scaffolded(t, "-kind", kind, "my-plugin"))
			var codes []string
			for _, m := range regexp.MustCompile(`(?m)^exit code (\d+)$`).FindAllStringSubmatch(out, -1) {
				codes = append(codes, m[1])
			}
			if diff := cmp.Diff(test.codes, codes); diff != "" {
				t.Errorf("exit codes (-want +got):\n%s", diff)
			}
			for _, want := range []string{`(?m)^ok\s+example\.com/my-plugin`, `(?m)^my-plugin\.wasm: ` + kind + ` my-plugin 0\.1\.0, `, `(?m)^kinds +` + kind + `$`, test.verdict} {
				if !regexp.MustCompile(want).MatchString(out) {
					t.Errorf("not printed: %s", want)
				}
			}
			if t.Failed() {
				t.Logf("printed:\n%s", out)
			}
		})
	}
}

func TestNewInAModule(t *testing.T) {
	scaffold := func(t *testing.T, module string, args ...string) (files, steps []string) {
		t.Helper()
		t.Chdir(t.TempDir())
		if err := os.WriteFile("go.mod", []byte("module "+module+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		code, out, stderr := kubewasm(t, append([]string{"new", "-kind", "hook"}, args...)...)
		if code != 0 {
			t.Fatalf("exit code %d: %s", code, stderr)
		}
		names, _ := filepath.Glob("plugins/zone/*")
		for _, name := range names {
			files = append(files, filepath.Base(name))
		}
		_, commands, _ := strings.Cut(out, "\nNext:\n\n")
		for line := range strings.Lines(commands) {
			command, _, _ := strings.Cut(line, "#")
			steps = append(steps, strings.TrimSpace(command))
		}
		return files, steps
	}
	checkout := filepath.Dir(filepath.Dir(root))
	last := func(command string) []string {
		return []string{"go test", command + " build", command + " inspect zone.wasm", command + " run -config config.yaml -f objects.yaml zone.wasm"}
	}
	files := []string{"README.md", "config.yaml", "main.go", "main_test.go", "objects.yaml"}
	tests := map[string]struct {
		module       string
		args         []string
		files, steps []string
	}{
		"a package of the module": {"example.com/mine", []string{"plugins/zone"}, files,
			append([]string{"cd plugins/zone", "go mod edit -replace=" + libraryPath + "=" + checkout, "go get -tool " + commandPath}, last("go tool kubewasm")...)},
		"a package of kubewasm": {libraryPath, []string{"plugins/zone"}, files,
			append([]string{"cd plugins/zone"}, last("go run "+commandPath)...)},
		"a module of its own": {"example.com/mine", []string{"-module", "example.com/zone", "plugins/zone"}, append([]string{"README.md", "config.yaml", "go.mod"}, files[2:]...),
			append([]string{"cd plugins/zone", "go mod tidy"}, last("go tool kubewasm")...)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			gotFiles, gotSteps := scaffold(t, test.module, test.args...)
			if diff := cmp.Diff(test.files, gotFiles); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.steps, gotSteps); diff != "" {
				t.Errorf("commands (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNewFilesAreFormatted(t *testing.T) {
	for _, kind := range directories("templates/go") {
		scaffolded(t, "-kind", kind, "zone")
		if out, err := exec.CommandContext(t.Context(), "gofmt", "-l", "zone").CombinedOutput(); err != nil || len(out) != 0 {
			t.Errorf("%s: gofmt: %v: %s", kind, err, out)
		}
	}
}

func TestNewOverwritesNothing(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("main.go", []byte("package mine\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := kubewasm(t, "new", "-kind", "hook", "-name", "mine", ".")
	if code != 1 || stderr != "kubewasm: new .: the directory has main.go already, and nothing is overwritten\n" {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	if files, _ := filepath.Glob("*"); len(files) != 1 {
		t.Errorf("files: %q", files)
	}
}

func TestMistakesInNew(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no directory":        {[]string{"-kind", "hook"}, "new: an argument is missing\nusage: kubewasm new -kind KIND"},
		"no kind":             {[]string{"zone"}, "new: name a kind with -kind: admission, hook, scheduler\nusage: "},
		"unknown kind":        {[]string{"-kind", "hooks", "zone"}, `new: unknown kind "hooks"; did you mean "hook"?`},
		"unknown language":    {[]string{"-kind", "hook", "-lang", "rust", "zone"}, `new: no template in the language "rust", only in go; abi/SPEC.md is all that a guest in another language needs`},
		"a name with a space": {[]string{"-kind", "hook", "my zone"}, `new my zone: "my zone" is no name of a plugin: give one of small letters, digits, - and . with -name`},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, stderr := kubewasm(t, append([]string{"new"}, test.args...)...)
			if code != 1 || out != "" || !strings.HasPrefix(stderr, "kubewasm: "+test.want) {
				t.Errorf("exit code %d: %s%s", code, out, stderr)
			}
		})
	}
}

func TestVersion(t *testing.T) {
	code, out, stderr := kubewasm(t, "version")
	if code != 0 || !regexp.MustCompile(`^kubewasm \S+, ABI kubewasm_abi_v1, go1\S+ \w+/\w+\n$`).MatchString(out) {
		t.Errorf("exit code %d: %s%s", code, out, stderr)
	}
}
