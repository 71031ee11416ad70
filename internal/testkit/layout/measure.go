package layout

import (
	"bytes"
	"fmt"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const module = "github.com/kubewasm/kubewasm"

// Figure is a figure of the repository.
type Figure struct {
	Name  string
	Value int
	// Bound is the largest value that the tests allow: lower it with the value. Target is the value
	// that the project aims at, or NoTarget.
	Bound, Target int
	// Items are the things that were counted, where a reader asks for them.
	Items []string
}

// NoTarget is the target of a figure without one.
const NoTarget = -1

// The names of the figures.
const (
	linesOfAll     = "hand-written lines of Go without tests"
	linesOfRoot    = "hand-written lines of the root module"
	linesOfAdapter = "lines below the maintainer of one adapter"
	rootPackages   = "packages of the root module"
	exportedNames  = "exported names of public packages"
	namesWithout   = "exported names without guest/api"
	leaks          = "internal types in public signatures"
	arrowsUp       = "arrows between rooms that run back up"
)

// bounds are the bounds and the targets of the figures. A bound is the figure of its day, rounded up.
var bounds = []Figure{
	{Name: linesOfAll, Bound: 185_500, Target: 114_000},
	{Name: linesOfRoot, Bound: 110_700, Target: 90_000},
	{Name: linesOfAdapter, Bound: 46_200, Target: 50_000},
	{Name: rootPackages, Bound: 163, Target: 165},
	{Name: exportedNames, Bound: 2_918, Target: NoTarget},
	{Name: namesWithout, Bound: 800, Target: 800},
	{Name: leaks, Bound: 0, Target: 0},
	{Name: arrowsUp, Bound: 5, Target: 5},
}

// Measure returns the figures of the repository in dir, a checkout with git. It compiles the public
// packages of the root module.
func Measure(dir string) ([]Figure, error) {
	files, err := sources(dir)
	if err != nil {
		return nil, err
	}
	packages, err := goList(dir, nil, "./...")
	if err != nil {
		return nil, err
	}
	public, err := publicPackages(dir)
	if err != nil {
		return nil, err
	}
	figures := slices.Clone(bounds)
	for i := range figures {
		f := &figures[i]
		switch f.Name {
		case linesOfAll, linesOfRoot:
			for _, file := range files {
				if f.Name == linesOfAll || file.root {
					f.Value += file.lines
				}
			}
		case linesOfAdapter:
			if f.Value, f.Items, err = belowAdapters(dir, files); err != nil {
				return nil, err
			}
		case rootPackages:
			f.Value = len(packages)
		case exportedNames, namesWithout:
			for _, p := range public {
				if f.Name == exportedNames || !within(p.Path(), module+"/guest/api") {
					f.Value += len(exported(p))
				}
			}
		case leaks:
			for _, p := range public {
				f.Items = append(f.Items, leaksOf(p)...)
			}
			f.Value = len(f.Items)
		case arrowsUp:
			f.Items = arrows(files)
			f.Value = len(f.Items)
		}
	}
	return figures, nil
}

// source is a hand-written file of Go that is no test.
type source struct {
	name    string // Relative to the root, with slashes.
	root    bool   // It belongs to the root module.
	lines   int
	imports []string
}

// sources returns the files of Go that git knows, without tests, testdata and generated files.
func sources(dir string) ([]source, error) {
	cmd := exec.Command("git", "ls-files", "-z", "--", "*.go", "*go.mod")
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list files: %w", err)
	}
	var files []source
	var nested []string
	for _, name := range strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if path.Base(name) == "go.mod" {
			if name != "go.mod" {
				nested = append(nested, path.Dir(name))
			}
			continue
		}
		if strings.HasSuffix(name, "_test.go") || slices.Contains(strings.Split(name, "/"), "testdata") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if os.IsNotExist(err) {
			continue // It is deleted, and not yet in the index.
		}
		if err != nil {
			return nil, err
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return nil, err
		}
		s := source{name: name, lines: bytes.Count(text, []byte("\n"))}
		for _, i := range f.Imports {
			p, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return nil, err
			}
			s.imports = append(s.imports, p)
		}
		if strings.HasPrefix(string(text), "// Code generated ") || bytes.Contains(text, []byte("\n// Code generated ")) {
			s.lines = 0 // Its imports are arrows nevertheless.
		}
		files = append(files, s)
	}
	for i := range files {
		files[i].root = !slices.ContainsFunc(nested, func(dir string) bool { return within(files[i].name, dir) })
	}
	return files, nil
}

