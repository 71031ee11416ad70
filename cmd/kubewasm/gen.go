package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/pflag"

	"github.com/kubewasm/kubewasm/cmd/kubewasm/internal/bindgen"
	"github.com/kubewasm/kubewasm/internal/serviceschema"
)

// pairs is a flag of the form KEY=VALUE that may be repeated.
type pairs map[string]string

func (p pairs) String() string { return "" }

// Type implements [pflag.Value].
func (pairs) Type() string { return "pair" }

func (p pairs) Set(s string) error {
	key, value, ok := strings.Cut(s, "=")
	if !ok {
		return errors.New("want KEY=VALUE")
	}
	p[key] = value
	return nil
}

func gen(t *tool, flags *pflag.FlagSet) action {
	dir := flags.String("output-dir", "", "")
	hostDir := flags.String("host", "", "")
	name := flags.String("package", "", "")
	hostName := flags.String("host-package", "", "")
	dirs := flags.StringArrayP("proto-path", "I", nil, "")
	imports := pairs{}
	flags.Var(imports, "import", "")
	version := flags.String("api-version", "", "")
	lang := flags.String("lang", "go", "")
	check := flags.Bool("check", false, "")
	breaking := flags.String("breaking", "", "")
	oneOf(flags, "lang", bindgen.LanguageNames()...)
	return func(ctx context.Context, args []string) error {
		source, err := argument(flags, args, "")
		if err != nil {
			return err
		}
		language, err := bindgen.LanguageNamed(*lang)
		if err != nil {
			return fmt.Errorf("gen: --lang: %w", err)
		}
		if *breaking != "" {
			if err := only(flags, "breaking", "proto-path", "import"); err != nil {
				return err
			}
			return compareServices(ctx, *breaking, source, *dirs, imports)
		}
		if *dir == "" && *hostDir == "" {
			*dir = "."
		}
		absolute, err := filepath.Abs(cmp.Or(*dir, *hostDir))
		if err != nil {
			return err
		}
		if *hostName != "" && *hostDir == "" {
			return &usageError{errors.New("gen: --host-package is for the package in the directory of --host")}
		}
		if *name == "" {
			if *name, err = packageName(absolute); err != nil {
				return fmt.Errorf("gen: %w", err)
			}
		}
		if language.Name == "go" && !token.IsIdentifier(*name) {
			return fmt.Errorf("gen: %q is no name of a Go package: give one with --package, or another directory with --output-dir", *name)
		}
		if len(*dirs) == 0 {
			*dirs = []string{"."}
		}
		path := ""
		if language.Name == "go" {
			path = importPath(ctx, absolute)
		}
		var p *bindgen.Package
		switch filepath.Ext(source) {
		case ".proto":
			p, err = bindgen.Proto(ctx, bindgen.ProtoConfig{
				File: filepath.ToSlash(source), Dirs: *dirs, Find: finder(ctx),
				Package: *name, Path: path, Imports: imports,
			})
		case ".yaml", ".yml", ".json":
			var text []byte
			if text, err = bindgen.ReadFile(source); err != nil {
				return fmt.Errorf("gen: %w", err)
			}
			p, err = bindgen.CRD(bindgen.CRDConfig{
				Source: filepath.Base(source), Text: text, Version: *version,
				Package: *name, Path: path,
			})
		default:
			return fmt.Errorf("gen %s: want a file whose name ends with .proto, .yaml or .json", source)
		}
		if err != nil {
			return fmt.Errorf("gen: %w", err)
		}
		if *dir != "" {
			if err := writeGuest(p, language, *dir, *check); err != nil {
				return fmt.Errorf("gen %s: %w", source, err)
			}
		}
		if *hostDir != "" {
			if err := writeHost(ctx, p, *hostDir, *hostName, *check); err != nil {
				return fmt.Errorf("gen %s: --host: %w", source, err)
			}
		}
		return nil
	}
}

// only returns an error if a flag is set that does not go with the first of the names.
func only(flags *pflag.FlagSet, names ...string) (err error) {
	flags.Visit(func(f *pflag.Flag) {
		if !slices.Contains(names, f.Name) {
			err = &usageError{fmt.Errorf("gen: --%s writes nothing: it does not go with --%s", names[0], f.Name)}
		}
	})
	return err
}

