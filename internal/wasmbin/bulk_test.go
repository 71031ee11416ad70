package wasmbin

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// bulkModule has functions that fill, copy and initialise, and segments of two
// pieces and a bit, and of one.
func bulkModule(pages uint32, segment []byte) *module {
	m := &module{}
	m.Memories = []Limits{{Min: pages, Max: pages, HasMax: true}}
	m.Exports = append(m.Exports, Export{"memory", ExternMemory, 0})
	segments := uint32(2)
	m.DataCount = &segments
	m.Datas = []Data{{Flags: 1, Init: segment}, {Flags: 1, Init: segment[:pieceBytes]}}
	three := types(I32, I32, I32)
	operands := asm(get(0), get(1), get(2))
	m.fn("fill", three, nil, nil, operands, prefixMisc, 0x0b, 0)
	m.fn("copy", three, nil, nil, operands, prefixMisc, 0x0a, 0, 0)
	m.fn("init", three, nil, nil, operands, prefixMisc, 0x08, 0, 0)
	m.fn("short", three, nil, nil, operands, prefixMisc, 0x08, 1, 0)
	m.fn("drop", nil, nil, nil, prefixMisc, 0x09, 0)
	m.fn("constant", types(I32, I32), nil, nil, get(0), get(1), i32c(2*pieceBytes), prefixMisc, 0x0b, 0)
	return m
}

// TestBulkOperationsInPieces holds, on both engines, that operations of lengths
// around a piece do what the specification says: the same bytes, the same traps,
// nothing written by what traps, the same fuel, and a yield for each piece but the
// last.
func TestBulkOperationsInPieces(t *testing.T) {
	const pages = 80
	const size = pages << 16
	segment := make([]byte, 2*pieceBytes+100)
	for i := range segment {
		segment[i] = byte(i*31 ^ i>>8)
	}
	type op struct {
		name string
		args [3]uint64 // to, from or value, length
	}
	ops := []op{
		{"copy", [3]uint64{1<<32 - 1, 0, 3 * pieceBytes}},
		{"copy", [3]uint64{0, 1<<32 - 1, 3 * pieceBytes}},
		{"copy", [3]uint64{0, 0, 1<<32 - 1}},
		{"fill", [3]uint64{1<<32 - 1, 7, 1<<32 - 1}},
		{"fill", [3]uint64{0, 7, size + 1}},
		{"fill", [3]uint64{0, 0x1ff, size}},
		{"init", [3]uint64{1<<32 - 1, 0, 2 * pieceBytes}},
		{"init", [3]uint64{0, 1<<32 - 1, 2 * pieceBytes}},
		{"init", [3]uint64{0, 101, 2 * pieceBytes}},
		{"init", [3]uint64{7, 100, 2 * pieceBytes}},
		{"short", [3]uint64{7, 0, pieceBytes + 1}},
		{"short", [3]uint64{7, 0, pieceBytes}},
		{"constant", [3]uint64{size - 2*pieceBytes, 9, 2 * pieceBytes}},
		{"constant", [3]uint64{size - 2*pieceBytes + 1, 9, 2 * pieceBytes}},
	}
	for _, n := range []uint64{pieceBytes - 1, pieceBytes, pieceBytes + 1, 2 * pieceBytes, 2*pieceBytes + 1} {
		ops = append(ops,
			op{"copy", [3]uint64{5, 3, n}}, op{"copy", [3]uint64{3, 5, n}},
			op{"copy", [3]uint64{1000, 1000, n}},
			op{"copy", [3]uint64{pieceBytes, 3, n}}, op{"copy", [3]uint64{3, pieceBytes, n}},
			op{"copy", [3]uint64{pieceBytes + 7, 3, n}}, op{"copy", [3]uint64{3, pieceBytes + 7, n}},
			op{"copy", [3]uint64{size - n, 0, n}}, op{"copy", [3]uint64{0, size - n, n}},
			op{"copy", [3]uint64{size - n + 1, 0, n}}, op{"copy", [3]uint64{0, size - n + 1, n}},
			op{"fill", [3]uint64{11, 0xa5, n}}, op{"fill", [3]uint64{size - n, 0x5a, n}}, op{"fill", [3]uint64{size - n + 1, 1, n}},
			op{"init", [3]uint64{11, 13, n}}, op{"init", [3]uint64{size - n, 0, n}}, op{"init", [3]uint64{size - n + 1, 0, n}},
		)
	}
	ops = append(ops, op{"drop", [3]uint64{}}, op{"init", [3]uint64{0, 0, 2 * pieceBytes}}, op{"init", [3]uint64{0, 0, 1}}, op{"init", [3]uint64{0, 0, 0}})
	type outcome struct {
		Trap  string
		Spent int64
	}
	outcomes := map[string][]outcome{}
	for engine, config := range engines {
		g := newMetered(t, config(), bulkModule(pages, segment))
		yields := 0
		g.yield = func(fuel int64) (int64, error) {
			if fuel < 0 {
				return 0, errFuel
			}
			yields++
			return fuel, nil
		}
		want := make([]byte, size)
		for i := range want {
			want[i] = byte(i*7 ^ i>>10)
		}
		memory := g.mod.Memory()
		memory.Write(0, want)
		dropped := false
		for _, o := range ops {
			what := fmt.Sprintf("%s: %s %v", engine, o.name, o.args)
			args, to, from, n := o.args[:], o.args[0], o.args[1], o.args[2]
			source := segment
			switch {
			case o.name == "short":
				source = segment[:pieceBytes]
			case dropped:
				source = nil
			}
			traps := to+n > size
			switch o.name {
			case "drop":
				args, dropped = nil, true
			case "constant":
				args = args[:2]
			case "copy":
				traps = traps || from+n > size
			case "init", "short":
				traps = traps || from+n > uint64(len(source))
			}
			if !traps {
				switch o.name {
				case "fill", "constant":
					copy(want[to:], bytes.Repeat([]byte{byte(from)}, int(n)))
				case "copy":
					copy(want[to:to+n], want[from:from+n])
				case "init", "short":
					copy(want[to:], source[from:from+n])
				}
			}
			yields = 0
			_, spent, err := g.call(o.name, 1<<40, args...)
			if traps != (err != nil) || traps && !strings.Contains(err.Error(), "out of bounds memory access") {
				t.Fatalf("%s: %v", what, err)
			}
			if o.name != "drop" && spent != 4+int64(n)/BytesPerFuel {
				t.Errorf("%s: spent %d", what, spent)
			}
			if pieces := int(max(n, 1)-1) / pieceBytes; o.name != "short" && yields != pieces && !traps || yields > 0 && traps {
				t.Errorf("%s: %d yields, want %d", what, yields, pieces)
			}
			if got, _ := memory.Read(0, size); !bytes.Equal(got, want) {
				t.Fatalf("%s: left other bytes", what)
			}
			trap := ""
			if err != nil {
				trap, _, _ = strings.Cut(err.Error(), "\n")
			}
			outcomes[engine] = append(outcomes[engine], outcome{trap, spent})
		}
	}
	if diff := cmp.Diff(outcomes["interpreter"], outcomes["compiler"]); diff != "" {
		t.Errorf("interpreter -, compiler +\n%s", diff)
	}
}

