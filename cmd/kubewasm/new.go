package main

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"text/template"

	"github.com/spf13/pflag"

	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/nearest"
)

// templates has a directory for each language, and in it one for each kind of plugin. The
// files beside those belong to plugins of all kinds. A file whose name ends with .tmpl is
// a template of a [scaffold].
//
//go:embed all:templates
var templates embed.FS

// scaffold is a plugin, or an extension point with a plugin, to be written.
type scaffold struct {
	Language   *guestbuild.Language
	Kind, Name string
	// Module is the path of a new module, empty for a plugin that becomes a package of
	// the module around it.
	Module string
	// Import is the import path of the directory, Package the name of the Go package in it and
	// Service that of the extension point, for the kind service.
	Import, Package, Service string
	Library                  library
	// Command runs kubewasm in the module.
	Command string
	Files   []scaffoldFile
	Steps   []step

	dir  string
	text map[string][]byte // By the names of Files.
}

// scaffoldFile is a file of a scaffold.
type scaffoldFile struct{ Name, Purpose string }

// step is a command for the author of the plugin.
type step struct{ Command, Comment string }

// kindTexts are the texts about the templates of a kind.
type kindTexts struct{ title, about, does, objects string }

var textsOfKinds = map[string]kindTexts{
	"scheduler":  {"A scheduler plugin", "of Kubernetes that runs as WebAssembly", "keeps Pods in one zone", "two Nodes and a Pod"},
	"admission":  {"An admission plugin", "of Kubernetes that runs as WebAssembly", "requires labels of new Pods", "two Pods, one of them without the label"},
	"conversion": {"A conversion", "between versions of a custom resource that runs as WebAssembly", "renames a field between v1beta1 and v1", "a ConversionReview of one object"},
	"hook":       {"A runtime hook", "of Kubernetes that runs as WebAssembly", "gives the Pods of one tier few CPU shares", "two Pods, one of them of the tier"},
	"service":    {"An extension point", "whose plugins run as WebAssembly", "keeps Pods in one region", "a request"},
}

// texts returns the texts about the scaffold.
func (s *scaffold) texts() kindTexts {
	if s.Kind == "service" && s.Language != guestbuild.Go {
		return kindTexts{"A plugin", "of a component's own extension point that runs as WebAssembly", "keeps Pods in one region", "a request"}
	}
	return textsOfKinds[s.Kind]
}

// Title returns the kind with an article, About the purpose in the first sentence of the README.
func (s *scaffold) Title() string { return s.texts().title }
func (s *scaffold) About() string { return s.Title() + " " + s.texts().about }

// files are the files of templates in the order in which they are shown, with their purposes.
func (s *scaffold) files() []scaffoldFile {
	texts := s.texts()
	return []scaffoldFile{
		{s.Package + ".proto", "the question that plugins answer"},
		{s.Package + ".go", "its package, which controllers use"},
		{s.Package + "guest/doc.go", "the package that plugins are written with"},
		{"main.go", "the plugin, which " + texts.does},
		{"main_test.go", "its test"},
		{"main.c", "the plugin, which " + texts.does},
		{"src/lib.rs", "the plugin, which " + texts.does},
		{"assembly/index.ts", "the plugin, which " + texts.does},
		{"cases.yaml", "its test"},
		{"region/main.go", "a plugin, which " + texts.does},
		{"region/main_test.go", "its test"},
		{"controller/main.go", "a program that asks the plugin"},
		{"config.yaml", "the configuration of the plugin"},
		{"objects.yaml", texts.objects + ", to run it on"},
		{"request.yaml", texts.objects + ", to run it on"},
		{"go.mod", "the module, " + s.Module},
		{"compile_flags.txt", "arguments of the compiler, for editors too"},
		{"Cargo.toml", "the crate"},
		{".cargo/config.toml", "the target of the crate"},
		{"package.json", "the npm package"},
		{"asconfig.json", "options of the compiler"},
		{"tsconfig.json", "the types of the language and the SDK, for editors"},
		{".gitignore", "what is not part of the source"},
		{"README.md", "the commands below"},
	}
}

// namePattern is the pattern of plugin names: the name is part of file names, module paths and, for
// a policy, of annotations.
var namePattern = regexp.MustCompile(`^[a-z0-9]([-.a-z0-9]{0,61}[a-z0-9])?$`)

