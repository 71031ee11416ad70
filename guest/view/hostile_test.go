package view

import (
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kubewasm/kubewasm/guest/internal/wire"
)

// fieldOf is what a plain reader says of a field.
type fieldOf struct {
	number   uint64
	isNumber bool
	bytes    [][]byte // Of all its elements, up to the last.
}

// plain reads a message field by field, into nothing clever.
func plain(raw []byte) map[uint32]fieldOf {
	fields := map[uint32]fieldOf{}
	for r := wire.NewReader(raw); r.Next(); {
		f := fields[r.Field]
		f.number, f.isNumber = r.Uint64(), r.Type != wire.Bytes
		if !f.isNumber {
			f.bytes = append(f.bytes, r.Bytes())
		}
		fields[r.Field] = f
	}
	return fields
}

func (f fieldOf) text() string {
	if f.isNumber || len(f.bytes) == 0 {
		return ""
	}
	return string(f.bytes[len(f.bytes)-1])
}

func (f fieldOf) elements() [][]byte {
	if f.isNumber {
		return nil
	}
	return f.bytes
}

// plainly is say by a plain reader.
func plainly(raw []byte) said {
	fields := plain(raw)
	_, has := fields[2]
	s := said{
		Name: fields[1].text(), Far: fields[16].text(), HasNumber: has,
		NestedKey: plain([]byte(fields[3].text()))[1].text(),
	}
	if fields[2].isNumber {
		s.Number = int64(fields[2].number)
	}
	s.Truth = fields[7].isNumber && fields[7].number != 0
	for _, e := range fields[4].elements() {
		part := plain(e)
		s.Parts = append(s.Parts, part[1].text()+"="+part[2].text())
	}
	for _, e := range fields[5].elements() {
		s.Names = append(s.Names, string(e))
	}
	for _, e := range fields[6].elements() {
		var entry entry
		for r := wire.NewReader(e); r.Next(); {
			switch r.Field {
			case 1:
				entry.Key = string(r.Bytes())
			case 2:
				entry.Value = string(r.Bytes())
			}
		}
		s.Labels = append(s.Labels, entry)
	}
	return s
}

// value is the look-up of a label.
func (s *said) value(key string) (value string) {
	for _, e := range s.Labels {
		if e.Key == key {
			value = e.Value
		}
	}
	return value
}

// mutate changes some bytes, or where the message ends.
func mutate(r *rand.Rand, raw []byte) []byte {
	raw = append([]byte(nil), raw...)
	for range r.IntN(4) {
		switch i := r.IntN(len(raw)); r.IntN(4) {
		case 0:
			raw[i] = byte(r.Uint32())
		case 1:
			raw[i] ^= 1 << r.IntN(8)
		case 2:
			raw = raw[:i+1]
		case 3:
			raw = append(raw[:i:i], raw[r.IntN(len(raw)):]...)
			if len(raw) == 0 {
				return []byte{byte(r.Uint32())}
			}
		}
	}
	return raw
}

// reuse makes raw the next version of the object of v, as FromRef does with what the
// host answers.
func reuse(v View, raw []byte) View {
	o := v.m.object
	o.version++
	o.kept, o.once = false, nil
	o.bytes, o.root.end = append(o.bytes[:0], raw...), uint32(len(raw))
	return View{v.m, o.version}
}

// TestHostileBytesReadPlainly compares what views say of random bytes with a plain
// reader: of new objects, and of the next versions of an object, of which much is
// what it was.
func TestHostileBytesReadPlainly(t *testing.T) {
	const seed = 37
	r := rand.New(rand.NewPCG(seed, seed))
	short, long := thingBytes("n", "x"), thingBytes("name", string(make([]byte, 300)))
	again := FromProto(short, &typeOfThing)
	keys := []string{"zone", "long", "", "nothing of the kind"}
	times := 20_000
	if runtime.GOARCH == "wasm" {
		times = 2_000 // The comparison below is slow there.
	}
	for i := range times {
		raw := mutate(r, short)
		if i%8 == 0 {
			raw = mutate(r, long)
		}
		want := plainly(raw)
		again = reuse(again, raw)
		for name, v := range map[string]View{"new": FromProto(raw, &typeOfThing), "next version": again} {
			// First the ways of a plugin, which read no more than they need.
			for range 2 {
				if got, want := v.Message(3, &typeOfPart).Text(1), want.NestedKey; got != want {
					t.Fatalf("%d, %s: %x: nested key is %q, want %q", i, name, raw, got, want)
				}
				labels := v.StringMap(6)
				for _, key := range keys {
					if got, want := labels.Get(key), want.value(key); got != want {
						t.Fatalf("%d, %s: %x: label %q is %q, want %q", i, name, raw, key, got, want)
					}
				}
				parts := List[View](v, 4, &typeOfPart)
				if len(parts) != len(want.Parts) {
					t.Fatalf("%d, %s: %x: %d parts, want %d", i, name, raw, len(parts), len(want.Parts))
				}
			}
			if diff := cmp.Diff(want, say(v), cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("%d, %s: %x (-want +got):\n%s", i, name, raw, diff)
			}
		}
	}
}

// TestOneFieldInSeveralWays reads fields as whatever there is, in random order, in
// versions of an object: what was made of a field in one way must not be taken for
// what is made of it in another, or in another version.
func TestOneFieldInSeveralWays(t *testing.T) {
	labels := []string{"zone", "long", "a", "b", "c", "d"} // More than are remembered.
	ways := []struct {
		name string
		read func(v View, n uint32) any
	}{
		{"text", func(v View, n uint32) any { return v.Text(n) }},
		{"bytes", func(v View, n uint32) any { return string(v.Bytes(n)) }},
		{"message", func(v View, n uint32) any { return v.Message(n, &typeOfPart).Text(1) }},
		{"messages", func(v View, n uint32) any {
			list := []string{}
			for _, part := range List[View](v, n, &typeOfPart) {
				list = append(list, part.Text(2))
			}
			return list
		}},
		{"strings", func(v View, n uint32) any { return strings.Join(v.Strings(n), ",") }},
		{"labels", func(v View, n uint32) any {
			list := []string{}
			for _, key := range labels {
				list = append(list, v.StringMap(n).Get(key))
			}
			return list
		}},
		{"entries", func(v View, n uint32) any { return append([]entry{}, v.StringMap(n).entries()...) }},
		{"message of a map", func(v View, n uint32) any {
			return MessageMapOf[View](v, n, &typeOfPart).Get("zone").Text(1)
		}},
		{"values", func(v View, n uint32) any {
			return append([]string{}, Values(v, n, func(v Value) string { return v.Text(v.Raw) })...)
		}},
	}
	const seed = 41
	r := rand.New(rand.NewPCG(seed, seed))
	again := FromProto(thingBytes("n", "x"), &typeOfThing)
	for range 300 {
		raw := thingBytes(string("abc"[r.IntN(3)]), string("xyz"[r.IntN(3)]))
		raw = wire.AppendMapEntry(raw, 6, labels[r.IntN(len(labels))], string("uvw"[r.IntN(3)]))
		again = reuse(again, raw)
		for range 30 {
			n, way := uint32(1+r.IntN(7)), ways[r.IntN(len(ways))]
			if diff := cmp.Diff(way.read(FromProto(raw, &typeOfThing), n), way.read(again, n)); diff != "" {
				t.Fatalf("field %d as %s of %x (-new +next version):\n%s", n, way.name, raw, diff)
			}
		}
	}
}
