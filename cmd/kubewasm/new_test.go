package main

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/internal/testkit/languages"
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

// installed returns a directory with the command, as go install leaves it.
var installed = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "kubewasm"); err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-o", dir, ".")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "GOFLAGS=-buildvcs=false", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the command: %w\n%s", err, out)
	}
	return dir, nil
})

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
	bin, err := installed()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script.String())
	cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false", "GOWORK=off", "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// TestNewPluginsWork runs the commands that kubewasm new prints as the next ones. What the
// guides have of other kinds is run by TestPaste.
func TestNewPluginsWork(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: links the command in another module")
	}
	plugin := func(kind, verdict string) []string {
		return []string{`(?m)^ok\s+example\.com/my-plugin\s`, `(?m)^my-plugin\.wasm: ` + kind + ` my-plugin 0\.1\.0, `, `(?m)^kinds +` + kind + `$`, verdict}
	}
	tests := map[string]struct{ wants, codes []string }{
		"scheduler":  {plugin("scheduler", `shop/web +n2 +Unschedulable .* node is in zone "b", not in "a"`), []string{"0", "0", "0", "0", "0", "0"}},
		"admission":  {plugin("admission", `Pod shop/stray +denied 422 .* metadata.labels\[team\]: Required value: every Pod must have it`), []string{"0", "0", "0", "0", "0", "2"}},
		"conversion": {plugin("admission", `CronTab shop/backup +converted .*"spec":{"schedule":"@daily"}`), []string{"0", "0", "0", "0", "0", "0"}},
		"hook":       {plugin("hook", `Pod shop/report container report +decided .* cpu_shares=2`), []string{"0", "0", "0", "0", "0", "0"}},
		"service": {[]string{
			`(?m)^ok\s+example\.com/my-plugin/region\s`, `(?m)^region\.wasm: service region 0\.1\.0, `,
			`(?m)^service +example\.myplugin\.v1\.MyPlugin$`, `(?m)^cluster: b$`, `\$ \nb\nexit code 0\n$`,
		}, []string{"0", "0", "0", "0", "0", "0", "0", "0"}},
	}
	for kind, test := range tests {
		t.Run(kind, func(t *testing.T) {
			if kind != "scheduler" {
				languages.Slow(t)
			}
			out := paste(t, scaffolded(t, "--kind", kind, "my-plugin"))
			var codes []string
			for _, m := range regexp.MustCompile(`(?m)^exit code (\d+)$`).FindAllStringSubmatch(out, -1) {
				codes = append(codes, m[1])
			}
			if diff := cmp.Diff(test.codes, codes); diff != "" {
				t.Errorf("exit codes (-want +got):\n%s", diff)
			}
			for _, want := range test.wants {
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
	scaffold := func(t *testing.T, module, kind string, args ...string) (files, steps []string) {
		t.Helper()
		t.Chdir(t.TempDir())
		if err := os.WriteFile("go.mod", []byte("module "+module+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		code, out, stderr := kubewasm(t, append([]string{"new", "--kind", kind}, args...)...)
		if code != 0 {
			t.Fatalf("exit code %d: %s", code, stderr)
		}
		err := fs.WalkDir(os.DirFS("plugins/zone"), ".", func(name string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				files = append(files, name)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
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
		return []string{"go test", command + " build", command + " inspect zone.wasm", command + " run --config config.yaml -f objects.yaml zone.wasm"}
	}
	files := []string{"README.md", "config.yaml", "main.go", "main_test.go", "objects.yaml"}
	tests := map[string]struct {
		module, kind string
		args         []string
		files, steps []string
	}{
		"a package of the module": {"example.com/mine", "hook", []string{"plugins/zone"}, files,
			append([]string{"cd plugins/zone", "go mod edit -require=" + libraryPath + "@v0.0.0 -replace=" + libraryPath + "=" + checkout, "go mod tidy"}, last("kubewasm")...)},
		"a package of kubewasm": {libraryPath, "hook", []string{"plugins/zone"}, files,
			append([]string{"cd plugins/zone"}, last("kubewasm")...)},
		"a module of its own": {"example.com/mine", "hook", []string{"--module", "example.com/zone", "plugins/zone"}, append([]string{"README.md", "config.yaml", "go.mod"}, files[2:]...),
			append([]string{"cd plugins/zone", "go mod tidy"}, last("kubewasm")...)},
		"an extension point in kubewasm": {libraryPath, "service", []string{"plugins/zone"},
			[]string{"README.md", "config.yaml", "controller/main.go", "region/main.go", "region/main_test.go", "request.yaml", "zone.go", "zone.proto", "zoneguest/doc.go"},
			[]string{
				"cd plugins/zone", "go generate", "go test ./...", "kubewasm build --output-file region.wasm ./region", "kubewasm inspect region.wasm",
				"kubewasm run --config config.yaml -f request.yaml region.wasm Zone/Place", "go run ./controller",
			}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			gotFiles, gotSteps := scaffold(t, test.module, test.kind, test.args...)
			if text, err := os.ReadFile("plugins/zone/region/main.go"); err == nil && !strings.Contains(string(text), `import "`+test.module+`/plugins/zone/zoneguest"`) {
				t.Errorf("the plugin is\n%s", text)
			}
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
		scaffolded(t, "--kind", kind, "zone")
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
	code, _, stderr := kubewasm(t, "new", "--kind", "hook", "--name", "mine", ".")
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
		"no directory":                       {[]string{"--kind", "hook"}, "new: an argument is missing\nusage: kubewasm new --kind KIND"},
		"no kind":                            {[]string{"zone"}, "new: name a kind with --kind: admission, conversion, hook, scheduler, service\nusage: "},
		"unknown kind":                       {[]string{"--kind", "hooks", "zone"}, `new: unknown kind "hooks"; did you mean "hook"?`},
		"unknown language":                   {[]string{"--kind", "hook", "--lang", "zig", "zone"}, `new: no template in the language "zig", only in `},
		"a service of the name of a program": {[]string{"--kind", "service", "main"}, `new main: "main" is no name of the Go package of a service: choose another directory`},
		"a service without a letter":         {[]string{"--kind", "service", "--name", "7", "seven"}, `new seven: "7" is no name of a service: give one that begins with a letter with --name`},
		"a name with a space":                {[]string{"--kind", "hook", "my zone"}, `new my zone: "my zone" is no name of a plugin: give one of small letters, digits, - and . with --name`},
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
