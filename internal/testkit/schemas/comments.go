package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"reflect"
	"regexp"
	"strings"
)

// comments are those of the fields of structs, by the paths of their packages.
type comments map[string]map[string]string

// links matches the links of Go's comments, which stand for themselves: unified[io.weight] is none.
var links = regexp.MustCompile(`(^|[\s(])\[([\w.]+)\]`)

// of returns the comment of a field, in one line; empty for a struct of another module.
func (c comments) of(t reflect.Type, field string) (string, error) {
	if !strings.HasPrefix(t.PkgPath(), "github.com/kubewasm/kubewasm/") {
		return "", nil
	}
	known, ok := c[t.PkgPath()]
	if !ok {
		var err error
		if known, err = read(t.PkgPath()); err != nil {
			return "", err
		}
		c[t.PkgPath()] = known
	}
	text := strings.Join(strings.Fields(known[t.Name()+"."+field]), " ")
	return links.ReplaceAllString(text, "$1$2"), nil
}

// read returns the comments of the fields of a package, by TYPE.FIELD.
func read(pkg string) (map[string]string, error) {
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", pkg).Output()
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", pkg, err)
	}
	fset := token.NewFileSet()
	parsed, err := parser.ParseDir(fset, strings.TrimSpace(string(dir)), nil, parser.ParseComments) //nolint:staticcheck // It needs no types.
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, p := range parsed {
		ast.Inspect(p, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if s, ok := spec.Type.(*ast.StructType); ok {
				last, end := "", 0
				for _, f := range s.Fields.List {
					// A comment may be about several fields: those that follow without a blank line.
					if text := f.Doc.Text(); text != "" || fset.Position(f.Pos()).Line != end+1 {
						last = text
					}
					end = fset.Position(f.End()).Line
					for _, name := range f.Names {
						found[spec.Name.Name+"."+name.Name] = last
					}
				}
			}
			return false
		})
	}
	return found, nil
}
