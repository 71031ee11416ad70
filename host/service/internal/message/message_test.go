package message_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host/service/internal/message"
	"github.com/kubewasm/kubewasm/host/service/testdata/testservice"
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
	return m, typ.Parse(b, unsafe.Pointer(m), noObjects{}, 0)
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
	parts, err := protodesc.NewFile(set.File[len(set.File)-1], protoregistry.GlobalFiles)
	if err != nil {
		t.Fatal(err)
	}
	file.Dependency = []string{"google/protobuf/duration.proto", "google/protobuf/timestamp.proto", parts.Path()}
	file.Service, file.Options = nil, nil
	var messages []*descriptorpb.DescriptorProto
	for _, m := range file.MessageType {
		m.Options = nil
		var fields []*descriptorpb.FieldDescriptorProto
		for _, f := range m.Field {
			if n := f.GetNumber(); m.GetName() == "Kubernetes" || n >= 40 && n <= 43 {
				continue
			}
			fields = append(fields, f)
		}
		m.Field = fields
		messages = append(messages, m)
	}
	file.MessageType = messages
	known := new(protoregistry.Files)
	for _, f := range []protoreflect.FileDescriptor{parts, durationpb.File_google_protobuf_duration_proto, timestamppb.File_google_protobuf_timestamp_proto} {
		if err := known.RegisterFile(f); err != nil {
			t.Fatal(err)
		}
	}
	made, err := protodesc.NewFile(file, known)
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
		if fields := f.Message().Fields(); f.Message().FullName().Parent() == "google.protobuf" {
			v.Message().Set(fields.ByName("seconds"), protoreflect.ValueOfInt64(int64(n>>33)))
			v.Message().Set(fields.ByName("nanos"), protoreflect.ValueOfInt32(int32(n%1e9)))
			return v
		}
		random(r, v.Message(), depth+1)
		return v
	case protoreflect.StringKind:
		return protoreflect.ValueOfString([]string{"", "a", "ü", "long text of some length"}[r.IntN(4)])
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte{byte(n), 0}[:r.IntN(3)])
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

// TestTextsOfEveryLength encodes texts of all lengths around those that are written as two words,
// into buffers with any room after them, and with a byte that is not ASCII in each place.
func TestTextsOfEveryLength(t *testing.T) {
	const letters = "abcdefghijklmnopqrstuvwxyz"
	before := []byte{8, 1}
	for n := range 20 {
		for room := range 40 {
			m := &testservice.Message{Text: letters[:n], Texts: []string{letters[1 : n+1]}}
			want := append(append([]byte{}, before...), appended(t, m)...)
			b := make([]byte, len(before), len(before)+room)
			copy(b, before)
			got, err := typ.Append(b, unsafe.Pointer(m), noObjects{})
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("%d bytes, room for %d: error %v (-want +got):\n%s", n, room, err, diff)
			}
		}
		m := &testservice.Message{Text: letters[:n], Texts: []string{letters[1 : n+1]}}
		if got, err := parse(appended(t, m)); err != nil || got.Text != m.Text || got.Texts[0] != m.Texts[0] {
			t.Errorf("%d bytes: got %v, %v", n, got, err)
		}
		for at := range n {
			text := letters[:at] + "\xff" + letters[at+1:n]
			if _, err := typ.Append(make([]byte, 0, 64), unsafe.Pointer(&testservice.Message{Text: text}), noObjects{}); err == nil {
				t.Errorf("%q is a text", text)
			}
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

var errPanic = errors.New("package proto panics")

// known decodes a message by package proto, without fields that it does not know. The package
// panics at a key of a map that has another type, if the message is a dynamic one.
func known(d protoreflect.MessageDescriptor, b []byte) (m proto.Message, err error) {
	defer func() {
		if recover() != nil {
			err = errPanic
		}
	}()
	m = dynamicpb.NewMessage(d)
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
		case errors.Is(err, errPanic):
			return
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
	for _, bound := range []string{
		"it takes much more memory than bytes: limits.resultBytes bounds that, too", "messages are nested more than 100 deep",
		"it is not a time from year 1 to 9999", "it is not a duration of less than 292 years",
	} {
		if containsEnd(err.Error(), bound) {
			return true
		}
	}
	return false
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
		"a number of no field":       {protowire.AppendVarint(nil, 1<<32), "field number is 536870912, more than 536870911"},
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
	limit, target := resource.MustParse("1.5Gi"), intstr.FromString("http")
	want := testservice.Kubernetes{
		Quantities: []resource.Quantity{resource.MustParse("100m"), *resource.NewQuantity(5, resource.DecimalSI)}, Limit: &limit,
		Time: &metav1.Time{Time: time.Unix(1, 0)}, MicroTime: &metav1.MicroTime{Time: time.Unix(2, 3000)},
		Duration: &metav1.Duration{Duration: time.Hour}, Port: &target, Object: &runtime.RawExtension{Raw: []byte(`{"kind":"Pod"}`)},
	}
	kind := message.Of(reflect.TypeFor[testservice.Kubernetes]())
	b, err := kind.Append(nil, unsafe.Pointer(&want), noObjects{})
	if err != nil {
		t.Fatal(err)
	}
	var got testservice.Kubernetes
	if err := kind.Parse(b, unsafe.Pointer(&got), noObjects{}, 0); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, text := range []string{"1e-2147483647", "1E999", strings.Repeat("1", 65)} {
		inner := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), text)
		err := kind.Parse(protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), inner), unsafe.Pointer(&got), noObjects{}, 0)
		if err == nil || !strings.Contains(err.Error(), "field Limit: it is no quantity of at most 64 bytes") {
			t.Errorf("%s: got %v", text, err)
		}
	}
}

