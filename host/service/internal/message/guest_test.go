package message_test

import (
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/kubewasm/kubewasm/guest/service"
	"github.com/kubewasm/kubewasm/host/service/internal/testservice/guest"
)

// echo is a plugin that returns the request, field by field.
type echo struct{ guest.Test }

func (echo) Echo(req guest.Message, resp *guest.MessageValue) error {
	*resp = copied(req)
	return nil
}

func init() { guest.RegisterTest(echo{}) }

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
		First: pointer(m.HasFirst(), m.First()), Third: pointer(m.HasThird(), m.Third()), Far: m.Far(),
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
	for key, value := range m.Smalls().All {
		v.Smalls[key] = guest.SmallValue{Name: value.Name(), N: value.N()}
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
		response, err := service.Call(echo{}, echoMethod, b)
		if err != nil {
			t.Fatal(err)
		}
		if same(t, d, want, response); t.Failed() {
			t.FailNow()
		}
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
		response, err := service.Call(echo{}, echoMethod, b)
		if err != nil {
			t.Fatal(err)
		}
		same(t, d, want, response)
		if _, err := parse(response); err != nil && !bounded(err) {
			t.Errorf("the host does not read the response: %v", err)
		}
	})
}
