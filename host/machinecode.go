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
)

// defaultCacheBytes is the default of RuntimeConfig.CacheBytes.
const defaultCacheBytes = 1 << 30

// codeCache is the directory in which wazero keeps machine code. wazero neither removes its
// files nor says when it used one, and has a checksum for a part of them only: a changed
// offset of a function would be called. So the host knows their names, and keeps a checksum
// of the whole beside each.
type codeCache struct {
	dir string // That of RuntimeConfig.CacheDir, empty without a cache.
	max int64
}

// sumSuffix is that of the files with checksums.
const sumSuffix = ".crc32c"

// cpuFeatures is more than the number of sets of features for which wazero generates code.
const cpuFeatures = 16

// files returns the files that the machine code of a rewritten module may be in, one for each
// set of features of a processor: TestCodeCacheKnowsTheFiles holds it. Of other names nothing
// is known, and such a file is as old as it is.
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

// check removes files that are not what was written, and marks the others as used.
func (c codeCache) check(files []string) {
	for _, name := range files {
		got, info, err := checksum(name)
		if err != nil {
			continue
		}
		want, err := os.ReadFile(name + sumSuffix)
		if err != nil || string(want) != got {
			remove(name)
			continue
		}
		diskcache.Use(name, info)
		if info, err := os.Stat(name + sumSuffix); err == nil {
			diskcache.Use(name+sumSuffix, info)
		}
	}
}

// keep writes the checksums of files that are new, and makes room for them.
func (c codeCache) keep(files []string) {
	added := false
	for _, name := range files {
		if _, err := os.Stat(name + sumSuffix); err == nil {
			continue
		}
		if got, _, err := checksum(name); err == nil {
			added = true
			if diskcache.Write(name+sumSuffix, []byte(got)) != nil {
				remove(name) // It would not be used.
			}
		}
	}
	if added {
		_ = c.trim() // The next runtime reports it.
	}
}

// trim removes what was not used for the longest time, also what other versions of wazero
// and the host have written.
func (c codeCache) trim() error {
	dirs, err := filepath.Glob(filepath.Join(c.dir, "wazero-*"))
	if err != nil {
		return err
	}
	_, err = diskcache.Trim(c.max, append(dirs, filepath.Join(c.dir, rewrittenDir))...)
	return err
}

func remove(name string) {
	_ = os.Remove(name)
	_ = os.Remove(name + sumSuffix)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum returns the checksum of a file as text.
func checksum(name string) (sum string, info os.FileInfo, err error) {
	f, err := os.Open(name)
	if err != nil {
		return "", nil, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return "", nil, err
	}
	h := crc32.New(castagnoli)
	if _, err := io.Copy(h, f); err != nil {
		return "", nil, err
	}
	return hex.EncodeToString(h.Sum(nil)), info, nil
}
