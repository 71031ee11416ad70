package wasmbin

import (
	"context"
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// testTree is a call tree, for guests that import it from ProfilerModule.
type testTree struct {
	module           api.Module
	cur, last, count api.MutableGlobal
}

func newTestTree(ctx context.Context, r wazero.Runtime) (*testTree, error) {
	module, err := r.InstantiateWithConfig(ctx, Profiler, wazero.NewModuleConfig().WithName(ProfilerModule))
	if err != nil {
		return nil, err
	}
	global := func(name string) api.MutableGlobal { return module.ExportedGlobal(name).(api.MutableGlobal) }
	return &testTree{module, global("cur"), global("last"), global("count")}, nil
}

// node returns a node, by its bytes.
func (t *testTree) node(i uint32) []byte {
	b, _ := t.module.Memory().Read(0x440000+i*32, 32)
	return b
}

// grant tells the tree that the guest has got more fuel, and refill that it has so much. They do
// nothing for a guest that is not profiled.
func (t *testTree) grant(more int64) {
	if t != nil {
		t.refill(int64(t.last.Get()) + more)
	}
}

func (t *testTree) refill(fuel int64) {
	if t != nil {
		t.last.Set(uint64(fuel))
	}
}

// take ends a call and returns the fuel of all paths since the last take.
func (t *testTree) take(ctx context.Context, fuel api.Global) (sum int64) {
	if t == nil || fuel == nil {
		return 0
	}
	if _, err := t.module.ExportedFunction("spend").Call(ctx, fuel.Get()); err != nil {
		panic(err)
	}
	t.cur.Set(0)
	for i := range uint32(t.count.Get()) {
		sum += int64(binary.LittleEndian.Uint64(t.node(i)))
		binary.LittleEndian.PutUint64(t.node(i), 0)
	}
	return sum
}

// paths returns the fuel of each path, which is named by the indexes of its functions.
func (t *testTree) paths() map[string]int64 {
	paths := map[string]int64{}
	names := make([]string, t.count.Get())
	for i := range uint32(len(names)) {
		b := t.node(i)
		if i > 1 {
			names[i] = names[binary.LittleEndian.Uint32(b[16:])] + "/" + string(rune('a'+binary.LittleEndian.Uint32(b[20:])))
		}
		if fuel := int64(binary.LittleEndian.Uint64(b)); fuel != 0 {
			paths[names[i]] += fuel
		}
	}
	return paths
}

func TestPathsOfAProfile(t *testing.T) {
	// Functions are called a, b and so on, by their indexes.
	nothing := asm(OpI32Const, 1, OpDrop)
	for _, test := range []struct {
		name  string
		build func(m *module)
		limit map[string]uint64
		want  map[string]int64
	}{
		{"calls within calls", func(m *module) {
			m.fn("", nil, nil, nil, nothing)
			m.fn("", nil, nil, nil, OpCall, 0, nothing, OpCall, 0)
			m.fn("f", nil, nil, nil, OpCall, 1, OpCall, 0)
		}, nil, map[string]int64{"/c": 2, "/c/b": 4, "/c/b/a": 4, "/c/a": 2}},
		{"returns from within blocks", func(m *module) {
			m.fn("", nil, types(I32, I64), nil, OpBlock, BlockTypeEmpty, OpLoop, BlockTypeEmpty, OpI32Const, 1, OpI64Const, 2, OpReturn, OpEnd, OpEnd, OpUnreachable)
			m.fn("f", nil, nil, nil, OpCall, 0, OpDrop, OpDrop, nothing)
		}, nil, map[string]int64{"/b": 5, "/b/a": 3}},
		{"a tail call takes the place of its caller", func(m *module) {
			m.fn("", nil, nil, nil, nothing)
			m.fn("", nil, nil, nil, nothing, OpReturnCall, 0)
			m.fn("f", nil, nil, nil, OpCall, 1)
		}, nil, map[string]int64{"/c": 1, "/c/b": 3, "/c/a": 2}},
		{"an exception goes back to the function that catches it", func(m *module) {
			m.Tags = append(m.Tags, m.typ(nil, nil))
			m.fn("", nil, nil, nil, nothing, OpThrow, 0)
			m.fn("", nil, nil, nil, nothing, OpCall, 0)
			m.fn("f", nil, nil, nil, OpBlock, BlockTypeEmpty, OpTryTable, BlockTypeEmpty, 1, 2, 0, OpCall, 1, OpEnd, OpEnd, nothing)
		}, nil, map[string]int64{"/c": 4, "/c/b": 3, "/c/b/a": 3}},
		{"a path that is too long loses functions in its middle", func(m *module) {
			m.fn("f", types(I32), nil, nil, OpLocalGet, 0, OpIf, BlockTypeEmpty, OpLocalGet, 0, OpI32Const, 1, OpI32Sub, OpCall, 0, OpEnd)
		}, map[string]uint64{"depth": 3}, map[string]int64{"/a": 6, "/a/a": 6, "/a/a/a": 20}},
		{"beyond the limit, a path is cut to its last function", func(m *module) {
			m.fn("", nil, nil, nil, nothing)
			m.fn("", nil, nil, nil, OpCall, 0)
			m.fn("f", nil, nil, nil, OpCall, 1, OpCall, 0)
		}, map[string]uint64{"limit": 3}, map[string]int64{"/c": 2, "/b": 1, "/a": 4}},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := &module{}
			test.build(m)
			bin, _ := rewriteFor(t, m.Encode(), Options{Meter: true, Profile: true, StackBytes: maxStack})
			ctx := t.Context()
			r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCoreFeatures(allFeatures))
			defer r.Close(ctx)
			tree, err := newTestTree(ctx, r)
			if err != nil {
				t.Fatal(err)
			}
			for name, limit := range test.limit {
				tree.module.ExportedGlobal(name).(api.MutableGlobal).Set(limit)
			}
			if _, err := r.NewHostModuleBuilder(YieldModule).NewFunctionBuilder().WithFunc(func() {}).Export(YieldName).Instantiate(ctx); err != nil {
				t.Fatal(err)
			}
			guest, err := r.Instantiate(ctx, bin)
			if err != nil {
				t.Fatal(err)
			}
			fuel := guest.ExportedGlobal(FuelGlobal).(api.MutableGlobal)
			fuel.Set(1000)
			tree.last.Set(1000)
			f := guest.ExportedFunction("f")
			if _, err := f.Call(ctx, []uint64{5}[:len(f.Definition().ParamTypes())]...); err != nil {
				t.Fatal(err)
			}
			if cur := tree.cur.Get(); cur != 0 {
				t.Errorf("after the call node %d is current", cur)
			}
			if diff := cmp.Diff(test.want, tree.paths()); diff != "" {
				t.Errorf("paths (-want +got):\n%s", diff)
			}
		})
	}
}
