package host

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/loading"
)

// shippingSource is a module with its compiled form.
type shippingSource struct {
	bytesSource
	form  []byte
	asked []string
}

func (s *shippingSource) FetchCompiled(_ context.Context, platform string, _ []string) ([]byte, error) {
	s.asked = append(s.asked, platform)
	if s.form == nil {
		return nil, fs.ErrNotExist
	}
	return s.form, nil
}

// changed returns a compiled form with another description or file.
func changed(t *testing.T, form []byte, change func(about *shipped, file []byte)) []byte {
	t.Helper()
	about, file, err := parseShipped(form)
	if err != nil {
		t.Fatal(err)
	}
	file = bytes.Clone(file)
	change(&about, file)
	text, err := json.Marshal(about)
	if err != nil {
		t.Fatal(err)
	}
	head := binary.LittleEndian.AppendUint32([]byte(shippedMagic), uint32(len(text)))
	return bytes.Join([][]byte{head, text, file}, nil)
}

// TestCompiledForms loads a module whose source has a compiled form that is as it should be or
// not. The guest answers in any case, and the log says why a form was not used.
func TestCompiledForms(t *testing.T) {
	InProcess(t, "the process of the guest compiles, and its parent keeps the code in memory")
	needsCompiler(t)
	module, err := os.ReadFile("testdata/noop.wasm")
	if err != nil {
		t.Fatal(err)
	}
	precompile := func(module []byte, limits Limits) []byte {
		form, err := Precompile(t.Context(), module, limits)
		if err != nil {
			t.Fatal(err)
		}
		return form
	}
	intact := precompile(module, Limits{})
	if again := precompile(module, Limits{}); !bytes.Equal(again, intact) {
		t.Error("two compiled forms of a module differ")
	}
	flipped := bytes.Clone(intact)
	flipped[len(flipped)-10] ^= 1
	for _, test := range []struct {
		name string
		form []byte
		// granted are the forms that Config.Compiled grants.
		granted [][]byte
		// fresh reports whether the machine code is from the form; asked how often the form is
		// fetched; log is in the warning.
		used, uncached bool
		asked          int
		log            string
	}{
		{name: "granted", form: intact, granted: [][]byte{intact}, used: true, asked: 1},
		{name: "granted among others", form: intact, granted: [][]byte{module, intact}, used: true, asked: 1},
		{name: "not granted", form: intact},
		{name: "another granted", form: intact, granted: [][]byte{module}, asked: 1, log: "which compiled does not grant"},
		{name: "absent", granted: [][]byte{intact}, asked: 1, log: "file does not exist"},
		{name: "cut off", form: intact[:len(intact)-1], granted: [][]byte{intact}, asked: 1, log: "which compiled does not grant"},
		{name: "with a changed bit", form: flipped, granted: [][]byte{intact}, asked: 1, log: "which compiled does not grant"},
		{name: "granted without a cache", form: intact, granted: [][]byte{intact}, uncached: true, log: "no CacheDir"},
		{name: "granted and not a form", form: module, granted: [][]byte{module}, asked: 1, log: "not a compiled form of this version"},
		{name: "granted and cut off", form: intact[:len(intact)-1], granted: [][]byte{intact[:len(intact)-1]}, asked: 1, log: "after its description"},
		{name: "granted and of another module", asked: 1, log: "it is of module", form: precompile(append(bytes.Clone(module), 0, 3, 1, 'x', 0), Limits{})},
		{name: "granted and for other limits", asked: 1, log: "limits.memoryBytes", form: precompile(module, Limits{MemoryBytes: 1 << 20})},
		{name: "granted and for another engine", asked: 1, log: "wazero-v0.0.1", form: changed(t, intact, func(s *shipped, _ []byte) {
			s.Engine = "wazero-v0.0.1" + strings.TrimPrefix(s.Engine, "wazero-")
		})},
		{name: "granted and for another platform", asked: 1, log: "but the engine here is", form: changed(t, intact, func(s *shipped, _ []byte) {
			s.Engine = strings.Replace(s.Engine, runtime.GOARCH, "riscv64", 1)
		})},
		{name: "granted and for another processor", asked: 1, log: "the processor has different features", form: changed(t, intact, func(s *shipped, file []byte) {
			key, err := hex.DecodeString(s.Key)
			if err != nil {
				t.Fatal(err)
			}
			cache := moduleCache{dir: t.TempDir()}
			name := cache.path(moduleKey(key))
			if err := os.WriteFile(name, file, 0o600); err != nil {
				t.Fatal(err)
			}
			m := readWhole(t, cache, moduleKey(key))
			m.code.key[0] ^= 1
			writeModule(t, cache, moduleKey(key), m)
			other, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			copy(file, other)
		})},
		{name: "granted and with another file", asked: 1, log: "not a file of the cache", form: changed(t, intact, func(_ *shipped, file []byte) {
			file[headerOfFile] ^= 1
		})},
		{name: "granted and with other machine code", asked: 1, log: "checksum mismatch", form: changed(t, intact, func(_ *shipped, file []byte) {
			file[len(file)-1] ^= 1
		})},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.granted == nil && test.asked == 1 {
				test.granted = [][]byte{test.form}
			}
			var granted []string
			for _, form := range test.granted {
				granted = append(granted, digestOf(form))
			}
			cfg := RuntimeConfig{CacheDir: t.TempDir()}
			if test.uncached {
				cfg.CacheDir = ""
			}
			rt, err := NewRuntime(cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer rt.Close(context.WithoutCancel(t.Context()))
			source := &shippingSource{bytesSource: module, form: test.form}
			var log bytes.Buffer
			for _, name := range []string{"first", "second"} { // The second one has what the first has.
				p, err := rt.Load(t.Context(), Config{Name: name, Module: ModuleConfig{Source: source, Compiled: granted}, Logger: slog.New(slog.NewTextHandler(&log, nil))}, Adapter{Kind: abi.KindScheduler})
				if err != nil {
					t.Fatal(err)
				}
				callFilter(t, p)
				if got := p.current.Load().compiled.shipped; got != test.used {
					t.Errorf("the compiled form was used is %v, want %v", got, test.used)
				}
			}
			if len(source.asked) != test.asked || test.asked != 0 && source.asked[0] != Platform {
				t.Errorf("the source was asked for %v, want %d times for %s", source.asked, test.asked, Platform)
			}
			if test.log == "" && strings.Contains(log.String(), "WARN") || !strings.Contains(log.String(), test.log) {
				t.Errorf("the log is %s, want a warning with %q", log.String(), test.log)
			}
			if got := strings.Count(log.String(), "WARN"); got > 1 {
				t.Errorf("%d warnings of one module, want one", got)
			}
		})
	}
}

