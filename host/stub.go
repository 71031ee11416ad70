package host

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/kubewasm/kubewasm/internal/diskcache"
	"github.com/kubewasm/kubewasm/internal/private"
	"github.com/kubewasm/kubewasm/internal/wasmbin"
)

// stubSection is the custom section that tells the stubs of two modules apart: it has the
// SHA-256 of the module.
const stubSection = "kubewasm.stub"

// stubOf returns a rewritten module without its code: each function traps. wazero validates
// and keeps the bodies of functions, and has no use for them where it has their machine code.
// So the stub is what it gets, with the machine code of the module: to load that takes a third
// of the time and of the memory.
func stubOf(module []byte) ([]byte, error) {
	m, err := wasmbin.Decode(module)
	if err != nil {
		return nil, err
	}
	for i := range m.Codes {
		m.Codes[i] = wasmbin.Code{Body: []byte{0x00, 0x0b}} // unreachable, end
	}
	h := sha256.New()
	writePieces(h, module)
	m.Customs = append(m.Customs, wasmbin.Custom{Name: stubSection, Data: h.Sum(nil), After: wasmbin.SectionData})
	return m.Encode(), nil
}

// stubCache keeps the stubs of rewritten modules in files beside their machine code, and
// trusts them as much. A file that is not exactly what was written counts as missing.
type stubCache struct {
	dir string
}

// stubsDir is the directory of the stubs within that of the compiled modules.
const stubsDir = "kubewasm-stubs"

// newStubCache makes the directory of the cache within that of the compiled modules.
func newStubCache(dir string) (stubCache, error) {
	c := stubCache{filepath.Join(dir, stubsDir)}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return c, err
	}
	return c, private.CheckDirectory(c.dir)
}

// stubKey names what a module of a digest was rewritten to.
type stubKey [sha256.Size]byte

func stubKeyOf(digest string, opts wasmbin.Options, goPass bool) stubKey {
	return sha256.Sum256(fmt.Appendf(nil, "%d %s %+v %v", rewritingVersion, digest, opts, goPass))
}

// A file holds the SHA-256 of its key and all that follows, the length of the
// info in 4 bytes, the info as JSON and the stub.
const stubHeader = sha256.Size + 4

var errStubFile = errors.New("not a file of the cache")

func (c stubCache) path(key stubKey) string { return filepath.Join(c.dir, hex.EncodeToString(key[:])) }

func sumOf(key stubKey, content []byte) []byte {
	h := sha256.New()
	h.Write(key[:])
	writePieces(h, content)
	return h.Sum(nil)
}

// read returns a stub, and what the host needs to know about the module.
func (c stubCache) read(key stubKey) ([]byte, *wasmbin.Info, error) {
	f, err := os.Open(c.path(key))
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	stat, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	// A stub is smaller than its module, whose rewriting made it larger by a sixth.
	if !stat.Mode().IsRegular() || stat.Size() < stubHeader || stat.Size() > 4*MaxModuleBytes {
		return nil, nil, errStubFile
	}
	data := make([]byte, stat.Size())
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, nil, err
	}
	sum, content := data[:sha256.Size], data[sha256.Size:]
	if !bytes.Equal(sum, sumOf(key, content)) {
		return nil, nil, errStubFile
	}
	length := uint64(binary.LittleEndian.Uint32(content))
	if content = content[4:]; length > uint64(len(content)) {
		return nil, nil, errStubFile
	}
	diskcache.Use(f.Name(), stat)
	info := new(wasmbin.Info)
	if err := json.Unmarshal(content[:length], info); err != nil {
		return nil, nil, err
	}
	return content[length:], info, nil
}

// write makes the file, whole or not at all.
func (c stubCache) write(key stubKey, stub []byte, info *wasmbin.Info) error {
	text, err := json.Marshal(info)
	if err != nil {
		return err
	}
	content := binary.LittleEndian.AppendUint32(make([]byte, 0, 4+len(text)+len(stub)), uint32(len(text)))
	content = append(append(content, text...), stub...)
	return diskcache.Write(c.path(key), sumOf(key, content), content)
}
