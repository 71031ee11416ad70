package guestbuild

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/kubewasm/kubewasm/internal/nearest"
)

// Check checks a guest that compiles for mistakes that the compiler does not find: methods
// that have the name of an extension point and are never called, because they have another
// type or another receiver. Warnings are about functions that behave differently in a
// guest. A warning is one line.
//
// The error is a *[SourceError] for each mistake, joined.
func Check(ctx context.Context, dir string) (warnings []string, err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	packages, err := list(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("check guest %s: %w", dir, err)
	}
	c := &checker{dir: dir, packages: packages, files: token.NewFileSet()}
	c.exports = importer.ForCompiler(c.files, "gc", c.export)
	for _, p := range packages.own() {
		c.check(p)
	}
	c.warnings = append(c.warnings, packages.heavy()...)
	return c.warnings, errors.Join(c.errs...)
}

// goPackage is what the go command says about a package.
type goPackage struct {
	ImportPath, Name, Dir, Export string
	GoFiles, Imports              []string
	ImportMap                     map[string]string
	Standard                      bool
	Module                        *struct {
		Main      bool
		GoVersion string
	}
}

// goPackages are the packages of a program by their paths.
type goPackages map[string]*goPackage

// list returns the packages of the program in dir, with the types that the compiler
// exported: what was compiled before is not compiled again.
func list(ctx context.Context, dir string) (goPackages, error) {
	cmd, err := goCommand(ctx, dir, "list", "-deps", "-export", "-json=ImportPath,Name,Dir,Export,GoFiles,Imports,ImportMap,Standard,Module", "-buildmode=c-shared", "-trimpath", "-buildvcs=false", ".")
	if err != nil {
		return nil, err
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	if err != nil {
		return nil, errors.New(cmp.Or(strings.TrimSpace(stderr.String()), err.Error()))
	}
	packages := goPackages{}
	for d := json.NewDecoder(bytes.NewReader(output)); ; {
		p := new(goPackage)
		if err := d.Decode(p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, err
		}
		packages[p.ImportPath] = p
	}
}

// main returns the package that is the program.
func (packages goPackages) main() *goPackage {
	for _, p := range packages {
		if p.Name == "main" {
			return p
		}
	}
	return nil
}

// own returns the packages that were written for this guest, in the order of their
// paths: the program, those of its module, and those that register plugins.
func (packages goPackages) own() (own []*goPackage) {
	for _, p := range packages {
		sdk := p.ImportPath == modulePath || strings.HasPrefix(p.ImportPath, modulePath+"/")
		registers := slices.ContainsFunc(p.Imports, func(path string) bool { return sdkKinds[path] != "" })
		if p.Name == "main" || registers || !p.Standard && !sdk && p.Module != nil && p.Module.Main {
			own = append(own, p)
		}
	}
	slices.SortFunc(own, func(a, b *goPackage) int { return cmp.Compare(a.ImportPath, b.ImportPath) })
	return own
}

// sdkKinds are the packages that plugins are registered by, and what for.
var sdkKinds = map[string]string{
	modulePath + "/guest/sched":     "the scheduler",
	modulePath + "/guest/admission": "admission",
	modulePath + "/guest/hooks":     "hooks",
}

// pluginPackage has the interfaces of plugins of all kinds.
const pluginPackage = modulePath + "/guest/internal/plugin"

// checker checks the packages of a guest.
type checker struct {
	dir      string
	packages goPackages
	files    *token.FileSet
	exports  types.Importer
	warnings []string
	errs     []error
}

// export opens the compiler's export data of a package.
func (c *checker) export(path string) (io.ReadCloser, error) {
	if p := c.packages[path]; p != nil && p.Export != "" {
		return os.Open(p.Export)
	}
	return nil, fmt.Errorf("package %s was not compiled", path)
}

func (c *checker) warn(at token.Pos, format string, args ...any) {
	c.warnings = append(c.warnings, (&SourceError{c.position(at), fmt.Errorf(format, args...)}).Error())
}

func (c *checker) mistake(at token.Pos, format string, args ...any) {
	c.errs = append(c.errs, &SourceError{c.position(at), fmt.Errorf(format, args...)})
}

// position returns where something is, by a name that begins in the guest's directory.
func (c *checker) position(at token.Pos) token.Position {
	pos := c.files.Position(at)
	// The compiler calls files by the paths of their packages.
	if p := c.packages[path.Dir(pos.Filename)]; p != nil {
		pos.Filename = filepath.Join(p.Dir, path.Base(pos.Filename))
	}
	if name, err := filepath.Rel(c.dir, pos.Filename); err == nil && filepath.IsAbs(pos.Filename) {
		pos.Filename = name
	}
	return pos
}

// check checks one package.
func (c *checker) check(p *goPackage) {
	var files []*ast.File
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(c.files, filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			c.warnings = append(c.warnings, fmt.Sprintf("%s was not checked: %v", p.ImportPath, err))
			return
		}
		files = append(files, file)
		if p.Name != "main" {
			c.strayDirectives(file)
		}
	}
	config := types.Config{
		Importer: importerOf(func(path string) (*types.Package, error) {
			return c.exports.Import(cmp.Or(p.ImportMap[path], path))
		}),
		Sizes: types.SizesFor("gc", "wasm"),
	}
	if p.Module != nil && p.Module.GoVersion != "" {
		config.GoVersion = "go" + p.Module.GoVersion
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Instances: map[*ast.Ident]types.Instance{}, Types: map[ast.Expr]types.TypeAndValue{}}
	pkg, err := config.Check(p.ImportPath, c.files, files, info)
	if err != nil {
		// It compiles, so the compiler is newer than this program.
		c.warnings = append(c.warnings, fmt.Sprintf("%s was not checked: %v", p.ImportPath, err))
		return
	}
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				c.called(call, info)
			}
			return true
		})
	}
	var uses []*ast.Ident
	for id := range info.Uses {
		uses = append(uses, id)
	}
	slices.SortFunc(uses, func(a, b *ast.Ident) int { return cmp.Compare(a.Pos(), b.Pos()) })
	told := map[string]bool{}
	for _, id := range uses {
		f, ok := info.Uses[id].(*types.Func)
		if !ok || f.Pkg() == nil {
			continue
		}
		path, name := f.Pkg().Path(), f.Name()
		if sdkKinds[path] != "" && name == "Register" && info.Instances[id].TypeArgs.Len() == 1 {
			c.registered(id.Pos(), info.Instances[id].TypeArgs.At(0), f.Pkg(), types.RelativeTo(pkg))
			continue
		}
		if f.Signature().Recv() != nil {
			continue
		}
		if what := elsewhere[path+"."+name]; what != "" && !told[what] {
			told[what] = true
			c.warn(id.Pos(), "%s.%s: %s", f.Pkg().Name(), name, what)
		}
	}
}

