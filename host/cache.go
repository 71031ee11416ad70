package host

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/tetratelabs/wazero"
	"golang.org/x/sys/cpu"

	"github.com/kubewasm/kubewasm/internal/diskcache"
	"github.com/kubewasm/kubewasm/internal/wasmbin"
)

// defaultCacheBytes is the default of RuntimeConfig.CacheBytes.
const defaultCacheBytes = 1 << 30

// moduleCache is a directory with a file for each compiled module: its stub, its data and its
// machine code. A file that differs from the written one counts as missing.
type moduleCache struct {
	dir string // Empty without a cache.
	max int64
	// copies is RuntimeConfig.CacheCopy.
	copies bool
	// one is the only file, in a process of a guest. open returns it, once, if it has been written, and
	// store writes it.
	open  func() (*os.File, error)
	store func(parts [][]byte) error
}

// oneFile is the name of the only file of a cache, which is in memory.
const oneFile = "the machine code of a guest"

// on reports whether there is a cache.
func (c moduleCache) on() bool { return c.dir != "" || c.open != nil }

// modulesDir is the directory of the files within that of RuntimeConfig.CacheDir.
const modulesDir = "kubewasm-modules"

// newModuleCache makes the directory of the cache, unless it is there.
func newModuleCache(dir string, max int64) (moduleCache, error) {
	c := moduleCache{dir: filepath.Join(dir, modulesDir), max: max}
	for _, dir := range []string{dir, c.dir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return c, fmt.Errorf("make compilation cache: %w", err)
		}
		if err := diskcache.CheckDirectory(dir); err != nil {
			return c, fmt.Errorf("use compilation cache: %w", err)
		}
	}
	if err := c.trim(); err != nil {
		return c, fmt.Errorf("open compilation cache: %w", err)
	}
	return c, nil
}

// trim removes the least recently used files, including those written by other versions of wazero
// and the host.
func (c moduleCache) trim() error {
	_, err := diskcache.Trim(c.max, c.dir)
	return err
}

// moduleKey identifies the rewritten and compiled form of a module.
type moduleKey [sha256.Size]byte

func moduleKeyOf(digest string, opts wasmbin.Options, goPass bool) moduleKey {
	opts.CompileTime = 0 // It changes nothing in a module that is compiled already.
	return sha256.Sum256(fmt.Appendf(nil, "%d %d %s %s %+v %v", fileVersion, rewritingVersion, engineName(), digest, opts, goPass))
}

// engineName returns the version of wazero and the platform of its compiler. The binary of a test
// does not contain the version; the name of the directory with wazero's source does.
var engineName = sync.OnceValue(func() string {
	version := "dev"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == "github.com/tetratelabs/wazero" {
				version = dep.Version
			}
		}
	}
	if version == "dev" {
		pc := reflect.ValueOf(wazero.NewRuntime).Pointer()
		file, _ := runtime.FuncForPC(pc).FileLine(pc)
		if _, at, ok := strings.Cut(filepath.Base(filepath.Dir(file)), "@"); ok {
			version = at
		}
	}
	return "wazero-" + version + "-" + runtime.GOARCH + "-" + runtime.GOOS
})

// path returns the name of a file. Processors for which wazero compiles differently may share a
// directory: their features are part of the name, and stand in full in the file.
func (c moduleCache) path(key moduleKey) string {
	features := 0
	for i, has := range []bool{cpu.X86.HasSSE41, cpu.X86.HasBMI1, cpu.X86.HasBMI2, cpu.X86.HasPOPCNT} {
		if has {
			features |= 1 << i
		}
	}
	return filepath.Join(c.dir, fmt.Sprintf("%s-%x", hex.EncodeToString(key[:]), features))
}

// A file of the cache consists of the checksum, the lengths, the description of the module as JSON,
// and the module of the stub. Then follow wazero's output before and after the machine code,
// without the engineHeader, the data, and the machine code. Data and machine code begin at a
// multiple of pageSize, so that they can be mapped. The checksum is the SHA-256 of the key and of
// the rest of the file without the machine code, which wazero protects by a CRC.
const (
	fileVersion   = 3 // It changes with the contents of a file.
	lengthsInFile = 6
	headerOfFile  = int64(sha256.Size + 4*lengthsInFile + len(engineKey{}))
)

