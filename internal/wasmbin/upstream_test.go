package wasmbin

import (
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
)

// TestUpstream has the reproducers of docs/upstream.md that need wazero alone: modules that it takes, or
// refuses, against the specification. One that fails is repaired in the wazero of go.mod: take the entry and
// its guard out.
func TestUpstream(t *testing.T) {
	header := []byte("\x00asm\x01\x00\x00\x00")
	for _, tc := range []struct {
		name     string
		sections []byte
		takes    bool // What wazero does; the specification says the opposite.
	}{
		{"wazero 3: a vector opcode whose second byte is another instruction", []byte("" +
			"\x01\x04\x01\x60\x00\x00" + // A type without parameters and results.
			"\x03\x02\x01\x00" +
			// v128.const, and the opcode 3328, which does not exist: 0x80 is i16x8.abs, 0x1a drop.
			"\x0a\x19\x01\x17\x00\xfd\x0c\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xfd\x80\x1a\x0b"), true},
		{"wazero 4: an active element segment beyond its table", []byte("" +
			"\x01\x04\x01\x60\x00\x00" +
			"\x03\x02\x01\x00" +
			"\x04\x04\x01\x70\x00\x01" + // A table of one element.
			"\x09\x07\x01\x00\x41\x05\x0b\x01\x00" + // Function 0 at 5: instantiation must trap.
			"\x0a\x04\x01\x02\x00\x0b"), true},
		{"wazero 12: an initial value that is another global of the module", []byte("" +
			"\x06\x0b\x02\x7f\x00\x41\x01\x0b\x7f\x00\x23\x00\x0b"), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			config := wazero.NewRuntimeConfig().WithCoreFeatures(api.CoreFeaturesV2 | experimental.CoreFeaturesExtendedConst)
			runtime := wazero.NewRuntimeWithConfig(t.Context(), config)
			defer runtime.Close(t.Context())
			if _, err := runtime.Instantiate(t.Context(), append(header, tc.sections...)); (err == nil) != tc.takes {
				t.Errorf("error %v, want wazero to take it: %t", err, tc.takes)
			}
		})
	}
}
