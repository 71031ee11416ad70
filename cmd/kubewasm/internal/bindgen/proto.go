package bindgen

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/kubewasm/kubewasm/internal/serviceschema"
)

// ProtoConfig is the source of views of messages.
type ProtoConfig struct {
	// File is the path by which other .proto files import the file.
	File string
	// Dirs are searched in order for File and for the files that it imports.
	Dirs []string
	// Find returns the directory with the Go package, for .proto files that lie
	// beside Go packages, as those of Kubernetes do. It may be nil.
	Find func(importPath string) (dir string, err error)
	// Package is the name of the package of views, Path its import path.
	Package, Path string
	// Imports are the import paths of packages of views, by the directories of the
	// .proto files. The packages of guest/api are known.
	Imports map[string]string
}

const sdk = "github.com/kubewasm/kubewasm/guest/api/"

// sdkPackages are the views that the SDK has, by the directories of the .proto
// files.
var sdkPackages = map[string]string{
	"k8s.io/apimachinery/pkg/apis/meta/v1": sdk + "meta",
	"k8s.io/api/admission/v1":              sdk + "admission",
	"k8s.io/api/apps/v1":                   sdk + "apps",
	"k8s.io/api/authentication/v1":         sdk + "authentication",
	"k8s.io/api/autoscaling/v2":            sdk + "autoscaling",
	"k8s.io/api/batch/v1":                  sdk + "batch",
	"k8s.io/api/core/v1":                   sdk + "core",
	"k8s.io/api/networking/v1":             sdk + "networking",
	"k8s.io/api/policy/v1":                 sdk + "policy",
	"k8s.io/api/rbac/v1":                   sdk + "rbac",
	"k8s.io/api/resource/v1":               sdk + "resourceapi",
	"k8s.io/api/scheduling/v1":             sdk + "scheduling",
	"k8s.io/api/scheduling/v1alpha3":       sdk + "schedulingv1alpha3",
	"k8s.io/api/storage/v1":                sdk + "storage",
}

// values are the messages that are not read as views.
var values = map[protoreflect.FullName]Type{
	"k8s.io.apimachinery.pkg.api.resource.Quantity":     value(sdk+"resource", "Quantity", "Read", "Append"),
	"k8s.io.apimachinery.pkg.util.intstr.IntOrString":   value(sdk+"intstr", "IntOrString", "Read", "Append"),
	"k8s.io.apimachinery.pkg.apis.meta.v1.Time":         value(sdk+"meta", "Time", "ReadTime", "AppendTime"),
	"k8s.io.apimachinery.pkg.apis.meta.v1.MicroTime":    value(sdk+"meta", "Time", "ReadMicroTime", "AppendMicroTime"),
	"k8s.io.apimachinery.pkg.apis.meta.v1.Duration":     value(sdk+"meta", "Duration", "ReadDuration", "AppendDuration"),
	"k8s.io.apimachinery.pkg.apis.meta.v1.GroupVersion": value(sdk+"meta", "GroupVersion", "ReadGroupVersion", ""),
	"k8s.io.apimachinery.pkg.apis.meta.v1.FieldsV1":     rawBytes(""),
	"k8s.io.apimachinery.pkg.runtime.RawExtension":      rawBytes("AppendRaw"),
	serviceschema.Timestamp:                             google("Time", "ReadTimestamp", "AppendTimestamp", "timestamp"),
	serviceschema.Duration:                              google("Duration", "ReadSpan", "AppendSpan", "duration"),
}

// value returns the type of a message that the functions read and write of a package read and
// write.
func value(in, goType, read, write string) Type {
	t := Type{Kind: ValueKind, GoType: Symbol{in, goType}, Read: Symbol{in, read}}
	if write != "" {
		t.Append = Symbol{in, write}
	}
	return t
}

// rawBytes returns the type of a message that is bytes.
func rawBytes(write string) Type {
	t := value(sdk+"meta", "", "ReadRaw", write)
	t.GoType = Symbol{"", "[]byte"}
	return t
}

// google returns the type of a message of google.protobuf, which has the types of package meta
// in hosts, too.
func google(goType, read, write, wire string) Type {
	t := value(sdk+"meta", goType, read, write)
	t.Host, t.Wire = Symbol{"k8s.io/apimachinery/pkg/apis/meta/v1", goType}, wire
	return t
}

// listOfStrings is the type of a message that is a list of strings in Go and JSON.
var listOfStrings = Type{Kind: ValueKind, GoType: Symbol{"", "[]string"}, Read: Symbol{sdk + "meta", "ReadStrings"}}

