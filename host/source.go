package host

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/kubewasm/kubewasm/internal/loading"
	"github.com/kubewasm/kubewasm/internal/wasmbin"
)

// Source provides the bytes of a module. Implementations are safe for use by several goroutines. A
// source may also be a [Watcher]. If a source has a method Check(sha256 string) error, it is called
// before anything is fetched and returns every mistake of the source, joined. sha256 is the digest
// of the configuration, empty if it names none. The errors name the source.
type Source interface {
	// Fetch returns the module. The caller does not change the bytes.
	Fetch(ctx context.Context) ([]byte, error)
	// String names the source in messages. It holds no credentials.
	String() string
}

// Keep notifies a source, if it keeps modules, that one of its modules is in use. [Runtime.Load],
// [Plugin.Swap] and [Follow] call it. Only callers of Source.Fetch that load the module need to
// call it. sha256 is the digest of the module in lower-case hexadecimal.
func Keep(source Source, sha256 string) {
	if k, ok := source.(loading.Keeper); ok {
		k.Keep(sha256)
	}
}

// checkSource returns every mistake of a source of a configuration, joined.
func checkSource(source Source, sha256 string) error {
	if source == nil {
		return errors.New("source is missing")
	}
	if c, ok := source.(loading.Checker); ok {
		return c.Check(sha256)
	}
	return nil
}

// maxUnpackedBytes is the size of the largest module that is stored compressed.
const maxUnpackedBytes = 64 << 20

// unpack returns a module that is stored as it is, or compressed by gzip.
func unpack(data []byte) ([]byte, error) {
	if !bytes.HasPrefix(data, gzipMagic) {
		return data, nil
	}
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("decompress module: %w", err)
	}
	module, err := io.ReadAll(io.LimitReader(r, maxUnpackedBytes+1))
	if err != nil {
		return nil, fmt.Errorf("decompress module: %w", err)
	}
	if len(module) > maxUnpackedBytes {
		return nil, fmt.Errorf("decompress module: it has more than %d bytes", maxUnpackedBytes)
	}
	return module, nil
}

// gzipMagic are the first bytes of the output of gzip.
var gzipMagic = []byte{0x1f, 0x8b}

// Bytes returns the source of a module in memory, as it is or compressed by gzip. The bytes must
// not change as long as the source is in use.
func Bytes(module []byte) Source { return bytesSource(module) }

type bytesSource []byte

func (s bytesSource) Fetch(context.Context) ([]byte, error) {
	if len(s) > wasmbin.MaxModuleBytes {
		return nil, fmt.Errorf("module has %d bytes, more than %d", len(s), wasmbin.MaxModuleBytes)
	}
	return unpack(s)
}

func (s bytesSource) String() string { return fmt.Sprintf("%d bytes", len(s)) }

// Fetched returns the source of a module that Fetch of another source has returned. Messages name
// that source.
func Fetched(from Source, module []byte) Source { return fetchedSource{module, from.String()} }

type fetchedSource struct {
	module []byte
	from   string
}

func (s fetchedSource) Fetch(context.Context) ([]byte, error) { return s.module, nil }

func (s fetchedSource) String() string { return s.from }

// File returns the source of a module in a file, as it is or compressed by gzip, which is read
// anew for each load. It is a [Watcher] and a [ConditionalSource].
//
// Replace the file by renaming another over it, as kubelet does for mounted
// ConfigMaps: one that is written in place may be read half written.
func File(path string) Source { return fileSource(path) }

type fileSource string

func (s fileSource) Fetch(ctx context.Context) ([]byte, error) {
	module, err := readModuleFile(ctx, string(s))
	if err != nil {
		return nil, err
	}
	return unpack(module)
}

// FetchUnless implements [ConditionalSource]. The revision is the SHA-256 of the file, so that checks of
// a file that is the same allocate no memory for it.
func (s fileSource) FetchUnless(ctx context.Context, revision string) (module []byte, current string, err error) {
	if revision != "" {
		if current, err = sumFile(ctx, string(s)); err != nil || current == revision {
			return nil, current, err
		}
	}
	file, err := readModuleFile(ctx, string(s))
	if err != nil {
		return nil, "", err
	}
	module, err = unpack(file)
	return module, digestOf(file), err
}

// sumFile returns the SHA-256 of a file, in lower-case hexadecimal.
func sumFile(ctx context.Context, name string) (string, error) {
	f, _, err := openModuleFile(ctx, name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	// An idle program reads all files that it follows, so that a larger buffer would be most of its garbage.
	if _, err := io.CopyBuffer(sum, io.LimitReader(f, wasmbin.MaxModuleBytes+1), make([]byte, 4<<10)); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// readModuleFile reads a file of at most wasmbin.MaxModuleBytes.
func readModuleFile(ctx context.Context, s string) ([]byte, error) {
	f, size, err := openModuleFile(ctx, s)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// The file may have grown since. With room for all of it no memory is allocated and freed on
	// the way, which would be four times as much.
	module := bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead))
	if _, err := module.ReadFrom(io.LimitReader(f, wasmbin.MaxModuleBytes+1)); err != nil {
		return nil, err
	}
	if module.Len() > wasmbin.MaxModuleBytes {
		return nil, fmt.Errorf("read %s: file has more than %d bytes", s, wasmbin.MaxModuleBytes)
	}
	return module.Bytes(), nil
}

// openModuleFile opens a file that has at most wasmbin.MaxModuleBytes, its size, by now.
func openModuleFile(ctx context.Context, s string) (f *os.File, size int64, err error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	// Opening a pipe would wait for a writer even after ctx has ended.
	info, err := os.Stat(s)
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("read %s: mode is %s, want a regular file", s, info.Mode())
	}
	if info.Size() > wasmbin.MaxModuleBytes {
		return nil, 0, fmt.Errorf("read %s: file has %d bytes, more than %d", s, info.Size(), wasmbin.MaxModuleBytes)
	}
	f, err = os.Open(s)
	return f, info.Size(), err
}

func (s fileSource) String() string { return string(s) }
