package wire_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kubewasm/kubewasm/internal/wire"
)

// lengths are around those at which the length of a field takes one byte more.
var lengths = []int{0, 1, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129, 300, 16_370, 16_383, 16_384, 16_385, 1 << 21}

func TestEntriesAreThoseOfProtobuf(t *testing.T) {
	text := strings.Repeat("0123456789abcdef", 1<<17+1)
	for _, key := range lengths {
		for _, value := range []int{0, 1, 127, 128, 16_384} {
			key, value := text[:key], text[1:1+value]
			entry := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), key)
			entry = protowire.AppendString(protowire.AppendTag(entry, 2, protowire.BytesType), value)
			want := protowire.AppendBytes(protowire.AppendTag([]byte("before"), 20, protowire.BytesType), entry)
			if got := wire.AppendEntry([]byte("before"), 20, key, value); string(got) != string(want) {
				t.Fatalf("entry of a key of %d bytes and a value of %d has %d bytes, want %d", len(key), len(value), len(got), len(want))
			}
		}
	}
}

func TestMessagesOfEveryLength(t *testing.T) {
	for _, n := range lengths {
		want := protowire.AppendBytes(protowire.AppendTag([]byte("before"), 3, protowire.BytesType), []byte(strings.Repeat("x", n)))
		got, start := wire.BeginMessage([]byte("before"), 3)
		got = wire.EndMessage(append(got, strings.Repeat("x", n)...), start)
		if string(got) != string(want) {
			t.Errorf("message of %d bytes has %d, want %d", n, len(got), len(want))
		}
	}
}

func TestFieldsWithoutAValueAreLeftOut(t *testing.T) {
	for name, got := range map[string][]byte{
		"a number that is 0": wire.AppendNumber(nil, 1, 0),
		"an empty string":    wire.AppendString(nil, 1, ""),
		"no number":          wire.AppendOptionalNumber(nil, 1, nil),
		"no string":          wire.AppendOptionalString(nil, 1, nil),
	} {
		if len(got) != 0 {
			t.Errorf("%s is %x", name, got)
		}
	}
	want := "\x08\x00\x12\x00\x1a\x00\x20\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
	got := wire.AppendOptionalNumber(nil, 1, new(int64(0)))
	got = wire.AppendOptionalString(got, 2, new(""))
	got = wire.AppendNumber(wire.AppendItem(got, 3, ""), 4, -1)
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("fields that are there (-want +got):\n%s", diff)
	}
}
