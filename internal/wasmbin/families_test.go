package wasmbin

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"testing"

	"github.com/tetratelabs/wazero"
)

// make nightly makes the modules larger.
var families = flag.Int("families", 1, "`times` as many values and repetitions in the modules of TestComplexityOfFamilies")

// values is a kind of values, as many as one says, that are live between two places in a
// function whose first local is an i32 and whose next two are i64.
type values struct {
	locals        []ValType // of each
	before, after func(m *module, n int) []byte
}

const (
	condition = iota
	number
	sum
	firstValue
)

func each(n int, f func(i int) []byte) (out []byte) {
	for i := range n {
		out = append(out, f(i)...)
	}
	return out
}

func local(op byte, i int) []byte { return appendUvarint([]byte{op}, uint64(i)) }

// distinct is a number that no other call with another one computes.
func distinct(i int) []byte { return asm(get(number), i64c(int64(i*7919+1)), OpI64Add) }

func kindsOfValues() map[string]values {
	nothing := func(*module, int) []byte { return nil }
	addUp := func(_ *module, n int) []byte { return asm(bytes.Repeat([]byte{OpI64Add}, n-1), set(sum)) }
	addresses := func(_ *module, n int) []byte {
		return each(n, func(i int) []byte {
			return asm(get(condition), i32c(int32(i*16)), OpI32Add, memarg(OpI32Load, 0), OpDrop)
		})
	}
	return map[string]values{
		"nothing":  {nil, nothing, nothing},
		"operands": {nil, func(_ *module, n int) []byte { return each(n, distinct) }, addUp},
		"vectors": {
			nil,
			func(_ *module, n int) []byte {
				return each(n, func(i int) []byte { return asm(distinct(i), prefixVec, 0x12) }) // i64x2.splat
			},
			func(_ *module, n int) []byte { // i64x2.add, i64x2.extract_lane 0
				return asm(bytes.Repeat([]byte{prefixVec, 0xce, 0x01}, n-1), prefixVec, 0x1d, 0, set(sum))
			},
		},
		"constants": {nil, func(_ *module, n int) []byte { return each(n, func(i int) []byte { return i64c(int64(i*7919 + 1)) }) }, addUp},
		"locals": {
			types(I64),
			func(_ *module, n int) []byte {
				return each(n, func(i int) []byte { return asm(distinct(i), local(OpLocalSet, firstValue+i)) })
			},
			func(_ *module, n int) []byte {
				return each(n, func(i int) []byte { return asm(local(OpLocalGet, firstValue+i), get(sum), OpI64Add, set(sum)) })
			},
		},
		"addresses": {nil, addresses, nothing},
		"addresses that are used again": {
			types(I32),
			func(_ *module, n int) []byte {
				return each(n, func(i int) []byte {
					return asm(get(condition), i32c(int32(i*16)), OpI32Add, local(OpLocalTee, firstValue+i), memarg(OpI32Load, 0), OpDrop)
				})
			},
			func(_ *module, n int) []byte {
				return each(n, func(i int) []byte {
					return asm(local(OpLocalGet, firstValue+i), memarg(OpI32Load, 0), OpI64ExtendI32U, get(sum), OpI64Add, set(sum))
				})
			},
		},
		"globals": {
			nil,
			func(m *module, n int) []byte {
				for range n {
					m.Globals = append(m.Globals, Global{GlobalType{I64, true}, asm(i64c(0), OpEnd)})
				}
				return each(n, func(i int) []byte { return asm(local(OpGlobalGet, i), get(sum), OpI64Add, set(sum)) })
			},
			func(_ *module, n int) []byte {
				return each(n, func(i int) []byte { return asm(local(OpGlobalGet, i), get(sum), OpI64Add, set(sum)) })
			},
		},
	}
}

// shape is code that repeats something as often as one says. set sets one of the locals.
type shape func(m *module, times int, set func(i int) []byte) []byte