// verb matches a verb of package fmt.
var verb = regexp.MustCompile(`%[-+#0-9.]*[vTtdqsxfg]`)

// called checks a call of a function of the SDK: of Register with a nil pointer, and of one that
// joins texts, with a format among them.
func (c *checker) called(call *ast.CallExpr, info *types.Info) {
	var id *ast.Ident
	switch fun := ast.Unparen(call.Fun).(type) {
	case *ast.Ident:
		id = fun
	case *ast.SelectorExpr:
		id = fun.Sel
	}
	f, ok := info.Uses[id].(*types.Func)
	if !ok || f.Pkg() == nil || !strings.HasPrefix(f.Pkg().Path(), modulePath+"/guest/") {
		return
	}
	if f.Name() == "Register" && sdkKinds[f.Pkg().Path()] != "" && len(call.Args) == 1 {
		of, ok := ast.Unparen(call.Args[0]).(*ast.CallExpr)
		if ok && len(of.Args) == 1 && info.Types[of.Fun].IsType() && info.Types[of.Args[0]].IsNil() {
			name := strings.TrimPrefix(types.ExprString(ast.Unparen(of.Fun)), "*")
			c.mistake(of.Pos(), "Register gets a nil pointer, which has no fields for a configuration: register a value, &%s{}", name)
		}
		return
	}
	params := f.Signature().Params()
	if !f.Signature().Variadic() || call.Ellipsis.IsValid() || types.TypeString(params.At(params.Len()-1).Type(), nil) != "[]string" {
		return
	}
	for _, arg := range call.Args[min(params.Len()-1, len(call.Args)):] {
		value := info.Types[arg].Value
		if value == nil || value.Kind() != constant.String {
			continue
		}
		if found := verb.FindString(constant.StringVal(value)); found != "" {
			c.warn(arg.Pos(), "%s.%s joins its texts, so %s stays as it is: name the values among the texts, or use fmt.Sprintf", f.Pkg().Name(), f.Name(), found)
		}
	}
}

// strayDirectives warns of directives outside the package main.
func (c *checker) strayDirectives(file *ast.File) {
	for comment := range comments(file) {
		if strings.HasPrefix(comment.Text, directivePrefix) {
			c.warn(comment.Pos(), "%s counts in the package main only", strings.Fields(comment.Text)[0])
		}
	}
}

type importerOf func(path string) (*types.Package, error)

func (f importerOf) Import(path string) (*types.Package, error) { return f(path) }

// What a guest has instead of an operating system. docs/guests.md describes it in full.
const (
	noFiles   = "a guest has no files; what it needs comes by its configuration"
	noEnv     = "a guest has no environment and no arguments; what it needs comes by its configuration"
	noNetwork = "a guest has no network: connections are refused"
	fakeClock = `the clock begins in 2022 in each instance and follows its instructions, unless the grant "clock" is given`
	noSleep   = `it returns at once; with the grant "clock" it is busy until the time has passed`
	fakeRand  = `the numbers are the same in each instance, unless the grant "random" is given`
)

