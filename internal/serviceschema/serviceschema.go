// Package serviceschema reads the services that a module carries in its custom section
// [abi.SchemaSection], and tells whether those of a guest and of a host agree.
package serviceschema

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

// MaxBytes is the maximum length of a schema.
const MaxBytes = 256 << 10

// Option is the number of the options in abi/options.proto, one for each kind of
// declaration.
const Option = 52101

// Schema is the services of a module. It does not change.
type Schema struct {
	// Services are the services of all files, in their order.
	Services []Service

	files *protoregistry.Files
}

// Service is an extension point or, if Host is set, a service of the host.
type Service struct {
	protoreflect.ServiceDescriptor
	Host bool
}

// Parse reads a google.protobuf.FileDescriptorSet. Files that it does not have, as those
// of Kubernetes, are not needed: their messages are known by their names. It refuses a schema
// above [MaxBytes], with public imports along very many ways, or with very many or very long
// names, so that its work is bounded by the length of the section.
func Parse(section []byte) (*Schema, error) {
	if len(section) > MaxBytes {
		return nil, fmt.Errorf("schema: %d bytes are more than %d", len(section), MaxBytes)
	}
	if err := checkEncoding(section); err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	set := &descriptorpb.FileDescriptorSet{}
	if err := proto.Unmarshal(section, set); err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	if err := checkSet(set); err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	files, err := protodesc.FileOptions{AllowUnresolvable: true}.NewFiles(set)
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	s := &Schema{files: files}
	for _, f := range set.File {
		file, err := files.FindFileByPath(f.GetName())
		if err != nil {
			return nil, fmt.Errorf("schema: %w", err)
		}
		for i := range file.Services().Len() {
			d := file.Services().Get(i)
			s.Services = append(s.Services, Service{d, IsHost(d)})
		}
	}
	if len(s.Services) == 0 {
		return nil, errors.New("schema: there is no service in it")
	}
	return s, nil
}

// Message returns a message by its full name, nil if there is none.
func (s *Schema) Message(name string) protoreflect.MessageDescriptor {
	d, err := s.files.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		return nil
	}
	m, _ := d.(protoreflect.MessageDescriptor)
	return m
}

// Find returns a service by its full name, nil if there is none.
func (s *Schema) Find(name string) *Service {
	for i := range s.Services {
		if string(s.Services[i].FullName()) == name {
			return &s.Services[i]
		}
	}
	return nil
}

// Names returns the full names of the extension points.
func (s *Schema) Names() []string {
	var names []string
	for i := range s.Services {
		if !s.Services[i].Host {
			names = append(names, string(s.Services[i].FullName()))
		}
	}
	return names
}

// option returns the value of the option in an Options message, nil if it has none.
func option(options protoreflect.ProtoMessage) []byte {
	// The encoding is the same whether the option was recognized or not.
	b, err := proto.Marshal(options)
	if err != nil {
		return nil
	}
	var found []byte
	for len(b) > 0 {
		number, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return found
		}
		b = b[n:]
		size := protowire.ConsumeFieldValue(number, typ, b)
		if size < 0 {
			return found
		}
		if number == Option {
			found = b[:size]
			if typ == protowire.BytesType {
				found, _ = protowire.ConsumeBytes(b)
			}
		}
		b = b[size:]
	}
	return found
}

// IsHost reports whether a service is marked as one that the host implements.
func IsHost(d protoreflect.ServiceDescriptor) bool {
	v := option(d.Options())
	return len(v) == 1 && v[0] == 1
}

// Grant returns the grant that a method of a host service needs, empty if none.
func Grant(d protoreflect.MethodDescriptor) string { return string(option(d.Options())) }

// Resource is a message that stands for a custom resource.
type Resource struct {
	// Go and View are the types of the host and of guests: the import path of the
	// package, a dot, the name.
	Go, View string
}

