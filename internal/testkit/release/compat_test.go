package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheckAPI removes an exported function after a tag, with and without a line in the changelog.
func TestCheckAPI(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles the root module")
	}
	dir := filepath.Join(t.TempDir(), "repository")
	do := func(args ...string) {
		t.Helper()
		if _, err := run(t.Context(), dir, "git", append([]string{"-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgSign=false"}, args...)...); err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check := func(next string) (string, error) { return checkAPI(t.Context(), dir, next, []string{".", "wing"}) }
	write("go.mod", "module "+root+"\n\ngo 1.26.0\n")
	write("CHANGELOG.md", "# Changelog\n\n## Unreleased\n\n- Load is new.\n\n## v0.0.9\n\n- Breaking: Load.\n")
	write("host/host.go", "package host\n\nimport \"context\"\n\nfunc Load(ctx context.Context) error { return ctx.Err() }\n")
	write("host/internal/x/x.go", "package x\n\nfunc X() {}\n")
	write("wing/go.mod", "module "+root+"/wing\n\ngo 1.26.0\n\nrequire "+root+" v0.1.0\n")
	write("wing/wing.go", "package wing\n\nimport \""+root+"/host\"\n\nvar Load = host.Load\n")
	do("init", "--quiet")
	do("add", ".")
	do("commit", "--quiet", "-m", "First")
	if tag, err := check(""); tag != "" || err != nil {
		t.Errorf("without a tag: %q, %v", tag, err)
	}
	do("tag", "v0.1.0")
	do("tag", "v0.1.0-rc.1")

	compatible := func(name, next string) {
		t.Helper()
		if tag, err := check(next); tag != "v0.1.0" || err != nil {
			t.Errorf("%s: %q, %v", name, tag, err)
		}
	}
	refused := func(name, next string, want ...string) {
		t.Helper()
		_, err := check(next)
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v, want %s", name, err, w)
			}
		}
	}
	compatible("the same", "v0.1.1")
	write("host/host.go", "package host\n\nimport \"context\"\n\nfunc Load(ctx context.Context) error { return ctx.Err() }\n\nfunc Unload() {}\n")
	write("host/internal/x/x.go", "package x\n")
	compatible("a new function", "v0.1.1")
	write("host/host.go", "package host\n\nfunc Load() error { return nil }\n")
	refused("another signature", "", "host.Load: changed", "wing.Load: changed", "CHANGELOG.md")
	write("CHANGELOG.md", "# Changelog\n\n## Unreleased\n\n- Breaking: `host.Loader` is gone.\n\n## v0.0.9\n\n- Breaking: Load.\n")
	refused("a line about something else", "", "host.Load: changed")
	write("CHANGELOG.md", "# Changelog\n\n## Unreleased\n\n- Breaking: `host.Load` takes no context.\n\n## v0.0.9\n")
	compatible("a line in the changelog", "v0.2.0")
	refused("a patch", "v0.1.1", "the next version is no patch such as v0.1.1")
	if err := os.RemoveAll(filepath.Join(dir, "host")); err != nil {
		t.Fatal(err)
	}
	write("other/other.go", "package other\n")
	write("wing/wing.go", "package wing\n\nvar Load = func() error { return nil }\n")
	do("add", ".")
	refused("a package that is gone", "", "host: removed")
	write("CHANGELOG.md", "# Changelog\n\n## Unreleased\n\n- Breaking: package host is gone, and `wing.Load` takes no context.\n")
	compatible("a line about the package", "")
}
