package layout

import (
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"slices"
	"strings"
)

// publicPackages returns the packages of the root module that other modules can import, by the
// export data that the compiler writes.
func publicPackages(dir string) ([]*types.Package, error) {
	words, err := goList(dir, []string{"-export", "-deps", "-f", "{{if .Export}}{{.ImportPath}} {{.Export}}{{end}}"}, "./...")
	if err != nil {
		return nil, err
	}
	data := map[string]string{}
	for i := 0; i+1 < len(words); i += 2 {
		data[words[i]] = words[i+1]
	}
	names, err := goList(dir, []string{"-f", `{{if and .GoFiles (ne .Name "main")}}{{.ImportPath}}{{end}}`}, "./...")
	if err != nil {
		return nil, err
	}
	imports := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		file, ok := data[path]
		if !ok {
			return nil, fmt.Errorf("there is no export data of %s", path)
		}
		return os.Open(file)
	})
	var packages []*types.Package
	for _, name := range names {
		if isInternal(name) || within(name, module+"/examples") {
			continue
		}
		p, err := imports.Import(name)
		if err != nil {
			return nil, fmt.Errorf("import %s: %w", name, err)
		}
		packages = append(packages, p)
	}
	return packages, nil
}

// isInternal reports whether an import path is one of an internal package of this module.
func isInternal(path string) bool {
	rest, ours := strings.CutPrefix(path, module+"/")
	return ours && slices.Contains(strings.Split(rest, "/"), "internal")
}

// exported returns the exported objects of a package.
func exported(p *types.Package) (objects []types.Object) {
	for _, name := range p.Scope().Names() {
		if o := p.Scope().Lookup(name); o.Exported() {
			objects = append(objects, o)
		}
	}
	return objects
}

// leaksOf returns the places of a package's exported API that mention a type of an internal package:
// constants, variables, functions, fields, methods and aliases. The methods of interfaces count even
// where they are not exported.
func leaksOf(p *types.Package) (found []string) {
	at := func(place string, t types.Type) {
		if leaked := internalTypes(t); len(leaked) != 0 {
			found = append(found, strings.TrimPrefix(p.Path(), module+"/")+"."+place+": "+strings.Join(leaked, ", "))
		}
	}
	for _, o := range exported(p) {
		name, isType := o.(*types.TypeName)
		if !isType {
			at(o.Name(), o.Type())
			continue
		}
		if name.IsAlias() {
			at(o.Name(), types.Unalias(o.Type()))
			continue
		}
		named := o.Type().(*types.Named)
		for i := range named.NumMethods() {
			if m := named.Method(i); m.Exported() {
				at(o.Name()+"."+m.Name(), m.Type())
			}
		}
		for i := range named.TypeParams().Len() {
			at(o.Name(), named.TypeParams().At(i).Constraint())
		}
		switch u := named.Underlying().(type) {
		case *types.Struct:
			for i := range u.NumFields() {
				if f := u.Field(i); f.Exported() {
					at(o.Name()+"."+f.Name(), f.Type())
				}
			}
		case *types.Interface:
			for i := range u.NumExplicitMethods() {
				at(o.Name()+"."+u.ExplicitMethod(i).Name(), u.ExplicitMethod(i).Type())
			}
			for i := range u.NumEmbeddeds() {
				at(o.Name(), u.EmbeddedType(i))
			}
		default:
			at(o.Name(), u)
		}
	}
	return found
}

// internalTypes returns the names of the types of internal packages that a type mentions.
func internalTypes(t types.Type) (found []string) {
	var walk func(t types.Type)
	tuple := func(t *types.Tuple) {
		for i := range t.Len() {
			walk(t.At(i).Type())
		}
	}
	walk = func(t types.Type) {
		switch t := t.(type) {
		case *types.Alias:
			walk(t.Rhs())
		case *types.Named:
			if p := t.Obj().Pkg(); p != nil && isInternal(p.Path()) {
				found = append(found, strings.TrimPrefix(p.Path(), module+"/")+"."+t.Obj().Name())
			}
			for i := range t.TypeArgs().Len() {
				walk(t.TypeArgs().At(i))
			}
		case *types.Pointer:
			walk(t.Elem())
		case *types.Slice:
			walk(t.Elem())
		case *types.Array:
			walk(t.Elem())
		case *types.Chan:
			walk(t.Elem())
		case *types.Map:
			walk(t.Key())
			walk(t.Elem())
		case *types.Signature:
			for i := range t.TypeParams().Len() {
				walk(t.TypeParams().At(i).Constraint())
			}
			tuple(t.Params())
			tuple(t.Results())
		case *types.Struct:
			for i := range t.NumFields() {
				walk(t.Field(i).Type())
			}
		case *types.Interface:
			for i := range t.NumExplicitMethods() {
				walk(t.ExplicitMethod(i).Type())
			}
			for i := range t.NumEmbeddeds() {
				walk(t.EmbeddedType(i))
			}
		case *types.Union:
			for i := range t.Len() {
				walk(t.Term(i).Type())
			}
		}
	}
	walk(t)
	slices.Sort(found)
	return slices.Compact(found)
}
