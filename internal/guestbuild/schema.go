package guestbuild

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/internal/serviceschema"
)

// servicePackage is what the generated packages of services import, and schemaFile and
// schemaConstant where their schema is.
const (
	servicePackage = modulePath + "/guest/service"
	schemaFile     = "schema.gen.go"
	schemaConstant = "serviceSchema"
)

// addSchema returns a module with the schema of the services whose packages it links.
func addSchema(ctx context.Context, dir string, module []byte) ([]byte, error) {
	cmd, err := goCommand(ctx, dir, "list", "-deps", "-json=ImportPath,Dir,GoFiles,Imports", ".")
	if err != nil {
		return nil, err
	}
	output, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}
	// One FileDescriptorSet after the other is a set of all files.
	var schema []byte
	for d := json.NewDecoder(strings.NewReader(string(output))); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		if !slices.Contains(p.Imports, servicePackage) || !slices.Contains(p.GoFiles, schemaFile) {
			continue
		}
		part, err := stringConstant(filepath.Join(p.Dir, schemaFile), schemaConstant)
		if err != nil {
			return nil, fmt.Errorf("read the schema of %s: %w", p.ImportPath, err)
		}
		schema = append(schema, part...)
	}
	if len(schema) == 0 {
		return nil, errors.New("no package of a service has a " + schemaFile + ": kubewasm gen writes it")
	}
	if _, err := serviceschema.Parse(schema); err != nil {
		return nil, err
	}
	return metadata.AddSection(module, abi.SchemaSection, schema)
}

// stringConstant returns the value of a constant in a file: literals and their sums.
func stringConstant(name, constant string) (string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	for _, d := range file.Decls {
		d, ok := d.(*ast.GenDecl)
		if !ok || d.Tok != token.CONST {
			continue
		}
		for _, spec := range d.Specs {
			if spec, ok := spec.(*ast.ValueSpec); ok && len(spec.Names) == 1 && spec.Names[0].Name == constant && len(spec.Values) == 1 {
				var b strings.Builder
				err := appendString(&b, spec.Values[0])
				return b.String(), err
			}
		}
	}
	return "", fmt.Errorf("there is no constant %s", constant)
}

func appendString(b *strings.Builder, e ast.Expr) error {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		b.WriteString(s)
		return err
	case *ast.BinaryExpr:
		if err := appendString(b, e.X); err != nil {
			return err
		}
		return appendString(b, e.Y)
	}
	return fmt.Errorf("%T is no string", e)
}
