package guestbuild

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/internal/nearest"
	"github.com/kubewasm/kubewasm/internal/objects"
	"github.com/kubewasm/kubewasm/internal/wasmbin"
)

// Directives are the comments from which the metadata of a guest are made. Each is on a line
// of its own, in any file of the package main, or of a guest in C or AssemblyScript:
//
//	//kubewasm:name zone
//	//kubewasm:version 1.2.0
//	//kubewasm:source https://github.com/acme/zone
//	//kubewasm:licenses Apache-2.0 OR MIT
//	//kubewasm:reads node.metadata.labels node.spec.taints
//
// reads may occur several times; a hook names fields of its request and entries
// of their maps: pod_annotations[kubewasm.dev/cpu]. So may decides, which is for
// hooks and names what their decisions set: container_envs[GOGC]. So may matches, which
// is for admission plugins: the operations, and the resources as kubectl names them, in
// all versions unless one is there:
//
//	//kubewasm:matches CREATE,UPDATE pods pods/ephemeralcontainers deployments.apps stellarnodes.v1alpha1.stellar.org
//
// Without a name it is that of the directory.
var Directives = []string{"name", "version", "source", "licenses", "reads", "decides", "matches", "state"}

const directivePrefix = "//kubewasm:"

// SourceError is a mistake in the source of a guest that the compiler does not see.
type SourceError struct {
	// Pos is the position of the mistake, with a file name relative to the guest's
	// directory.
	Pos token.Position
	Err error
}

func (e *SourceError) Error() string {
	return fmt.Sprintf("%s:%d: %v", e.Pos.Filename, e.Pos.Line, e.Err)
}

func (e *SourceError) Unwrap() error { return e.Err }

// source has the directives of a guest.
type source struct {
	name, version, source, licenses, state string
	// sdk is the path and the version of the SDK that the guest is written with, empty if there
	// is none.
	sdk     string
	reads   []paths
	decides []paths
	matches []paths
	// hosts has a line for each import of a package that is for components, and not for guests.
	hosts []string
}

// paths is a directive that lists paths.
type paths struct {
	pos   token.Position
	paths []string
}

