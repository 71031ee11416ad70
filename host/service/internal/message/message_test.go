package message_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host/service/internal/message"
	"github.com/kubewasm/kubewasm/host/service/internal/testservice"
)

// noObjects refuses every object.
type noObjects struct{}

func (noObjects) Ref(t reflect.Type, _ unsafe.Pointer) (abi.Ref, error) {
	return 0, fmt.Errorf("%v has no ref", t)
}

func (noObjects) Object(t reflect.Type, ref abi.Ref) (unsafe.Pointer, error) {
	return nil, fmt.Errorf("ref %#x is of no %v", uint64(ref), t)
}

var typ = message.Of(reflect.TypeFor[testservice.Message]())

func parse(b []byte) (*testservice.Message, error) {
	m := new(testservice.Message)
	return m, typ.Parse(b, unsafe.Pointer(m), noObjects{})
}

func appended(t testing.TB, m *testservice.Message) []byte {
	t.Helper()
	b, err := typ.Append(nil, unsafe.Pointer(m), noObjects{})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// descriptor returns the message of testservice for package dynamicpb, without the fields that
// have types of Kubernetes.
func descriptor(t testing.TB) protoreflect.MessageDescriptor {
	t.Helper()
	set := &descriptorpb.FileDescriptorSet{}
	if err := proto.Unmarshal(testservice.Schema(), set); err != nil {
		t.Fatal(err)
	}
	file := set.File[0]
	file.Dependency, file.Service, file.Options = nil, nil, nil
	var messages []*descriptorpb.DescriptorProto
	for _, m := range file.MessageType {
		m.Options = nil
		var fields []*descriptorpb.FieldDescriptorProto
		for _, f := range m.Field {
			if n := f.GetNumber(); m.GetName() == "SumRequest" || n >= 40 && n <= 43 {
				continue
			}
			fields = append(fields, f)
		}
		m.Field = fields
		messages = append(messages, m)
	}
	file.MessageType = messages
	made, err := protodesc.NewFile(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	return made.Messages().ByName("Message")
}

// random fills a message with random fields.
func random(r *rand.Rand, m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if r.IntN(3) != 0 || depth > 3 && f.Message() != nil {
			continue
		}
		switch {
		case f.IsMap():
			entries := m.Mutable(f).Map()
			for range r.IntN(3) {
				entries.Set(protoreflect.ValueOfString(fmt.Sprint("k", r.IntN(5))).MapKey(), value(r, f.MapValue(), entries.NewValue, depth))
			}
		case f.IsList():
			list := m.Mutable(f).List()
			for range r.IntN(4) {
				list.Append(value(r, f, list.NewElement, depth))
			}
		default:
			m.Set(f, value(r, f, func() protoreflect.Value { return m.NewField(f) }, depth))
		}
	}
}

func value(r *rand.Rand, f protoreflect.FieldDescriptor, empty func() protoreflect.Value, depth int) protoreflect.Value {
	n := r.Uint64() >> r.IntN(64)
	switch f.Kind() {
	case protoreflect.MessageKind:
		v := empty()
		random(r, v.Message(), depth+1)
		return v
	case protoreflect.StringKind:
		return protoreflect.ValueOfString([]string{"", "a", "ü", "long text of some length"}[r.IntN(4)])
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte{byte(n), 0})
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(n&1 != 0)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(int32(n)))
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(float32(n) / 3)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(-float64(n) / 3)
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(int32(n))
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(uint32(n))
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(int64(n))
	}
	return protoreflect.ValueOfUint64(n)
}