// ResourceOf returns the custom resource that a message stands for; ok is false for any
// other message.
func ResourceOf(d protoreflect.MessageDescriptor) (r Resource, ok bool) {
	v := option(d.Options())
	for b := v; len(b) > 0; {
		number, typ, n := protowire.ConsumeTag(b)
		if n < 0 || typ != protowire.BytesType {
			break
		}
		value, size := protowire.ConsumeBytes(b[n:])
		if size < 0 {
			break
		}
		switch number {
		case 1:
			r.Go = string(value)
		case 2:
			r.View = string(value)
		}
		b = b[n+size:]
	}
	return r, v != nil
}

// Untyped returns the names of the messages that stand for custom resources without a Go type,
// sorted.
func (s *Schema) Untyped() (names []string) {
	s.files.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		for i := range f.Messages().Len() {
			m := f.Messages().Get(i)
			if r, ok := ResourceOf(m); ok && r.Go == "" {
				names = append(names, string(m.Name()))
			}
		}
		return true
	})
	slices.Sort(names)
	return slices.Compact(names)
}

// IsObject reports whether a message is an object of Kubernetes, which travels as a ref: a
// custom resource, or a message whose field 1 is metadata. A schema does not contain the
// messages of Kubernetes; known tells of those.
func IsObject(d protoreflect.MessageDescriptor) bool {
	if _, ok := ResourceOf(d); ok {
		return true
	}
	f := d.Fields().ByNumber(1)
	return f != nil && f.Name() == "metadata" && f.Message() != nil && f.Message().FullName() == objectMeta
}

const objectMeta = "k8s.io.apimachinery.pkg.apis.meta.v1.ObjectMeta"

// Timestamp and Duration are the messages of google.protobuf that have types of their own. Others
// are like those of authors.
const (
	Timestamp protoreflect.FullName = "google.protobuf.Timestamp"
	Duration  protoreflect.FullName = "google.protobuf.Duration"
)

// Compatible reports every way in which a guest disagrees with a host about a service that
// both know: a field of one number that has two types, a field that has two numbers, a field
// that excludes others for one of them alone, a value of an enumeration that has two names or two
// numbers, a method whose messages differ so. What only one of them has is no disagreement, nor is
// another name of a field.
func Compatible(guest, host protoreflect.ServiceDescriptor) error {
	c := newComparison("the guest", "the host")
	c.services(guest, host)
	c.run()
	return errors.Join(c.errs...)
}

func streams(d protoreflect.MethodDescriptor) bool {
	return d.IsStreamingClient() || d.IsStreamingServer()
}

// maxMistakes is how many disagreements a message names.
const maxMistakes = 20

// maxPairs is how many pairs of messages are compared: a guest may put each of its messages at
// the place of each of the host's.
const maxPairs = 8 * maxMessages

// comparison compares pairs of messages, those of the guest first.
type comparison struct {
	// guest and host are how the sides are called.
	guest, host string
	// deleted is set if what the host's side does not have any more is a disagreement, unless its
	// number is reserved.
	deleted bool
	seen    map[[2]protoreflect.FullName]bool
	waiting [][2]protoreflect.MessageDescriptor
	// values is how many values of enumerations were compared.
	values int
	errs   []error
}

// maxValues is how many values of enumerations are compared.
const maxValues = 1 << 20

func newComparison(guest, host string) *comparison {
	return &comparison{guest: guest, host: host, seen: map[[2]protoreflect.FullName]bool{}}
}

// services adds the messages of the methods that both sides have.
func (c *comparison) services(guest, host protoreflect.ServiceDescriptor) {
	for i := range host.Methods().Len() {
		h := host.Methods().Get(i)
		g := guest.Methods().ByName(h.Name())
		if g == nil {
			continue
		}
		if streams(g) || streams(h) {
			c.fail(h, "%s streams", h.FullName())
			continue
		}
		c.add(g.Input(), h.Input())
		c.add(g.Output(), h.Output())
	}
}

// run compares the messages that wait, and those that they have.
func (c *comparison) run() {
	for len(c.waiting) > 0 && len(c.errs) < maxMistakes {
		next := c.waiting[0]
		c.waiting = c.waiting[1:]
		c.messages(next[0], next[1])
	}
}

