package schedmsg_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewasm/kubewasm/codec/schedmsg"
	"github.com/kubewasm/kubewasm/internal/framework"
	"github.com/kubewasm/kubewasm/internal/wire"
)

// field appends a field with bytes.
func field(b []byte, number protowire.Number, content string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), content)
}

func message(pairs ...any) string {
	var b []byte
	for ; len(pairs) > 0; pairs = pairs[2:] {
		b = field(b, protowire.Number(pairs[0].(int)), pairs[1].(string))
	}
	return string(b)
}

func TestEqualInformationHasEqualBytes(t *testing.T) {
	letters := strings.Split("hgfedcba", "")
	// The ports and images come in another order each time, and a map has none.
	info := func(turn int) schedmsg.NodeInfo {
		r := &framework.Resource{ScalarResources: map[corev1.ResourceName]int64{}}
		n := schedmsg.NodeInfo{Requested: &framework.Resource{}, NonZeroRequested: &framework.Resource{}, Allocatable: r, PVCRefCounts: map[string]int{}}
		for i := range letters {
			s := letters[(i+turn)%len(letters)]
			n.PVCRefCounts["shop/"+s] = 1
			r.ScalarResources[corev1.ResourceName("example.com/"+s)] = 2
			n.UsedPorts = append(n.UsedPorts, schedmsg.HostPort{IP: "10.0.0." + s, Protocol: "TCP", Port: int32(s[0])}, schedmsg.HostPort{IP: "10.0.0.1", Protocol: "UDP", Port: int32(s[0])})
		}
		return n
	}
	images := func(turn int) (list []schedmsg.Image) {
		for i := range letters {
			list = append(list, schedmsg.Image{Name: letters[(i+turn)%len(letters)], Size: 7})
		}
		return list
	}
	want, wantImages := info(0).Append(nil), schedmsg.AppendNodeImages(nil, images(0))
	for turn := range 20 {
		if got := info(turn).Append(nil); string(got) != string(want) {
			t.Fatal("the same information has two encodings")
		}
		if got := schedmsg.AppendNodeImages(nil, images(turn)); string(got) != string(wantImages) {
			t.Fatal("the same images have two encodings")
		}
	}
}

func TestParsePlacements(t *testing.T) {
	tests := map[string]struct {
		bytes string
		want  []schedmsg.Placement
		bad   bool
	}{
		"nothing":            {"", nil, false},
		"two":                {message(1, message(1, "rack", 2, "n1", 2, "n2"), 1, message(1, "none")), []schedmsg.Placement{{Name: "rack", NodeNames: []string{"n1", "n2"}}, {Name: "none"}}, false},
		"with another field": {message(9, "later", 1, message(1, "rack")), []schedmsg.Placement{{Name: "rack"}}, false},
		"cut off":            {message(1, message(1, "rack"))[:4], nil, true},
		"name no UTF-8":      {message(1, message(1, "\xff")), nil, true},
		"very many":          {strings.Repeat("\x0a\x00", 1<<16+1), nil, true},
		"number for a list":  {string(protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 7)), nil, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := schedmsg.ParsePlacements([]byte(test.bytes), func(int) {})
			if errors.Is(err, wire.ErrMalformed) != test.bad {
				t.Fatalf("got error %v, want one: %v", err, test.bad)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseNominationsRefusesVeryMany(t *testing.T) {
	var many strings.Builder
	for i := range 1<<16 + 1 {
		many.WriteString(message(1, message(2, fmt.Sprint(i))))
	}
	if got, err := schedmsg.ParseNominations([]byte(many.String()), func(int) {}); !errors.Is(err, wire.ErrMalformed) {
		t.Errorf("%d nominations, error %v", len(got), err)
	}
}

func TestParseEvent(t *testing.T) {
	got, err := schedmsg.ParseEvent([]byte(message(1, "Warning", 2, "NoRoom", 3, "Filter", 4, "full", 5, message(1, "Pod", 2, "v1", 3, "shop", 4, "web", 5, "uid-7", 6, "12"))))
	if err != nil {
		t.Fatal(err)
	}
	want := &schedmsg.Event{Type: "Warning", Reason: "NoRoom", Action: "Filter", Note: "full", Regarding: &corev1.ObjectReference{
		Kind: "Pod", APIVersion: "v1", Namespace: "shop", Name: "web", UID: types.UID("uid-7"), ResourceVersion: "12",
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for name, bytes := range map[string]string{
		"another type": message(1, "Loud", 2, "NoRoom"), "no reason": message(1, "Normal"), "malformed": "\x0a\xff", "type no UTF-8": message(1, "\xff"),
	} {
		if e, err := schedmsg.ParseEvent([]byte(bytes)); err == nil {
			t.Errorf("%s: got %+v", name, e)
		}
	}
}

// The bytes that are parsed are a guest's memory: nothing may point to them.
func TestParsedMessagesAreCopies(t *testing.T) {
	parse := func(placements, nominations, event []byte) []any {
		p, err := schedmsg.ParsePlacements(placements, func(int) {})
		n, err2 := schedmsg.ParseNominations(nominations, func(int) {})
		e, err3 := schedmsg.ParseEvent(event)
		if err := errors.Join(err, err2, err3); err != nil {
			t.Fatal(err)
		}
		return []any{p, n, e}
	}
	messages := func() [][]byte {
		return [][]byte{
			[]byte(message(1, message(1, "rack", 2, "n1", 2, "n2"))),
			[]byte(message(1, message(1, "shop", 2, "web", 3, "n1"))),
			[]byte(message(1, "Warning", 2, "NoRoom", 3, "Filter", 4, "full", 5, message(1, "Pod", 5, "uid-7"))),
		}
	}
	guests, kept := messages(), messages()
	got, want := parse(guests[0], guests[1], guests[2]), parse(kept[0], kept[1], kept[2])
	for _, b := range guests {
		clear(b)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// FuzzParse holds that no bytes of a guest do harm.
func FuzzParse(f *testing.F) {
	f.Add([]byte(message(1, message(1, "rack", 2, "n1"))))
	f.Add([]byte(message(1, "Warning", 2, "NoRoom", 5, message(1, "Pod"))))
	f.Fuzz(func(t *testing.T, b []byte) {
		if placements, err := schedmsg.ParsePlacements(b, func(int) {}); err != nil && placements != nil {
			t.Error("placements and an error")
		}
		if nominations, err := schedmsg.ParseNominations(b, func(int) {}); err != nil && nominations != nil {
			t.Error("nominations and an error")
		}
		if e, err := schedmsg.ParseEvent(b); (e == nil) == (err == nil) {
			t.Errorf("got %v and the error %v", e, err)
		}
	})
}
