package json_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/json"
	"github.com/kubewasm/kubewasm/internal/json/testdata/trace"
	"github.com/kubewasm/kubewasm/internal/testkit/documents"
)

// guestTrace returns a function that traces a document in WebAssembly. The document
// lies at the very end of memory, so that a read beyond it traps.
func guestTrace(t *testing.T) func(doc []byte, by trace.Reader) []byte {
	if err := guestbuild.TrackSources("."); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "guest.wasm")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildmode=c-shared", "-o", file, "./testdata/guest")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	module, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rt := wazero.NewRuntime(t.Context())
	t.Cleanup(func() { rt.Close(t.Context()) })
	wasi_snapshot_preview1.MustInstantiate(t.Context(), rt)
	guest, err := rt.InstantiateWithConfig(t.Context(), module, wazero.NewModuleConfig().WithStartFunctions("_initialize"))
	if err != nil {
		t.Fatal(err)
	}
	// What is added behind the memory that Go knows of is nobody else's, as long as
	// Go does not add any.
	memory, read := guest.Memory(), guest.ExportedFunction("trace")
	if _, ok := memory.Grow(4); !ok {
		t.Fatal("memory does not grow")
	}
	size := memory.Size()
	return func(doc []byte, by trace.Reader) []byte {
		t.Helper()
		at := size - uint32(len(doc))
		memory.Write(at, doc)
		results, err := read.Call(t.Context(), api.EncodeU32(at), uint64(len(doc)), uint64(by))
		if err != nil {
			t.Fatalf("trace of %q: %v", doc, err)
		}
		if memory.Size() != size {
			t.Fatal("the guest's heap has grown over the documents")
		}
		out, ok := memory.Read(uint32(results[0]), uint32(results[0]>>32))
		if !ok {
			t.Fatalf("trace of %q lies outside of memory", doc)
		}
		return out
	}
}

// TestReadsTheSameInWebAssembly compares the assembly that guests read by with the Go
// code that it stands for.
func TestReadsTheSameInWebAssembly(t *testing.T) {
	guest := guestTrace(t)
	eachDocument(t, func(doc []byte) {
		for _, by := range []trace.Reader{trace.Walks, trace.Walker, trace.Indexed, trace.Misled} {
			if want, got := trace.Append(nil, doc, by), guest(doc, by); !bytes.Equal(want, got) {
				t.Fatalf("of %q, reader %v\nnative      %q\nWebAssembly %q", doc, by, want, got)
			}
		}
	})
}

// TestAWalkerAgreesWithObjectAndArray compares a Walker with the walks of Object and Array.
func TestAWalkerAgreesWithObjectAndArray(t *testing.T) {
	eachDocument(t, func(doc []byte) { compareWalker(t, doc) })
}

func compareWalker(t *testing.T, doc []byte) {
	t.Helper()
	want := trace.Append(nil, doc, trace.Walks)
	for _, by := range []trace.Reader{trace.Walker, trace.Indexed} {
		if got := trace.Append(nil, doc, by); !bytes.Equal(want, got) {
			t.Fatalf("of %q\nObject and Array %q\nreader %d         %q", doc, want, by, got)
		}
	}
}

// TestValidIndex holds that the index of a valid document has exactly its arrays and objects of the
// least length or more.
func TestValidIndex(t *testing.T) {
	index := make([]uint64, 1<<12)
	eachDocument(t, func(doc []byte) {
		for _, least := range []int{0, 100, 1000} {
			ok, n := json.ValidIndex(doc, index, least)
			if ok != json.Valid(doc) || !ok && n != 0 {
				t.Fatalf("of %q: ok %v with %d entries, valid %v", doc, ok, n, json.Valid(doc))
			}
			if !ok {
				return
			}
			var want []uint64
			for _, e := range placesOf(nil, doc, 0) {
				if e>>32-uint64(uint32(e)) >= uint64(max(least, 64)) {
					want = append(want, e)
				}
			}
			if diff := cmp.Diff(want, slices.Clone(index[:n]), cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("of %q, entries (-want +got):\n%s", doc, diff)
			}
		}
	})
	if ok, n := json.ValidIndex(pod(t), index[:10], 0); !ok || n != 0 {
		t.Errorf("without room for all: %v with %d entries", ok, n)
	}
}

