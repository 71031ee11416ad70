package message_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kubewasm/kubewasm/guest/api/meta"
	"github.com/kubewasm/kubewasm/host/service/internal/message"
	"github.com/kubewasm/kubewasm/host/service/testdata/testservice"
	"github.com/kubewasm/kubewasm/host/service/testdata/testservice/guest"
	"github.com/kubewasm/kubewasm/internal/nativehost"
)

// echo is a plugin that returns the request, field by field.
type echo struct{ guest.Test }

func (echo) Echo(req guest.Message, resp *guest.MessageValue) error {
	*resp = copied(req)
	return nil
}

// twice returns the messages of Kubernetes of the request, changed.
type twice struct{}

func (twice) Twice(req guest.Kubernetes, resp *guest.KubernetesValue) error {
	limit, duration, object := req.Limit(), 2*req.Duration(), append([]byte(" "), req.Object()...)
	limit.Add(req.Limit())
	port := req.Port()
	*resp = guest.KubernetesValue{
		Quantities: append(req.Quantities(), req.Quantities()...), Limit: &limit, Time: pointer(req.HasTime(), req.Time()),
		MicroTime: pointer(req.HasMicroTime(), req.MicroTime()), Duration: &duration, Port: &port, Object: object,
	}
	return nil
}

func (twice) Ping(guest.Empty, *guest.EmptyValue) error { return nil }

func init() {
	guest.RegisterTest(echo{})
	guest.RegisterValues(twice{})
}

func pointer[T any](has bool, v T) *T {
	if !has {
		return nil
	}
	return &v
}

// copied returns what a guest reads of a message.
func copied(m guest.Message) guest.MessageValue {
	v := guest.MessageValue{
		Text: m.Text(), Data: m.Data(), Flag: m.Flag(), I32: m.I32(), I64: m.I64(), U32: m.U32(), U64: m.U64(), S32: m.S32(), S64: m.S64(),
		F32: m.F32(), F64: m.F64(), Sf32: m.Sf32(), Sf64: m.Sf64(), Single: m.Single(), Wide: m.Wide(), Color: m.Color(),
		Texts: m.Texts(), Numbers: m.Numbers(), Zigzags: m.Zigzags(), Doubles: m.Doubles(), Colors: m.Colors(), Flags: m.Flags(), Blobs: m.Blobs(),
		Labels: map[string]string{}, Counts: map[string]int64{}, Smalls: map[string]guest.SmallValue{},
		Maybe: pointer(m.HasMaybe(), m.Maybe()), MaybeText: pointer(m.HasMaybeText(), m.MaybeText()),
		At: pointer(m.HasAt(), m.At()), Times: m.Times(), Span: pointer(m.HasSpan(), m.Span()), Spans: map[string]meta.Duration{},
		Shapes: m.Shapes(),
		First:  pointer(m.HasFirst(), m.First()), Third: pointer(m.HasThird(), m.Third()), Far: m.Far(),
		Fourth: m.Fourth(), MaybeData: m.MaybeData(),
		Second: pointer(m.HasSecond(), guest.SmallValue{Name: m.Second().Name(), N: m.Second().N()}),
	}
	if m.HasInner() {
		inner := copied(m.Inner())
		v.Inner = &inner
	}
	for _, e := range m.List() {
		v.List = append(v.List, copied(e))
	}
	for key, value := range m.Labels().All {
		v.Labels[key] = value
	}
	for key, value := range m.Counts().All {
		v.Counts[key] = value
	}
	if m.HasPart() {
		part := copiedPart(m.Part())
		v.Part = &part
	}
	for key, value := range m.Spans().All {
		v.Spans[key] = value
	}
	for key, value := range m.Smalls().All {
		v.Smalls[key] = guest.SmallValue{Name: value.Name(), N: value.N()}
	}
	return v
}

func copiedPart(p guest.Part) guest.PartValue {
	v := guest.PartValue{Name: p.Name(), Shape: p.Shape(), Made: pointer(p.HasMade(), p.Made())}
	if p.HasInner() {
		v.Inner = &guest.PartInnerValue{}
		for _, e := range p.Inner().Parts() {
			v.Inner.Parts = append(v.Inner.Parts, copiedPart(e))
		}
	}
	return v
}

const echoMethod = "kubewasm.test.v1.Test/Echo"

