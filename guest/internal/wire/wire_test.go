package wire_test

import (
	"bytes"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kubewasm/kubewasm/guest/internal/wire"
)

// field is what a Reader says of one.
type field struct {
	Number uint32
	Type   wire.Type
	Uint64 uint64
	Bytes  string
}

func read(b []byte) (fields []field, malformed bool) {
	r := wire.NewReader(b)
	for r.Next() {
		fields = append(fields, field{r.Field, r.Type, r.Uint64(), string(r.Bytes())})
	}
	return fields, r.Malformed()
}

func TestReader(t *testing.T) {
	overlong := append(bytes.Repeat([]byte{0x80}, 10), 0)
	tests := map[string]struct {
		in        []byte
		want      []field
		malformed bool
	}{
		"nothing":                  {},
		"varint of one byte":       {in: []byte{0x08, 0x7f}, want: []field{{1, wire.Varint, 127, ""}}},
		"varint of two bytes":      {in: []byte{0x08, 0x96, 0x01}, want: []field{{1, wire.Varint, 150, ""}}},
		"padded varint":            {in: []byte{0x08, 0x81, 0x80, 0x00}, want: []field{{1, wire.Varint, 1, ""}}},
		"negative number":          {in: wire.AppendVarint(nil, 3, math.MaxUint64), want: []field{{3, wire.Varint, math.MaxUint64, ""}}},
		"bytes":                    {in: []byte{0x12, 2, 'h', 'i'}, want: []field{{2, wire.Bytes, 0, "hi"}}},
		"empty bytes":              {in: []byte{0x12, 0}, want: []field{{2, wire.Bytes, 0, ""}}},
		"fixed32":                  {in: []byte{0x0d, 1, 2, 3, 4}, want: []field{{1, wire.Fixed32, 0x04030201, ""}}},
		"fixed64":                  {in: []byte{0x09, 1, 2, 3, 4, 5, 6, 7, 8}, want: []field{{1, wire.Fixed64, 0x0807060504030201, ""}}},
		"largest field number":     {in: wire.AppendVarint(nil, wire.MaxField, 1), want: []field{{wire.MaxField, wire.Varint, 1, ""}}},
		"field number 0":           {in: []byte{0x00, 1}, malformed: true},
		"field number 0, padded":   {in: []byte{0x80, 0x00, 1}, malformed: true},
		"field number 2^29":        {in: protowire.AppendVarint(nil, 1<<32), malformed: true},
		"start of a group":         {in: []byte{0x0b, 0x08, 1, 0x0c}, malformed: true},
		"end of a group":           {in: []byte{0x0c}, malformed: true},
		"wire type 6":              {in: []byte{0x0e, 0}, malformed: true},
		"wire type 7":              {in: []byte{0x0f, 0}, malformed: true},
		"key that does not end":    {in: []byte{0x80}, malformed: true},
		"key without a value":      {in: []byte{0x08}, malformed: true},
		"varint that does not end": {in: []byte{0x08, 0x80}, malformed: true},
		"varint of eleven bytes":   {in: append([]byte{0x08}, overlong...), malformed: true},
		"varint of 65 bits":        {in: append([]byte{0x08}, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02), malformed: true},
		"bytes without a length":   {in: []byte{0x12}, malformed: true},
		"length that is one more":  {in: []byte{0x12, 3, 'h', 'i'}, malformed: true},
		"length of 64 bits":        {in: append([]byte{0x12}, protowire.AppendVarint(nil, math.MaxUint64)...), malformed: true},
		"length of 63 bits":        {in: append([]byte{0x12}, protowire.AppendVarint(nil, math.MaxInt64)...), malformed: true},
		"truncated fixed32":        {in: []byte{0x0d, 1, 2, 3}, malformed: true},
		"truncated fixed64":        {in: []byte{0x09, 1, 2, 3, 4, 5, 6, 7}, malformed: true},
		"sense, then nonsense":     {in: []byte{0x08, 1, 0x12, 1, 'x', 0x0b}, want: []field{{1, wire.Varint, 1, ""}, {2, wire.Bytes, 0, "x"}}, malformed: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, malformed := read(test.in)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("fields (-want +got):\n%s", diff)
			}
			if malformed != test.malformed {
				t.Errorf("malformed: %v, want %v", malformed, test.malformed)
			}
		})
	}
}