// placesOf appends the places of the arrays and objects in v, which begins at the offset from.
func placesOf(places []uint64, v json.Value, from int) []uint64 {
	space := len(v) - len(bytes.TrimLeft(v, " \t\r\n"))
	v, from = bytes.TrimSpace(v), from+space
	at := func(inner json.Value) int {
		return from + int(uintptr(unsafe.Pointer(unsafe.SliceData(inner)))-uintptr(unsafe.Pointer(unsafe.SliceData(v))))
	}
	switch v.Kind() {
	case json.KindObject:
		places = append(places, uint64(from+len(v))<<32|uint64(from))
		for m := json.Object(v); m.Next(); {
			places = placesOf(places, m.Value(), at(m.Value()))
		}
	case json.KindArray:
		places = append(places, uint64(from+len(v))<<32|uint64(from))
		for e := json.Array(v); e.Next(); {
			places = placesOf(places, e.Value(), at(e.Value()))
		}
	}
	return places
}

// eachDocument calls f with documents that are right, cut off and hostile.
func eachDocument(t *testing.T, f func(doc []byte)) {
	t.Helper()
	docs := append(documents.JSON(), string(pod(t)), nestedDocument(),
		strings.Repeat("[", 1000), strings.Repeat("[", 1000)+strings.Repeat("]", 1000), strings.Repeat(`{"a":`, 300)+"1"+strings.Repeat("}", 300))
	for _, doc := range docs {
		f([]byte(doc))
		for end := range min(len(doc), 300) {
			f([]byte(doc[:end]))
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		doc := []byte(docs[random.IntN(len(docs))])
		if len(doc) > 600 && random.IntN(10) != 0 {
			start := random.IntN(len(doc) - 600)
			doc = doc[start : start+600]
		}
		f(mutate(random, doc))
		f(randomBytes(random, random.IntN(40)))
	}
}

// pieces are what random documents are made of.
var pieces = []string{
	`{`, `}`, `[`, `]`, `"`, `\`, `,`, `:`, ` `, "\n", `0`, `-1.5e3`, `true`, `null`, `x`, "\x00", "\x7f", "\xff", "ö",
	`\"`, `\\`, `"a":`, `"name":"web"`, `"labels":{"a":"b"}`, `[{},{}]`, `"sixteen bytes...":"seventeen bytes.."`, `{"spec":{"a":[{"b":"]}\""}]}}`,
}

// mutate returns doc with some pieces put in, or instead of what was there.
func mutate(random *rand.Rand, doc []byte) []byte {
	doc = bytes.Clone(doc)
	for range random.IntN(6) {
		at := random.IntN(len(doc) + 1)
		end := min(len(doc), at+random.IntN(3)*random.IntN(9))
		piece := pieces[random.IntN(len(pieces))]
		doc = append(doc[:at:at], append([]byte(piece), doc[end:]...)...)
	}
	return doc
}

// randomBytes returns n pieces in any order.
func randomBytes(random *rand.Rand, n int) []byte {
	var doc []byte
	for range n {
		doc = append(doc, pieces[random.IntN(len(pieces))]...)
	}
	return doc
}

// nestedDocument has values of all lengths around those that an index knows, with
// brackets, quotes and backslashes in their strings.
func nestedDocument() string {
	var doc strings.Builder
	doc.WriteString("{")
	for n := range 80 {
		text := strings.Repeat(`]}{[\"\\`, 16)[:n&^1]
		if strings.HasSuffix(text, `\`) && !strings.HasSuffix(text, `\\`) {
			text += `\`
		}
		fmt.Fprintf(&doc, `"%d":{"a":["%s",{"b":%d}]},`, n, text, n)
	}
	doc.WriteString(`"spec":[]}`)
	return doc.String()
}
