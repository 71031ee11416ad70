package bindgen

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"reflect"
	"strconv"
	"strings"
)

// goSource has the facts about Go types that are missing in the .proto file which is
// generated from them, as those of Kubernetes are.
type goSource struct {
	structs map[string]map[uint32]goField
	// kinds are the structs that are objects or options with a kind.
	kinds map[string]bool
	// lists are the types that are slices of strings.
	lists     map[string]bool
	constants []ConstantGroup
}

// goField is a field of a struct, by the number in its protobuf tag.
type goField struct {
	name, json string
	embedded   bool
	pointer    bool
}

// readGo reads the package in dir, nil if there is none.
func readGo(dir string) (*goSource, error) {
	files := token.NewFileSet()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	s := &goSource{structs: map[string]map[uint32]goField{}, kinds: map[string]bool{}, lists: map[string]bool{}}
	groups := map[string]int{}
	found := false
	for _, e := range entries {
		name := e.Name()
		if e.Type()&fs.ModeType != 0 || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, ".pb.go") {
			continue
		}
		file, err := parser.ParseFile(files, dir+"/"+name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		found = true
		for _, d := range file.Decls {
			if d, ok := d.(*ast.GenDecl); ok {
				s.read(d, groups)
			}
		}
	}
	if !found {
		return nil, nil
	}
	return s, nil
}

func (s *goSource) read(d *ast.GenDecl, groups map[string]int) {
	for _, spec := range d.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			switch t := spec.Type.(type) {
			case *ast.StructType:
				s.structs[spec.Name.Name] = structFields(t)
				s.kinds[spec.Name.Name] = hasTypeMeta(t)
			case *ast.ArrayType:
				s.lists[spec.Name.Name] = true
			}
		case *ast.ValueSpec:
			if d.Tok == token.CONST {
				s.constant(spec, d, groups)
			}
		}
	}
}

// constant records an exported string constant.
func (s *goSource) constant(spec *ast.ValueSpec, d *ast.GenDecl, groups map[string]int) {
	if len(spec.Names) != 1 || len(spec.Values) != 1 || !spec.Names[0].IsExported() {
		return
	}
	value, ok := spec.Values[0].(*ast.BasicLit)
	if !ok || value.Kind != token.STRING {
		return
	}
	text, err := strconv.Unquote(value.Value)
	if err != nil {
		return
	}
	group := ""
	if t, ok := spec.Type.(*ast.Ident); ok && t.Name != "string" {
		group = t.Name
	}
	doc := spec.Doc
	if doc == nil && !d.Lparen.IsValid() {
		doc = d.Doc
	}
	i, ok := groups[group]
	if !ok {
		i = len(s.constants)
		groups[group] = i
		s.constants = append(s.constants, ConstantGroup{Name: group})
	}
	g := &s.constants[i]
	g.Constants = append(g.Constants, Constant{Name: spec.Names[0].Name, Value: text, Doc: doc.Text()})
}

// hasTypeMeta reports whether TypeMeta is embedded in a struct.
func hasTypeMeta(t *ast.StructType) bool {
	for _, f := range t.Fields.List {
		if len(f.Names) > 0 {
			continue
		}
		switch e := f.Type.(type) {
		case *ast.Ident:
			return e.Name == "TypeMeta"
		case *ast.SelectorExpr:
			return e.Sel.Name == "TypeMeta"
		}
	}
	return false
}

func structFields(t *ast.StructType) map[uint32]goField {
	fields := map[uint32]goField{}
	for _, f := range t.Fields.List {
		if f.Tag == nil {
			continue
		}
		text, err := strconv.Unquote(f.Tag.Value)
		if err != nil {
			continue
		}
		tag := reflect.StructTag(text)
		// varint,25,opt,name=priority
		parts := strings.Split(tag.Get("protobuf"), ",")
		if len(parts) < 2 {
			continue
		}
		number, err := strconv.ParseUint(parts[1], 10, 32)
		if err != nil {
			continue
		}
		field := goField{embedded: len(f.Names) == 0}
		if !field.embedded {
			field.name = f.Names[0].Name
		}
		field.json, _, _ = strings.Cut(tag.Get("json"), ",")
		if _, ok := tag.Lookup("json"); !ok {
			field.json = field.name
		}
		_, field.pointer = f.Type.(*ast.StarExpr)
		fields[uint32(number)] = field
	}
	return fields
}