// elsewhere has the functions that behave differently in a guest, and how.
var elsewhere = map[string]string{
	"time.Now": fakeClock, "time.Since": fakeClock, "time.Until": fakeClock,
	"time.Sleep": noSleep, "time.After": noSleep, "time.NewTimer": noSleep, "time.NewTicker": noSleep, "time.Tick": noSleep, "time.AfterFunc": noSleep,
	"os.Open": noFiles, "os.OpenFile": noFiles, "os.Create": noFiles, "os.CreateTemp": noFiles, "os.MkdirAll": noFiles, "os.MkdirTemp": noFiles,
	"os.ReadFile": noFiles, "os.ReadDir": noFiles, "os.WriteFile": noFiles, "os.Stat": noFiles, "os.DirFS": noFiles, "path/filepath.Walk": noFiles, "path/filepath.WalkDir": noFiles,
	"os.Getenv": noEnv, "os.LookupEnv": noEnv, "os.Environ": noEnv,
	"net.Dial": noNetwork, "net.DialTimeout": noNetwork, "net.Listen": noNetwork, "net.LookupHost": noNetwork, "net.LookupIP": noNetwork,
	"net/http.Get": noNetwork, "net/http.Post": noNetwork, "net/http.NewRequest": noNetwork, "net/http.NewRequestWithContext": noNetwork,
	"crypto/rand.Read": fakeRand, "crypto/rand.Int": fakeRand, "crypto/rand.Text": fakeRand,
}

// registered checks the type of a plugin that is registered by the package sdk.
func (c *checker) registered(at token.Pos, t types.Type, sdk *types.Package, relative types.Qualifier) {
	if types.IsInterface(t) {
		return // What it holds is known when it runs.
	}
	qualify := func(p *types.Package) string {
		if relative(p) == "" {
			return ""
		}
		return p.Name()
	}
	name := types.TypeString(t, qualify)
	points := c.extensionPoints(sdk)
	implements, wrong := false, false
	var open []string // Methods that the plugin does not have.
	for _, point := range points {
		iface := point.Type().Underlying().(*types.Interface)
		if types.Implements(t, iface) {
			implements = implements || point.Pkg() == sdk
			continue
		}
		missing, ok := c.unlike(at, t, name, point, iface, qualify)
		wrong = wrong || !ok
		if ok {
			open = append(open, missing...)
		}
	}
	c.fields(t, name, map[types.Type]bool{})
	for f, mistaken := range c.misnamed(t, points, open) {
		c.warn(f.Pos(), "method %s of %s is not called; did you mean %s?", f.Name(), name, mistaken)
	}
	if !implements && !wrong {
		c.mistake(at, "%s implements no interface of package %s; an extension point of %s is a method with its name and type", name, sdk.Name(), sdkKinds[sdk.Path()])
	}
}

// fields warns of fields of a plugin that their tags do not fill from the configuration.
func (c *checker) fields(t types.Type, name string, seen map[types.Type]bool) {
	if p, ok := t.Underlying().(*types.Pointer); ok {
		t = p.Elem()
	}
	fields, ok := t.Underlying().(*types.Struct)
	if !ok || seen[t] {
		return
	}
	seen[t] = true
	name = strings.TrimPrefix(name, "*")
	for i := range fields.NumFields() {
		f, tag := fields.Field(i), reflect.StructTag(fields.Tag(i))
		key := cmp.Or(tag.Get("json"), tag.Get("yaml"))
		switch {
		case f.Embedded() || key == "" || key == "-":
		case !f.Exported():
			c.warn(f.Pos(), "field %s of %s has a tag and is not exported, so no configuration sets it: begin its name with a capital", f.Name(), name)
		case tag.Get("json") == "":
			c.warn(f.Pos(), "field %s of %s has the tag yaml, which is not read: write `json:%q`", f.Name(), name, key)
		}
		if of, ok := f.Type().(*types.Named); ok && of.Obj().Pkg() == f.Pkg() {
			c.fields(of, of.Obj().Name(), seen)
		}
	}
}

// extensionPoints returns the interfaces by which a plugin is called: those that the
// package declares that it is registered by, and those of plugins of all kinds.
func (c *checker) extensionPoints(sdk *types.Package) (points []*types.TypeName) {
	packages := []*types.Package{sdk}
	if p, err := c.exports.Import(pluginPackage); err == nil {
		packages = append(packages, p)
	}
	for _, p := range packages {
		for _, name := range p.Scope().Names() {
			t, ok := p.Scope().Lookup(name).(*types.TypeName)
			if !ok || !t.Exported() || t.IsAlias() {
				continue
			}
			if i, ok := t.Type().Underlying().(*types.Interface); ok && i.IsMethodSet() && i.NumMethods() > 0 {
				points = append(points, t)
			}
		}
	}
	return points
}

