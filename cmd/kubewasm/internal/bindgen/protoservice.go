package bindgen

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/kubewasm/kubewasm/internal/serviceschema"
)

// serves reports whether the file has services.
func (r *protoReader) serves() bool { return r.file.Services().Len() != 0 }

// services reads the services of the file, and marks the messages that guests read and write.
func (r *protoReader) services() {
	if !r.serves() {
		return
	}
	byName := map[string]*Message{}
	for _, m := range r.out.Messages {
		byName[m.Name] = m
	}
	for i := range r.file.Services().Len() {
		d := r.file.Services().Get(i)
		r.place(d)
		s := &Service{Name: exported(string(d.Name())), FullName: string(d.FullName()), Doc: doc(d), Host: serviceschema.IsHost(d)}
		if d.Methods().Len() > maxMethods {
			r.mistake("%s: %s: %d methods are more than %d", at(d), d.FullName(), d.Methods().Len(), maxMethods)
		}
		for j := range d.Methods().Len() {
			if m := r.method(d.Methods().Get(j), byName); m != nil {
				s.Methods = append(s.Methods, m)
				if byName[m.Request] != nil && byName[m.Response] != nil {
					mark(byName, m.Request, !s.Host)
					mark(byName, m.Response, s.Host)
				}
			}
		}
		r.out.Services = append(r.out.Services, s)
	}
	for _, m := range r.out.Messages {
		if m.Read || m.Written {
			r.checkFields(m)
		}
	}
	set := &descriptorpb.FileDescriptorSet{}
	for _, file := range r.files() {
		f := protodesc.ToFileDescriptorProto(file)
		f.SourceCodeInfo = nil
		set.File = append(set.File, f)
	}
	var err error
	if r.out.Schema, err = (proto.MarshalOptions{Deterministic: true}).Marshal(set); err != nil {
		r.errs = append(r.errs, fmt.Errorf("encode the schema: %w", err))
	} else if len(r.out.Schema) > serviceschema.MaxBytes {
		r.mistake("the schema of %s has %d bytes, more than %d", r.file.Path(), len(r.out.Schema), serviceschema.MaxBytes)
	}
}

// maxMethods is how many methods an extension point can have: see host.Adapter.
const maxMethods = 64

func (r *protoReader) mistake(format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf(format, args...))
}

func (r *protoReader) method(d protoreflect.MethodDescriptor, messages map[string]*Message) *Method {
	r.place(d)
	if d.IsStreamingClient() || d.IsStreamingServer() {
		r.mistake("%s: %s: calls of guests do not stream", at(d), d.FullName())
		return nil
	}
	m := &Method{Name: exported(string(d.Name())), Wire: string(d.Name()), Doc: doc(d), Grant: serviceschema.Grant(d), Request: goName(d.Input()), Response: goName(d.Output())}
	for _, of := range []protoreflect.MessageDescriptor{d.Input(), d.Output()} {
		if messages[goName(of)] == nil || r.external(of) {
			r.mistake("%s: %s: a plugin is not called with %s alone: make it a field of a message", at(d), d.FullName(), of.FullName())
		}
	}
	return m
}

// external reports whether a message has a type of another package: one of Kubernetes.
func (r *protoReader) external(m protoreflect.MessageDescriptor) bool {
	t, err := r.messageType(m)
	return err != nil || t.Kind != MessageKind || t.Package != ""
}

// readOthers reads the messages of other files that those of this one have, and that methods
// have. They become types of this package.
func (r *protoReader) readOthers() {
	for i := range r.file.Services().Len() {
		methods := r.file.Services().Get(i).Methods()
		for j := range methods.Len() {
			r.external(methods.Get(j).Input())
			r.external(methods.Get(j).Output())
		}
	}
	for len(r.waiting) > 0 {
		d := r.waiting[0]
		r.waiting = r.waiting[1:]
		switch d := d.(type) {
		case protoreflect.MessageDescriptor:
			r.message(d)
		case protoreflect.EnumDescriptor:
			r.enum(d)
		}
		if _, ok := r.filesOfOthers[d.ParentFile().Path()]; !ok {
			r.filesOfOthers[d.ParentFile().Path()] = d.ParentFile()
		}
	}
}