func shapesOfCode() map[string]shape {
	repeat := func(parts ...any) shape {
		return func(_ *module, times int, _ func(int) []byte) []byte { return bytes.Repeat(asm(parts...), times) }
	}
	within := func(parts ...any) shape {
		return func(_ *module, times int, _ func(int) []byte) []byte {
			return asm(bytes.Repeat(asm(parts...), times), get(condition), OpBrIf, 0, bytes.Repeat([]byte{OpEnd}, times))
		}
	}
	// passing repeats something that takes and leaves values of its own: the parameters of a
	// type with as many results.
	const passed = 100
	passing := func(code func(m *module, typ []byte) []byte) shape {
		return func(m *module, times int, _ func(int) []byte) []byte {
			i64s := slices.Repeat(types(I64), passed)
			typ := appendVarint(nil, int64(m.typ(i64s, i64s)))
			return asm(each(passed, distinct), bytes.Repeat(code(m, typ), times), bytes.Repeat([]byte{OpDrop}, passed))
		}
	}
	return map[string]shape{
		"nothing":                  func(*module, int, func(int) []byte) []byte { return nil },
		"blocks":                   repeat(OpBlock, BlockTypeEmpty, OpEnd),
		"blocks with a branch":     repeat(OpBlock, BlockTypeEmpty, get(condition), OpBrIf, 0, OpEnd),
		"ifs":                      repeat(get(condition), OpIf, BlockTypeEmpty, OpEnd),
		"ifs with two arms":        repeat(get(condition), OpIf, BlockTypeEmpty, OpElse, OpEnd),
		"ifs that return":          repeat(get(condition), OpIf, BlockTypeEmpty, get(sum), OpReturn, OpEnd),
		"ifs that trap":            repeat(get(condition), OpIf, BlockTypeEmpty, OpUnreachable, OpEnd),
		"ifs within one another":   within(get(condition), OpIf, BlockTypeEmpty),
		"loops":                    repeat(OpLoop, BlockTypeEmpty, get(condition), OpBrIf, 0, OpEnd),
		"loops within one another": within(OpLoop, BlockTypeEmpty),
		"branches out of one block": func(_ *module, times int, _ func(int) []byte) []byte {
			return asm(OpBlock, BlockTypeEmpty, bytes.Repeat(asm(get(condition), OpBrIf, 0), times), OpEnd)
		},
		"tables of branches": func(_ *module, times int, _ func(int) []byte) []byte {
			const labels = 10
			return bytes.Repeat(asm(bytes.Repeat(asm(OpBlock, BlockTypeEmpty), labels),
				get(condition), OpBrTable, labels-1, targets(labels), bytes.Repeat([]byte{OpEnd}, labels)), times/labels)
		},
		"calls":              repeat(OpCall, 0),
		"calls by reference": repeat(OpRefFunc, 0, OpCallRef, 0),
		"null checks":        repeat(OpRefFunc, 0, OpRefAsNonNull, OpDrop),
		"branches on null":   repeat(OpBlock, BlockTypeEmpty, OpRefFunc, 0, OpBrOnNull, 0, OpDrop, OpEnd),
		"ifs with a tail call": func(m *module, times int, _ func(int) []byte) []byte {
			return bytes.Repeat(asm(get(condition), OpIf, BlockTypeEmpty, get(condition), OpReturnCall, u(uint32(len(m.Functions))), OpEnd), times)
		},
		"ifs with a tail call by reference": func(m *module, times int, _ func(int) []byte) []byte {
			self := u(uint32(len(m.Functions)))
			typ := u(m.typ(types(I32), types(I64)))
			return bytes.Repeat(asm(get(condition), OpIf, BlockTypeEmpty, get(condition), OpRefFunc, self, OpReturnCallRef, typ, OpEnd), times)
		},
		"bulk operations":    repeat(get(condition), get(condition), get(condition), prefixMisc, 0x0a, 0, 0),
		"growing the memory": repeat(get(condition), OpMemoryGrow, 0, OpDrop),
		"loads": func(_ *module, times int, _ func(int) []byte) []byte {
			return each(times, func(i int) []byte { return asm(get(condition), i32c(int32(i)), OpI32Add, memarg(OpI32Load, 0), OpDrop) })
		},
		"handlers": repeat(OpBlock, BlockTypeEmpty, OpTryTable, BlockTypeEmpty, 1, 2, 0, OpCall, 0, OpEnd, OpEnd),
		"arms that set a local": func(_ *module, times int, set func(int) []byte) []byte {
			return each(times, func(i int) []byte {
				return asm(get(condition), OpIf, BlockTypeEmpty, set(i), OpEnd)
			})
		},
		"loops that set a local": func(_ *module, times int, set func(int) []byte) []byte {
			return each(times, func(i int) []byte {
				return asm(OpLoop, BlockTypeEmpty, set(i), get(condition), OpBrIf, 0, OpEnd)
			})
		},
		"branches that carry a local each": func(_ *module, times int, set func(int) []byte) []byte {
			return asm(OpBlock, BlockTypeEmpty, each(times, func(i int) []byte {
				return asm(set(i), get(condition), OpBrIf, 0)
			}), OpEnd)
		},
		"sets of a local within branches within one another": func(_ *module, times int, set func(int) []byte) []byte {
			return asm(bytes.Repeat(asm(OpBlock, BlockTypeEmpty, get(condition), OpBrIf, 0), times), each(300, set), bytes.Repeat([]byte{OpEnd}, times))
		},
		"loads through one local": repeat(OpBlock, BlockTypeEmpty, get(condition), OpBrIf, 0, OpEnd, bytes.Repeat(asm(get(condition), memarg(OpI32Load, 0), OpDrop), 2)),
		"blocks that take values": passing(func(_ *module, typ []byte) []byte {
			return asm(OpBlock, typ, get(condition), OpBrIf, 0, OpEnd)
		}),
		"loops that take values": passing(func(_ *module, typ []byte) []byte {
			return asm(OpLoop, typ, get(condition), OpBrIf, 0, OpEnd)
		}),
		"ifs that take values": passing(func(m *module, typ []byte) []byte {
			return asm(get(condition), OpIf, typ, OpCall, u(passes(m)), OpEnd)
		}),
		"calls that take values": passing(func(m *module, _ []byte) []byte { return asm(OpCall, u(passes(m))) }),
		"tables that carry values": passing(func(_ *module, typ []byte) []byte {
			return asm(OpBlock, typ, OpBlock, typ, get(condition), OpBrTable, 2, 0, 1, 0, OpEnd, OpEnd)
		}),
	}
}