func TestReaderReadsNumbers(t *testing.T) {
	for _, want := range []int64{0, 1, -1, 127, 128, math.MaxInt32, math.MinInt32, math.MaxInt64, math.MinInt64} {
		r := wire.NewReader(wire.AppendVarint(nil, 1, uint64(want)))
		if !r.Next() || r.Int64() != want || r.Bool() != (want != 0) {
			t.Errorf("got %d and %v, want %d", r.Int64(), r.Bool(), want)
		}
	}
}

// TestAppendAsProtowire holds that what is appended are the bytes that
// protowire appends, for numbers of all lengths.
func TestAppendAsProtowire(t *testing.T) {
	for _, number := range []uint32{1, 15, 16, 2047, 2048, wire.MaxField} {
		for _, length := range []int{0, 1, 127, 128, 16383, 16384} {
			text := string(bytes.Repeat([]byte{'a'}, length))
			n := protowire.Number(number)
			want := protowire.AppendTag(nil, n, protowire.VarintType)
			want = protowire.AppendVarint(want, uint64(length))
			want = protowire.AppendTag(want, n, protowire.BytesType)
			want = protowire.AppendString(want, text)
			entry := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "key")
			entry = protowire.AppendString(protowire.AppendTag(entry, 2, protowire.BytesType), text)
			want = protowire.AppendTag(want, n, protowire.BytesType)
			want = protowire.AppendBytes(want, entry)

			got := wire.AppendVarint(nil, number, uint64(length))
			got = wire.AppendBytes(got, number, text)
			got = wire.AppendMapEntry(got, number, "key", text)
			if !bytes.Equal(got, want) {
				t.Errorf("field %d, length %d: got % x, want % x", number, length, got, want)
			}
		}
	}
}

func TestFind(t *testing.T) {
	b := wire.AppendVarint(nil, 2, 7)
	b = wire.AppendBytes(b, 1, "other")
	b = wire.AppendBytes(b, 2, "this")
	start, end := wire.Find(b, 0, 2<<3|uint64(wire.Bytes))
	if end < 0 || string(b[start:end]) != "this" {
		t.Errorf("got [%d:%d] of % x", start, end, b)
	}
	if _, end := wire.Find(b, end, 2<<3|uint64(wire.Bytes)); end != -1 {
		t.Errorf("found another that ends at %d", end)
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte{0x08, 0x96, 0x01, 0x12, 2, 'h', 'i', 0x0d, 1, 2, 3, 4})
	f.Add([]byte{0x09, 1, 2, 3, 4, 5, 6, 7, 8, 0x0b})
	f.Add([]byte{0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Fuzz(func(t *testing.T, in []byte) {
		var want []field
		rest, malformed := in, false
		for len(rest) > 0 && !malformed {
			number, kind, n := protowire.ConsumeTag(rest)
			if malformed = n < 0 || number > wire.MaxField; malformed {
				break // protowire lets larger numbers pass.
			}
			value := rest[n:]
			next := field{Number: uint32(number), Type: wire.Type(kind)}
			m := -1
			switch kind {
			case protowire.VarintType:
				next.Uint64, m = protowire.ConsumeVarint(value)
			case protowire.Fixed32Type:
				var v uint32
				v, m = protowire.ConsumeFixed32(value)
				next.Uint64 = uint64(v)
			case protowire.Fixed64Type:
				next.Uint64, m = protowire.ConsumeFixed64(value)
			case protowire.BytesType:
				next.Bytes, m = protowire.ConsumeString(value)
			}
			if malformed = m < 0; !malformed {
				want, rest = append(want, next), value[m:]
			}
		}
		got, gotMalformed := read(in)
		if diff := cmp.Diff(want, got); diff != "" || gotMalformed != malformed {
			t.Errorf("% x: malformed %v, want %v; fields (-want +got):\n%s", in, gotMalformed, malformed, diff)
		}
	})
}
