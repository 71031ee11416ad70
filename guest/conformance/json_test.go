package conformance_test

import (
	"context"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	toolchains "github.com/kubewasm/kubewasm/internal/testkit/languages"
)

// TestReadersOfJSONFindTheEnd holds that the readers of C and Rust, which skip JSON by vectors, end
// where a reader of single bytes does, and do not read beyond their bytes: these lie at the very
// end of the memory.
func TestReadersOfJSONFindTheEnd(t *testing.T) {
	for name, compile := range map[string]func(*testing.T, string) string{"Rust": compileRust, "C": compileC} {
		t.Run(name, func(t *testing.T) {
			if name == "Rust" {
				toolchains.Slow(t)
			}
			ctx, instance := t.Context(), alone(t, compile(t, "json"))
			memory, scan := instance.Memory(), instance.ExportedFunction("scan")
			if _, ok := memory.Grow(1); !ok {
				t.Fatal("the memory does not grow")
			}
			size := memory.Size()
			r := rand.New(rand.NewPCG(20261123, 1))
			found := 0
			for round := range 20000 {
				alphabet := [...]string{`{}[]"\ab:,`, `ab"cdefghijklmnopqrstuvwxyz0123456789{}\`, `{}"a`}[round%3]
				text := make([]byte, 2+r.IntN(300))
				for i := range text {
					text[i] = alphabet[r.IntN(len(alphabet))]
				}
				text[0], text[1], text[len(text)-1] = '[', `"{[`[r.IntN(3)], ']'
				want := elementLength(text)
				if want != 0 {
					text = slices.Insert(text, 1+want, ',')
				}
				at := size - uint32(len(text))
				if !memory.Write(at, text) {
					t.Fatal("the memory has another size")
				}
				got, err := scan.Call(ctx, uint64(at), uint64(len(text)))
				if err != nil {
					t.Fatalf("%v: the text is %q", err, text)
				}
				if int(got[0]) != want {
					t.Fatalf("of %q the guest read %d bytes, want %d", text, got[0], want)
				}
				if want != 0 {
					found++
				}
			}
			if found < 1000 {
				t.Errorf("only %d texts had an element", found)
			}
		})
	}
}

// elementLength returns the length of the first element of an array, a string, an object or an
// array, 0 if it does not end.
func elementLength(array []byte) int {
	depth, quoted := 0, false
	for i := 1; i < len(array); i++ {
		switch c := array[i]; {
		case c == '\\' && i+1 < len(array) && (array[i+1] == '"' || array[i+1] == '\\'):
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == '{' || c == '['):
			depth++
		case !quoted && (c == '}' || c == ']'):
			depth--
		}
		if depth == 0 && !quoted {
			return i
		}
	}
	return 0
}

// alone instantiates a module without a host: what it imports is never called.
func alone(t *testing.T, file string) api.Module {
	t.Helper()
	module, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	rt := wazero.NewRuntime(ctx)
	t.Cleanup(func() { rt.Close(context.Background()) })
	wasi_snapshot_preview1.MustInstantiate(ctx, rt)
	compiled, err := rt.CompileModule(ctx, module)
	if err != nil {
		t.Fatal(err)
	}
	builders := map[string]wazero.HostModuleBuilder{}
	for _, f := range compiled.ImportedFunctions() {
		from, name, _ := f.Import()
		if from == wasi_snapshot_preview1.ModuleName {
			continue
		}
		if builders[from] == nil {
			builders[from] = rt.NewHostModuleBuilder(from)
		}
		builders[from].NewFunctionBuilder().WithGoFunction(api.GoFunc(func(context.Context, []uint64) {}), f.ParamTypes(), f.ResultTypes()).Export(name)
	}
	for _, b := range builders {
		if _, err := b.Instantiate(ctx); err != nil {
			t.Fatal(err)
		}
	}
	instance, err := rt.InstantiateModule(ctx, compiled, wazero.NewModuleConfig().WithStartFunctions())
	if err != nil {
		t.Fatal(err)
	}
	return instance
}