// TestMessagesAreThoseOfProtobuf parses random messages that package proto has encoded, and has it
// parse what they are encoded to again.
func TestMessagesAreThoseOfProtobuf(t *testing.T) {
	d, r := descriptor(t), rand.New(rand.NewPCG(22, 7))
	for range 2000 {
		want := dynamicpb.NewMessage(d)
		random(r, want, 0)
		b, err := proto.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		m, err := parse(b)
		if err != nil {
			t.Fatalf("%v: %v", want, err)
		}
		got := dynamicpb.NewMessage(d)
		if err := proto.Unmarshal(appended(t, m), got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	}
}

// addMessages adds messages of all fields as seeds.
func addMessages(f *testing.F, d protoreflect.MessageDescriptor) {
	f.Helper()
	r := rand.New(rand.NewPCG(22, 8))
	for range 20 {
		m := dynamicpb.NewMessage(d)
		random(r, m, 0)
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{0x92, 1, 0, 0x92, 1, 0})
	f.Add([]byte{0xd2, 1, 2, 8, 1})
}

// known decodes a message by package proto, without fields that it does not know.
func known(d protoreflect.MessageDescriptor, b []byte) (proto.Message, error) {
	m := dynamicpb.NewMessage(d)
	return m, proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(b, m)
}

// FuzzParse parses any bytes. What is a message here is the same message for package proto, and
// so is what it is encoded to. What is a message for package proto is one here, if it is encoded
// as package proto does it and within the bounds of SPEC.
func FuzzParse(f *testing.F) {
	d := descriptor(f)
	addMessages(f, d)
	f.Fuzz(func(t *testing.T, b []byte) {
		want, err := known(d, b)
		m, ours := parse(b)
		switch {
		case ours == nil && err != nil:
			t.Fatalf("package proto does not read it: %v", err)
		case ours == nil:
			same(t, d, want, appended(t, m))
		case err != nil || bounded(ours):
			return
		}
		if b, err = proto.Marshal(want); err != nil {
			t.Fatal(err)
		}
		if m, ours = parse(b); ours == nil {
			same(t, d, want, appended(t, m))
		} else if !bounded(ours) {
			t.Errorf("a message of package proto: %v", ours)
		}
	})
}

// bounded reports whether a message is refused for one of the bounds that SPEC has.
func bounded(err error) bool {
	return containsEnd(err.Error(), "it takes much more memory than bytes") || containsEnd(err.Error(), "messages are nested more than 100 deep")
}

// same fails the test if b is not the message want.
func same(t *testing.T, d protoreflect.MessageDescriptor, want proto.Message, b []byte) {
	t.Helper()
	got, err := known(d, b)
	if err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(want, got) {
		t.Errorf("(-want +got):\n%s", cmp.Diff(want, got, protocmp.Transform()))
	}
}

func TestWhatIsNoMessage(t *testing.T) {
	deep := []byte{}
	for range 120 {
		deep = protowire.AppendBytes(protowire.AppendTag(nil, 17, protowire.BytesType), deep)
	}
	for name, test := range map[string]struct {
		in   []byte
		want string
	}{
		"a tag that does not end":    {[]byte{0xff}, "unexpected EOF"},
		"another wire type":          {[]byte{0x08, 1}, "field Text: it has wire type 0"},
		"text that is not UTF-8":     {[]byte{0x0a, 1, 0xff}, "field Text: text is not UTF-8"},
		"messages that nest deep":    {deep, "messages are nested more than 100 deep"},
		"a number that does not end": {[]byte{0x20, 0x80}, "read field 4: unexpected EOF"},
		"a map of numbers":           {[]byte{0xd0, 1, 1}, "field Labels: it has wire type 0"},
		"an object that is a message": {
			protowire.AppendBytes(protowire.AppendTag(nil, 40, protowire.BytesType), nil), "field Pod: it has wire type 2",
		},
		"an object that is not there": {
			protowire.AppendFixed64(protowire.AppendTag(nil, 40, protowire.Fixed64Type), 7), "field Pod: ref 0x7 is of no v1.Pod",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse(test.in)
			if err == nil || !containsEnd(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

func containsEnd(s, end string) bool { return len(s) >= len(end) && s[len(s)-len(end):] == end }

// TestMessagesOfKubernetesTravelAsTheyAre encodes quantities. Encoding changes none, which
// others may read.
func TestMessagesOfKubernetesTravelAsTheyAre(t *testing.T) {
	limit := resource.MustParse("1.5Gi")
	want := testservice.SumRequest{Quantities: []resource.Quantity{resource.MustParse("100m"), *resource.NewQuantity(5, resource.DecimalSI)}, Limit: &limit}
	kind := message.Of(reflect.TypeFor[testservice.SumRequest]())
	b, err := kind.Append(nil, unsafe.Pointer(&want), noObjects{})
	if err != nil {
		t.Fatal(err)
	}
	var got testservice.SumRequest
	if err := kind.Parse(b, unsafe.Pointer(&got), noObjects{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