// Proto returns the package of views for a .proto file.
func Proto(ctx context.Context, c ProtoConfig) (*Package, error) {
	r := &protoReader{config: c, goSources: map[string]*goSource{}, others: map[protoreflect.FullName]bool{}, filesOfOthers: map[string]protoreflect.FileDescriptor{}}
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{Accessor: r.open}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	if err := r.checkSources(); err != nil {
		return nil, fmt.Errorf("compile %s: %w", c.File, err)
	}
	files, err := compiler.Compile(ctx, c.File)
	if err != nil {
		return nil, fmt.Errorf("compile %s: %w", c.File, err)
	}
	r.file = files[0]
	return r.read()
}

type protoReader struct {
	config    ProtoConfig
	file      protoreflect.FileDescriptor
	goSources map[string]*goSource
	out       Package
	errs      []error
	// others are the messages and enumerations of other files that the services have, by
	// their full names, and waiting those that are not read yet.
	others  map[protoreflect.FullName]bool
	waiting []protoreflect.Descriptor
	// filesOfOthers are their files, by their paths.
	filesOfOthers map[string]protoreflect.FileDescriptor
}

// open opens a .proto file. Its name may be that of an import, which stays within the
// directories.
func (r *protoReader) open(name string) (io.ReadCloser, error) {
	if name != r.config.File && (!fs.ValidPath(name) || strings.ContainsFunc(name, func(c rune) bool { return !unicode.IsPrint(c) })) {
		return nil, fmt.Errorf("%.60q is no path of a file within a directory of -I", name)
	}
	for _, dir := range r.config.Dirs {
		text, err := ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if err == nil || !errors.Is(err, os.ErrNotExist) {
			return io.NopCloser(bytes.NewReader(text)), err
		}
	}
	if dir := path.Dir(name); r.config.Find == nil || dir == "." || !strings.Contains(dir, ".") {
		if _, err := os.Stat(name); err == nil && name == r.config.File {
			return nil, fmt.Errorf("it is named by its path in a directory of -I, as in -I %s %s", filepath.Dir(name), filepath.Base(name))
		}
		return nil, fmt.Errorf("no directory of -I has it: %w", os.ErrNotExist)
	}
	dir, err := r.config.Find(path.Dir(name))
	if err != nil {
		return nil, err
	}
	text, err := ReadFile(filepath.Join(dir, path.Base(name)))
	return io.NopCloser(bytes.NewReader(text)), err
}

// goSource returns the Go types beside a .proto file, nil if there are none.
func (r *protoReader) goSource(file protoreflect.FileDescriptor) *goSource {
	name := path.Dir(file.Path())
	if s, ok := r.goSources[name]; ok {
		return s
	}
	var s *goSource
	// Only files that are generated from Go types.
	if r.config.Find != nil && path.Base(file.Path()) == "generated.proto" && strings.Contains(name, ".") {
		dir, err := r.config.Find(name)
		if err == nil {
			s, err = readGo(dir)
		}
		if err != nil {
			r.errs = append(r.errs, fmt.Errorf("read Go types of %s: %w", name, err))
		}
	}
	r.goSources[name] = s
	return s
}

func (r *protoReader) read() (*Package, error) {
	r.out = Package{Name: r.config.Package, Path: r.config.Path, Source: r.config.File, Places: map[string]string{}}
	source := r.goSource(r.file)
	if source != nil {
		r.out.Constants = source.constants
	}
	if r.file.Extensions().Len() != 0 {
		x := r.file.Extensions().Get(0)
		r.mistake("%s: %s: extensions are not read", at(x), x.FullName())
	}
	r.messages(r.file.Messages())
	r.enums(r.file.Enums())
	r.readOthers()
	r.checkNames()
	r.services()
	return &r.out, errors.Join(r.errs...)
}

func (r *protoReader) messages(list protoreflect.MessageDescriptors) {
	for i := range list.Len() {
		m := list.Get(i)
		if m.IsMapEntry() {
			continue
		}
		if t, err := r.messageType(m); err == nil && (t.Kind == ValueKind || t.Kind == ObjectKind) {
			continue
		}
		r.message(m)
		r.messages(m.Messages())
		r.enums(m.Enums())
	}
}