// within reports whether a path is dir or lies below it.
func within(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// adapters are the rooms whose maintainers linesOfAdapter is about.
var adapters = []string{"admission", "hooks", "sched", "host/service"}

// belowAdapters returns the number of lines of the packages of the root module that the packages of
// an adapter need, theirs included, for the adapter that needs most, and the numbers of all. Kits
// for tests are left out.
func belowAdapters(dir string, files []source) (most int, each []string, err error) {
	lines := map[string]int{}
	for _, f := range files {
		if f.root {
			lines[path.Dir(f.name)] += f.lines
		}
	}
	for _, adapter := range adapters {
		packages, err := goList(dir, nil, "./"+adapter+"/...")
		if err != nil {
			return 0, nil, err
		}
		packages = slices.DeleteFunc(packages, func(p string) bool { return roomOf(strings.TrimPrefix(p, module+"/")) == kits })
		deps, err := goList(dir, []string{"-deps"}, packages...)
		if err != nil {
			return 0, nil, err
		}
		sum := 0
		for _, p := range deps {
			sum += lines[strings.TrimPrefix(p, module+"/")]
		}
		each = append(each, fmt.Sprintf("%s: %d", adapter, sum))
		most = max(most, sum)
	}
	return most, each, nil
}

// goList runs go list in dir and returns its words.
func goList(dir string, flags []string, packages ...string) ([]string, error) {
	cmd := exec.Command("go", append(append([]string{"list"}, flags...), packages...)...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %v: %w\n%s", packages, err, &stderr)
	}
	return strings.Fields(string(out)), nil
}

// The rooms that are not named after a directory.
const (
	kits     = "kits"
	products = "internal" // What products use.
	checks   = "checks"   // What builds and checks the project.
)

// floors are the rooms from the ground up. A package imports packages of its own floor or of those
// below it. guest lies beside host, and no adapter imports another.
var floors = [][]string{{"abi"}, {products}, {"codec"}, {"host", "guest"}, {"admission", "hooks", "sched"}, {kits}, {"cmd"}, {"examples"}, {checks}}

// secondFloor are the directories of what builds and checks the project.
var secondFloor = []string{"charts/render", "hooks/runtime/internal/runtimetest", "internal/bench", "internal/testkit"}

// kitsOf are the directories of kits for tests, with the two packages that they alone share.
var kitsOf = []string{"abi/conformance", "admission/admissiontest", "hooks/hookstest", "host/cases", "internal/cases", "host/service/servicetest", "sched/schedtest", "internal/harness", "internal/framework"}

// roomOf returns the room of a directory relative to the root.
func roomOf(dir string) string {
	in := func(dirs []string) bool {
		return slices.ContainsFunc(dirs, func(d string) bool { return within(dir, d) })
	}
	room, _, _ := strings.Cut(dir, "/")
	switch {
	case in(kitsOf):
		return kits
	case in(secondFloor):
		return checks
	}
	return room
}

// arrows returns the pairs of rooms of which a package of the first imports one of the second, which
// lies higher or beside it, with a file that does.
func arrows(files []source) []string {
	floor := map[string]int{}
	for i, rooms := range floors {
		for _, room := range rooms {
			floor[room] = i
		}
	}
	found := map[string]string{}
	for _, f := range files {
		from := roomOf(path.Dir(f.name))
		for _, p := range f.imports {
			dir, ours := strings.CutPrefix(p, module+"/")
			to := roomOf(dir)
			if !ours || from == to || floor[from] > floor[to] {
				continue
			}
			if key := from + " -> " + to; found[key] == "" {
				found[key] = f.name
			}
		}
	}
	var list []string
	for _, key := range slices.Sorted(maps.Keys(found)) {
		list = append(list, key+", as in "+found[key])
	}
	return list
}