// TestWideMessagesTakeTheMemoryOfLongOnes reads messages that have very many more bytes in memory
// than encoded, which the length of the longest message bounds.
func TestWideMessagesTakeTheMemoryOfLongOnes(t *testing.T) {
	m := &testservice.Message{List: make([]testservice.Message, 2000)}
	for i := range m.List {
		m.List[i].I32, m.List[i].Flag = int32(i), true
	}
	b := appended(t, m)
	for limit, want := range map[int]bool{0: false, 16 << 10: false, 1 << 20: true} {
		got := new(testservice.Message)
		err := typ.Parse(b, unsafe.Pointer(got), noObjects{}, limit)
		if (err == nil) != want || want && (len(got.List) != len(m.List) || got.List[1999].I32 != 1999) {
			t.Errorf("%d messages in %d bytes, where one has at most %d: got %v, want them: %v", len(m.List), len(b), limit, err, want)
		}
	}
	m.List = make([]testservice.Message, 100_000)
	if err := typ.Parse(appended(t, m), unsafe.Pointer(new(testservice.Message)), noObjects{}, 1<<20); err == nil {
		t.Error("100,000 empty messages are read, where one has at most 1 MiB")
	}
}

// TestTimesOfProtobuf reads times and durations at their bounds, which package proto checks.
// TestMapsAllocateNothing encodes maps of up to eight entries, which are sorted on the stack, and
// larger ones, whose keys take one allocation for all.
func TestMapsAllocateNothing(t *testing.T) {
	for _, c := range []struct {
		entries int
		want    float64
	}{{1, 0}, {2, 0}, {8, 0}, {9, 1}} {
		m := &testservice.Message{Labels: map[string]string{}, Counts: map[string]int64{}}
		for n := range c.entries {
			m.Labels[fmt.Sprint("label-", n)], m.Counts[fmt.Sprint("n", n)] = "value", int64(n)
		}
		of, b := message.Of(reflect.TypeFor[testservice.Message]()), []byte(nil)
		if got := testing.AllocsPerRun(100, func() {
			var err error
			if b, err = of.Append(b[:0], unsafe.Pointer(m), nil); err != nil {
				t.Fatal(err)
			}
		}); got > c.want {
			t.Errorf("maps of %d entries: %v allocations, want %v", c.entries, got, c.want)
		}
	}
}

func TestTimesOfProtobuf(t *testing.T) {
	field := func(number protowire.Number, m proto.Message) []byte {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), b)
	}
	for _, want := range []*timestamppb.Timestamp{
		{}, {Seconds: -62135596800}, {Seconds: 253402300799, Nanos: 999999999}, {Seconds: -1, Nanos: 1}, {Seconds: 7},
		{Seconds: -62135596801}, {Seconds: 253402300800}, {Nanos: -1}, {Nanos: 1000000000},
	} {
		m, err := parse(field(44, want))
		if (err == nil) != want.IsValid() {
			t.Errorf("%v: %v", want, err)
		} else if err == nil && !m.At.Equal(&metav1.Time{Time: want.AsTime()}) {
			t.Errorf("%v: %v", want, m.At)
		}
	}
	for _, want := range []*durationpb.Duration{
		{}, {Seconds: 1, Nanos: 5}, {Seconds: -1, Nanos: -5}, {Nanos: -5}, {Seconds: 1, Nanos: -5}, {Seconds: -1, Nanos: 5}, {Nanos: 1000000000}, {Nanos: -1000000000}, {Seconds: 1 << 40},
	} {
		m, err := parse(field(46, want))
		if (err == nil) != (want.IsValid() && want.Seconds < 1<<40) {
			t.Errorf("%v: %v", want, err)
		} else if err == nil && m.Span.Duration != want.AsDuration() {
			t.Errorf("%v: %v", want, m.Span)
		}
	}
	early := testservice.Message{At: &metav1.Time{Time: time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC)}}
	if _, err := typ.Append(nil, unsafe.Pointer(&early), noObjects{}); err == nil || err.Error() != "field At: it is not a time from year 1 to 9999" {
		t.Errorf("got %v", err)
	}
}