func newPlugin(t *tool, flags *pflag.FlagSet) action {
	kind := flags.String("kind", "", "")
	language := flags.String("lang", "go", "")
	module := flags.String("module", "", "")
	name := flags.String("name", "", "")
	oneOf(flags, "kind", directories("templates/go")...)
	forge := flags.String("ci", "", "")
	oneOf(flags, "lang", directories("templates")...)
	oneOf(flags, "ci", "github", "gitlab")
	return func(ctx context.Context, args []string) error {
		dir, err := argument(flags, args, "")
		if err != nil {
			return err
		}
		absolute, err := filepath.Abs(dir)
		if err != nil {
			return fmt.Errorf("new: %w", err)
		}
		languages := directories("templates")
		l := slices.IndexFunc(guestbuild.Languages, func(l *guestbuild.Language) bool { return l.Name == *language })
		if l < 0 || !slices.Contains(languages, *language) {
			if meant := meantLanguage(*language, languages); meant != "" {
				return &usageError{fmt.Errorf("new: no language is called %q; did you mean --lang %s?", *language, meant)}
			}
			return fmt.Errorf("new: no template in the language %q, only in %s; abi/SPEC.md is all that a guest in another language needs", *language, strings.Join(languages, ", "))
		}
		kinds := directories("templates/" + *language)
		if *kind == "" {
			return &usageError{fmt.Errorf("new: name a kind with --kind: %s", strings.Join(kinds, ", "))}
		}
		if !slices.Contains(kinds, *kind) {
			if meant := otherKinds[strings.ToLower(*kind)]; meant != "" {
				return &usageError{fmt.Errorf("new: unknown kind %q; did you mean %q?", *kind, meant)}
			}
			return &usageError{fmt.Errorf("new: unknown kind %q%s", *kind, nearest.Hint("; ", *kind, kinds))}
		}
		if forges := []string{"github", "gitlab"}; *forge != "" && !slices.Contains(forges, *forge) {
			return &usageError{fmt.Errorf("new: unknown forge %q%s", *forge, nearest.Hint("; ", *forge, forges))}
		}
		s := &scaffold{Language: guestbuild.Languages[l], Kind: *kind, Name: cmp.Or(*name, filepath.Base(absolute)), Module: *module, Library: thisLibrary(), dir: dir}
		if !namePattern.MatchString(s.Name) {
			return fmt.Errorf("new %s: %q is no name of a plugin: give one of small letters, digits, - and . with --name", dir, s.Name)
		}
		if s.Language == guestbuild.Go {
			if err := s.place(ctx, absolute); err != nil {
				return fmt.Errorf("new %s: %w", dir, err)
			}
		} else {
			if *module != "" {
				return &usageError{errors.New("new: --module is for plugins in Go")}
			}
			s.planForeign()
		}
		if err := s.fill(); err != nil {
			return fmt.Errorf("new %s: %w", dir, err)
		}
		if *forge != "" {
			if err := s.addPipeline(*forge); err != nil {
				return fmt.Errorf("new %s: %w", dir, err)
			}
		}
		if err := s.write(); err != nil {
			return fmt.Errorf("new %s: %w", dir, err)
		}
		s.print(t)
		return nil
	}
}

// otherKinds are names that other projects use for the kinds of plugins.
var otherKinds = map[string]string{
	"policy": "admission", "webhook": "admission", "validating": "admission", "validation": "admission", "mutating": "admission", "mutation": "admission",
	"filter": "scheduler", "score": "scheduler", "crd": "conversion", "nri": "hook", "runtime": "hook", "node": "hook", "cgroup": "hook", "controller": "service", "proto": "service",
}

// meantLanguage returns the language that an alias, or another spelling, stands for.
func meantLanguage(name string, languages []string) string {
	others := map[string]string{"typescript": "as", "ts": "as", "assemblyscript": "as", "javascript": "as", "js": "as", "golang": "go", "rs": "rust"}
	if meant := others[strings.ToLower(name)]; meant != "" {
		return meant
	}
	if i := slices.IndexFunc(languages, func(l string) bool { return strings.EqualFold(l, name) }); i >= 0 {
		return languages[i]
	}
	return ""
}

// place sets the module that a plugin in Go is or becomes a part of, and the steps.
func (s *scaffold) place(ctx context.Context, absolute string) error {
	around, root, err := moduleAround(ctx, absolute)
	if err != nil {
		return err
	}
	if s.Module == "" && around == "" {
		s.Module = "example.com/" + s.Name
	}
	if s.Import = s.Module; s.Module == "" {
		inside, err := filepath.Rel(root, absolute)
		if err != nil {
			return err
		}
		s.Import = path.Join(around, filepath.ToSlash(inside))
	}
	if s.Kind == "service" {
		if err := s.nameService(absolute); err != nil {
			return err
		}
	}
	s.plan(around)
	return nil
}