var errModuleFile = errors.New("not a file of the cache")

// cachedModule is a file of the cache. code lacks the machine code, which has codeSize bytes.
type cachedModule struct {
	stub
	code serialized
	// file is open. Its data begin at dataAt, its machine code at codeAt.
	file           *os.File
	dataAt, codeAt int64
	codeSize       int
}

// read returns a file of the cache, which the caller closes.
func (c moduleCache) read(key moduleKey) (*cachedModule, error) {
	open := c.open
	if open == nil {
		open = func() (*os.File, error) { return os.Open(c.path(key)) }
	}
	f, err := open()
	if err != nil {
		return nil, err
	}
	m, err := readModule(f, key)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return m, nil
}

func readModule(f *os.File, key moduleKey) (*cachedModule, error) {
	stat, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !stat.Mode().IsRegular() || stat.Size() < headerOfFile {
		return nil, errModuleFile
	}
	header := make([]byte, headerOfFile)
	if _, err := f.ReadAt(header, 0); err != nil {
		return nil, err
	}
	var lengths [lengthsInFile]int64
	for i := range lengths {
		lengths[i] = int64(binary.LittleEndian.Uint32(header[sha256.Size+4*i:]))
	}
	text := headerOfFile + lengths[0] + lengths[1] + lengths[2] + lengths[3]
	m := &cachedModule{file: f, dataAt: nextPage(text), codeSize: int(lengths[5])}
	m.codeAt = m.dataAt + lengths[4]
	if end := m.codeAt + lengths[5]; end > stat.Size() || end < stat.Size() && f.Name() != oneFile || m.codeAt > 4*wasmbin.MaxModuleBytes || lengths[4]%pageSize != 0 {
		return nil, errModuleFile
	}
	all := make([]byte, m.codeAt)
	if _, err := f.ReadAt(all, 0); err != nil {
		return nil, err
	}
	if !bytes.Equal(all[:sha256.Size], sumOf(key, all[sha256.Size:])) {
		return nil, errModuleFile
	}
	rest := all[headerOfFile:]
	next := func(length int64) (part []byte) {
		part, rest = rest[:length:length], rest[length:]
		return part
	}
	about := next(lengths[0])
	m.module = next(lengths[1])
	m.code = serialized{before: next(lengths[2]), after: next(lengths[3])}
	copy(m.code.key[:], header[sha256.Size+4*lengthsInFile:])
	m.data = all[m.dataAt:][:lengths[4]]
	if err := json.Unmarshal(about, &m.about); err != nil {
		return nil, err
	}
	if m.about.Info == nil || m.about.Offset%pageSize != 0 {
		return nil, errModuleFile
	}
	if f.Name() != oneFile {
		diskcache.Use(f.Name(), stat)
	}
	return m, nil
}

// write makes the file of a module, whole or not at all.
func (c moduleCache) write(key moduleKey, s *stub, code serialized) error {
	about, err := json.Marshal(s.about)
	if err != nil {
		return err
	}
	var lengths []byte
	for _, part := range [lengthsInFile][]byte{about, s.module, code.before, code.after, s.data, code.machine} {
		if uint64(len(part)) > math.MaxUint32 {
			return fmt.Errorf("a part of %d bytes is too long for the cache", len(part))
		}
		lengths = binary.LittleEndian.AppendUint32(lengths, uint32(len(part)))
	}
	text := headerOfFile + int64(len(about)+len(s.module)+len(code.before)+len(code.after))
	padding := make([]byte, nextPage(text)-text)
	checked := [][]byte{lengths, code.key[:], about, s.module, code.before, code.after, padding, s.data}
	parts := slices.Concat([][]byte{sumOf(key, checked...)}, checked, [][]byte{code.machine})
	if c.store != nil {
		return c.store(parts)
	}
	return diskcache.Write(c.path(key), parts...)
}

// nextPage returns at, or the next multiple of pageSize.
func nextPage(at int64) int64 { return (at + pageSize - 1) / pageSize * pageSize }

func sumOf(key moduleKey, parts ...[]byte) []byte {
	h := sha256.New()
	h.Write(key[:])
	for _, part := range parts {
		writePieces(h, part)
	}
	return h.Sum(nil)
}