// unlike reports why t has methods of an interface and does not implement it. missing
// are the names of its methods if t has none of them.
func (c *checker) unlike(at token.Pos, t types.Type, name string, point *types.TypeName, iface *types.Interface, qualify types.Qualifier) (missing []string, ok bool) {
	what := point.Name()
	if point.Pkg().Path() != pluginPackage {
		what = point.Pkg().Name() + "." + what
	}
	ok = true
	var own []*types.Func
	for want := range iface.Methods() {
		has, index, _ := types.LookupFieldOrMethod(t, true, nil, want.Name())
		switch has := has.(type) {
		case *types.Func:
			own = append(own, has)
			if !types.Identical(has.Type(), want.Type()) {
				ok = false
				c.mistake(has.Pos(), "%s does not implement %s (wrong type for method %s)\n\thas  %s\n\twant %s",
					name, what, want.Name(), signature(has, qualify), signature(want, qualify))
			}
		case *types.Var:
			ok = false
			c.mistake(has.Pos(), "%s does not implement %s (%s is a field, not a method)", name, what, want.Name())
		default:
			if len(index) > 1 {
				ok = false
				c.mistake(at, "%s does not implement %s (several embedded types have the method %s)", name, what, want.Name())
				continue
			}
			missing = append(missing, want.Name())
		}
	}
	switch {
	case !ok || len(own) == 0:
		return missing, ok
	case len(missing) != 0:
		c.mistake(own[0].Pos(), "%s does not implement %s (has %s, but not %s)", name, what, own[0].Name(), strings.Join(missing, ", "))
	default:
		c.mistake(at, "%s does not implement %s (method %s has a pointer receiver): register a pointer, &%s", name, what, own[0].Name(), strings.TrimPrefix(name, "*"))
	}
	return nil, false
}

// signature writes a method as its declaration does.
func signature(f *types.Func, qualify types.Qualifier) string {
	return f.Name() + strings.TrimPrefix(types.TypeString(f.Type(), qualify), "func")
}

// misnamed yields the methods of t that no interface has, with the missing one that was
// meant. Of those that are not exported the ones count that differ in case.
func (c *checker) misnamed(t types.Type, points []*types.TypeName, missing []string) func(yield func(*types.Func, string) bool) {
	known := map[string]bool{}
	for _, point := range points {
		for m := range point.Type().Underlying().(*types.Interface).Methods() {
			known[m.Name()] = true
		}
	}
	if _, ok := t.(*types.Pointer); !ok {
		t = types.NewPointer(t)
	}
	return func(yield func(*types.Func, string) bool) {
		for m := range types.NewMethodSet(t).Methods() {
			f := m.Obj().(*types.Func)
			if known[f.Name()] {
				continue
			}
			meant := nearest.Name(f.Name(), missing)
			if meant != "" && (f.Exported() || strings.EqualFold(f.Name(), meant)) && !yield(f, meant) {
				return
			}
		}
	}
}

// heavy warns of packages that a guest has no use for.
func (packages goPackages) heavy() (warnings []string) {
	program := packages.main()
	if program == nil {
		return nil
	}
	for _, h := range []struct {
		is   func(path string) bool
		what string
	}{
		{func(path string) bool { return strings.HasPrefix(path, "k8s.io/api/") },
			"its types decode whole objects, those of guest/api read single fields of them"},
		{func(path string) bool { return path == "net" }, noNetwork},
		{func(path string) bool { return path == "os/exec" }, "a guest can start no processes"},
	} {
		if chain := packages.chain(program.ImportPath, h.is); chain != nil {
			links := chain[len(chain)-1]
			by := ""
			if len(chain) > 2 {
				by = " (" + strings.Join(chain[1:], " imports ") + ")"
			}
			warnings = append(warnings, fmt.Sprintf("the guest links %s%s: %s", links, by, h.what))
		}
	}
	return warnings
}

// chain returns the shortest way from a package to one that is looked for, by imports;
// nil if there is none. What leads through k8s.io/api is the fault of that.
func (packages goPackages) chain(from string, is func(path string) bool) []string {
	ways := map[string][]string{from: {from}}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		p := packages[queue[0]]
		if p == nil {
			continue
		}
		for _, path := range p.Imports {
			path = cmp.Or(p.ImportMap[path], path)
			if ways[path] != nil {
				continue
			}
			ways[path] = append(slices.Clone(ways[queue[0]]), path)
			if is(path) {
				return ways[path]
			}
			if !strings.HasPrefix(path, "k8s.io/api/") {
				queue = append(queue, path)
			}
		}
	}
	return nil
}
