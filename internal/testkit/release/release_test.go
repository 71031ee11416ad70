package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// snapshot prepares a release of the commit that is checked out, and returns its version and the
// environment in which Go takes the modules from there. The version is gone from the module cache
// when the test ends.
func snapshot(t *testing.T) (version string, env []string) {
	t.Helper()
	head, err := run(t.Context(), "../../..", "git", "rev-parse", "HEAD")
	if err != nil {
		t.Fatal(err)
	}
	version = "v0.1.0-test." + string(head[:12])
	dir := filepath.Join(t.TempDir(), "release.git")
	tags, err := prepare(t.Context(), "../../..", version, dir)
	if errors.Is(err, errDirty) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(tags) < 10 || tags[0] != version {
		t.Errorf("tags are %q", tags)
	}
	list, err := programs(dir)
	if err != nil {
		t.Fatal(err)
	}
	out, err := run(t.Context(), dir, "git", "tag", "--points-at", "HEAD")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		// Without it, the version of the program is a v0.0.0.
		if tag := "cmd/" + p.name + "/" + version; !slices.Contains(strings.Fields(string(out)), tag) {
			t.Errorf("there is no tag %s", tag)
		}
	}
	out, err = run(t.Context(), ".", "go", "env", "GOMODCACHE")
	if err != nil {
		t.Fatal(err)
	}
	cache := strings.TrimSpace(string(out))
	t.Cleanup(func() { forget(t, cache, version) })
	return version, append(os.Environ(),
		"GOPRIVATE="+root, "GOWORK=off", "GOFLAGS=", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url.file://"+dir+".insteadOf", "GIT_CONFIG_VALUE_0=https://"+root)
}

// forget removes a version of the modules from the module cache.
func forget(t *testing.T, cache, version string) {
	for _, dir := range []string{filepath.Join(cache, filepath.Dir(root)), filepath.Join(cache, "cache/download", root)} {
		err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && strings.HasSuffix(name, "@"+version):
				if err := errors.Join(writable(name), os.RemoveAll(name)); err != nil {
					return err
				}
				return fs.SkipDir
			case !d.IsDir() && strings.HasPrefix(d.Name(), version+"."):
				return os.Remove(name)
			}
			return nil
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}
}

// TestARelease follows a stranger who has nothing but a release: go install, then what kubewasm new
// says to type for each kind and language, and a program that imports modules of it.
func TestARelease(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the command")
	}
	version, env := snapshot(t)
	bin := t.TempDir()
	env = append(env, "GOBIN="+bin, "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	do := func(t *testing.T, dir, script string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "sh", "-ec", script)
		cmd.Dir, cmd.Env = dir, env
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", script, err, out)
		}
		return string(out)
	}
	do(t, bin, "go install "+root+"/cmd/kubewasm@"+version)
	if got := do(t, bin, "kubewasm --version"); !strings.Contains(got, "kubewasm "+version+",") {
		t.Errorf("the version is %q", got)
	}

	for _, test := range []struct {
		kind, language string
		needs          []string
	}{
		{"scheduler", "go", nil},
		{"admission", "go", nil},
		{"conversion", "go", nil},
		{"hook", "go", nil},
		{"service", "go", nil},
		{"admission", "c", []string{"clang", "wasm-ld"}},
		{"admission", "rust", []string{"cargo"}},
		{"admission", "as", []string{"npm"}},
	} {
		t.Run(test.kind+" in "+test.language, func(t *testing.T) {
			for _, tool := range test.needs {
				if _, err := exec.LookPath(tool); err != nil {
					if os.Getenv("CI") != "" {
						t.Fatal(err)
					}
					t.Skip(err)
				}
			}
			dir := t.TempDir()
			said := do(t, dir, "kubewasm new --kind "+test.kind+" --lang "+test.language+" mine")
			_, next, ok := strings.Cut(said, "\nNext:\n")
			if !ok || strings.Count(next, "kubewasm") < 3 {
				t.Fatalf("it says %s", said)
			}
			script := ""
			for line := range strings.Lines(next) {
				command, _, _ := strings.Cut(line, "#")
				if command = strings.TrimSpace(command); strings.HasPrefix(command, "kubewasm run") {
					command += " || [ $? = 2 ]" // One of the objects is denied.
				}
				script += command + "\n"
			}
			do(t, dir, script)
		})
	}

	t.Run("an importer", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(`package main

import (
	"fmt"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/webhook/manage"
	"github.com/kubewasm/kubewasm/host"
)

func main() { fmt.Println(host.RuntimeConfig{}, admission.PluginConfig{}, manage.PluginSpec{}) }
`), 0o600); err != nil {
			t.Fatal(err)
		}
		do(t, dir, "go mod init example.com/importer && go get "+root+"@"+version+" "+root+"/admission/webhook@"+version+" && go mod tidy && go run .")
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		for _, of := range []string{root, root + "/admission/webhook"} {
			if !strings.Contains(string(mod), of+" "+version) {
				t.Errorf("go.mod does not require %s %s:\n%s", of, version, mod)
			}
		}
	})
}

// TestPrepareRefuses holds what a release must not be made of.
func TestPrepareRefuses(t *testing.T) {
	dir := t.TempDir()
	for _, test := range []struct{ version, dir, want string }{
		{"0.1.0", dir + "/a", "no version such as"},
		{"v0.1", dir + "/a", "no version such as"},
		{"v2.0.0", dir + "/a", "no version such as"},
		{"v0.1.0", dir, "exists"},
	} {
		_, err := prepare(t.Context(), "../../..", test.version, test.dir)
		if errors.Is(err, errDirty) && test.want == "exists" {
			continue
		}
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s into %s: %v, want %s", test.version, test.dir, err, test.want)
		}
	}
}
