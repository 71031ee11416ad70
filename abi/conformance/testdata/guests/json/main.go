//go:build wasip1

// A module whose reader of JSON gets any bytes: see ../../../json_test.go.
package main

import (
	"encoding/hex"
	"math"
	"strconv"
	"unsafe"

	"github.com/kubewasm/kubewasm/guest/hooks"
	"github.com/kubewasm/kubewasm/guest/view"
	"github.com/kubewasm/kubewasm/internal/json"
)

//kubewasm:name json

type guest struct{}

func (guest) Decide(*hooks.Request, *hooks.Decision) error { return nil }

func init() { hooks.Register(guest{}) }

func main() {}

var document, description []byte

// room returns room for a document.
//
//go:wasmexport room
func room(n uint32) unsafe.Pointer {
	document = make([]byte, n, n+1)
	return unsafe.Pointer(unsafe.SliceData(document))
}

// read describes the document: an address, and a length in the lower half.
//
//go:wasmexport read
func read(unsafe.Pointer, uint32) uint64 {
	description = []byte("invalid")
	if json.Valid(document) {
		description = describe(nil, document, 0)
	}
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(description))))<<32 | uint64(len(description))
}

// number is a message whose field 1 is v in JSON.
var number = view.Type{Names: []string{"", "v"}}

func appendNumber(out []byte, v json.Value) []byte {
	m := view.FromJSON([]byte(`{"v":`+string(v)+`}`), &number)
	out = append(strconv.AppendInt(out, m.Int64(1), 10), ' ')
	if f := m.Float64(1); math.IsNaN(f) {
		return append(out, "nan"...)
	} else {
		bits := strconv.FormatUint(math.Float64bits(f), 16)
		return append(append(out, "0000000000000000"[len(bits):]...), bits...)
	}
}

func describe(out []byte, v json.Value, depth int) []byte {
	if depth == 20 {
		return append(out, '.')
	}
	switch v.Kind() {
	case json.KindNumber:
		return appendNumber(out, v)
	case json.KindString:
		out = append(out, '"')
		out = append(hex.AppendEncode(out, []byte(v.String())), '"')
		return appendNumber(out, v)
	case json.KindArray:
		out = append(out, '[')
		for e := json.Array(v); e.Next(); {
			out = append(describe(out, e.Value(), depth+1), ',')
		}
		return append(out, ']')
	case json.KindObject:
		out = append(out, '{')
		for m := json.Object(v); m.Next(); {
			key := m.Key()
			out = append(hex.AppendEncode(out, []byte(key)), ':')
			var last json.Value
			for m := json.Object(v); m.Next(); {
				if m.Key() == key {
					last = m.Value()
				}
			}
			out = append(describe(out, last, depth+1), ',')
		}
		return append(out, '}')
	case json.KindBool:
		b, _ := v.Bool()
		return strconv.AppendBool(out, b)
	}
	return append(out, v.Kind().String()...)
}
