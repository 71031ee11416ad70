package wasmbin

import (
	"bytes"
	"strings"
	"testing"
)

// TestBulkOperationsOfAConstantLength fills and copies any number of bytes up to some
// more than become stores, in the middle of a page, over itself in both directions,
// and beyond the end, where nothing may be written.
func TestBulkOperationsOfAConstantLength(t *testing.T) {
	const page = 1 << 16
	for n := int32(1); n <= maxFill+2; n++ {
		var m module
		m.Memories = []Limits{{Min: 1}}
		m.Exports = append(m.Exports, Export{"memory", ExternMemory, 0})
		m.fn("fill", types(I32), nil, nil, get(0), i32c(-0x5b), i32c(n), prefixMisc, 0x0b, 0)
		m.fn("copy", types(I32, I32), nil, nil, get(0), get(1), i32c(n), prefixMisc, 0x0a, 0, 0)
		for engine, config := range engines {
			if engine == "interpreter" && n%16 > 2 {
				continue
			}
			g := newMetered(t, config(), &m)
			want := make([]byte, page)
			for i := range want {
				want[i] = byte(i * 7)
			}
			memory := g.mod.Memory()
			memory.Write(0, want)
			check := func(what string, err error, traps bool, fuel int64) {
				t.Helper()
				if traps != (err != nil && strings.Contains(err.Error(), "out of bounds")) {
					t.Fatalf("%s: %s of %d bytes: %v", engine, what, n, err)
				}
				if spent := 4 + int64(n)/BytesPerFuel; !traps && fuel != spent {
					t.Errorf("%s: %s of %d bytes costs %d, want %d", engine, what, n, fuel, spent)
				}
				if got, _ := memory.Read(0, page); !bytes.Equal(got, want) {
					t.Fatalf("%s: %s of %d bytes left other bytes", engine, what, n)
				}
			}
			fill := func(what string, at uint32, traps bool) {
				t.Helper()
				if !traps {
					copy(want[at:], bytes.Repeat([]byte{0xa5}, int(n)))
				}
				_, fuel, err := g.call("fill", 1000, uint64(at))
				check(what, err, traps, fuel)
			}
			copies := func(what string, to, from uint32, traps bool) {
				t.Helper()
				if !traps {
					copy(want[to:], want[from:from+uint32(n)])
				}
				_, fuel, err := g.call("copy", 1000, uint64(to), uint64(from))
				check(what, err, traps, fuel)
			}
			copies("copy", 5000, 1003, false)
			copies("copy upwards over itself", 1003+uint32(n)/2, 1003, false)
			copies("copy downwards over itself", 2003, 2004, false)
			copies("copy beyond the end", page-uint32(n)+1, 1000, true)
			copies("copy from beyond the end", 1000, page-uint32(n)+1, true)
			copies("copy far beyond the end", 1<<32-1, 1000, true)
			copies("copy to the end", page-uint32(n), 1000, false)
			fill("fill", 1003, false)
			fill("fill beyond the end", page-uint32(n)+1, true)
			fill("fill far beyond the end", 1<<32-1, true)
			fill("fill to the end", page-uint32(n), false)
		}
	}
}
