package host

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/kubewasm/kubewasm/internal/diskcache"
	"github.com/kubewasm/kubewasm/internal/gowasm"
	"github.com/kubewasm/kubewasm/internal/private"
	"github.com/kubewasm/kubewasm/internal/snapmem"
	"github.com/kubewasm/kubewasm/internal/wasmbin"
)

// rewritingVersion changes whenever the same module would be rewritten to another
// one: TestRewritingVersion holds it.
const rewritingVersion = 6

// rewrite makes a valid module ready for wazero. With goPass, it optimises the code of
// Go's compiler first.
func rewrite(module []byte, opts wasmbin.Options, goPass bool) ([]byte, *wasmbin.Info, error) {
	opts.Validate = validate
	if goPass {
		opts.Pass = gowasm.Optimize
	}
	if opts.Profile {
		opts.Coroutines = &gowasm.Coroutines
	}
	module, info, err := wasmbin.Rewrite(module, opts)
	if err != nil {
		return nil, nil, err
	}
	info.Imports, info.Exports = nil, nil // Inspect has them, in a form that is smaller.
	return snapmem.MergeSegments(module), info, nil
}

// errStop ends a compilation after its validation.
var errStop = errors.New("the module is valid")

// stopper stops a compilation: wazero asks for listeners of functions when it has validated
// a module and has compiled nothing yet.
type stopper struct{}

func (stopper) NewFunctionListener(api.FunctionDefinition) experimental.FunctionListener {
	panic(errStop)
}

// validate has wazero validate a module. Validation is a step of its compilation only, so the
// compilation is stopped after it: a Go guest of 3.5 MB takes 0.02 s and not 0.75.
func validate(module []byte) (err error) {
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter().WithDebugInfoEnabled(false))
	defer func() {
		if r := recover(); r != nil && r != errStop { //nolint:errorlint // It is a value that was panicked with.
			err = fmt.Errorf("validation panicked: %v", r)
		}
		err = errors.Join(err, rt.Close(ctx))
	}()
	_, err = rt.CompileModule(experimental.WithFunctionListenerFactory(ctx, stopper{}), module)
	return shorten(err)
}

// rewriteCache keeps the results of rewrite in files beside wazero's machine
// code, and trusts them as much. A file that is not exactly what was written
// counts as missing.
type rewriteCache struct {
	dir    string    // empty without a cache
	goPass bool      // see rewrite
	code   codeCache // has the same bound
}

// rewrittenDir is the directory of the cache within that of the compiled modules.
const rewrittenDir = "kubewasm-rewritten"

// newRewriteCache makes the directory of the cache within that of the compiled
// modules.
func newRewriteCache(code codeCache, goPass bool) (rewriteCache, error) {
	c := rewriteCache{filepath.Join(code.dir, rewrittenDir), goPass, code}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return c, err
	}
	return c, private.CheckDirectory(c.dir)
}

// rewrite returns the cached result for the module of that digest, or rewrites
// the module and caches the result.
func (c rewriteCache) rewrite(module []byte, digest string, opts wasmbin.Options) ([]byte, *wasmbin.Info, error) {
	if c.dir == "" {
		return rewrite(module, opts, c.goPass)
	}
	key := sha256.Sum256(fmt.Appendf(nil, "%d %s %+v %v", rewritingVersion, digest, opts, c.goPass))
	if out, info, err := c.read(key); err == nil {
		return out, info, nil
	}
	out, info, err := rewrite(module, opts, c.goPass)
	if err == nil && c.write(key, out, info) == nil { // If not, the next load takes as long as this one.
		_ = c.code.trim() // The next runtime reports it.
	}
	return out, info, err
}

// A file holds the SHA-256 of its key and all that follows, the length of the
// info in 4 bytes, the info as JSON and the module.
const cacheHeader = sha256.Size + 4

var errCacheFile = errors.New("not a file of the cache")

func (c rewriteCache) path(key [sha256.Size]byte) string {
	return filepath.Join(c.dir, hex.EncodeToString(key[:]))
}

func sumOf(key [sha256.Size]byte, content []byte) []byte {
	h := sha256.New()
	h.Write(key[:])
	writePieces(h, content)
	return h.Sum(nil)
}

func (c rewriteCache) read(key [sha256.Size]byte) ([]byte, *wasmbin.Info, error) {
	f, err := os.Open(c.path(key))
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	stat, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	// Rewriting makes a module larger by a sixth, and never by as much as this.
	if !stat.Mode().IsRegular() || stat.Size() < cacheHeader || stat.Size() > 4*MaxModuleBytes {
		return nil, nil, errCacheFile
	}
	data := make([]byte, stat.Size())
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, nil, err
	}
	sum, content := data[:sha256.Size], data[sha256.Size:]
	if !bytes.Equal(sum, sumOf(key, content)) {
		return nil, nil, errCacheFile
	}
	length := uint64(binary.LittleEndian.Uint32(content))
	if content = content[4:]; length > uint64(len(content)) {
		return nil, nil, errCacheFile
	}
	diskcache.Use(f.Name(), stat)
	info := new(wasmbin.Info)
	if err := json.Unmarshal(content[:length], info); err != nil {
		return nil, nil, err
	}
	return content[length:], info, nil
}

// write makes the file, whole or not at all.
func (c rewriteCache) write(key [sha256.Size]byte, module []byte, info *wasmbin.Info) error {
	text, err := json.Marshal(info)
	if err != nil {
		return err
	}
	content := binary.LittleEndian.AppendUint32(make([]byte, 0, 4+len(text)+len(module)), uint32(len(text)))
	content = append(append(content, text...), module...)
	return diskcache.Write(c.path(key), sumOf(key, content), content)
}