// Disagreement is one way in which two schemas disagree.
type Disagreement struct {
	// Of is the declaration of the host, or of the later schema.
	Of   protoreflect.FullName
	text string
}

func (d *Disagreement) Error() string { return d.text }

// fail notes a disagreement about a declaration of the host.
func (c *comparison) fail(of protoreflect.Descriptor, format string, args ...any) {
	c.errs = append(c.errs, &Disagreement{of.FullName(), fmt.Sprintf(format, args...)})
}

// add adds a pair to those that wait, unless it was among them before.
func (c *comparison) add(guest, host protoreflect.MessageDescriptor) {
	pair := [2]protoreflect.FullName{guest.FullName(), host.FullName()}
	switch {
	case c.seen[pair]:
	case len(c.seen) == maxPairs:
		c.fail(host, "there are more than %d pairs of messages to compare", maxPairs)
		c.waiting = nil
	default:
		c.seen[pair] = true
		c.waiting = append(c.waiting, [2]protoreflect.MessageDescriptor{guest, host})
	}
}

func (c *comparison) messages(guest, host protoreflect.MessageDescriptor) {
	if opaque(guest) || opaque(host) {
		if guest.FullName() != host.FullName() {
			c.fail(host, "%s has %s where %s has %s", c.guest, guest.FullName(), c.host, host.FullName())
		}
		return
	}
	if c.deleted {
		c.deletedFields(guest, host)
	}
	partners := map[protoreflect.FullName]protoreflect.FullName{} // Oneofs of one that have fields of one of the other.
	for i := range host.Fields().Len() {
		h := host.Fields().Get(i)
		if g := guest.Fields().ByName(h.Name()); g != nil && g.Number() != h.Number() {
			c.fail(h, "%s is field %d of %s and field %d of %s", h.FullName(), g.Number(), c.guest, h.Number(), c.host)
			continue
		}
		g := guest.Fields().ByNumber(h.Number())
		if g == nil {
			continue
		}
		if gt, ht := typeOf(g), typeOf(h); gt != ht {
			c.fail(h, "field %d of %s is %s %s in %s and %s %s in %s",
				h.Number(), host.FullName(), gt, g.Name(), c.guest, ht, h.Name(), c.host)
			continue
		}
		c.oneofs(g, h, partners)
		switch {
		case h.Message() != nil:
			c.add(g.Message(), h.Message())
		case h.Enum() != nil:
			c.enums(g.Enum(), h.Enum())
		}
	}
}

// oneofs compares which other fields exclude a field.
func (c *comparison) oneofs(guest, host protoreflect.FieldDescriptor, partners map[protoreflect.FullName]protoreflect.FullName) {
	g, h := oneofOf(guest), oneofOf(host)
	switch {
	case g == nil && h == nil:
		return
	case g == nil:
		c.fail(host, "field %d of %s is in no oneof in %s and in the oneof %s in %s", host.Number(), host.Parent().FullName(), c.guest, h.Name(), c.host)
		return
	case h == nil:
		c.fail(host, "field %d of %s is in the oneof %s in %s and in no oneof in %s", host.Number(), host.Parent().FullName(), g.Name(), c.guest, c.host)
		return
	}
	// A oneof may have another name, but not another partner for each of its fields. Full names of
	// guest and host may be equal.
	for key, partner := range map[protoreflect.FullName]protoreflect.FullName{"guest " + g.FullName(): h.FullName(), "host " + h.FullName(): g.FullName()} {
		if known, ok := partners[key]; ok && known != partner {
			c.fail(host, "field %d of %s is in the oneof %s in %s and in the oneof %s in %s, which other fields are not", host.Number(), host.Parent().FullName(), g.Name(), c.guest, h.Name(), c.host)
			return
		}
		partners[key] = partner
	}
}

// oneofOf returns the oneof that a field is in, nil for one that is only optional.
func oneofOf(d protoreflect.FieldDescriptor) protoreflect.OneofDescriptor {
	if o := d.ContainingOneof(); o != nil && !o.IsSynthetic() {
		return o
	}
	return nil
}

