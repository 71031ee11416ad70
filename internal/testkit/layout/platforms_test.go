package layout

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPlatforms checks the types of all packages and tests of the modules named by
// KUBEWASM_PLATFORMS, for the platforms on which their users compile them. It reads what they
// import and compiles none of it, which go vet would do once for each platform.
func TestPlatforms(t *testing.T) {
	modules := strings.Fields(os.Getenv("KUBEWASM_PLATFORMS"))
	if len(modules) == 0 {
		t.Skip("set KUBEWASM_PLATFORMS to the directories of modules: make platforms does")
	}
	for _, platform := range []string{"darwin/arm64", "windows/amd64", "linux/ppc64le"} {
		for _, module := range modules {
			t.Run(platform+"/"+module, func(t *testing.T) {
				t.Parallel()
				own, err := checkTypes(filepath.Join("../../..", module), platform)
				if err != nil {
					t.Error(err)
				}
				if own == 0 {
					t.Error("no package was checked")
				}
			})
		}
	}
}

// listed is a package as go list prints it.
type listed struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string
	Module          *struct{ GoVersion string }
	DepOnly         bool
	Error           *struct{ Err string }
}

// checkTypes checks the packages and tests of the module in dir as they are compiled for a
// platform, with those that they import, and returns how many of the module's own there were.
func checkTypes(dir, platform string) (own int, err error) {
	system, arch, _ := strings.Cut(platform, "/")
	list := exec.Command("go", "list", "-test", "-deps", "-json=ImportPath,Dir,GoFiles,ImportMap,Module,DepOnly,Error", "./...")
	list.Dir = dir
	list.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0", "GOWORK=off")
	list.Stderr = os.Stderr
	out, err := list.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := list.Start(); err != nil {
		return 0, err
	}
	checked := map[string]*types.Package{"unsafe": types.Unsafe}
	files := token.NewFileSet()
	var errs []error
	for d := json.NewDecoder(out); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return 0, err
		}
		switch {
		case p.Error != nil:
			errs = append(errs, fmt.Errorf("%s: %s", p.ImportPath, p.Error.Err))
			continue
		case p.ImportPath == "unsafe" || strings.HasSuffix(p.ImportPath, ".test"): // The latter is written by go test.
			continue
		case !p.DepOnly:
			own++
		}
		var parsed []*ast.File
		for _, name := range p.GoFiles {
			if !filepath.IsAbs(name) {
				name = filepath.Join(p.Dir, name)
			}
			file, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			parsed = append(parsed, file)
		}
		config := types.Config{
			IgnoreFuncBodies: p.DepOnly,
			Sizes:            types.SizesFor("gc", arch),
			Error:            func(err error) { errs = append(errs, err) },
			Importer: importerFunc(func(path string) (*types.Package, error) {
				if mapped, ok := p.ImportMap[path]; ok {
					path = mapped
				}
				if found := checked[path]; found != nil {
					return found, nil
				}
				return nil, fmt.Errorf("%s is not listed before %s", path, p.ImportPath)
			}),
		}
		if p.Module != nil && p.Module.GoVersion != "" {
			config.GoVersion = "go" + p.Module.GoVersion
		}
		path, _, _ := strings.Cut(p.ImportPath, " ")
		checked[p.ImportPath], _ = config.Check(path, files, parsed, nil) // Errors are in errs.
	}
	return own, errors.Join(errors.Join(errs...), list.Wait())
}

// importerFunc is a types.Importer of a function.
type importerFunc func(string) (*types.Package, error)

// Import implements [types.Importer].
func (f importerFunc) Import(path string) (*types.Package, error) { return f(path) }
