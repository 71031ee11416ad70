package host

import (
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/internal/wasmbin"
)

// assembled makes a module of sections, whose contents are shorter than 128 bytes.
func assembled(sections ...[]byte) []byte {
	bin := []byte("\x00asm\x01\x00\x00\x00")
	for _, s := range sections {
		bin = append(append(bin, s[0], byte(len(s)-1)), s[1:]...)
	}
	return bin
}

// TestValidation holds that a module is validated as it comes: also where the rewriter would
// make it valid, or leave out what is wrong.
func TestValidation(t *testing.T) {
	types := []byte{1, 2, 0x60, 0, 0, 0x60, 0, 1, 0x7f}
	oneFunction := []byte{3, 1, 0}
	body := func(code ...byte) []byte {
		return append([]byte{10, 1, byte(len(code) + 2), 0}, append(code, 0x0b)...)
	}
	for name, test := range map[string]struct {
		sections [][]byte
		err      string
	}{
		"nothing":                           {},
		"a function":                        {sections: [][]byte{types, oneFunction, body()}},
		"an operand too few":                {sections: [][]byte{types, oneFunction, body(0x1a)}, err: "invalid function[0]"},
		"a result that is not there":        {sections: [][]byte{types, {3, 1, 1}, body()}, err: "invalid function[0]"},
		"a function beyond the last":        {sections: [][]byte{types, oneFunction, body(0x10, 1)}, err: "invalid function[0]"},
		"a global beyond the last":          {sections: [][]byte{types, oneFunction, body(0x23, 0, 0x1a)}, err: "invalid function[0]"},
		"a type beyond the last":            {sections: [][]byte{types, oneFunction, {4, 1, 0x70, 0, 1}, body(0x41, 0, 0x11, 2, 0)}, err: "invalid function[0]"},
		"a memory that is not there":        {sections: [][]byte{types, oneFunction, body(0x3f, 0, 0x1a)}, err: "memory must exist"},
		"dead code of the wrong type":       {sections: [][]byte{types, oneFunction, body(0x00, 0x42, 0, 0x45, 0x1a)}, err: "invalid function[0]"},
		"a malformed name section":          {sections: [][]byte{types, oneFunction, body(), {0, 4, 'n', 'a', 'm', 'e', 1, 0x7f}}},
		"a malformed section for debuggers": {sections: [][]byte{types, oneFunction, body(), {0, 11, '.', 'd', 'e', 'b', 'u', 'g', '_', 'i', 'n', 'f', 'o', 0xff}}},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := rewrite(assembled(test.sections...), wasmbin.Options{Meter: true, StackBytes: 1 << 20, LimitComplexity: true}, true)
			switch {
			case test.err == "" && err != nil:
				t.Errorf("rewrite: %v", err)
			case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
				t.Errorf("rewrite: %v, want an error with %q", err, test.err)
			}
		})
	}
}

// TestMemoryOfAll4GiB holds that a module which wants the last page, too, is refused by name:
// each of its accesses would trap.
func TestMemoryOfAll4GiB(t *testing.T) {
	limits := Limits{MemoryBytes: 4 << 30}.withDefaults()
	memory := []byte{5, 1, 0, 0x80, 0x80, 0x04} // From 65,536 pages.
	_, _, err := rewrite(assembled(memory), wasmbin.Options{MaxMemoryPages: uint32(limits.MemoryBytes / pageSize)}, true)
	if err == nil || !strings.Contains(err.Error(), "the memory begins with 65536 pages, the limit is 65535") {
		t.Errorf("rewrite: %v", err)
	}
}
