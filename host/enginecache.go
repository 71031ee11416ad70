package host

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"reflect"
	"slices"
	"sync"
	"unsafe"

	"github.com/tetratelabs/wazero"
)

// engineCache is the cache in which wazero looks up, and stores, the machine code of one module. It
// hands over the content of a file of the [moduleCache], mapped where possible.
//
// wazero allows no other implementation of a cache. The engineCache therefore replaces the files in
// one of wazero's caches: an unexported field with an interface of an internal package.
// TestEngineCache checks that this works.
type engineCache struct {
	// stub returns the file with the machine code of the stub that wazero compiles under a key. It
	// is nil while wazero compiles a module.
	stub func(key engineKey) (*cachedModule, error)
	// added is wazero's serialized form of the compiled module.
	added []byte
	// reader is the last reader that Get returned.
	reader *codeReader
	// copies is set if copies of machine code are mapped.
	copies bool
}

// engineKey is wazero's name of the machine code for a module. It includes the features of the
// processor.
type engineKey = [sha256.Size]byte

// newEngineCache returns one of wazero's caches, for one module, and the engineCache in it: nil if
// wazero's structures are not as expected.
func newEngineCache() (wazero.CompilationCache, *engineCache) {
	cache, e := wazero.NewCompilationCache(), &engineCache{}
	v := reflect.ValueOf(cache)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return cache, nil
	}
	files := v.Elem().FieldByName("fileCache")
	if !files.IsValid() || files.Kind() != reflect.Interface || !reflect.TypeOf(e).Implements(files.Type()) {
		return cache, nil
	}
	reflect.NewAt(files.Type(), unsafe.Pointer(files.UnsafeAddr())).Elem().Set(reflect.ValueOf(e))
	return cache, e
}

var errNoStub = errors.New("the engine did not use the machine code")

// Get returns the bytes that Add received for a module, or the machine code for a stub. An error
// ends the compilation: wazero must never compile a stub.
func (e *engineCache) Get(key engineKey) (content io.ReadCloser, ok bool, err error) {
	if e.stub == nil {
		return nil, false, nil
	}
	header, err := engineHeader()
	if err != nil {
		return nil, false, err
	}
	m, err := e.stub(key)
	if err != nil {
		return nil, false, err
	}
	e.reader = &codeReader{cachedModule: m, copies: e.copies, before: slices.Concat(header, m.code.before), after: m.code.after}
	return e.reader, true, nil
}

// Add keeps wazero's serialized form of a module.
func (e *engineCache) Add(_ engineKey, content io.Reader) error {
	if e.stub != nil {
		return errNoStub
	}
	var err error
	e.added, err = io.ReadAll(content)
	return err
}

// Delete is called if wazero does not accept the result of Get as its own.
func (e *engineCache) Delete(engineKey) error { return errNoStub }

// engineHeader returns the bytes with which wazero begins everything that it serializes: its name,
// and its version as far as it knows. The binary of a test and a program share files of the cache,
// but in the test wazero takes its version for "dev". So engineHeader has wazero serialize a module
// of one function.
var engineHeader = sync.OnceValues(func() ([]byte, error) {
	const module = "\x00asm\x01\x00\x00\x00" + "\x01\x04\x01\x60\x00\x00" + "\x03\x02\x01\x00" + "\x0a\x04\x01\x02\x00\x0b"
	ctx := context.Background()
	cache, e := newEngineCache()
	if e == nil {
		return nil, errNoStub
	}
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCompilationCache(cache))
	_, err := rt.CompileModule(ctx, []byte(module))
	if err = errors.Join(err, rt.Close(ctx), cache.Close(ctx)); err != nil {
		return nil, err
	}
	s, ok := parseSerialized(e.added)
	if !ok {
		return nil, errNoStub
	}
	return s.header, nil
})

// serialized is wazero's serialized form of a module: the machine code and its description.
type serialized struct {
	key engineKey
	// header is the engineHeader of the process that compiled the module.
	header, before, machine, after []byte
}

// parseSerialized splits the serialized form: wazero's name and version, the offsets of functions,
// the length of the machine code, and the machine code.
func parseSerialized(b []byte) (s serialized, ok bool) {
	const magic = "WAZEVO"
	if len(b) <= len(magic) || string(b[:len(magic)]) != magic {
		return s, false
	}
	header := uint64(len(magic)) + 1 + uint64(b[len(magic)])
	at := header
	if uint64(len(b)) < at+4 {
		return s, false
	}
	at += 4 + 8*uint64(binary.LittleEndian.Uint32(b[at:]))
	if uint64(len(b)) < at+8 {
		return s, false
	}
	length := binary.LittleEndian.Uint64(b[at:])
	if at += 8; length > uint64(len(b))-at {
		return s, false
	}
	end := at + length
	return serialized{header: b[:header:header], before: b[header:at:at], machine: b[at:end:end], after: b[end:]}, true
}

// codeReader reads the serialized form of a module from a file of the cache.
type codeReader struct {
	*cachedModule
	before, after []byte
	copies        bool
	// done is the number of bytes of machine code that were read. memory is wazero's buffer for it,
	// if it was read or mapped at once.
	done   int
	memory []byte
	mapped bool
}

// Read implements io.Reader. wazero asks for all of the machine code at once, into the memory in
// which it will run: a mapping of the file takes its place.
func (r *codeReader) Read(p []byte) (n int, err error) {
	switch {
	case len(r.before) > 0:
		n = copy(p, r.before)
		r.before = r.before[n:]
	case r.done < r.codeSize:
		if r.done == 0 && len(p) == r.codeSize {
			r.memory = p
			in := mapCode
			if r.copies {
				in = mapCopy
			}
			if r.mapped, err = in(p, r.file, r.codeAt); err != nil {
				return 0, err
			}
			if r.mapped {
				r.done = len(p)
				return len(p), nil
			}
		}
		n, err = r.file.ReadAt(p[:min(len(p), r.codeSize-r.done, 1<<20)], r.codeAt+int64(r.done))
		r.done += n
	case len(r.after) > 0:
		n = copy(p, r.after)
		r.after = r.after[n:]
	default:
		err = io.EOF
	}
	return n, err
}

// Close implements io.Closer. The file belongs to the cachedModule.
func (r *codeReader) Close() error { return nil }

// abandon frees the memory of machine code in which wazero found a mistake: wazero forgets it.
// wazero keeps memory that was read to its end.
func (r *codeReader) abandon() {
	if r != nil && len(r.after) > 0 && r.memory != nil {
		unmapCode(r.memory)
		r.memory = nil
	}
}
