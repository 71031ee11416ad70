package bindgen_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/kubewasm/kubewasm/cmd/kubewasm/internal/bindgen"
)

// protoCase is a file of testdata/names.txt.
type protoCase struct{ name, text, refused string }

var (
	caseRE    = regexp.MustCompile(`(?m)^-- (\w+) --\n`)
	refusedRE = regexp.MustCompile(`(?m)^// refused: (.+)$`)
)

func protoCases(t testing.TB) (all []protoCase) {
	t.Helper()
	text, err := os.ReadFile("testdata/names.txt")
	if err != nil {
		t.Fatal(err)
	}
	at := caseRE.FindAllSubmatchIndex(text, -1)
	for i, m := range at {
		end := len(text)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		c := protoCase{name: string(text[m[2]:m[3]]), text: string(text[m[1]:end])}
		if refused := refusedRE.FindStringSubmatch(c.text); refused != nil {
			c.refused = refused[1]
		}
		all = append(all, c)
	}
	return all
}

// packageDir returns the directory of a package with a .proto file beside it.
func packageDir(path string) (string, error) {
	if rest, ok := strings.CutPrefix(path, "github.com/kubewasm/kubewasm/"); ok {
		return filepath.Abs("../../../../" + rest)
	}
	return dirOfPackage(path)
}

var dirs sync.Map

func dirOfPackage(path string) (string, error) {
	if dir, ok := dirs.Load(path); ok {
		return dir.(string), nil
	}
	out, err := exec.Command("go", "list", "-find", "-f", "{{.Dir}}", "--", path).Output()
	dir := strings.TrimSpace(string(out))
	if err == nil {
		dirs.Store(path, dir)
	}
	return dir, err
}

// packageOf returns the package of a case, in a package of its name.
func packageOf(t testing.TB, c protoCase) (*bindgen.Package, error) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"t.proto": c.text, "other.proto": "syntax = \"proto3\";\npackage o.v1;\nmessage Pricing { string a = 1; }\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return bindgen.Proto(t.Context(), bindgen.ProtoConfig{File: "t.proto", Dirs: []string{dir}, Find: packageDir, Package: c.name})
}

// TestOrdinaryFilesAreGenerated writes code for files with names of all kinds, or refuses them with
// the place of the mistake. TestGeneratedCodeCompiles compiles what is written.
func TestOrdinaryFilesAreGenerated(t *testing.T) {
	for _, c := range protoCases(t) {
		t.Run(c.name, func(t *testing.T) {
			p, err := packageOf(t, c)
			if err == nil {
				_, err = written(p)
			}
			switch {
			case c.refused == "" && err != nil:
				t.Error(err)
			case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)):
				t.Errorf("got %v, want %s", err, c.refused)
			}
		})
	}
}
