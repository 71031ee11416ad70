package host

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/kubewasm/kubewasm/internal/diskcache"
	"github.com/kubewasm/kubewasm/internal/private"
)

// defaultCacheBytes is the default of RuntimeConfig.CacheBytes.
const defaultCacheBytes = 1 << 30

// codeCache is the directory in which wazero keeps machine code. wazero neither removes its
// files nor says when it used one, and has a checksum for a part of them only: a changed
// offset of a function would be called. So the host knows their names, and keeps a checksum
// of the whole beside each. Where it does not know them, modules are compiled each time.
type codeCache struct {
	dir string // That of RuntimeConfig.CacheDir, empty without a cache.
	max int64
}

// sumSuffix is that of the files with checksums.
const sumSuffix = ".crc32c"

// cpuFeatures is more than the number of sets of features for which wazero generates code.
const cpuFeatures = 16

// files returns the files that the machine code of a module may be in, one for each set of
// features of a processor: TestCodeCacheKnowsTheFiles holds it.
func (c codeCache) files(module []byte) (files []string) {
	dirs, _ := filepath.Glob(filepath.Join(c.dir, "wazero-*-"+runtime.GOARCH+"-"+runtime.GOOS))
	if len(dirs) == 0 {
		return nil
	}
	h := sha256.New()
	writePieces(h, module)
	id := h.Sum([]byte(nil))
	h.Write([]byte{0}) // Without a check of the context in each loop.
	id = h.Sum(id[:0])
	for features := range uint64(cpuFeatures) {
		h.Reset()
		h.Write(id)
		h.Write([]byte("WAZEVO"))
		h.Write(binary.LittleEndian.AppendUint64(nil, features))
		name := hex.EncodeToString(h.Sum(nil))
		for _, dir := range dirs {
			files = append(files, filepath.Join(dir, name))
		}
	}
	return files
}

// held are the files of machine code that a module has, open, so that no other file can be
// taken for one of them.
type held struct {
	files []*os.File // nil for one that is not there.
	// sum is the checksum of the one that is, empty if there are several.
	sum string
}

// hold opens the files, marks them as used, and removes those that are not what was written.
func (c codeCache) hold(files []string) held {
	h, there := held{files: make([]*os.File, len(files))}, 0
	for i, name := range files {
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		got, info, err := checksum(f)
		want, wantErr := os.ReadFile(name + sumSuffix)
		if err != nil || wantErr != nil || string(want) != got {
			_ = f.Close()
			remove(name)
			continue
		}
		h.files[i], h.sum = f, got
		if there++; there > 1 {
			h.sum = ""
		}
		diskcache.Use(name, info)
		if info, err := os.Stat(name + sumSuffix); err == nil {
			diskcache.Use(name+sumSuffix, info)
		}
	}
	return h
}

// are reports whether the names are still those of the files, and at least one is.
func (h held) are(files []string) bool {
	any := false
	for i, name := range files {
		now, err := os.Stat(name)
		if h.files[i] == nil {
			if err == nil {
				return false
			}
			continue
		}
		any = true
		then, thenErr := h.files[i].Stat()
		if err != nil || thenErr != nil || !os.SameFile(now, then) {
			return false
		}
	}
	return any
}

func (h held) close() {
	for _, f := range h.files {
		_ = f.Close() // Which may be nil.
	}
}

// move gives the files that wazero has written for a module the names of those of another,
// and writes their checksums. It reports whether there are any.
func (c codeCache) move(from, to []string) (moved bool) {
	for i, name := range from {
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		sum, _, err := checksum(f)
		_ = f.Close()
		if err == nil {
			err = diskcache.Write(to[i]+sumSuffix, []byte(sum))
		}
		if err == nil {
			err = os.Rename(name, to[i])
		}
		if err != nil {
			remove(name)
			continue
		}
		moved = true
	}
	return moved
}

// mappedDir is the directory of files that are mapped, within that of the compiled modules.
const mappedDir = "kubewasm-mapped"

// makeMapped makes that directory.
func (c codeCache) makeMapped() error {
	dir := filepath.Join(c.dir, mappedDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return private.CheckDirectory(dir)
}

// mapped returns the name of the file that the machine code of a module is mapped from. Its
// checksum tells the code for one processor, or by one version of wazero, from that for another.
// Of several files nobody knows which wazero has read: then [mapCode] adds one of the code.
func (c codeCache) mapped(key stubKey, of held) string {
	name := filepath.Join(c.dir, mappedDir, hex.EncodeToString(key[:]))
	if of.sum != "" {
		name += "." + of.sum
	}
	return name
}

// trim removes what was not used for the longest time, also what other versions of wazero
// and the host have written.
func (c codeCache) trim() error {
	dirs, err := filepath.Glob(filepath.Join(c.dir, "wazero-*"))
	if err != nil {
		return err
	}
	_, err = diskcache.Trim(c.max, append(dirs, filepath.Join(c.dir, stubsDir), filepath.Join(c.dir, mappedDir))...)
	return err
}

func remove(names ...string) {
	for _, name := range names {
		_ = os.Remove(name)
		_ = os.Remove(name + sumSuffix)
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum returns the checksum of a file as text.
func checksum(f *os.File) (sum string, info os.FileInfo, err error) {
	h := crc32.New(castagnoli)
	if info, err = f.Stat(); err != nil {
		return "", nil, err
	}
	if _, err := io.Copy(h, f); err != nil {
		return "", nil, err
	}
	return hex.EncodeToString(h.Sum(nil)), info, nil
}