func (r *protoReader) message(m protoreflect.MessageDescriptor) {
	out := &Message{Name: goName(m), FullName: string(m.FullName()), Doc: doc(m), At: r.place(m)}
	if m.ExtensionRanges().Len() != 0 || m.Extensions().Len() != 0 {
		r.mistake("%s: %s: extensions are not read", at(m), m.FullName())
	}
	var fields map[uint32]goField
	source := r.goSource(r.file)
	if source != nil {
		fields = source.structs[string(m.Name())]
	}
	// Every message of Kubernetes that is sent by itself has a kind.
	out.Root = source == nil || source.kinds[string(m.Name())]
	for i := range m.Fields().Len() {
		fd := m.Fields().Get(i)
		f, err := r.field(fd, fields[uint32(fd.Number())])
		if err != nil {
			r.errs = append(r.errs, fmt.Errorf("%s: %s: %w", at(fd), fd.FullName(), err))
			continue
		}
		if f.Number == 1 && f.JSONName == "metadata" && f.Type.Name == "ObjectMeta" {
			out.Kind = out.Root
		}
		out.Fields = append(out.Fields, f)
	}
	r.out.Messages = append(r.out.Messages, out)
}

func (r *protoReader) field(fd protoreflect.FieldDescriptor, g goField) (*Field, error) {
	f := &Field{
		Name: exported(string(fd.Name())), JSONName: fd.JSONName(), Doc: doc(fd), Number: uint32(fd.Number()),
		Repeated: fd.IsList(), Map: fd.IsMap(), Presence: fd.HasPresence(), At: r.place(fd),
	}
	if err := honoured(fd); err != nil {
		return nil, err
	}
	if !tagNameRE.MatchString(f.JSONName) {
		return nil, fmt.Errorf("json_name %.60q: want letters, digits and punctuation that a tag of a Go struct can have", f.JSONName)
	}
	if one := fd.ContainingOneof(); one != nil && !one.IsSynthetic() {
		f.Oneof = string(one.Name())
	}
	if r.goSource(r.file) != nil {
		// For a struct that is not a pointer, protobuf and JSON differ about
		// presence.
		f.Presence = g.pointer
		if g.name != "" {
			f.Name = g.name
		}
		if g.json != "" {
			f.JSONName = g.json
		}
		f.Inlined = g.embedded && g.json == ""
	}
	element := fd
	if f.Map {
		if fd.MapKey().Kind() != protoreflect.StringKind {
			return nil, fmt.Errorf("maps have strings for keys, not %s", fd.MapKey().Kind())
		}
		element = fd.MapValue()
	}
	t, err := r.fieldType(element)
	f.Type = t
	return f, err
}

// tagNameRE matches the names that package encoding/json takes from tags.
var tagNameRE = regexp.MustCompile(`^[\p{L}\p{Nd}!#$%&()*+\-./:;<=>?@\[\]^_{|}~ ]+$`)

var kinds = map[protoreflect.Kind]Kind{
	protoreflect.StringKind: String, protoreflect.BytesKind: Bytes, protoreflect.BoolKind: Bool,
	protoreflect.Int32Kind: Int32, protoreflect.Int64Kind: Int64, protoreflect.Uint32Kind: Uint32, protoreflect.Uint64Kind: Uint64,
	protoreflect.Sint32Kind: Sint32, protoreflect.Sint64Kind: Sint64,
	protoreflect.Fixed32Kind: Fixed32, protoreflect.Fixed64Kind: Fixed64, protoreflect.Sfixed32Kind: Sfixed32, protoreflect.Sfixed64Kind: Sfixed64,
	protoreflect.FloatKind: Float, protoreflect.DoubleKind: Double,
}

func (r *protoReader) fieldType(fd protoreflect.FieldDescriptor) (Type, error) {
	switch fd.Kind() {
	case protoreflect.MessageKind:
		return r.messageType(fd.Message())
	case protoreflect.EnumKind:
		pkg, err := r.packageOf(fd.Enum())
		return Type{Kind: EnumKind, Package: pkg, Name: goName(fd.Enum())}, err
	}
	kind, ok := kinds[fd.Kind()]
	if !ok {
		return Type{}, fmt.Errorf("there are no views of %s", fd.Kind())
	}
	return Type{Kind: kind}, nil
}

