package symbols

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/host/profile"
)

func TestFunctionsWithoutNames(t *testing.T) {
	for name, module := range map[string][]byte{"no module": []byte("none"), "nothing": nil} {
		if diff := cmp.Diff(&profile.Function{Name: "function 7"}, Read(module).Function(7)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	module, err := os.ReadFile("../../host/testdata/noop.wasm")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range Read(module).functions {
		names = append(names, f.Name)
	}
	if diff := cmp.Diff([]string{"kubewasm_abi_v1", "filter"}, names); diff != "" {
		t.Errorf("exported functions (-want +got):\n%s", diff)
	}
}

func TestFunctionsOfRust(t *testing.T) {
	module, err := os.ReadFile("../../host/testdata/rustnames.wasm")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range Read(module).functions {
		names = append(names, f.Name)
	}
	want := []string{"kubewasm_abi_v1", "<zone::Zone as kubewasm::sched::Filter>::filter", "zone::Zone::check", "_ZN4zone6filterE"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("functions (-want +got):\n%s", diff)
	}
}

// FuzzSymbols holds that a module, in which a guest writes what it likes, gives names and
// nothing else.
func FuzzSymbols(f *testing.F) {
	files, err := filepath.Glob("../../host/testdata/*.wasm")
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, file := range files {
		module, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(module)
	}
	// A memory that begins with the table of a Go runtime, which says that it is long.
	f.Add([]byte("\x00asm\x01\x00\x00\x00\x05\x03\x01\x00\x01\x0b\x4e\x01\x00\x41\x00\x0b\x48\xf1\xff\xff\xff\x00\x00\x01\x08\xff\xff\xff\xff\xff\xff\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x7f" +
		"\x00\x00\x00\x00\x00\x00\x00\x00\x48\x00\x00\x00\x00\x00\x00\x00\x48\x00\x00\x00\x00\x00\x00\x00\x48\x00\x00\x00\x00\x00\x00\x00\x48\x00\x00\x00\x00\x00\x00\x00\x48\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, module []byte) {
		for _, fn := range Read(module).functions {
			if fn.Name == "" || len(fn.Name) > 3*maxNameBytes || fn.Line < 0 {
				t.Errorf("function %+v", fn)
			}
		}
	})
}
