// Package readme holds that what the documents say to paste runs when it is pasted,
// and that what they name exists.
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

// root is the root of the repository.
const root = "../../.."

// documents returns the paths of the documents of the root, of docs and docs/rationale, and of the
// Stellar dialect.
func documents(t *testing.T) (paths []string) {
	t.Helper()
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/rationale/*.md", "admission/stellar/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d documents, error %v", pattern, len(files), err)
		}
		for _, file := range files {
			paths = append(paths, strings.TrimPrefix(filepath.ToSlash(file), root+"/"))
		}
	}
	return paths
}

// read returns the text of a document.
func read(t *testing.T, document string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, document))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// block is a block of code whose fence has a second word: the directory in which a
// shell runs, the file that the block is, or "part:" and the file of which it is a part.
type block struct{ document, language, path, text string }

// blocks returns those blocks of all documents.
func blocks(t *testing.T) (out []block) {
	t.Helper()
	for _, document := range documents(t) {
		for _, m := range regexp.MustCompile("(?ms)^```(\\S+) (\\S+)\n(.*?)^```$").FindAllStringSubmatch(read(t, document), -1) {
			out = append(out, block{document, m[1], m[2], m[3]})
		}
	}
	return out
}

// TestEveryProgramIsPasted holds that each block of Go is a file that TestPaste
// compiles, or a part of one.
func TestEveryProgramIsPasted(t *testing.T) {
	files := map[string]string{}
	for _, b := range blocks(t) {
		files[b.path] += unindented(b.text)
	}
	for _, b := range blocks(t) {
		if file, ok := strings.CutPrefix(b.path, "part:"); ok && !strings.Contains(files[file], unindented(b.text)) {
			t.Errorf("%s has a part of %s which is not in it:\n%s", b.document, file, b.text)
		}
	}
	for _, document := range documents(t) {
		if loose := regexp.MustCompile("(?m)^```go\\n.*$").FindAllString(read(t, document), -1); len(loose) != 0 {
			t.Errorf("%s has blocks of Go without a file: %q", document, loose)
		}
	}
}

// unindented returns text without the tabs before its lines.
func unindented(text string) string {
	return regexp.MustCompile(`(?m)^\t+`).ReplaceAllString(text, "")
}

// deleteTest asks the admission plugin about the deletion of a Pod. Such a request has no
// object: a plugin that denies it keeps the Pod for good.
const deleteTest = `package main

import (
	"testing"

	"github.com/kubewasm/kubewasm/admission/admissiontest"
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

// TestExtensionPointsTakeSixCommands holds that docs/services.md comes from nothing to a test
// that passes by six commands, and without a line to write. TestPaste runs them.
func TestExtensionPointsTakeSixCommands(t *testing.T) {
	for _, b := range blocks(t) {
		if b.path != "placement" {
			continue
		}
		if n := strings.Count(b.text, "\n"); n > 6 || !strings.HasSuffix(b.text, "\ngo test ./...\n") {
			t.Errorf("%s begins with\n%s", b.document, b.text)
		}
		return
	}
	t.Error("no document makes placement")
}

// TestPaste pastes the blocks of each directory, in their order, into a shell and an
// editor. Only the module is taken from here instead of from where it is published.
func TestPaste(t *testing.T) {
	root, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	if err := guestbuild.TrackSources(root); err != nil {
		t.Fatal(err)
	}
	// What the documents install from a clone.
	bin := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-C", filepath.Join(root, "cmd/kubewasm"), "-o", bin, ".")
	build.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// Directories without commands of their own are made and built like this.
	first := []string{"mkdir %[1]s && cd %[1]s", "go mod init example.com/%[1]s", "go get github.com/kubewasm/kubewasm@latest"}
	last := []string{"go mod tidy", "go test", "kubewasm build"}
	// Kubernetes is compiled with these versions already.
	modfile, err := os.ReadFile(filepath.Join(root, "cmd/kubewasm-scheduler/go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	compiled := ""
	for _, m := range regexp.MustCompile(`(?m)^\t(\S+) (v[1-9]\S*|v0\.[^0]\S*|v0\.0\.0-2\S*)( //.*)?$`).FindAllStringSubmatch(string(modfile), -1) {
		compiled += " -require=" + m[1] + "@" + m[2]
	}
	// The others build Kubernetes, or plugins and the command over and over.
	quick := []string{"zone", "webhook"}
	scripts := map[string]string{}
	var names []string
	for _, b := range blocks(t) {
		if strings.HasPrefix(b.path, "part:") {
			continue
		}
		name, file, isFile := strings.Cut(b.path, "/")
		if !slices.Contains(names, name) {
			names = append(names, name)
			if isFile {
				scripts[name] = fmt.Sprintf(strings.Join(first, "\n")+"\n", name)
			}
		}
		switch {
		case isFile && strings.Contains(scripts[name], "\nkubewasm new "): // It is there.
			scripts[name] += "diff -u " + file + " - <<'END OF FILE'\n" + b.text + "END OF FILE\n"
		case isFile:
			scripts[name] += "cat > " + file + " <<'END OF FILE'\n" + b.text + "END OF FILE\n"
		case b.language == "sh":
			scripts[name] += b.text
		default:
			t.Fatalf("%s: a block of %s goes to the directory %s", b.document, b.language, name)
		}
	}
	for _, name := range append(quick, "owner", "share", "scheduler", "agent", "placement", "slow", "upgrade", "migrating", "gatekeeper") {
		if !slices.Contains(names, name) {
			t.Errorf("no document makes %s", name)
		}
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			if !slices.Contains(quick, name) && os.Getenv("KUBEWASM_GUIDES") == "" {
				t.Skip("KUBEWASM_GUIDES is not set: make guides runs it")
			}
			if _, err := exec.LookPath("opa"); err != nil && name == "gatekeeper" {
				t.Skip("there is no opa, which takes minutes to build: the nightly run has it")
			}
			t.Parallel()
			script := strings.Replace(scripts[name], "go install github.com/open-policy-agent/opa@v1.22.0\n", "", 1)
			if name == "owner" {
				script += "cat > delete_test.go <<'END OF FILE'\n" + deleteTest + "END OF FILE\n"
			}
			if !strings.Contains(script, "go mod tidy") {
				script += strings.Join(last, "\n") + "\n"
			}
			install := "git clone https://github.com/kubewasm/kubewasm && go install -C kubewasm/cmd/kubewasm .\n"
			get := regexp.MustCompile(`(?m)^go get github\.com/kubewasm/.*$`)
			if !get.MatchString(script) && !strings.Contains(script, install) {
				t.Fatal("the module is not fetched")
			}
			script = strings.Replace(script, install, "ln -s '"+root+"' kubewasm\n", 1)
			script = get.ReplaceAllStringFunc(script, func(line string) string {
				local := ":"
				for _, module := range strings.Fields(line)[2:] {
					path := strings.TrimSuffix(module, "@latest")
					local += fmt.Sprintf(" && go mod edit -require %[1]s@v0.0.0 -replace %[1]s='%[2]s'", path, root+strings.TrimPrefix(path, "github.com/kubewasm/kubewasm"))
				}
				if strings.Contains(script, "k8s.io/kubernetes@") {
					local += " && go mod edit" + compiled
				}
				return local
			})
			cmd := exec.CommandContext(t.Context(), "sh", "-e", "-c", script)
			cmd.Dir = t.TempDir()
			cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false", "GOWORK=off", "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