// passes returns a function of the type that was added last.
func passes(m *module) uint32 {
	typ := m.Types[len(m.Types)-1].Types[0]
	if len(m.Functions) < 2 {
		m.fn("", typ.Params, typ.Results, nil, each(len(typ.Params), func(i int) []byte { return local(OpLocalGet, i) }))
	}
	return 1
}

// family returns a module with a function that repeats a shape while values are live.
func family(kind values, s shape, values, times int) []byte {
	var m module
	m.Memories = []Limits{{Min: 1}}
	m.fn("callee", nil, nil, nil)
	addFamily(&m, kind, s, values, times)
	m.Elements = []Element{{Flags: 3, Funcs: []uint32{0, uint32(len(m.Codes) - 1)}}}
	// Both call one another, so the calls are charged for the stack.
	m.Codes[0].Body = asm(i32c(1), OpCall, u(uint32(len(m.Codes)-1)), OpDrop, OpEnd)
	return m.Encode()
}

// addFamily adds the function of a family to a module.
func addFamily(m *module, kind values, s shape, values, times int) {
	locals := types(I64, I64)
	if kind.locals == nil {
		kind.locals = types(I64)
	}
	locals = append(locals, slices.Repeat(kind.locals, values)...)
	before := kind.before(m, values)
	code := s(m, times, func(i int) []byte {
		value := distinct(i)
		if kind.locals[0] == I32 {
			value = asm(get(condition), i32c(int32(i)), OpI32Add)
		}
		return asm(value, local(OpLocalSet, firstValue+i%values))
	})
	m.fn(fmt.Sprint("family", len(m.Codes)), types(I32), types(I64), locals, before, code, kind.after(m, values), get(sum))
}

// TestComplexityOfFamilies compares the estimate of the memory with all that the compiler
// allocates, for each kind of values that can be live in each shape of code: many values and
// few repetitions, and the other way round. The estimate is never less, so a module that is
// accepted takes no more than maxFunctionMemory. It is not many times as much either, so it
// tells what an ordinary guest has from what one made to be slow has.
func TestComplexityOfFamilies(t *testing.T) {
	const (
		slack = 200 << 10 // For what does not grow.
		most  = 9
	)
	kinds, shapes := kindsOfValues(), shapesOfCode()
	empty := allocatedFor(t, family(kinds["nothing"], shapes["nothing"], 1, 1))
	least, greatest, names := math.Inf(1), 0.0, [2]string{}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		for _, s := range slices.Sorted(maps.Keys(shapes)) {
			for _, size := range []struct{ values, times int }{{200, 60}, {30, 200}} {
				values, times := size.values**families, size.times**families
				name := fmt.Sprintf("%d %s across %d %s", values, kind, times, s)
				bin := family(kinds[kind], shapes[s], values, times)
				estimate := estimatedBytes(t, bin)
				rewritten, _ := rewriteFor(t, bin, Options{Meter: true, StackBytes: maxStack})
				allocated := allocatedFor(t, rewritten) - empty
				if allocated > estimate+slack || estimate > most*allocated+slack {
					t.Errorf("%s: the estimate is %d bytes, the compiler allocates %d", name, estimate, allocated)
				}
				if ratio := float64(estimate+slack) / float64(allocated+slack); ratio < least {
					least, names[0] = ratio, name
				} else if ratio > greatest {
					greatest, names[1] = ratio, name
				}
			}
		}
	}
	t.Logf("the estimate is from %.2f (%s) to %.2f (%s) times as much as the compiler allocates", least, names[0], greatest, names[1])
}

// estimatedBytes returns the estimate of the memory for all functions of a module.
func estimatedBytes(t *testing.T, bin []byte) (n uint64) {
	t.Helper()
	of := complexitiesOf(t, bin)
	for i := range of {
		n += of[i].bytes()
	}
	return n
}

func complexitiesOf(t *testing.T, bin []byte) []complexity {
	t.Helper()
	rw := &rewriter{Module: decodeFor(t, bin), opts: Options{Meter: true}, info: &Info{}}
	rw.yield = rw.imported(ExternFunc)
	if err := rw.describe(); err != nil {
		t.Fatal(err)
	}
	_, of, err := rw.measure()
	if err != nil {
		t.Fatal(err)
	}
	return of
}

// allocatedFor returns how many bytes the compiler allocates for a module.
func allocatedFor(t *testing.T, bin []byte) uint64 {
	t.Helper()
	ctx := t.Context()
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigCompiler().WithCoreFeatures(allFeatures))
	defer r.Close(ctx)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := r.CompileModule(ctx, bin); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
