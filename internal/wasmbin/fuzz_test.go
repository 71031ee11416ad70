package wasmbin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// addSeeds adds testdata/seeds: small modules of the specification suite that
// have, together, every instruction, every section and every form of segment,
// type, import and export, and some of random code.
func addSeeds(f *testing.F) {
	files, err := filepath.Glob("testdata/seeds/*.wasm")
	if err != nil || len(files) == 0 {
		f.Fatalf("find seeds: %d files, %v", len(files), err)
	}
	for _, file := range files {
		bin, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(bin)
	}
	for seed := range uint64(20) {
		f.Add(randomModule(rand.New(rand.NewPCG(seed, 7))))
	}
}

func FuzzDecode(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, bin []byte) {
		m, err := Decode(bin)
		if err != nil {
			var de *DecodeError
			if !errors.As(err, &de) {
				t.Fatalf("Decode: %v, want a DecodeError", err)
			}
			return
		}
		out := m.Encode()
		again, err := Decode(out)
		if err != nil {
			t.Fatalf("decode what was encoded: %v", err)
		}
		if !bytes.Equal(again.Encode(), out) {
			t.Fatal("encoded differently the second time")
		}
		if len(out) > len(bin) {
			t.Fatalf("encoded %d bytes as %d", len(bin), len(out))
		}
	})
}

// errFuel ends a call of the fuzz target whose guest has used up its fuel.
var errFuel = errors.New("out of fuel")

const (
	fuzzFuel  = 20_000
	fuzzPages = 16
)

func fuzzRuntime(ctx context.Context) wazero.Runtime {
	return wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter().
		WithCoreFeatures(allFeatures).WithMemoryLimitPages(fuzzPages))
}

// fuzzRun instantiates a module and calls functions of it, until one runs out
// of fuel or stack. It returns what the calls came to, and at the end the
// memory.
func fuzzRun(t *testing.T, bin []byte, functions []string) (outcomes []string, memory []byte) {
	ctx := t.Context()
	r := fuzzRuntime(ctx)
	defer func() { _ = r.Close(ctx) }()
	granted := false
	instantiateMeter(t, r, func(_ api.Module, fuel api.MutableGlobal) {
		if granted {
			panic(errFuel)
		}
		granted = true
		fuel.Set(fuzzFuel)
	})
	done := func(results []uint64, err error) bool {
		out := outcomeOf(results, err)
		if errors.Is(err, errFuel) || strings.Contains(out.err, "stack overflow") {
			return true
		}
		outcomes = append(outcomes, fmt.Sprint(out.results, out.err))
		return false
	}
	mod, err := r.InstantiateWithConfig(ctx, bin, wazero.NewModuleConfig().WithStartFunctions())
	if done(nil, err) || err != nil {
		return outcomes, nil
	}
	for _, name := range functions {
		if done(mod.ExportedFunction(name).Call(ctx)) {
			return outcomes, nil
		}
	}
	if mem := mod.Memory(); len(mod.ExportedMemoryDefinitions()) > 0 { // Memory is not nil where there is none
		memory, _ = mem.Read(0, mem.Size())
	}
	return outcomes, memory
}

// accepts reports whether wazero compiles a module. Should wazero panic, that
// is not ours to find.
func accepts(bin []byte) (ok bool, err error) {
	ctx := context.Background()
	r := fuzzRuntime(ctx)
	defer func() {
		_ = r.Close(ctx)
		if p := recover(); p != nil {
			err = fmt.Errorf("wazero: %v", p)
		}
	}()
	_, err = r.CompileModule(ctx, bin)
	return err == nil, err
}

func FuzzRewrite(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, bin []byte) {
		opts := Options{MaxMemoryPages: fuzzPages, MaxTableElements: 10_000}
		base, info, err := Rewrite(bin, opts)
		if err != nil {
			for _, want := range []error{ErrReserved, ErrMemoryLimit, ErrTableLimit, ErrTooManyLocals, ErrUnsupported} {
				if errors.Is(err, want) {
					return
				}
			}
			var de *DecodeError
			if !errors.As(err, &de) && !errors.Is(err, ErrIndex) {
				t.Fatalf("Rewrite: %v, want one of the documented errors", err)
			}
			return
		}
		opts.Meter, opts.StackBytes = true, maxStack
		metered, _, err := Rewrite(bin, opts)
		if err != nil {
			t.Fatalf("rewrite with metering what was rewritten without: %v", err)
		}
		plainOK, plainErr := accepts(bin)
		for _, out := range [][]byte{base, metered} {
			if ok, err := accepts(out); ok != plainOK && !tolerated(plainErr) && !tolerated(err) {
				t.Fatalf("wazero on the guest: %v; on what was rewritten: %v", plainErr, err)
			}
		}
		if !plainOK || info.Memory != nil && info.Memory.Shared { // atomic.wait may wait for ever
			return
		}
		var functions []string
		for _, x := range info.Exports {
			if x.Kind == ExternFunc && len(x.Func.Params) == 0 && !slices.ContainsFunc(x.Func.Results, ValType.IsRef) {
				functions = append(functions, x.Name)
			}
		}
		if len(info.Imports) > 0 {
			return
		}
		got, gotMemory := fuzzRun(t, metered, functions)
		if len(got) == 0 { // the start function is out of fuel
			return
		}
		want, wantMemory := fuzzRun(t, base, functions[:len(got)-1])
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("without metering -, with metering +\n%s", diff)
		}
		if len(got) == len(functions)+1 && !bytes.Equal(wantMemory, gotMemory) {
			t.Fatal("the memories differ")
		}
	})
}

// tolerated reports whether an error of wazero may appear on one side only.
func tolerated(err error) bool {
	if err == nil {
		return false
	}
	for _, text := range []string{
		"wazero: ",                            // a panic of wazero
		"got funcref",                         // its confusion of a null with function 0
		"failed to read custom section name[", // an empty custom section at the end of a binary
		"section custom: ",                    // a malformed name section, which rewriting drops
	} {
		if strings.Contains(err.Error(), text) {
			return true
		}
	}
	return false
}