// compareServices returns an error if a .proto file takes something from plugins and components that
// were built from an earlier version of it.
func compareServices(ctx context.Context, old, source string, dirs []string, imports map[string]string) error {
	if len(dirs) == 0 {
		dirs = []string{"."}
	}
	read := func(file string, dirs []string) (*bindgen.Package, *serviceschema.Schema, error) {
		p, err := bindgen.Proto(ctx, bindgen.ProtoConfig{File: file, Dirs: dirs, Find: finder(ctx), Package: "services", Imports: imports})
		if err != nil {
			return nil, nil, fmt.Errorf("gen: %w", err)
		}
		if len(p.Services) == 0 {
			return nil, nil, fmt.Errorf("gen --breaking: %s has no service", file)
		}
		schema, err := serviceschema.Parse(p.Schema)
		return p, schema, err
	}
	if _, err := os.Stat(old); err != nil {
		return fmt.Errorf("gen --breaking: %w", err)
	}
	file := filepath.ToSlash(source)
	p, later, err := read(file, dirs)
	if err != nil {
		return err
	}
	// In a checkout of the earlier version, its imports lie where those of the later one do.
	oldFile, oldDirs := filepath.Base(old), append([]string{filepath.Dir(old)}, dirs...)
	if root, ok := strings.CutSuffix(filepath.ToSlash(old), "/"+file); ok {
		oldFile, oldDirs = file, append([]string{filepath.FromSlash(root)}, dirs...)
	}
	_, earlier, err := read(oldFile, oldDirs)
	if err != nil {
		return err
	}
	err = serviceschema.Breaking(earlier, later)
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var errs []error
		for _, err := range joined.Unwrap() {
			var d *serviceschema.Disagreement
			errors.As(err, &d)
			errs = append(errs, fmt.Errorf("%s: %w", cmp.Or(p.Places[string(d.Of)], file), err))
		}
		return fmt.Errorf("gen: %s breaks what was built from %s:\n%w", source, old, errors.Join(errs...))
	}
	return err
}

// packageName returns the name of the package in a directory: that of the Go files in it, and
// if there are none the name of the directory.
func packageName(dir string) (string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return "", err
	}
	generated := ""
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		// A file that does not parse has mistakes that the compiler reports.
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.PackageClauseOnly|parser.ParseComments)
		switch {
		case err != nil:
		case ast.IsGenerated(parsed):
			generated = parsed.Name.Name
		default:
			return parsed.Name.Name, nil
		}
	}
	if generated != "" {
		return generated, nil
	}
	return strings.NewReplacer("-", "", ".", "").Replace(filepath.Base(dir)), nil
}

// writeGuest writes the views of p and, if it has services, their guest side.
func writeGuest(p *bindgen.Package, language bindgen.Language, dir string, check bool) error {
	files, err := language.Write(p)
	if err != nil {
		return err
	}
	return writeFiles(files, dir, language.Pattern, check)
}

// writeHost writes the host side of the services of p.
func writeHost(ctx context.Context, p *bindgen.Package, dir, name string, check bool) error {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	host := *p
	if name == "" {
		if name, err = packageName(absolute); err != nil {
			return err
		}
	}
	host.Name, host.Path = name, importPath(ctx, absolute)
	files, err := bindgen.WriteHost(&host)
	if err != nil {
		return err
	}
	return writeFiles(files, dir, "*.gen.go", check)
}

// writeFiles writes generated files into dir, and removes those of an earlier run whose names
// match pattern and that there are no longer. With check it changes nothing, and returns an error if a file is out of
// date.
func writeFiles(files []bindgen.File, dir, pattern string, check bool) error {
	superfluous, err := generated(dir, pattern)
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range files {
		name := filepath.Join(dir, f.Name)
		old, same := superfluous[name]
		delete(superfluous, name)
		switch same = same && bytes.Equal(old, f.Text); {
		case same:
		case check:
			errs = append(errs, fmt.Errorf("%s is out of date", name))
		default:
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			errs = append(errs, os.WriteFile(name, f.Text, 0o644))
		}
	}
	for name := range superfluous {
		if check {
			errs = append(errs, fmt.Errorf("%s is no longer generated", name))
		} else {
			errs = append(errs, os.Remove(name))
		}
	}
	return errors.Join(errs...)
}

// generated returns the generated files in dir whose names match pattern.
func generated(dir, pattern string) (map[string][]byte, error) {
	names, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if bytes.HasPrefix(text, []byte(bindgen.Header)) {
			files[name] = text
		}
	}
	return files, nil
}

// finder returns a function that asks the go command for the directory of a package. It
// may be called by several goroutines, since files are compiled side by side.
func finder(ctx context.Context) func(string) (string, error) {
	var mu sync.Mutex
	known := map[string]string{}
	return func(importPath string) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		if dir, ok := known[importPath]; ok {
			return dir, nil
		}
		dir, err := goList(ctx, ".", "{{.Dir}}", importPath)
		if err != nil {
			return "", err
		}
		known[importPath] = dir
		return dir, nil
	}
}

// importPath returns the import path of the package in dir, empty if there is none.
func importPath(ctx context.Context, dir string) string {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return ""
	}
	path, err := goList(ctx, dir, "{{.ImportPath}}", ".")
	if err != nil {
		return ""
	}
	return path
}

// goList asks the go command for a package, whose path may be that of an import in somebody
// else's .proto file.
func goList(ctx context.Context, dir, format, pkg string) (string, error) {
	if err := bindgen.CheckImportPath(pkg); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", "list", "-find", "-e", "-f", format+"\n{{with .Error}}{{.Err}}{{end}}", "--", pkg)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go list %s: %w: %s", pkg, err, strings.TrimSpace(stderr.String()))
	}
	text, failure, _ := strings.Cut(string(out), "\n")
	if text = strings.TrimSpace(text); text == "" {
		return "", fmt.Errorf("go list %s: %s", pkg, cmp.Or(strings.Join(strings.Fields(failure), " "), "no such package"))
	}
	return text, nil
}
