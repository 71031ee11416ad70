package main

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// reference adds the pages that are generated from the configuration schemas, the custom resource
// definitions and the public packages.
func (s *pages) reference() error {
	files, err := filepath.Glob(filepath.Join(s.root, "docs/schemas/*.json"))
	if err != nil {
		return err
	}
	for _, file := range files {
		var root schema
		if err := readYAML(file, &root); err != nil {
			return err
		}
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		var text strings.Builder
		fmt.Fprintf(&text, "# %s\n\nGenerated from [%[2]s](%s/blob/%s/docs/schemas/%[2]s), which editors validate files by.\n", root.Title, filepath.Base(file), repository, s.ref)
		root.render(&text, "Fields", "")
		s.generate("docs/schemas/"+filepath.Base(file), page{path: "reference/" + name, title: root.Title, text: text.String()})
	}
	if files, err = filepath.Glob(filepath.Join(s.root, "charts/kubewasm/files/crds/*.yaml")); err != nil {
		return err
	}
	for _, file := range files {
		var crd struct {
			Spec struct {
				Group, Scope string
				Names        struct{ Kind string }
				Versions     []struct {
					Name   string
					Schema struct{ OpenAPIV3Schema schema }
				}
			}
		}
		if err := readYAML(file, &crd); err != nil {
			return err
		}
		var text strings.Builder
		fmt.Fprintf(&text, "# %s\n\n", crd.Spec.Names.Kind)
		for _, v := range crd.Spec.Versions {
			fmt.Fprintf(&text, "`%s/%s`, scope %s.\n", crd.Spec.Group, v.Name, crd.Spec.Scope)
			root := v.Schema.OpenAPIV3Schema
			for _, common := range []string{"apiVersion", "kind", "metadata"} {
				delete(root.Properties, common)
			}
			fmt.Fprintf(&text, "\n%s\n", escaped(root.Description))
			root.render(&text, "Fields of "+v.Name, "")
		}
		rel, err := filepath.Rel(s.root, file)
		if err != nil {
			return err
		}
		s.generate(filepath.ToSlash(rel), page{path: "reference/" + strings.ToLower(crd.Spec.Names.Kind), title: crd.Spec.Names.Kind, text: text.String()})
	}
	if err := s.support(); err != nil {
		return err
	}
	return s.packages()
}

// support adds the versions that the modules of the repository are built and tested with.
func (s *pages) support() error {
	var text strings.Builder
	text.WriteString("# Support matrix\n\nThe versions that the tests of this version of kubewasm ran with, from its go.mod files. [Compatibility](/compatibility.md) has what ran on each Kubernetes.\n\n| | Version | From |\n|---|---|---|\n")
	for _, row := range []struct{ name, file, path string }{
		{"Go, at least", "go.mod", "go"},
		{"wazero", "go.mod", "github.com/tetratelabs/wazero"},
		{"Kubernetes 1.35, scheduler framework", "sched/kube135/go.mod", "k8s.io/kube-scheduler"},
		{"Kubernetes 1.36, scheduler framework", "sched/kube136/go.mod", "k8s.io/kube-scheduler"},
		{"Kubernetes 1.37, scheduler framework", "sched/kube137/go.mod", "k8s.io/kube-scheduler"},
		{"Kubernetes 1.38, scheduler framework", "sched/kube138/go.mod", "k8s.io/kube-scheduler"},
		{"NRI", "hooks/runtime/go.mod", "github.com/containerd/nri"},
		{"CRI", "hooks/runtime/go.mod", "k8s.io/cri-api"},
		{"containerd", "hooks/runtime/e2e/go.mod", "github.com/containerd/containerd/v2"},
		{"runc", "hooks/runtime/e2e/go.mod", "github.com/opencontainers/runc"},
		{"OPA", "internal/testkit/rego/go.mod", "github.com/open-policy-agent/opa"},
		{"oras-go", "go.mod", "oras.land/oras-go/v2"},
	} {
		file, err := os.ReadFile(filepath.Join(s.root, row.file))
		if err != nil {
			return err
		}
		m := regexp.MustCompile(`(?m)^\s*` + regexp.QuoteMeta(row.path) + ` (\S+)`).FindSubmatch(file)
		if m == nil {
			return fmt.Errorf("%s: no version of %s", row.file, row.path)
		}
		fmt.Fprintf(&text, "| %s | %s | %s |\n", row.name, m[1], row.file)
	}
	text.WriteString("\nNodes: cgroup v1 and v2 on Linux; the tests of v2 boot the kernel of Debian's package linux-image-cloud-amd64 under QEMU.\n")
	s.generate("go.mod", page{path: "reference/support", title: "Support matrix", text: text.String()})
	return nil
}

// generate adds the page that is generated from a file.
func (s *pages) generate(file string, p page) {
	s.generated[file] = p.path
	s.pages = append(s.pages, p)
}