// files returns the file of the services, and those whose messages these have.
func (r *protoReader) files() []protoreflect.FileDescriptor {
	all := []protoreflect.FileDescriptor{r.file}
	for _, name := range slices.Sorted(maps.Keys(r.filesOfOthers)) {
		all = append(all, r.filesOfOthers[name])
	}
	return all
}

// checkNames reports types of several files that have one name.
func (r *protoReader) checkNames() {
	seen := map[string]string{}
	check := func(name, at string) {
		if other, ok := seen[name]; ok {
			r.mistake("%s: there are two types %s in it and in the files that it imports, which become one package; the other is at %s", at, name, other)
		}
		seen[name] = at
	}
	for _, m := range r.out.Messages {
		check(m.Name, m.At)
	}
	for _, e := range r.out.Enums {
		check(e.Name, e.At)
	}
}

// mark marks a message and its parts as read or written by guests.
func mark(messages map[string]*Message, name string, read bool) {
	m := messages[name]
	if m == nil || read && m.Read || !read && m.Written {
		return
	}
	if read {
		m.Read = true
	} else {
		m.Written = true
	}
	for _, f := range m.Fields {
		if f.Type.Kind == MessageKind && f.Type.Package == "" {
			mark(messages, f.Type.Name, read)
		}
	}
}

// checkFields reports the fields of a message of a service that do not travel.
func (r *protoReader) checkFields(m *Message) {
	for _, f := range m.Fields {
		switch {
		case f.Type.Kind == ObjectKind && f.Map:
			r.mistake("%s: %s.%s: there are no maps of objects: make it a list", f.At, m.Name, f.JSONName)
		case m.Written && (f.Type.Kind == ValueKind && f.Type.Append == (Symbol{}) || f.Type.Kind == MessageKind && f.Type.Package != ""):
			r.mistake("%s: %s.%s: of the messages of Kubernetes guests write objects that they were given, quantities, times, durations, IntOrString and RawExtension", f.At, m.Name, f.JSONName)
		}
	}
}

// resource returns the type of a message that stands for a custom resource.
func (r *protoReader) resource(m protoreflect.MessageDescriptor) (t Type, ok bool) {
	resource, ok := serviceschema.ResourceOf(m)
	if !ok {
		return t, false
	}
	t = Type{Kind: ObjectKind, Object: "JSON"}
	view, typ := symbol(resource.View), symbol(resource.Go)
	if view.Package == "" {
		r.mistake(`%s: %s: want the option resource = {view: "PACKAGE.TYPE"}, the view that guests read`, at(m), m.FullName())
	}
	if typ.Package == "" {
		typ = Symbol{"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured", "Unstructured"}
	}
	t.Package, t.Name, t.Host = view.Package, view.Name, typ
	return t, true
}

// symbol reads the import path of a package, a dot and a name.
func symbol(text string) Symbol {
	i := strings.LastIndexByte(text, '.')
	if i <= 0 || i < strings.LastIndexByte(text, '/') {
		return Symbol{}
	}
	return Symbol{text[:i], text[i+1:]}
}

// isObject reports whether a message of Kubernetes is an object: it has metadata and a kind.
func (r *protoReader) isObject(m protoreflect.MessageDescriptor) bool {
	source := r.goSource(m.ParentFile())
	return source != nil && source.kinds[string(m.Name())] && serviceschema.IsObject(m)
}

// objectKind returns how guests read an object, see [view.ObjectKind].
func objectKind(m protoreflect.MessageDescriptor) string {
	for i := range m.Fields().Len() {
		if f := m.Fields().Get(i); f.Number() > 3 || f.Message() == nil || f.IsList() || f.IsMap() {
			return "Whole"
		}
	}
	return "Parts"
}

// hostType returns the Go type of a message of Kubernetes.
func hostType(m protoreflect.MessageDescriptor) Symbol {
	return Symbol{path.Dir(m.ParentFile().Path()), goName(m)}
}
