package json_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/json/testdata/trace"
	"github.com/kubewasm/kubewasm/internal/testkit/documents"
)

// guestTrace returns a function that traces a document in WebAssembly. The document
// lies at the very end of memory, so that a read beyond it traps.
func guestTrace(t *testing.T) func(doc []byte, walker bool) []byte {
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
	return func(doc []byte, walker bool) []byte {
		t.Helper()
		at := size - uint32(len(doc))
		memory.Write(at, doc)
		flag := uint64(0)
		if walker {
			flag = 1
		}
		results, err := read.Call(t.Context(), api.EncodeU32(at), uint64(len(doc)), flag)
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
		for _, walker := range []bool{false, true} {
			if want, got := trace.Append(nil, doc, walker), guest(doc, walker); !bytes.Equal(want, got) {
				t.Fatalf("of %q, Walker %v\nnative      %q\nWebAssembly %q", doc, walker, want, got)
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
	if want, got := trace.Append(nil, doc, false), trace.Append(nil, doc, true); !bytes.Equal(want, got) {
		t.Fatalf("of %q\nObject and Array %q\nWalker           %q", doc, want, got)
	}
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
