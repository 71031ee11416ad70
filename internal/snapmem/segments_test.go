package snapmem

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// section encodes a section of a module.
func section(id byte, body ...byte) []byte {
	return append(binary.AppendUvarint([]byte{id}, uint64(len(body))), body...)
}

// active encodes an active data segment.
func active(offset int32, data string) []byte {
	b := append(appendInt32([]byte{0, 0x41}, offset), 0x0b)
	return append(binary.AppendUvarint(b, uint64(len(data))), data...)
}

// module encodes a module with one page of memory, an empty section after its
// data, and what else is asked for.
func module(dataCount bool, segments ...[]byte) []byte {
	m := []byte("\x00asm\x01\x00\x00\x00")
	m = append(m, section(5, 1, 0, 1)...)
	m = append(m, section(7, append([]byte("\x01\x06memory"), 2, 0)...)...)
	if dataCount {
		m = append(m, section(12, byte(len(segments)))...)
	}
	m = append(m, section(11, append([]byte{byte(len(segments))}, bytes.Join(segments, nil)...)...)...)
	return append(m, section(0, []byte("\x04last!")...)...)
}

// memoryOf instantiates a module and returns its memory.
func memoryOf(t testing.TB, wasm []byte) []byte {
	t.Helper()
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	t.Cleanup(func() { rt.Close(ctx) })
	wasi_snapshot_preview1.MustInstantiate(ctx, rt)
	compiled, err := rt.CompileModule(ctx, wasm)
	if err != nil {
		t.Fatal(err)
	}
	// Whatever else it imports, it does not call.
	nothing := api.GoModuleFunc(func(context.Context, api.Module, []uint64) {})
	builders := map[string]wazero.HostModuleBuilder{}
	for _, fn := range compiled.ImportedFunctions() {
		from, name, _ := fn.Import()
		if from == wasi_snapshot_preview1.ModuleName {
			continue
		}
		if builders[from] == nil {
			builders[from] = rt.NewHostModuleBuilder(from)
		}
		builders[from].NewFunctionBuilder().WithGoModuleFunction(nothing, fn.ParamTypes(), fn.ResultTypes()).Export(name)
	}
	for _, b := range builders {
		if _, err := b.Instantiate(ctx); err != nil {
			t.Fatal(err)
		}
	}
	m, err := rt.InstantiateModule(ctx, compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		t.Fatal(err)
	}
	b, _ := m.ExportedMemory("memory").Read(0, m.ExportedMemory("memory").Size())
	return b
}

func TestMergeSegments(t *testing.T) {
	far := int32(maxGap + 1)
	tests := map[string]struct {
		module []byte
		want   int // Segments in the end; 0 for a module that stays as it is.
	}{
		"none":                       {module: module(false)},
		"one":                        {module: module(false, active(8, "one"))},
		"two that touch":             {module: module(false, active(8, "one"), active(11, "two")), want: 1},
		"two with a gap":             {module: module(false, active(8, "one"), active(12, "two")), want: 1},
		"the largest gap":            {module: module(false, active(0, ""), active(maxGap, "two")), want: 1},
		"too large a gap":            {module: module(false, active(0, ""), active(far, "two"))},
		"two groups":                 {module: module(false, active(8, "a"), active(10, "b"), active(1000, "c"), active(1002, "d")), want: 2},
		"backwards":                  {module: module(false, active(1000, "c"), active(10, "b"), active(8, "a")), want: 2},
		"up to the end":              {module: module(false, active(65530, "abc"), active(65533, "def")), want: 1},
		"empty ones":                 {module: module(false, active(8, ""), active(8, ""), active(8, "x"), active(9, "")), want: 1},
		"overlapping":                {module: module(false, active(8, "one"), active(10, "two"))},
		"overlapping, not neighbors": {module: module(false, active(8, "a long one"), active(100, "x"), active(9, "y"))},
		"counted":                    {module: module(true, active(8, "one"), active(11, "two"))},
		"a passive one":              {module: module(false, active(8, "one"), []byte("\x01\x03two"))},
		"a memory by its number":     {module: module(false, active(8, "one"), append([]byte{2, 0}, active(11, "two")[1:]...))},
		"offset of two constants":    {module: module(false, active(8, "one"), []byte("\x00\x41\x04\x41\x07\x6a\x0b\x03two"))},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			before := bytes.Clone(test.module)
			got := MergeSegments(test.module)
			if !bytes.Equal(test.module, before) {
				t.Fatal("the module was written to")
			}
			if test.want == 0 {
				if !bytes.Equal(got, test.module) {
					t.Errorf("the module is not what it was: %x", got)
				}
				return
			}
			_, body, end, ok := findData(got)
			if !ok {
				t.Fatal("the data section is gone")
			}
			if segments, err := parseSegments(got[body:end]); err != nil || len(segments) != test.want {
				t.Errorf("%d segments, want %d, error %v", len(segments), test.want, err)
			}
			if !bytes.Equal(memoryOf(t, got), memoryOf(t, test.module)) {
				t.Error("the memory is another one")
			}
			if !bytes.HasSuffix(got, section(0, []byte("\x04last!")...)) {
				t.Error("what follows the data is gone")
			}
		})
	}
}

// TestMergeSegmentsOfARealGuest holds what it is for.
func TestMergeSegmentsOfARealGuest(t *testing.T) {
	file, err := guestbuild.Build(t.Context(), "../../examples/sched/zone")
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	after := MergeSegments(before)
	count := func(module []byte) int {
		_, body, end, _ := findData(module)
		segments, err := parseSegments(module[body:end])
		if err != nil {
			t.Fatal(err)
		}
		return len(segments)
	}
	t.Logf("%d segments in %d bytes became %d in %d", count(before), len(before), count(after), len(after))
	if n := count(after); n > 100 {
		t.Errorf("%d segments", n)
	}
	if !bytes.Equal(memoryOf(t, before), memoryOf(t, after)) {
		t.Error("the memory is another one")
	}
}

// TestMergeSegmentsBoundsTheModule holds that a module of small segments far
// apart does not grow to many times its size.
func TestMergeSegmentsBoundsTheModule(t *testing.T) {
	var segments [][]byte
	for i := range int32(127) {
		segments = append(segments, active(i*maxGap, "x"))
	}
	before := module(false, segments...)
	if after := MergeSegments(before); len(after) > 2*len(before)+4<<10 {
		t.Errorf("%d bytes became %d", len(before), len(after))
	} else if !bytes.Equal(memoryOf(t, before), memoryOf(t, after)) {
		t.Error("the memory is another one")
	}
}

func TestMergeSegmentsOfWhatIsNoModule(t *testing.T) {
	whole := module(false, active(8, "one"), active(11, "two"))
	for n := range whole {
		if got := MergeSegments(whole[:n]); len(got) > n {
			t.Errorf("cut to %d bytes it became %d", n, len(got))
		}
	}
}

func TestInt32(t *testing.T) {
	for _, v := range []int32{0, 1, -1, 63, 64, -64, -65, 8191, 8192, 1 << 30, -1 << 31, 1<<31 - 1} {
		t.Run(fmt.Sprint(v), func(t *testing.T) {
			r := reader{bytes: appendInt32(nil, v)}
			if got := r.int32(); got != v || r.failed || r.at != len(r.bytes) {
				t.Errorf("got %d of %x", got, r.bytes)
			}
		})
	}
}
