// Package readme holds that what README.md says to paste runs when it is pasted.
package readme

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// block is a block of code whose fence names where it goes after its language: the
// directory in which a shell runs, or a file.
type block struct{ language, path, text string }

// blocks returns those blocks of README.md.
func blocks(t *testing.T) []block {
	t.Helper()
	text, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var out []block
	for _, m := range regexp.MustCompile("(?ms)^```(\\S+) (\\S+)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		out = append(out, block{m[1], m[2], m[3]})
	}
	return out
}

// TestEveryProgramIsPasted holds that no block of Go stands in README.md without the
// file that it is.
func TestEveryProgramIsPasted(t *testing.T) {
	text, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if loose := regexp.MustCompile("(?m)^```go\\n.*$").FindAllString(string(text), -1); len(loose) != 0 {
		t.Errorf("blocks of Go without a file: %q", loose)
	}
}

// deleteTest asks the admission plugin about a Pod that goes: a request of that kind has
// no object, and whoever copies the plugin would not get rid of a Pod again.
const deleteTest = `package main

import (
	"testing"

	"github.com/kubewasm/kubewasm/guest/guesttest/admissiontest"
)

func TestDelete(t *testing.T) {
	admissiontest.Each(t, owner{}, func(t *testing.T, p *admissiontest.Plugin) {
		got := p.Review(t, "{\"apiVersion\": \"admission.k8s.io/v1\", \"kind\": \"AdmissionReview\", \"request\": {\"uid\": \"1\", \"operation\": \"DELETE\", \"object\": null, \"oldObject\": {\"metadata\": {\"name\": \"web\"}}}}")
		if !got.Allowed {
			t.Errorf("got %+v", got)
		}
	})
}
`

// TestPaste pastes the blocks of each directory, in their order, into a shell and an
// editor. Only the module is taken from here instead of from where it is published.
func TestPaste(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	if err := guestbuild.NoteSources(root); err != nil {
		t.Fatal(err)
	}
	// owner and share are made in the same way as zone.
	first := []string{"mkdir %[1]s && cd %[1]s", "go mod init example.com/%[1]s", "go get github.com/kubewasm/kubewasm@latest"}
	last := []string{"go mod tidy", "go test .", "go run github.com/kubewasm/kubewasm/cmd/kubewasm build ."}
	heavy := map[string]bool{"scheduler": true, "agent": true}
	scripts := map[string]string{}
	var names []string
	for _, b := range blocks(t) {
		name, file, isFile := strings.Cut(b.path, "/")
		if !slices.Contains(names, name) {
			names = append(names, name)
			if isFile {
				scripts[name] = fmt.Sprintf(strings.Join(first, "\n")+"\n", name)
			}
		}
		switch {
		case isFile:
			scripts[name] += "cat > " + file + " <<'END OF FILE'\n" + b.text + "END OF FILE\n"
		case b.language == "sh":
			scripts[name] += b.text
		default:
			t.Fatalf("a block of %s goes to the directory %s", b.language, name)
		}
	}
	if want := []string{"zone", "owner", "share", "scheduler", "webhook", "agent"}; !slices.Equal(names, want) {
		t.Fatalf("README.md makes %q, want %q", names, want)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			if heavy[name] && testing.Short() {
				t.Skip("-short: the first build of Kubernetes takes minutes")
			}
			script := scripts[name]
			if name == "owner" {
				script += "cat > delete_test.go <<'END OF FILE'\n" + deleteTest + "END OF FILE\n"
			}
			if !strings.Contains(script, "go mod tidy") {
				script += strings.Join(last, "\n") + "\n"
			}
			get := regexp.MustCompile(`(?m)^go get (github\.com/kubewasm/.*)$`)
			if !get.MatchString(script) {
				t.Fatal("the module is not fetched")
			}
			script = get.ReplaceAllStringFunc(script, func(line string) string {
				local := ":"
				for _, module := range strings.Fields(line)[2:] {
					path := strings.TrimSuffix(module, "@latest")
					local += fmt.Sprintf(" && go mod edit -require %[1]s@v0.0.0 -replace %[1]s='%[2]s'", path, root+strings.TrimPrefix(path, "github.com/kubewasm/kubewasm"))
				}
				return local
			})
			cmd := exec.CommandContext(t.Context(), "sh", "-e", "-c", script)
			cmd.Dir = t.TempDir()
			cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false", "GOWORK=off")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
