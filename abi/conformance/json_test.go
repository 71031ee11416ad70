package conformance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/kubewasm/kubewasm/guest/assemblyscript"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/documents"
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

// TestReadersOfJSONAgree holds that guests of all languages take the same documents, and read of them
// what encoding/json does.
func TestReadersOfJSONAgree(t *testing.T) {
	docs := documents.JSON()
	r := rand.New(rand.NewPCG(20261129, 1))
	for _, doc := range docs {
		for range 5 {
			docs = append(docs, mutated(r, doc))
		}
	}
	docs = append(docs, documents.Deep()...)
	valid := 0
	want := make([]string, len(docs))
	for i, doc := range docs {
		if want[i] = described(t, []byte(doc)); want[i] != "invalid" {
			valid++
		}
	}
	if valid < 500 || len(docs)-valid < 500 {
		t.Fatalf("%d of %d documents are valid", valid, len(docs))
	}
	for _, language := range languages {
		if language.guests != nil {
			continue
		}
		t.Run(language.name, func(t *testing.T) {
			if language.name != "Go" {
				toolchains.Slow(t)
			}
			guest := language.guest
			if language.name == "AssemblyScript" {
				guest = compileScript
			}
			ctx, instance := t.Context(), alone(t, guest(t, "json"))
			if initialize := instance.ExportedFunction("_initialize"); initialize != nil {
				if _, err := initialize.Call(ctx); err != nil {
					t.Fatal(err)
				}
			}
			room, read := instance.ExportedFunction("room"), instance.ExportedFunction("read")
			wrong := 0
			for i, doc := range docs {
				at, err := room.Call(ctx, uint64(len(doc)))
				if err != nil {
					t.Fatal(err)
				}
				if !instance.Memory().WriteString(uint32(at[0]), doc) {
					t.Fatalf("the guest has no room for %d bytes at %d", len(doc), at[0])
				}
				result, err := read.Call(ctx, at[0], uint64(len(doc)))
				if err != nil {
					t.Fatalf("%v: the document is %.300q", err, doc)
				}
				got, ok := instance.Memory().Read(uint32(result[0]>>32), uint32(result[0]))
				if !ok || string(got) != want[i] {
					t.Errorf("of %.300q the guest reads %.300s, want %.300s", doc, got, want[i])
					if wrong++; wrong == 50 {
						t.FailNow()
					}
				}
			}
		})
	}
}

// compileScript compiles a module of AssemblyScript that exports what it says, and not a plugin: without
// the transform, which leaves nothing exported but the functions of one.
func compileScript(t *testing.T, name string) string {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		toolchains.Check(t, &guestbuild.MissingToolError{Language: "AssemblyScript", Tool: "node", Get: "install Node.js"})
	}
	const asc = "../../guest/assemblyscript/node_modules/assemblyscript/bin/asc.js"
	if _, err := os.Stat(asc); err != nil {
		toolchains.Check(t, &guestbuild.MissingToolError{Language: "AssemblyScript", Tool: "asc", Get: "run npm ci in guest/assemblyscript"})
	}
	modules := t.TempDir()
	if err := assemblyscript.WritePackage(filepath.Join(modules, "kubewasm")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(modules, name+".wasm")
	cmd := exec.CommandContext(t.Context(), node, asc, filepath.Join("assemblyscript", name, "assembly/index.ts"),
		"--outFile", file, "-O3", "--runtime", "minimal", "--path", modules, "--exportStart", "_initialize", "--noColors", "--use", "abort=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return file
}

// mutated returns a document with a byte or two changed, put in or taken away. Of a long one it
// changes an end.
func mutated(r *rand.Rand, doc string) string {
	const bytes = "{}[]\",:\\u0019aeE+-.tfn \x00\x1f\x7f\x80\xc3\xed\xa0\xff"
	for range 1 + r.IntN(2) {
		i := r.IntN(min(len(doc), 40) + 1)
		if r.IntN(2) == 0 {
			i = len(doc) - i
		}
		with := string(bytes[r.IntN(len(bytes))])
		switch r.IntN(3) {
		case 0:
			doc = doc[:i] + with + doc[i:]
		case 1:
			doc = doc[:i] + with + doc[min(i+1, len(doc)):]
		default:
			doc = doc[:i] + doc[min(i+1, len(doc)):]
		}
	}
	return doc
}

// described returns what the guests have to say of a document, by encoding/json.
func described(t *testing.T, doc []byte) string {
	t.Helper()
	if !json.Valid(doc) {
		return "invalid"
	}
	var b strings.Builder
	describe(t, &b, doc, 0)
	return b.String()
}

func describe(t *testing.T, b *strings.Builder, value json.RawMessage, depth int) {
	t.Helper()
	if depth == 20 {
		b.WriteByte('.')
		return
	}
	decode := func(into any) {
		if err := json.Unmarshal(value, into); err != nil {
			t.Fatalf("%v: %s", err, value)
		}
	}
	switch value = bytes.Trim(value, " \t\r\n"); value[0] {
	case '"':
		var text string
		decode(&text)
		fmt.Fprintf(b, "\"%x\"", text)
		describeNumber(b, text)
	case '[':
		var elements []json.RawMessage
		decode(&elements)
		b.WriteByte('[')
		for _, element := range elements {
			describe(t, b, element, depth+1)
			b.WriteByte(',')
		}
		b.WriteByte(']')
	case '{':
		// The last member with a name has its value.
		var members map[string]json.RawMessage
		decode(&members)
		b.WriteByte('{')
		d := json.NewDecoder(bytes.NewReader(value))
		_, err := d.Token()
		for err == nil && d.More() {
			var key json.Token
			if key, err = d.Token(); err != nil {
				break
			}
			var skipped json.RawMessage
			err = d.Decode(&skipped)
			fmt.Fprintf(b, "%x:", key)
			describe(t, b, members[key.(string)], depth+1)
			b.WriteByte(',')
		}
		if err != nil {
			t.Fatalf("%v: %s", err, value)
		}
		b.WriteByte('}')
	case 't', 'f', 'n':
		b.Write(value)
	default:
		describeNumber(b, string(value))
	}
}

// describeNumber writes the whole number and the double that a text is, 0 if it is none.
func describeNumber(b *strings.Builder, text string) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		u, _ := strconv.ParseUint(text, 10, 64)
		n = int64(u)
		if u == math.MaxUint64 && text != "18446744073709551615" {
			n = 0 // What ParseUint has for numbers that are larger.
		}
	}
	f, err := strconv.ParseFloat(text, 64)
	isNumber := json.Valid([]byte(text)) && strings.Trim(text, " \t\r\n") == text && strings.IndexByte("-0123456789", (text + "x")[0]) >= 0
	switch {
	case text == "NaN":
		b.WriteString("0 nan")
		return
	case text == "Infinity" || text == "-Infinity":
	case !isNumber:
		n, f = 0, 0
	case err != nil && !math.IsInf(f, 0):
		panic(err)
	}
	fmt.Fprintf(b, "%d %016x", n, math.Float64bits(f))
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
