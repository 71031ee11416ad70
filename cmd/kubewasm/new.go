package main

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
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

	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/nearest"
)

// templates has a directory for each language, and in it one for each kind of plugin. The
// files beside those belong to plugins of all kinds. A file whose name ends with .tmpl is
// a template of a [scaffold].
//
//go:embed templates
var templates embed.FS

// scaffold is a plugin to be written.
type scaffold struct {
	Kind, Name string
	// Module is the path of a new module, empty for a plugin that becomes a package of
	// the module around it.
	Module  string
	Library library
	Files   []scaffoldFile
	Steps   []step

	dir  string
	text map[string][]byte // By the names of Files.
}

// scaffoldFile is a file of a scaffold.
type scaffoldFile struct{ Name, Purpose string }

// step is a command for the author of the plugin.
type step struct{ Command, Comment string }

var languageNames = map[string]string{"go": "Go"}

// kindTexts are the words about the templates of a kind.
type kindTexts struct{ title, does, objects string }

var textsOfKinds = map[string]kindTexts{
	"scheduler": {"A scheduler plugin", "keeps Pods in one zone", "two Nodes and a Pod"},
	"admission": {"An admission plugin", "requires labels of new Pods", "two Pods, one of them without the label"},
	"hook":      {"A runtime hook", "gives the Pods of one tier few CPU shares", "two Pods, one of them of the tier"},
}

// Title returns the kind with an article.
func (s *scaffold) Title() string { return textsOfKinds[s.Kind].title }

// purpose returns what a file is.
func (s *scaffold) purpose(file string) string {
	switch file {
	case "main.go":
		return "the plugin, which " + textsOfKinds[s.Kind].does
	case "main_test.go":
		return "its test"
	case "config.yaml":
		return "its configuration"
	case "objects.yaml":
		return textsOfKinds[s.Kind].objects + ", to run it on"
	case "go.mod":
		return "its module, " + s.Module
	default:
		return "the commands below"
	}
}

// namePattern is what a plugin may be called: the name is part of file names, module paths
// and, of a policy, of annotations.
var namePattern = regexp.MustCompile(`^[a-z0-9]([-.a-z0-9]{0,61}[a-z0-9])?$`)

func newPlugin(ctx context.Context, t *tool, args []string) error {
	flags := t.flags("new")
	kind := flags.String("kind", "", "")
	language := flags.String("lang", "go", "")
	module := flags.String("module", "", "")
	name := flags.String("name", "", "")
	dir, err := parse(flags, args, "")
	if err != nil {
		return err
	}
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("new: %w", err)
	}
	languages := directories("templates")
	if !slices.Contains(languages, *language) {
		return fmt.Errorf("new: no template in the language %q, only in %s; abi/SPEC.md is all that a guest in another language needs", *language, strings.Join(languages, ", "))
	}
	kinds := directories("templates/" + *language)
	if *kind == "" {
		return &usageError{fmt.Errorf("new: name a kind with -kind: %s", strings.Join(kinds, ", "))}
	}
	if !slices.Contains(kinds, *kind) {
		return &usageError{fmt.Errorf("new: unknown kind %q%s", *kind, nearest.Hint("; ", *kind, kinds))}
	}
	s := &scaffold{Kind: *kind, Name: cmp.Or(*name, filepath.Base(absolute)), Module: *module, Library: thisLibrary(), dir: dir}
	if !namePattern.MatchString(s.Name) {
		return fmt.Errorf("new %s: %q is no name of a plugin: give one of small letters, digits, - and . with -name", dir, s.Name)
	}
	around, err := moduleAround(ctx, absolute)
	if err != nil {
		return fmt.Errorf("new %s: %w", dir, err)
	}
	if s.Module == "" && around == "" {
		s.Module = "example.com/" + s.Name
	}
	s.plan(around)
	if err := s.fill(*language); err != nil {
		return fmt.Errorf("new %s: %w", dir, err)
	}
	if err := s.write(); err != nil {
		return fmt.Errorf("new %s: %w", dir, err)
	}
	s.print(t, languageNames[*language])
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
	command := "go tool kubewasm"
	switch {
	case s.Module != "":
		s.Steps = append(s.Steps, step{"go mod tidy", fetch})
	case around == libraryPath:
		command = "go run " + commandPath
	case s.Library.Checkout != "":
		s.Steps = append(s.Steps,
			step{"go mod edit -replace=" + libraryPath + "=" + s.Library.Checkout, "use this checkout of kubewasm"},
			step{"go get -tool " + commandPath, fetch})
	default:
		s.Steps = append(s.Steps, step{"go get -tool " + commandPath + "@" + cmp.Or(s.Library.Version, "latest"), fetch})
	}
	s.Steps = append(s.Steps,
		step{"go test", "natively, and as WebAssembly in the real host"},
		step{command + " build", "write " + s.Name + ".wasm"},
		step{command + " inspect " + s.Name + ".wasm", "what it implements, imports and needs"},
		step{command + " run -config config.yaml -f objects.yaml " + s.Name + ".wasm", "what it decides"},
	)
}

// fill makes the files of the templates.
func (s *scaffold) fill(language string) error {
	s.text = map[string][]byte{}
	sources := map[string]string{} // The templates, by the files that they make.
	for _, dir := range []string{path.Join("templates", language, s.Kind), path.Join("templates", language)} {
		entries, err := templates.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			name := strings.TrimSuffix(e.Name(), ".tmpl")
			if e.IsDir() || name == "go.mod" && s.Module == "" {
				continue
			}
			sources[name] = path.Join(dir, e.Name())
			s.Files = append(s.Files, scaffoldFile{name, s.purpose(name)})
		}
	}
	slices.SortFunc(s.Files, func(a, b scaffoldFile) int {
		order := []string{"main.go", "main_test.go", "config.yaml", "objects.yaml", "go.mod", "README.md"}
		return cmp.Compare(slices.Index(order, a.Name), slices.Index(order, b.Name))
	})
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
		if err := os.WriteFile(filepath.Join(s.dir, f.Name), s.text[f.Name], 0o644); err != nil {
			return err
		}
	}
	return nil
}

// print prints the files and the steps.
func (s *scaffold) print(t *tool, language string) {
	w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s in %s:\n\n", s.Title(), language)
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

// library is where a plugin gets the module kubewasm from.
type library struct {
	// Version is the version of the module, empty if it is not known.
	Version string
	// Checkout is the directory of the module that this program was built from, empty if
	// it came from a module proxy.
	Checkout string
}

// thisLibrary returns the module that this program is a part of.
func thisLibrary() library {
	if m := ownModule(); m == nil {
		return library{}
	} else if m.Sum != "" && m.Replace == nil {
		return library{Version: m.Version}
	}
	// Built from a directory, which the compiler has noted unless it was told -trimpath.
	_, file, _, _ := runtime.Caller(0)
	root := filepath.Dir(filepath.Dir(filepath.Dir(file)))
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil || !filepath.IsAbs(file) {
		return library{}
	}
	return library{Checkout: root}
}

// moduleAround returns the path of the module that a new file in dir would be part of,
// empty if there is none.
func moduleAround(ctx context.Context, dir string) (string, error) {
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
		return "", err
	}
	return run("list", "-m")
}