// TestSourceWithoutCompiledForms holds that a grant that can have no effect is reported.
func TestSourceWithoutCompiledForms(t *testing.T) {
	InProcess(t, "the process of the guest compiles, and its parent keeps the code in memory")
	module, err := os.ReadFile("testdata/noop.wasm")
	if err != nil {
		t.Fatal(err)
	}
	rt, err := NewRuntime(RuntimeConfig{CacheDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.WithoutCancel(t.Context()))
	var log bytes.Buffer
	cfg := Config{Name: "noop", Module: ModuleConfig{Bytes: module, Compiled: []string{digestOf(module)}}, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	if _, err := rt.Load(t.Context(), cfg, Adapter{Kind: abi.KindScheduler}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "bytes has none") {
		t.Errorf("the log is %s", log.String())
	}
}

// TestCompiledFiles holds under which names files have compiled forms, and that the mistakes of
// a configuration are reported together.
func TestCompiledFiles(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "zone.wasm")
	source := File(file)
	if _, err := source.(loading.CompiledSource).FetchCompiled(t.Context(), "linux/amd64", nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the error is %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "zone.wasm.linux-amd64"), []byte("form"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := source.(loading.CompiledSource).FetchCompiled(t.Context(), "linux/amd64", nil); err != nil || string(got) != "form" {
		t.Errorf("the form is %q, error %v", got, err)
	}
	cfg := Config{Name: "zone", Module: ModuleConfig{Source: source, Compiled: []string{strings.Repeat("0", 64), "12", "x"}}}
	var got []string
	for _, err := range cfg.validate(nil) {
		got = append(got, err.Error())
	}
	want := []string{`module.compiled[1] "12" is not 64 hexadecimal digits`, `module.compiled[2] "x" is not 64 hexadecimal digits`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("mistakes (-want +got)\n%s", diff)
	}
}

func FuzzParseShipped(f *testing.F) {
	f.Add([]byte(shippedMagic + "\x0b\x00\x00\x00{\"size\": 3}abc"))
	f.Add([]byte(shippedMagic + "\xff\xff\xff\xff{}"))
	f.Fuzz(func(t *testing.T, form []byte) {
		about, file, err := parseShipped(form)
		if err == nil && len(file) != about.Size {
			t.Errorf("a file of %d bytes, want %d", len(file), about.Size)
		}
	})
}
