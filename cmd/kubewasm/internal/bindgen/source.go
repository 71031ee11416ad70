package bindgen

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/bufbuild/protocompile/ast"
	"github.com/bufbuild/protocompile/parser"
	"github.com/bufbuild/protocompile/reporter"

	"github.com/kubewasm/kubewasm/internal/serviceschema"
)

// The bounds of sources, which parsers of other projects see when they hold.
const (
	// maxSource bounds a file. The largest of Kubernetes has 300 KB, and CustomResourceDefinitions
	// have to fit into the 1.5 MB of a request of etcd; a file may hold many.
	maxSource = 16 << 20
	// maxDocument bounds a document of YAML, whose parser makes a hundred bytes of some.
	maxDocument = 4 << 20
	// maxSources and maxSourceBytes bound the .proto files that one imports, together.
	maxSources, maxSourceBytes = 256, 16 << 20
	// maxBraces bounds how deep braces nest in a .proto file.
	maxBraces = 64
)

// ReadFile returns a file of at most 16 MiB, which is a regular one.
func ReadFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no file", name)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSource+1))
	if err == nil && len(text) > maxSource {
		err = fmt.Errorf("%s has more than %d bytes", name, maxSource)
	}
	return text, err
}

// checkSources bounds the .proto files before they are linked: the linker walks each way along
// public imports anew, of which k files that import two others each have 2^k.
func (r *protoReader) checkSources() error {
	imports := serviceschema.Imports{}
	room := maxSourceBytes
	waiting := []string{r.config.File}
	for len(waiting) > 0 {
		name := waiting[0]
		waiting = waiting[1:]
		if _, ok := imports[name]; ok {
			continue
		}
		if len(imports) == maxSources {
			return fmt.Errorf("it imports more than %d files", maxSources)
		}
		imports[name] = serviceschema.FileImports{}
		f, err := r.open(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // It is a standard import, or missing, of which the compiler tells.
		} else if err != nil {
			return err
		}
		text, err := io.ReadAll(f)
		if err != nil {
			return err
		}
		if room -= len(text); room < 0 {
			return fmt.Errorf("it and the files that it imports have more than %d bytes", maxSourceBytes)
		}
		if bracesNest(text) > maxBraces {
			return fmt.Errorf("%s: braces nest more than %d deep", name, maxBraces)
		}
		file, err := parser.Parse(name, bytes.NewReader(text), reporter.NewHandler(nil))
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			if i, ok := d.(*ast.ImportNode); ok {
				imported := i.Name.AsString()
				imports[name] = imports[name].Add(imported, i.Public != nil)
				waiting = append(waiting, imported)
			}
		}
	}
	return imports.Check()
}

// bracesNest returns how deep brackets of all kinds nest in a .proto file.
func bracesNest(text []byte) (deepest int) {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '{' || c == '[' || c == '<':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']' || c == '>':
			depth = max(depth-1, 0)
		case c == '"' || c == '\'':
			for i++; i < len(text) && text[i] != c && text[i] != '\n'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case bytes.HasPrefix(text[i:], []byte("//")):
			i += skip(text[i:], "\n")
		case bytes.HasPrefix(text[i:], []byte("/*")):
			i += 1 + skip(text[i+1:], "*/")
		}
	}
	return deepest
}

// skip returns the index of the last byte of what ends a comment.
func skip(text []byte, end string) int {
	if i := bytes.Index(text, []byte(end)); i >= 0 {
		return i + len(end) - 1
	}
	return len(text)
}