// readSource reads the files of the package in dir that are built for guests.
func readSource(ctx context.Context, dir string) (*source, error) {
	guests := build.Default
	guests.GOOS, guests.GOARCH, guests.CgoEnabled = "wasip1", "wasm", false
	pkg, err := guests.ImportDir(dir, 0)
	var none *build.NoGoError
	switch {
	case errors.As(err, &none):
		if found, _ := filepath.Glob(filepath.Join(globEscape.Replace(dir), "*.go")); len(found) == 0 {
			return nil, errors.New("there is no source of a guest in it: want files in Go or C, a Cargo.toml or an asconfig.json; kubewasm new writes a plugin")
		}
		return nil, errors.New("not a Go package: there are no Go files for GOOS=wasip1 GOARCH=wasm")
	case err != nil:
		return nil, err
	case pkg.Name != "main":
		return nil, fmt.Errorf("package %s is not a guest: want a package main with func main() {}", pkg.Name)
	}
	s := &source{name: filepath.Base(dir), sdk: goSDK(ctx, dir)}
	seen := map[string]bool{}
	files := token.NewFileSet()
	var errs []error
	for _, name := range pkg.GoFiles {
		file, err := parser.ParseFile(files, filepath.Join(dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			continue // The compiler says it better.
		}
		for _, imported := range file.Imports {
			path := strings.Trim(imported.Path.Value, `"`)
			if hint := hintHost(path); hint != "" {
				s.hosts = append(s.hosts, fmt.Sprintf("%s:%d: %s", name, files.Position(imported.Pos()).Line, hint))
			}
		}
		for comment := range comments(file) {
			pos := files.Position(comment.Pos())
			pos.Filename = name // In the guest's directory.
			var err error
			if err = s.addComment(pos, comment.Text, seen); err != nil {
				errs = append(errs, &SourceError{pos, err})
			}
		}
	}
	return s, errors.Join(errs...)
}

// hintHost names the package that a guest imports in place of one that is for components, empty if
// path is none of these.
func hintHost(path string) string {
	name, own := strings.CutPrefix(path, modulePath+"/")
	switch name {
	case "sched", "admission", "hooks":
		return fmt.Sprintf("package %s is for components: a guest imports %s/guest/%s", path, modulePath, name)
	}
	if own && !strings.HasPrefix(name, "guest/") && name != "abi" && !strings.HasPrefix(name, "abi/") && !strings.HasPrefix(name, "examples/") {
		return fmt.Sprintf("package %s is for components: a guest imports packages of %s/guest", path, modulePath)
	}
	return ""
}

// almostRE matches a comment that was meant to be a directive: one with a space, which gofmt
// adds to other comments, one of the form /* */, or one in another case.
var almostRE = regexp.MustCompile(`^(?://|/\*)\s*(?i:kubewasm:)\s*(` + strings.Join(Directives, "|") + `)\b`)

// comments yields the comments of a file.
func comments(file *ast.File) func(yield func(*ast.Comment) bool) {
	return func(yield func(*ast.Comment) bool) {
		for _, group := range file.Comments {
			for _, comment := range group.List {
				if !yield(comment) {
					return
				}
			}
		}
	}
}

// addComment adds the directive that a comment is, if it is one.
func (s *source) addComment(pos token.Position, comment string, seen map[string]bool) error {
	if text, ok := strings.CutPrefix(comment, directivePrefix); ok {
		return s.add(pos, text, seen)
	}
	if almost := almostRE.FindStringSubmatch(comment); almost != nil {
		return fmt.Errorf("%s is a comment, not a directive: write %s%s", almost[0], directivePrefix, almost[1])
	}
	return nil
}

func (s *source) add(pos token.Position, text string, seen map[string]bool) error {
	directive, rest, _ := strings.Cut(text, " ")
	words := strings.Fields(rest)
	switch {
	case !slices.Contains(Directives, directive):
		return fmt.Errorf("there is no directive %s%s%s", directivePrefix, directive, nearest.Hint("; ", directive, Directives))
	case len(words) == 0:
		return fmt.Errorf("%s%s says nothing", directivePrefix, directive)
	case directive == "reads":
		s.reads = append(s.reads, paths{pos, words})
		return nil
	case directive == "decides":
		s.decides = append(s.decides, paths{pos, words})
		return nil
	case directive == "matches":
		if len(words) == 1 {
			return fmt.Errorf("%smatches is operations and resources, as in CREATE,UPDATE pods; %q is one of them", directivePrefix, words[0])
		}
		s.matches = append(s.matches, paths{pos, words})
		return nil
	case len(words) > 1 && directive != "licenses":
		return fmt.Errorf("%s%s is one word, not %q", directivePrefix, directive, strings.TrimSpace(rest))
	case seen[directive]:
		return fmt.Errorf("%s%s is there twice", directivePrefix, directive)
	}
	seen[directive] = true
	switch directive {
	case "name":
		s.name = words[0]
	case "version":
		s.version = words[0]
	case "source":
		s.source = words[0]
	case "state":
		s.state = words[0]
	case "licenses":
		s.licenses = strings.Join(words, " ")
	}
	return nil
}

// ErrNothingRegistered is returned for a program that imports no package for plugins.
var ErrNothingRegistered = errors.New("the program registers no plugin: it imports none of guest/sched, guest/admission and guest/hooks, and no package of a service")

// nothingRegistered is ErrNothingRegistered in the words of another language than Go.
type nothingRegistered struct{ text string }

func (e *nothingRegistered) Error() string { return e.text }
func (e *nothingRegistered) Unwrap() error { return ErrNothingRegistered }

// kindsOf returns the kinds of plugin that a module is. An SDK in Go imports the module of
// its kind, whatever the plugin implements. A module that imports none is what it exports.
func kindsOf(m *wasmbin.Module) (kinds []string) {
	for _, kind := range []abi.Kind{abi.KindScheduler, abi.KindAdmission, abi.KindHook, abi.KindService} {
		if slices.ContainsFunc(m.Imports, func(i wasmbin.Import) bool { return i.Module == kind.Module() }) {
			kinds = append(kinds, kind.String())
		}
	}
	if len(kinds) != 0 {
		return kinds
	}
	exported := abi.Mask(0)
	for f := range abi.Function(63) {
		name := f.Signature().Name
		if name != "" && slices.ContainsFunc(m.Exports, func(e wasmbin.Export) bool { return e.Name == name && e.Kind == wasmbin.ExternFunc }) {
			exported |= abi.MaskOf(f)
		}
	}
	for _, kind := range []abi.Kind{abi.KindScheduler, abi.KindAdmission, abi.KindHook, abi.KindService} {
		if exported.Of(kind) != 0 {
			kinds = append(kinds, kind.String())
		}
	}
	return kinds
}

// metadata returns the metadata of the module that was built from the source.
func (s *source) metadata(module []byte) (*metadata.Metadata, error) {
	decoded, err := wasmbin.Decode(module)
	if err != nil {
		return nil, err
	}
	m := &metadata.Metadata{Name: s.name, Version: s.version, Source: s.source, Licenses: s.licenses, State: s.state, SDK: s.sdk, ABI: 1}
	m.Kinds = kindsOf(decoded)
	switch len(m.Kinds) {
	case 0:
		return nil, ErrNothingRegistered
	case 1:
	default:
		return nil, fmt.Errorf("the program imports the SDK of several kinds of plugins, %s, and no host takes such a module: build a program for each, which import what they share", strings.Join(m.Kinds, " and "))
	}
	var errs []error
	for _, r := range s.reads {
		if err := checkPaths(m.Kinds, r.paths); err != nil {
			errs = append(errs, &SourceError{r.pos, err})
			continue
		}
		m.Reads = append(m.Reads, r.paths...)
	}
	slices.Sort(m.Reads)
	m.Reads = slices.Compact(m.Reads)
	if len(errs) == 0 && len(m.Reads) != 0 {
		if err := checkPaths(m.Kinds, m.Reads); err != nil {
			errs = append(errs, &SourceError{s.reads[0].pos, err})
		}
	}
	for _, d := range s.decides {
		if err := checkKind(m.Kinds, "decides", abi.KindHook, "hooks"); err != nil {
			errs = append(errs, &SourceError{d.pos, err})
		}
		for _, path := range d.paths {
			if _, _, err := hookmsg.ParseField(path); err != nil {
				errs = append(errs, &SourceError{d.pos, fmt.Errorf("decides: %w", err)})
			}
		}
		m.Decides = append(m.Decides, d.paths...)
	}
	slices.Sort(m.Decides)
	m.Decides = slices.Compact(m.Decides)
	for _, d := range s.matches {
		rules := rulesOf(d.paths)
		if err := (&metadata.Metadata{Matches: rules, ABI: 1}).Validate(); err != nil {
			errs = append(errs, &SourceError{d.pos, err})
		}
		if err := checkKind(m.Kinds, "matches", abi.KindAdmission, "admission plugins"); err != nil {
			errs = append(errs, &SourceError{d.pos, err})
		}
		m.Matches = append(m.Matches, rules...)
	}
	return m, errors.Join(errs...)
}

// checkKind returns an error for a directive of one kind of plugins in a guest of others.
func checkKind(kinds []string, directive string, kind abi.Kind, plugins string) error {
	if slices.Equal(kinds, []string{kind.String()}) {
		return nil
	}
	return fmt.Errorf("%s%s is for %s; this one is for %s", directivePrefix, directive, plugins, strings.Join(kinds, " and "))
}

// checkOwn returns an error for metadata that a module has itself and its kinds do not fit.
func checkOwn(m *metadata.Metadata) error {
	var errs []error
	if len(m.Reads) != 0 {
		errs = append(errs, checkPaths(m.Kinds, m.Reads))
	}
	if len(m.Decides) != 0 {
		errs = append(errs, checkKind(m.Kinds, "decides", abi.KindHook, "hooks"))
		for _, path := range m.Decides {
			if _, _, err := hookmsg.ParseField(path); err != nil {
				errs = append(errs, fmt.Errorf("decides: %w", err))
			}
		}
	}
	if len(m.Matches) != 0 {
		errs = append(errs, checkKind(m.Kinds, "matches", abi.KindAdmission, "admission plugins"))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("metadata: %w", err)
	}
	return nil
}

var versionRE = regexp.MustCompile(`^v[0-9]+((alpha|beta)[0-9]+)?$`)

// ParseRules returns the rules of the text of a directive matches, such as
// "CREATE,UPDATE pods deployments.apps".
func ParseRules(text string) ([]metadata.Rule, error) {
	words := strings.Fields(text)
	if len(words) < 2 {
		return nil, fmt.Errorf("%q is not operations and resources, as in CREATE,UPDATE pods", text)
	}
	rules := rulesOf(words)
	return rules, (&metadata.Metadata{Matches: rules, ABI: 1}).Validate()
}

// rulesOf returns the rules of a directive: one for each group and version.
func rulesOf(words []string) (rules []metadata.Rule) {
	operations := strings.Split(words[0], ",")
	for _, word := range words[1:] {
		name, sub, hasSub := strings.Cut(word, "/")
		resource, group, _ := strings.Cut(name, ".")
		version := "*"
		if first, rest, _ := strings.Cut(group, "."); versionRE.MatchString(first) {
			version, group = first, rest
		}
		if hasSub {
			resource += "/" + sub
		}
		if i := slices.IndexFunc(rules, func(r metadata.Rule) bool { return r.APIGroups[0] == group && r.APIVersions[0] == version }); i >= 0 {
			rules[i].Resources = append(rules[i].Resources, resource)
			continue
		}
		rules = append(rules, metadata.Rule{Operations: operations, APIGroups: []string{group}, APIVersions: []string{version}, Resources: []string{resource}})
	}
	return rules
}

// checkPaths returns an error for paths that a guest of these kinds cannot read.
func checkPaths(kinds []string, paths []string) error {
	var err error
	switch {
	case slices.Equal(kinds, []string{abi.KindScheduler.String()}):
		_, err = objects.ParseFieldSet(paths)
	case slices.Equal(kinds, []string{abi.KindHook.String()}):
		_, err = hookmsg.ParseReads(paths)
	default:
		err = fmt.Errorf("%sreads is for scheduler plugins and for hooks; this one is for %s", directivePrefix, strings.Join(kinds, " and "))
	}
	return err
}

const modulePath = "github.com/kubewasm/kubewasm"

// sdk returns the path of a package of this module, and the version of the module if it is one
// that others have as well: not that of a checkout, which depends on how the program was built.
func sdk(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return path
	}
	for _, m := range info.Deps {
		if m.Path == modulePath && m.Replace == nil {
			return strings.TrimSpace(path + " " + m.Version)
		}
	}
	checkout := slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "vcs" })
	if info.Main.Path == modulePath && info.Main.Version != "(devel)" && !checkout {
		return strings.TrimSpace(path + " " + info.Main.Version)
	}
	return path
}

// goSDK returns the SDK that the Go module around a directory requires: its path and version,
// the latter empty for a checkout.
func goSDK(ctx context.Context, dir string) string {
	cmd, err := goCommand(ctx, dir, "list", "-m", "-f", "{{with .Replace}}{{.Version}}{{else}}{{.Version}}{{end}}", modulePath)
	if err != nil {
		return modulePath
	}
	version, err := cmd.Output()
	if err != nil {
		return modulePath // The compiler says what is wrong with the module.
	}
	return strings.TrimSpace(modulePath + " " + string(version))
}
