package service

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/guest/internal/wire"
	"github.com/kubewasm/kubewasm/guest/view"
)

// wideKinds are the kinds of a message with many fields. The numbers 6 and 18 have none.
const wideKinds = "\x00\x01\x21\x09\x11\x31\x00\x02\x26\x03\x03\x01\x02\x06\x03\x03\x01\x09\x00\x11\x02\x03\x03"

// wideMessage is a message with slots, as generated code has it.
type wideMessage struct {
	in    Encoded
	slots [len(wideKinds)]uint64
	texts Entries[string]
}

type wideView struct{ m *wideMessage }

func (m *wideMessage) fill() *wideMessage {
	m.in.Wide(&m.slots[0], wideKinds)
	m.texts.Begin(&m.in, m.slots[21])
	return m
}

// randomWide returns a message as hosts write it.
func randomWide(r *rand.Rand) (b []byte) {
	for number := uint32(1); number < uint32(len(wideKinds))+3; number++ {
		t := wire.Type(r.IntN(4)) // Of another type than a guest expects, in one of eight.
		if t == 3 {
			t = wire.Fixed32
		}
		if int(number) < len(wideKinds) && wideKinds[number] != 0 && r.IntN(8) != 0 {
			t = wire.Type(wideKinds[number]&7 - 1)
		}
		switch {
		case r.IntN(4) == 0:
		case t == wire.Varint:
			b = wire.AppendVarint(b, number, r.Uint64()>>r.IntN(64))
		case t == wire.Fixed64:
			b = wire.AppendFixed64(b, number, r.Uint64())
		case t == wire.Fixed32:
			b = wire.AppendFixed32(b, number, r.Uint32())
		case number == 21:
			for _, key := range []string{"", "abc", "pool", "batches", "kv_cache", "a key of 16 byte", "a key of seventeen"} {
				if r.IntN(3) != 0 {
					b = wire.AppendMapEntry(b, number, key, strings.Repeat("v", []int{0, 1, 20, 0x80}[r.IntN(4)]))
				}
			}
		default:
			b = wire.AppendBytes(b, number, strings.Repeat("x", []int{0, 1, 0x7f, 0x80, 0x4000}[r.IntN(5)]))
		}
	}
	return b
}

// TestSlotsAreTheFieldsFound fills the slots of random messages, whole and cut off, and compares
// them with what searches find.
func TestSlotsAreTheFieldsFound(t *testing.T) {
	r := rand.New(rand.NewPCG(47, 16))
	for n := range 3000 {
		b := randomWide(r)
		if n%3 == 0 {
			b = b[:r.IntN(len(b)+1)]
		}
		for name, e := range map[string]Encoded{"order of hosts": encoded(b, 0), "any order": EncodedOf(b)} {
			m := wideMessage{in: e}
			m.fill()
			search := wideMessage{in: EncodedOf(b)}
			for number := 1; number < len(wideKinds); number++ {
				kind := wideKinds[number]
				if kind == 0 {
					continue
				}
				at, want := search.in.find(uint64(number)<<3 | uint64(kind&7-1))
				switch {
				case number == 21: // A map, below.
					continue
				case kind&7 == byte(wire.Bytes)+1:
					want = slotOf(at, uint(want))
				case kind&truth != 0:
					want = min(want, 1)
				case kind&zigzag != 0:
					want = uint64(Zigzag(want))
				}
				got := m.slots[number]
				if kind&half != 0 {
					got, want = uint64(*(*uint32)(unsafe.Pointer(&m.slots[number]))), uint64(uint32(want))
				} else if kind&truth != 0 && *(*bool)(unsafe.Pointer(&m.slots[number])) {
					got = 1
				}
				if got != want {
					t.Fatalf("%s: %.40x: field %d is %#x, want %#x", name, b, number, got, want)
				}
				if kind == byte(wire.Bytes)+1 && m.in.TextIn(got) != search.in.Text(uint64(number)<<3|uint64(wire.Bytes)) {
					t.Fatalf("%s: %.40x: field %d is another text", name, b, number)
				}
			}
			of := ValuesOf(21, view.Text)
			got, want := m.texts.Map(&m.in, &of), search.texts.Map(&search.in, &of)
			for _, key := range []string{"", "abc", "abd", "pool", "batches", "kv_cache", "kv_cachf", "a key of 16 byte", "a key of seventeen", "none"} {
				g, gotOK := got.Lookup(key)
				w, wantOK := want.Lookup(key)
				if g != w || gotOK != wantOK {
					t.Fatalf("%s: %.40x: key %q is %q, %v, want %q, %v", name, b, key, g, gotOK, w, wantOK)
				}
			}
		}
	}
}

// TestMessagesAreReadAhead reads the last message of a list: those of the next requests are read in
// one go, and have the fields of their own request.
func TestMessagesAreReadAhead(t *testing.T) {
	type request struct {
		in   Encoded
		list Messages[wideMessage, wideView]
	}
	var req request
	for n, lengths := range [][]int{{3, 1, 2}, {0, 4}, {}, {5, 6, 7, 8, 9}} {
		var b []byte
		for _, length := range lengths {
			b = wire.AppendBytes(b, 1, wire.AppendBytes(wire.AppendVarint(nil, 1, uint64(length)), 9, strings.Repeat("x", 100*length)))
		}
		req.in = encoded(b, 0)
		views := req.list.WideViews(&req.in, 1<<3|uint64(wire.Bytes), (*wideMessage).fill)
		var got []int
		for _, v := range views {
			if read, want := v.m.slots[0] != 0, n > 0; read != want {
				t.Errorf("request %d: a message was read ahead: %v, want %v", n, read, want)
			}
			if v.m.slots[0] == 0 {
				v.m.fill()
			}
			if text := v.m.in.TextIn(v.m.slots[9]); len(text) != 100*int(v.m.slots[1]) {
				t.Errorf("request %d: message %d has a text of %d bytes", n, v.m.slots[1], len(text))
			}
			got = append(got, int(v.m.slots[1]))
		}
		if diff := cmp.Diff(lengths, append([]int{}, got...)); diff != "" {
			t.Errorf("request %d: messages (-want +got):\n%s", n, diff)
		}
		req.list = req.list.Reset()
	}
}