// TestMessagesOfGuestsAreThoseOfProtobuf has the generated code of guests read random messages
// that package proto has encoded, and package proto what it writes.
func TestMessagesOfGuestsAreThoseOfProtobuf(t *testing.T) {
	d, r := descriptor(t), rand.New(rand.NewPCG(22, 9))
	for range 2000 {
		want := dynamicpb.NewMessage(d)
		random(r, want, 0)
		b, err := proto.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		response, err := nativehost.Guests.Call(echo{}, echoMethod, b)
		if err != nil {
			t.Fatal(err)
		}
		if same(t, d, want, response); t.Failed() {
			t.FailNow()
		}
	}
}

// TestGuestsWriteMessagesOfKubernetes has the generated code of guests read messages of Kubernetes
// that are no objects, and write others.
func TestGuestsWriteMessagesOfKubernetes(t *testing.T) {
	kind := message.Of(reflect.TypeFor[testservice.Kubernetes]())
	call := func(req *testservice.Kubernetes) *testservice.Kubernetes {
		b, err := kind.Append(nil, unsafe.Pointer(req), noObjects{})
		if err != nil {
			t.Fatal(err)
		}
		response, err := nativehost.Guests.Call(twice{}, "kubewasm.test.v1.Values/Twice", b)
		if err != nil {
			t.Fatal(err)
		}
		resp := new(testservice.Kubernetes)
		if err := kind.Parse(response, unsafe.Pointer(resp), noObjects{}, 0); err != nil {
			t.Fatal(err)
		}
		return resp
	}
	limit, double, zero := resource.MustParse("1.5Gi"), resource.MustParse("3Gi"), resource.MustParse("0")
	for _, port := range []intstr.IntOrString{intstr.FromInt32(-80), intstr.FromString("http")} {
		got := call(&testservice.Kubernetes{
			Quantities: []resource.Quantity{resource.MustParse("100m")}, Limit: &limit, Time: &metav1.Time{Time: time.Unix(5, 0)},
			MicroTime: &metav1.MicroTime{Time: time.Unix(-5, 3000)}, Duration: &metav1.Duration{Duration: -time.Minute}, Port: &port,
			Object: &runtime.RawExtension{Raw: []byte(`{"kind":"Pod"}`)},
		})
		want := &testservice.Kubernetes{
			Quantities: []resource.Quantity{resource.MustParse("100m"), resource.MustParse("100m")}, Limit: &double, Time: &metav1.Time{Time: time.Unix(5, 0)},
			MicroTime: &metav1.MicroTime{Time: time.Unix(-5, 3000)}, Duration: &metav1.Duration{Duration: -2 * time.Minute}, Port: &port,
			Object: &runtime.RawExtension{Raw: []byte(` {"kind":"Pod"}`)},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	got := call(&testservice.Kubernetes{Time: &metav1.Time{}, MicroTime: &metav1.MicroTime{}})
	want := &testservice.Kubernetes{
		Limit: &zero, Time: &metav1.Time{}, MicroTime: &metav1.MicroTime{}, Duration: &metav1.Duration{}, Port: &intstr.IntOrString{}, Object: &runtime.RawExtension{Raw: []byte(" ")},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("of nothing (-want +got):\n%s", diff)
	}
	if response, err := nativehost.Guests.Call(twice{}, "kubewasm.test.v1.Values/Ping", nil); err != nil || len(response) != 0 {
		t.Errorf("Ping: %x, %v", response, err)
	}
}

// cached is a plugin that answers its first call with lists of its own, and appends to those of the
// response in the next.
type cached struct {
	guest.Test
	own, kept guest.MessageValue
}

func (c *cached) Echo(req guest.Message, resp *guest.MessageValue) error {
	if req.Flag() {
		*resp = c.own
		return nil
	}
	resp.Texts, resp.Numbers, resp.Zigzags = append(resp.Texts, "new"), append(resp.Numbers, -1), append(resp.Zigzags, -1)
	resp.Doubles, resp.Colors, resp.Flags = append(resp.Doubles, -1), append(resp.Colors, guest.ColorBlue), append(resp.Flags, true)
	resp.Blobs, resp.Data = append(resp.Blobs, []byte("new")), append(resp.Data, "new"...)
	resp.List = append(resp.List, guest.MessageValue{Text: "new"})
	c.kept = *resp
	return nil
}

// TestResponsesHoldNoMemoryOfTheCallBefore has a plugin set lists that it keeps in a response, and
// append to the lists of the responses that follow.
func TestResponsesHoldNoMemoryOfTheCallBefore(t *testing.T) {
	lists := func() guest.MessageValue {
		return guest.MessageValue{
			Texts: []string{"own"}, Numbers: []int32{1}, Zigzags: []int64{1}, Doubles: []float64{1}, Colors: []guest.Color{guest.ColorRed},
			Flags: []bool{false}, Blobs: [][]byte{[]byte("own")}, Data: []byte("own"), List: []guest.MessageValue{{Text: "own"}},
		}
	}
	p := &cached{own: lists()}
	call := func(m *testservice.Message) *testservice.Message {
		response, err := nativehost.Guests.Call(p, echoMethod, appended(t, m))
		if err != nil {
			t.Fatal(err)
		}
		got, err := parse(response)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	own := call(&testservice.Message{Flag: true})
	appends := call(&testservice.Message{})
	if diff := cmp.Diff(fmt.Sprint(lists()), fmt.Sprint(p.own)); diff != "" {
		t.Errorf("lists of the plugin after it appended to a response (-want +got):\n%s", diff)
	}
	kept := p.kept
	want := fmt.Sprint(kept)
	if again := call(&testservice.Message{}); !cmp.Equal(appends, again) {
		t.Errorf("the same call again (-want +got):\n%s", cmp.Diff(appends, again))
	}
	if got := fmt.Sprint(kept); got != want {
		t.Errorf("a response that the plugin kept is %s, want %s", got, want)
	}
	if again := call(&testservice.Message{Flag: true}); !cmp.Equal(own, again) {
		t.Errorf("the lists of the plugin again (-want +got):\n%s", cmp.Diff(own, again))
	}
}

// FuzzGuest has the generated code of guests read and write what is a message for the host, as
// the host encodes it.
func FuzzGuest(f *testing.F) {
	d := descriptor(f)
	addMessages(f, d)
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parse(b)
		if err != nil {
			return
		}
		b = appended(t, m)
		want, err := known(d, b)
		if err != nil {
			t.Fatal(err)
		}
		response, err := nativehost.Guests.Call(echo{}, echoMethod, b)
		if err != nil {
			t.Fatal(err)
		}
		same(t, d, want, response)
		if _, err := parse(response); err != nil && !bounded(err) {
			t.Errorf("the host does not read the response: %v", err)
		}
	})
}

// TestGuestsReadFieldsInAnyOrder has guests read messages whose fields are not in the order in
// which hosts write them, with fields that they do not know in between.
func TestGuestsReadFieldsInAnyOrder(t *testing.T) {
	d, r := descriptor(t), rand.New(rand.NewPCG(22, 10))
	for range 1000 {
		want := dynamicpb.NewMessage(d)
		random(r, want, 0)
		b, err := proto.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		response, err := nativehost.Guests.Call(echo{}, echoMethod, shuffled(r, b))
		if err != nil {
			t.Fatal(err)
		}
		if same(t, d, want, response); t.Failed() {
			t.FailNow()
		}
	}
}

// shuffled returns the message with its fields in another order. The values of a field keep
// theirs.
func shuffled(r *rand.Rand, b []byte) (out []byte) {
	fields := map[protowire.Number][][]byte{}
	var order []protowire.Number
	for len(b) > 0 {
		number, _, n := protowire.ConsumeField(b)
		fields[number], order, b = append(fields[number], b[:n]), append(order, number), b[n:]
	}
	r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	for _, number := range order {
		out = append(out, fields[number][0]...)
		fields[number] = fields[number][1:]
		switch r.IntN(8) {
		case 0:
			out = protowire.AppendVarint(protowire.AppendTag(out, 100, protowire.VarintType), r.Uint64())
		case 1:
			out = protowire.AppendString(protowire.AppendTag(out, 3000, protowire.BytesType), "unknown")
		case 2:
			out = protowire.AppendFixed32(protowire.AppendTag(out, 101, protowire.Fixed32Type), 7)
		}
	}
	return out
}

// TestGuestsReadWhatIsNoMessage has guests read all parts of messages that end too early, or in
// which a byte is another.
func TestGuestsReadWhatIsNoMessage(t *testing.T) {
	d, r := descriptor(t), rand.New(rand.NewPCG(22, 11))
	for range 20 {
		m := dynamicpb.NewMessage(d)
		random(r, m, 0)
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		for i := range min(len(b), 600) {
			copied(guest.MessageFromProto(b[:i:i]))
			wrong := append([]byte(nil), b...)
			wrong[i] ^= byte(1 + r.IntN(255))
			copied(guest.MessageFromProto(wrong))
		}
	}
}