// nameService sets the names of the package in a directory and of its extension point.
func (s *scaffold) nameService(dir string) error {
	var err error
	if s.Package, err = packageName(dir); err != nil {
		return err
	}
	// The package is imported by a program that also imports the others.
	taken := []string{"main", "context", "fmt", "log", "host", "service", "corev1", "metav1"}
	if !token.IsIdentifier(s.Package) || slices.Contains(taken, s.Package) {
		return fmt.Errorf("%q is no name of the Go package of a service: choose another directory", s.Package)
	}
	for word := range strings.FieldsFuncSeq(s.Name, func(r rune) bool { return r == '-' || r == '.' }) {
		s.Service += strings.ToUpper(word[:1]) + word[1:]
	}
	if !token.IsIdentifier(s.Service) {
		return fmt.Errorf("%q is no name of a service: give one that begins with a letter with --name", s.Name)
	}
	return nil
}

// directories returns the names of the directories in one of the templates.
func directories(dir string) (names []string) {
	entries, err := templates.ReadDir(dir)
	if err != nil {
		panic(err) // It is embedded.
	}
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

const (
	libraryPath = "github.com/kubewasm/kubewasm"
	commandPath = libraryPath + "/cmd/kubewasm"
)

// plan sets the steps. around is the path of the module around the plugin, empty if there
// is none.
func (s *scaffold) plan(around string) {
	const fetch = "fetch kubewasm"
	s.Command = "kubewasm"
	switch {
	case s.Module != "":
		s.Steps = append(s.Steps, step{"go mod tidy", fetch})
	case around == libraryPath:
	case s.Library.Checkout != "":
		s.Steps = append(s.Steps,
			step{"go mod edit -require=" + libraryPath + "@v0.0.0 -replace=" + libraryPath + "=" + s.Library.Checkout, "use this checkout of kubewasm"},
			step{"go mod tidy", fetch})
	default:
		s.Steps = append(s.Steps, step{"go get " + libraryPath + "@" + cmp.Or(s.Library.Version, "latest"), fetch})
	}
	const test = "natively, and as WebAssembly in the real host"
	if s.Kind == "service" {
		s.Steps = append(s.Steps,
			step{"go generate", "write the packages of controllers and of plugins"},
			step{"go test ./...", test},
			step{s.Command + " build --output-file region.wasm ./region", "write region.wasm"},
			step{s.Command + " inspect region.wasm", inspects},
			step{s.Command + " run --config config.yaml -f request.yaml region.wasm " + s.Service + "/Place", decides},
			step{"go run ./controller", "ask it from a program"},
		)
		return
	}
	s.Steps = append(s.Steps,
		step{"go test", test},
		step{s.Command + " build", "write " + s.Name + ".wasm"})
	s.planModule()
}

// The purposes of commands among the steps of every plugin.
const inspects, decides = "what it implements, imports and needs", "what it decides"

// planModule adds the steps with a built module.
func (s *scaffold) planModule() {
	call := s.Command + " run --config config.yaml -f objects.yaml " + s.Name + ".wasm"
	switch s.Kind {
	case "conversion": // It has no configuration.
		call = s.Command + " run -f objects.yaml " + s.Name + ".wasm"
	case "service":
		call = s.Command + " run --config config.yaml -f request.yaml " + s.Name + ".wasm Placement/Place"
	}
	s.Steps = append(s.Steps, step{s.Command + " inspect " + s.Name + ".wasm", inspects}, step{call, decides})
}

// planForeign sets the steps of a plugin in a language other than Go.
func (s *scaffold) planForeign() {
	s.Command = "kubewasm"
	if s.Language == guestbuild.AssemblyScript {
		s.Steps = append(s.Steps, step{"npm install", "fetch the compiler"})
	}
	if s.Kind == "service" {
		s.Package = "placement" // That of the component comes in its place.
		to := map[*guestbuild.Language]string{guestbuild.C: "--package placement", guestbuild.Rust: "--output-dir src/placement", guestbuild.AssemblyScript: "--output-dir assembly/placement"}
		s.Steps = append(s.Steps, step{s.Command + " gen --lang " + s.Language.Name + " " + to[s.Language] + " placement.proto", "write what the plugin is written with"})
	}
	s.Steps = append(s.Steps,
		step{s.Command + " build", "write " + s.Name + ".wasm"},
		step{s.Command + " test cases.yaml " + s.Name + ".wasm", "in the real host"})
	s.planModule()
}

// fill makes the files of the templates.
func (s *scaffold) fill() error {
	language := s.Language.Name
	s.text = map[string][]byte{}
	sources := map[string]string{} // The templates, by the files that they make.
	root := path.Join("templates", language)
	err := fs.WalkDir(templates, root, func(file string, e fs.DirEntry, err error) error {
		inside, ofKind := strings.CutPrefix(file, path.Join(root, s.Kind)+"/")
		if err != nil || e.IsDir() || !ofKind && path.Dir(file) != root {
			return err
		}
		if !ofKind {
			inside = path.Base(file)
		}
		sources[strings.Replace(strings.TrimSuffix(inside, ".tmpl"), "NAME", s.Package, 1)] = file
		return nil
	})
	if err != nil {
		return err
	}
	if s.Module == "" {
		delete(sources, "go.mod")
	}
	for _, f := range s.files() {
		if sources[f.Name] != "" {
			s.Files = append(s.Files, f)
		}
	}
	if len(s.Files) != len(sources) {
		panic(fmt.Sprintf("templates of %v, texts of %v", sources, s.Files))
	}
	for name, source := range sources {
		text, err := fs.ReadFile(templates, source)
		if err != nil {
			return err
		}
		if s.text[name] = text; strings.HasSuffix(source, ".tmpl") {
			var b bytes.Buffer
			if err := template.Must(template.New(source).Parse(string(text))).Execute(&b, s); err != nil {
				return err
			}
			s.text[name] = b.Bytes()
		}
	}
	return nil
}

// write writes the files, or none if one of them exists.
func (s *scaffold) write() error {
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return err
	}
	var exist []string
	for _, f := range s.Files {
		if _, err := os.Lstat(filepath.Join(s.dir, f.Name)); err == nil {
			exist = append(exist, f.Name)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if len(exist) != 0 {
		return fmt.Errorf("the directory has %s already, and nothing is overwritten", strings.Join(exist, ", "))
	}
	for _, f := range s.Files {
		name := filepath.Join(s.dir, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, s.text[f.Name], 0o644); err != nil {
			return err
		}
	}
	return nil
}

// print prints the files and the steps.
func (s *scaffold) print(t *tool) {
	w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s in %s:\n\n", s.Title(), s.Language.Title)
	for _, f := range s.Files {
		fmt.Fprintf(w, "  %s\t%s\n", filepath.Join(s.dir, f.Name), f.Purpose)
	}
	_ = w.Flush() // There is no other place to write to.
	fmt.Fprint(w, "\nNext:\n\n")
	if filepath.Clean(s.dir) != "." {
		fmt.Fprintf(w, "  cd %s\n", s.dir)
	}
	for _, line := range s.Lines() {
		fmt.Fprintf(w, "  %s\n", line)
	}
	_ = w.Flush() // There is no other place to write to.
}

// Lines returns the steps as lines of a shell.
func (s *scaffold) Lines() []string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, step := range s.Steps {
		fmt.Fprintf(w, "%s\t# %s\n", step.Command, step.Comment)
	}
	_ = w.Flush() // A Builder takes everything.
	return strings.Split(strings.TrimSpace(b.String()), "\n")
}

// library is the origin of the module kubewasm for a plugin.
type library struct {
	// Version is the version of the module, empty if it is not known.
	Version string
	// Checkout is the directory of the module that this program was built from, empty if
	// it came from a module proxy.
	Checkout string
}

// thisLibrary returns the module that this program is a part of.
func thisLibrary() library {
	if m := libraryModule(); m == nil {
		return library{}
	} else if m.Sum != "" && m.Replace == nil {
		return library{Version: m.Version}
	}
	// Built from a directory, which the compiler has recorded unless -trimpath was set.
	_, file, _, _ := runtime.Caller(0)
	root := filepath.Dir(filepath.Dir(filepath.Dir(file)))
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil || !filepath.IsAbs(file) {
		return library{}
	}
	return library{Checkout: root}
}

// moduleAround returns the path of the module that a new file in dir would be part of, and
// the directory of the module. They are empty if there is none.
func moduleAround(ctx context.Context, dir string) (module, root string, err error) {
	for {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			break
		}
		dir = filepath.Dir(dir)
	}
	run := func(args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOWORK=off")
		out, err := cmd.Output()
		if errors.Is(err, exec.ErrNotFound) {
			return "", guestbuild.ErrNoGo
		}
		return strings.TrimSpace(string(out)), err
	}
	file, err := run("env", "GOMOD")
	if err != nil || file == "" || file == os.DevNull {
		return "", "", err
	}
	module, err = run("list", "-m")
	return module, filepath.Dir(file), err
}
