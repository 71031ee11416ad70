package wasmbin

import "fmt"

// feature is a part of WebAssembly that guests cannot use, with advice for building without it.
type feature struct{ name, without string }

var (
	exceptions    = feature{"exceptions", "wasm-opt --disable-exception-handling, clang and emcc without -fwasm-exceptions, rustc -C panic=abort, tinygo -panic=trap"}
	threads       = feature{"threads", "wasm-opt --disable-threads, clang without -pthread and -matomics, rustc -C target-feature=-atomics"}
	gc            = feature{"garbage collection", "wasm-opt --disable-gc, with one as old as 108 also --disable-typed-function-references; languages that need it (Kotlin, Dart, Java, OCaml) have no other way"}
	memory64      = feature{"64-bit memories and tables", "wasm-opt --disable-memory64, clang --target=wasm32, rustc --target wasm32-wasip1"}
	multiMemory   = feature{"several memories", "wasm-opt --disable-multimemory, and no wasm-merge of modules with a memory each"}
	relaxedSIMD   = feature{"relaxed SIMD", "wasm-opt --disable-relaxed-simd, clang without -mrelaxed-simd, rustc -C target-feature=-relaxed-simd"}
	wideInteger   = feature{"wide arithmetic", "clang without -mwide-arithmetic, rustc -C target-feature=-wide-arithmetic"}
	pageSizes     = feature{"custom page sizes", "clang and wasm-ld without -Wl,--page-size"}
	stackSwitches = feature{"stack switching", "no toolchain needs it"}
	components    = feature{"the component model", "tinygo -target=wasip1, rustc --target wasm32-wasip1, or the core module that wasm-tools component unbundle takes out"}
)

// features are those that are refused by name.
var features = []feature{exceptions, threads, gc, memory64, multiMemory, relaxedSIMD, wideInteger, pageSizes, stackSwitches, components}

// refuse returns the error of a module that uses the feature.
func (f feature) refuse() error {
	return fmt.Errorf("%w: %s; build without: %s", ErrUnsupported, f.name, f.without)
}

// featureOf returns the feature of an instruction without a known layout.
func featureOf(op int) (feature, bool) {
	switch {
	case op == 0x06, op == 0x07, op == 0x09, op == 0x18, op == 0x19: // The older form.
		return exceptions, true
	case op == 0xd3, op == 0xfb: // ref.eq, structs, arrays, casts and strings
		return gc, true
	case op >= 0xe0 && op <= 0xe6:
		return stackSwitches, true
	case op >= prefixMisc<<8|0x13 && op <= prefixMisc<<8|0x16:
		return wideInteger, true
	}
	return feature{}, false
}

// typeFeature returns the feature of a type that wazero lacks: the form of an entry of the type
// section, or a value type or heap type of one byte.
func typeFeature(form byte) (feature, bool) {
	switch {
	case form >= 0x6a && form <= 0x6e, form >= 0x71 && form <= 0x73, // i31ref to anyref, the bottom types
		form == 0x5e, form == 0x5f, form == 0x4f, form == 0x50: // arrays, structs and subtypes
		return gc, true
	case form == 0x74: // nullexnref
		return exceptions, true
	case form == 0x5d, form == 0x68, form == 0x75:
		return stackSwitches, true
	}
	return feature{}, false
}

// limitsFeature is that of limits with flags that wazero lacks.
func limitsFeature(flags byte) feature {
	if flags&8 != 0 {
		return pageSizes
	}
	return memory64
}

// unused refuses the features that the rewriter covers and [Options.RefuseUnsafe] turns off, as far
// as the sections show them. The surveyor refuses those shown by instructions.
func (rw *rewriter) unused() error {
	if !rw.opts.RefuseUnsafe {
		return nil
	}
	shared := func(l Limits) bool { return l.Shared }
	for _, i := range rw.Imports {
		switch {
		case i.Kind == ExternTag:
			return exceptions.refuse()
		case i.Kind == ExternMemory && shared(i.Memory):
			return threads.refuse()
		}
	}
	if len(rw.Tags) > 0 {
		return exceptions.refuse()
	}
	for _, l := range rw.Memories {
		if shared(l) {
			return threads.refuse()
		}
	}
	return nil
}

// unsafeFeature returns the feature of an instruction that [Options.RefuseUnsafe] turns off.
func unsafeFeature(op int) (feature, bool) {
	switch {
	case op == OpThrow, op == OpThrowRef, op == OpTryTable:
		return exceptions, true
	case op>>8 == prefixAtomic:
		return threads, true
	}
	return feature{}, false
}