func (r *protoReader) messageType(m protoreflect.MessageDescriptor) (Type, error) {
	if t, ok := r.resource(m); ok {
		return t, nil
	}
	if t, ok := values[m.FullName()]; ok {
		if t.Host == (Symbol{}) {
			t.Host = hostType(m)
		}
		return t, nil
	}
	if r.serves() && r.isObject(m) {
		pkg, err := r.packageOf(m)
		return Type{Kind: ObjectKind, Package: pkg, Name: goName(m), Host: hostType(m), Object: objectKind(m)}, err
	}
	if s := r.goSource(m.ParentFile()); s != nil && s.lists[string(m.Name())] {
		return listOfStrings, nil
	}
	pkg, err := r.packageOf(m)
	t := Type{Kind: MessageKind, Package: pkg, Name: goName(m)}
	if pkg != "" {
		t.Host = hostType(m)
	}
	return t, err
}

// packageOf returns the import path of the package that has the view of a message or an
// enumeration, empty for the one that is being made.
func (r *protoReader) packageOf(d protoreflect.Descriptor) (string, error) {
	file := d.ParentFile()
	if file.Path() == r.file.Path() {
		return "", nil
	}
	if r.serves() && r.goSource(file) == nil {
		if !r.others[d.FullName()] {
			r.others[d.FullName()] = true
			r.waiting = append(r.waiting, d)
		}
		return "", nil
	}
	dir := path.Dir(file.Path())
	for _, packages := range []map[string]string{r.config.Imports, sdkPackages} {
		if p, ok := packages[dir]; ok {
			return p, nil
		}
	}
	return "", fmt.Errorf("it has a message of %s: say by --import %s=… which package has the views of it", file.Path(), dir)
}

// goName returns the name of a message or an enumeration with those that it is
// nested in.
func goName(d protoreflect.Descriptor) string {
	name := exported(string(d.Name()))
	if parent, ok := d.Parent().(protoreflect.MessageDescriptor); ok {
		return goName(parent) + name
	}
	return name
}

func (r *protoReader) enums(list protoreflect.EnumDescriptors) {
	for i := range list.Len() {
		r.enum(list.Get(i))
	}
}

func (r *protoReader) enum(e protoreflect.EnumDescriptor) {
	out := &Enum{Name: goName(e), Doc: doc(e), At: r.place(e)}
	prefix := screaming(string(e.Name())) + "_"
	for j := range e.Values().Len() {
		v := e.Values().Get(j)
		r.place(v)
		name := strings.TrimPrefix(string(v.Name()), prefix)
		out.Values = append(out.Values, EnumValue{
			Name: out.Name + exported(strings.ToLower(name)), JSONName: string(v.Name()), Doc: doc(v), Number: int32(v.Number()),
		})
	}
	r.out.Enums = append(r.out.Enums, out)
}

// screaming returns FooBar as FOO_BAR.
func screaming(name string) string {
	var b strings.Builder
	for i, r := range name {
		if i > 0 && unicode.IsUpper(r) && !unicode.IsUpper(rune(name[i-1])) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToUpper(r))
	}
	return b.String()
}

// doc returns the comment in front of a declaration, or else the one behind it.
func doc(d protoreflect.Descriptor) string {
	location := d.ParentFile().SourceLocations().ByDescriptor(d)
	text := cmp.Or(location.LeadingComments, location.TrailingComments)
	if options, ok := d.Options().(interface{ GetDeprecated() bool }); ok && options.GetDeprecated() {
		text = strings.TrimSpace(text) + "\n\n" + deprecated
	}
	return text
}

// place returns the place of a declaration, and keeps it.
func (r *protoReader) place(d protoreflect.Descriptor) string {
	place := at(d)
	r.out.Places[string(d.FullName())] = place
	return place
}

// at returns the place of a declaration, as compilers write it.
func at(d protoreflect.Descriptor) string {
	location := d.ParentFile().SourceLocations().ByDescriptor(d)
	if location.Path == nil && location.EndLine == 0 {
		return d.ParentFile().Path() // A standard import.
	}
	return fmt.Sprintf("%s:%d:%d", d.ParentFile().Path(), location.StartLine+1, location.StartColumn+1)
}

// honoured returns an error for a field with properties of proto2 and editions that views and
// structs do not have.
func honoured(fd protoreflect.FieldDescriptor) error {
	switch {
	case fd.Cardinality() == protoreflect.Required:
		return errors.New("required fields are not checked: make it optional")
	case fd.HasDefault():
		return fmt.Errorf("defaults are not honoured: leave [default = %v] to the code", fd.Default())
	case fd.Kind() == protoreflect.EnumKind && !fd.IsList() && fd.Default().Enum() != 0:
		return fmt.Errorf("its default is not 0, as that of %s: give it a first value of 0", fd.Enum().FullName())
	}
	return nil
}