// TestBulkOperationIsStoppedBetweenPieces holds that the host can end one.
func TestBulkOperationIsStoppedBetweenPieces(t *testing.T) {
	for engine, config := range engines {
		g := newMetered(t, config(), bulkModule(80, make([]byte, 2*pieceBytes)))
		yields := 0
		g.yield = func(fuel int64) (int64, error) {
			if yields++; yields == 2 {
				return 0, errFuel
			}
			return fuel, nil
		}
		if _, _, err := g.call("fill", 1<<40, 0, 1, 5*pieceBytes); err == nil {
			t.Errorf("%s: the call went on", engine)
		}
		memory, _ := g.mod.Memory().Read(0, 5*pieceBytes)
		if n := bytes.Count(memory, []byte{1}); n != 2*pieceBytes {
			t.Errorf("%s: %d bytes were filled, want %d", engine, n, 2*pieceBytes)
		}
	}
}

// TestFunctionsForPiecesAreFew holds that a module gets one function for each kind
// of operation and each long segment, and none for lengths that are known to be
// short.
func TestFunctionsForPiecesAreFew(t *testing.T) {
	m := bulkModule(80, make([]byte, 2*pieceBytes))
	three := types(I32, I32, I32)
	for range 3 {
		m.fn("", three, nil, nil, get(0), get(1), get(2), prefixMisc, 0x0b, 0, get(0), get(1), get(2), prefixMisc, 0x08, 0, 0)
	}
	bin, _ := rewriteFor(t, m.Encode(), Options{Meter: true})
	if got, want := len(decodeFor(t, bin).Codes)-len(m.Codes), 3; got != want {
		t.Errorf("%d functions are added, want %d", got, want)
	}
	var short module
	short.Memories = []Limits{{Min: 80}}
	short.fn("", types(I32), nil, nil, get(0), get(0), i32c(pieceBytes), prefixMisc, 0x0b, 0)
	bin, _ = rewriteFor(t, short.Encode(), Options{Meter: true})
	if got := len(decodeFor(t, bin).Codes); got != 1 {
		t.Errorf("%d functions, want 1", got)
	}
	// A tail that is never reached is no reason for one.
	var dead module
	dead.Memories = []Limits{{Min: 1, Max: math.MaxUint16, HasMax: true}}
	dead.fn("", three, nil, nil, OpUnreachable, get(0), get(1), get(2), prefixMisc, 0x0b, 0)
	bin, _ = rewriteFor(t, dead.Encode(), Options{Meter: true})
	if got := decodeFor(t, bin); len(got.Codes) != 1 {
		t.Errorf("%d functions, want 1", len(got.Codes))
	}
}