// enums compares what the values of an enumeration mean.
func (c *comparison) enums(guest, host protoreflect.EnumDescriptor) {
	if guest.IsPlaceholder() || host.IsPlaceholder() {
		if guest.FullName() != host.FullName() {
			c.fail(host, "%s has %s where %s has %s", c.guest, guest.FullName(), c.host, host.FullName())
		}
		return
	}
	if pair := [2]protoreflect.FullName{guest.FullName(), host.FullName()}; c.seen[pair] {
		return
	} else if c.seen[pair] = true; c.values > maxValues {
		c.fail(host, "there are more than %d values of enumerations to compare", maxValues)
		return
	}
	if c.deleted {
		c.deletedValues(guest, host)
	}
	names := map[protoreflect.EnumNumber][]protoreflect.Name{} // Of the guest; aliases have one number.
	for i := range guest.Values().Len() {
		v := guest.Values().Get(i)
		names[v.Number()] = append(names[v.Number()], v.Name())
	}
	c.values += guest.Values().Len() + host.Values().Len()
	told := map[protoreflect.EnumNumber]bool{}
	for i := range host.Values().Len() {
		h := host.Values().Get(i)
		if len(c.errs) >= maxMistakes {
			return
		}
		if g := guest.Values().ByName(h.Name()); g != nil {
			if g.Number() != h.Number() {
				c.fail(h, "%s of %s is %d in %s and %d in %s", h.Name(), host.FullName(), g.Number(), c.guest, h.Number(), c.host)
			}
			continue
		}
		// Not known by this name. Another one of the host's for the number may be known.
		if of := names[h.Number()]; len(of) != 0 && !told[h.Number()] && !anyOf(host, of) {
			told[h.Number()] = true
			c.fail(h, "value %d of %s is %s in %s and %s in %s", h.Number(), host.FullName(), of[0], c.guest, h.Name(), c.host)
		}
	}
}

// anyOf reports whether an enumeration has one of the names, for the number or for another one,
// which is told anyway.
func anyOf(d protoreflect.EnumDescriptor, names []protoreflect.Name) bool {
	return slices.ContainsFunc(names, func(name protoreflect.Name) bool { return d.Values().ByName(name) != nil })
}

// opaque reports whether a message is known by its name only.
func opaque(d protoreflect.MessageDescriptor) bool {
	_, resource := ResourceOf(d)
	return d.IsPlaceholder() || resource || strings.HasPrefix(string(d.FullName()), "k8s.io.")
}

// typeOf returns the type of a field as a .proto file has it, without the name of the message.
func typeOf(d protoreflect.FieldDescriptor) string {
	name := d.Kind().String()
	switch {
	case d.IsMap():
		return "map<" + d.MapKey().Kind().String() + ", " + d.MapValue().Kind().String() + ">"
	case d.IsList():
		return "repeated " + name
	}
	return name
}

// Method is a method of an extension point as a tool names it: the service, a slash, the
// method.
func Method(d protoreflect.MethodDescriptor) string {
	return string(d.Parent().FullName()) + "/" + string(d.Name())
}

// FindMethod returns the method of an extension point that text names: the full name of the
// service or the end of it, a slash, the method. The error lists those that there are.
func (s *Schema) FindMethod(text string) (protoreflect.MethodDescriptor, error) {
	var all []string
	var found []protoreflect.MethodDescriptor
	for _, service := range s.Services {
		for i := range service.Methods().Len() {
			m := service.Methods().Get(i)
			if service.Host {
				continue
			}
			all = append(all, Method(m))
			if name := Method(m); name == text || strings.HasSuffix(name, "."+text) {
				found = append(found, m)
			}
		}
	}
	slices.Sort(all)
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return nil, fmt.Errorf("there is no method %q, only %s", text, strings.Join(all, ", "))
	}
	return nil, fmt.Errorf("%q names several methods of %s", text, strings.Join(all, ", "))
}