func readYAML(file string, v any) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := yaml.Unmarshal(text, v); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// schema is the part of JSON Schema that the schemas of the repository have.
type schema struct {
	Title, Description, Type, Pattern string
	Properties                        map[string]*schema
	Items                             *schema
	AdditionalProperties              any
	AnyOf                             []*schema
	Enum                              []any
	Required                          []string
}

// render writes the fields of an object, and then those of the objects in it, each below the path of its field.
func (s *schema) render(w *strings.Builder, title, prefix string) {
	fmt.Fprintf(w, "\n## %s\n\n", title)
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		field := s.Properties[name]
		fmt.Fprintf(w, "- **`%s`** (%s", name, field.kind())
		if slices.Contains(s.Required, name) {
			w.WriteString(", required")
		}
		fmt.Fprintf(w, ") %s\n", escaped(field.Description))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		field, at := s.Properties[name], prefix+name
		for field.Items != nil {
			field, at = field.Items, at+"[]"
		}
		for _, form := range append([]*schema{field}, field.AnyOf...) {
			if len(form.Properties) != 0 {
				form.render(w, at, at+".")
			}
		}
	}
}

// kind returns the type of a field, with its values if they are listed.
func (s *schema) kind() string {
	switch {
	case s.Items != nil:
		return "array of " + s.Items.kind()
	case len(s.Enum) != 0:
		var values []string
		for _, v := range s.Enum {
			values = append(values, fmt.Sprintf("`%v`", v))
		}
		return strings.Join(values, ", ")
	case s.Type == "" && len(s.AnyOf) != 0:
		var kinds []string
		for _, form := range s.AnyOf {
			if kind := form.kind(); !slices.Contains(kinds, kind) {
				kinds = append(kinds, kind)
			}
		}
		return strings.Join(kinds, " or ")
	case s.Type == "string" && strings.Contains(s.Pattern, "ns|us"):
		return "duration"
	case s.Type == "":
		return "any"
	}
	return s.Type
}

// escaped returns a description as a line of Markdown.
func escaped(description string) string {
	text := strings.Join(strings.Fields(description), " ")
	return strings.NewReplacer("*", `\*`, "[", `\[`, "{{", "{ {", "_", `\_`).Replace(text)
}

// packages adds the list of public packages, which links to their documentation.
func (s *pages) packages() error {
	list := exec.Command("git", "ls-files", "*.go")
	list.Dir = s.root
	out, err := list.Output()
	if err != nil {
		return err
	}
	synopses := map[string]string{}
	for _, name := range strings.Fields(string(out)) {
		dir := path.Dir(name)
		parts := strings.Split(name, "/")
		private := slices.ContainsFunc(parts, func(part string) bool {
			return slices.Contains([]string{"internal", "testdata", "examples", "cmd", "templates", "charts"}, part)
		})
		if private || strings.HasSuffix(name, "_test.go") || synopses[dir] != "" {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(s.root, name), nil, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			return err
		}
		if file.Name.Name != "main" && file.Doc != nil && !ast.IsGenerated(file) {
			synopses[dir] = new(doc.Package).Synopsis(file.Doc.Text())
		}
	}
	var text strings.Builder
	text.WriteString("# Go packages\n\nThe links lead to pkg.go.dev.\n\n")
	for _, dir := range slices.Sorted(maps.Keys(synopses)) {
		fmt.Fprintf(&text, "- [%s](https://pkg.go.dev/%s) %s\n", dir, path.Join("github.com/kubewasm/kubewasm", dir), escaped(synopses[dir]))
	}
	s.generate("doc.go", page{path: "reference/go", title: "Go packages", text: text.String()})
	return nil
}

// commands returns the page of the help of kubewasm, which it builds.
func commands() (page, error) {
	p := page{path: "reference/kubewasm", title: "The command kubewasm"}
	dir, err := os.MkdirTemp("", "site")
	if err != nil {
		return p, err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "kubewasm")
	build := exec.Command("go", "build", "-C", "cmd/kubewasm", "-o", program, ".")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return p, fmt.Errorf("build cmd/kubewasm: %w", err)
	}
	help, err := exec.Command(program, "help").Output()
	if err != nil {
		return p, fmt.Errorf("kubewasm help: %w", err)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "# %s\n\n```text\n%s```\n", p.title, help)
	_, list, _ := strings.Cut(string(help), "The commands are:\n\n")
	list, _, _ = strings.Cut(list, "\n\n")
	for l := range strings.Lines(list) {
		name := strings.Fields(l)[0]
		help, err := exec.Command(program, "help", name).Output()
		if err != nil {
			return p, fmt.Errorf("kubewasm help %s: %w", name, err)
		}
		fmt.Fprintf(&text, "\n## %s\n\n```text\n%s```\n", name, help)
	}
	p.text = text.String()
	return p, nil
}
