package host

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/kubewasm/kubewasm/internal/diskcache"
)

// CompiledSource is a Source that may have its module in compiled form as well, as
// [Precompile] returns it. The form is read only where [Config.Compiled] grants it. A [File]
// is one: the form lies beside the module, under the name of [CompiledFile].
type CompiledSource interface {
	Source
	// FetchCompiled returns the compiled form of the module for a platform, such as
	// "linux/amd64". A source that has several returns one whose SHA-256 is among sha256, in
	// hexadecimal. The error is fs.ErrNotExist if there is none. The caller does not change
	// the bytes, and trusts them only by their digest.
	FetchCompiled(ctx context.Context, platform string, sha256 []string) ([]byte, error)
}

// Platform is that of the process, as [CompiledSource] names it.
const Platform = runtime.GOOS + "/" + runtime.GOARCH

// CompiledFile returns the name of the file with the compiled form of a module in a file, such
// as zone.wasm.linux-amd64.
func CompiledFile(module, platform string) string {
	return module + "." + strings.ReplaceAll(platform, "/", "-")
}

// FetchCompiled implements [CompiledSource].
func (s fileSource) FetchCompiled(ctx context.Context, platform string, _ []string) ([]byte, error) {
	return fileSource(CompiledFile(string(s), platform)).Fetch(ctx)
}

// shippedMagic begins a compiled form. The length of the next part follows in 4 bytes, the
// description as JSON, and the files of the cache: that of the stub and that of the machine code.
const shippedMagic = "kubewasm compiled 1\n"

// shipped describes a compiled form.
type shipped struct {
	// Module is the digest of the module, Key the stubKey, in hexadecimal.
	Module string `json:"module"`
	Key    string `json:"key"`
	// Engine is the name of wazero's directory, which has its version and the platform. File
	// is the name of the file there, which has the features of the processor.
	Engine string `json:"engine"`
	File   string `json:"file"`
	Stub   int    `json:"stub"`
	Code   int    `json:"code"`
}

// Precompile returns the compiled form of a module for this platform, for plugins with the
// limits, of which MemoryBytes and StackBytes count; zero means the default. It is for this
// version of wazero, of the rewriter, and for processors with the features of this one that
// wazero uses. The error is that of [Runtime.Load] for a module that does not compile, or that
// wazero has no compiler for this platform.
func Precompile(ctx context.Context, module []byte, limits Limits) (form []byte, err error) {
	dir, err := os.MkdirTemp("", "kubewasm-precompile-*")
	if err != nil {
		return nil, fmt.Errorf("precompile: %w", err)
	}
	defer os.RemoveAll(dir)
	rt, err := NewRuntime(RuntimeConfig{CacheDir: dir})
	if err != nil {
		return nil, fmt.Errorf("precompile: %w", err)
	}
	defer func() { err = errors.Join(err, rt.Close(context.WithoutCancel(ctx))) }()
	limits = limits.withDefaults()
	key := compiledKey{
		digest: digestOf(module), memoryBytes: limits.MemoryBytes, stackBytes: limits.StackBytes, compile: max(limits.Compile, defaultCompile),
	}
	c := rt.share(key, module, nil)
	defer rt.release(c)
	select {
	case <-c.ready:
		err = c.err
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err == nil {
		form, err = c.ship()
	}
	if err != nil {
		return nil, fmt.Errorf("precompile: %w", err)
	}
	return form, nil
}

// ship returns the compiled form of a module that is in the cache.
func (c *compiled) ship() ([]byte, error) {
	key := stubKeyOf(c.key.digest, c.rewriting(), c.owner.goPass)
	about := shipped{Module: c.key.digest, Key: hex.EncodeToString(key[:])}
	stub, content, err := c.owner.stubs.read(key)
	if err != nil {
		return nil, fmt.Errorf("the cache has no machine code for %s: %w", Platform, err)
	}
	content.close()
	file, err := os.ReadFile(c.owner.stubs.path(key))
	if err != nil {
		return nil, err
	}
	files := c.owner.code.files(stub.module)
	held := c.owner.code.hold(files)
	defer held.close()
	for i, f := range held.files {
		if f == nil {
			continue
		}
		code, err := io.ReadAll(io.NewSectionReader(f, 0, 4*MaxModuleBytes))
		if err != nil {
			return nil, err
		}
		about.Engine, about.File = filepath.Base(filepath.Dir(files[i])), filepath.Base(files[i])
		about.Stub, about.Code = len(file), len(code)
		text, err := json.Marshal(about)
		if err != nil {
			return nil, err
		}
		return slices.Concat([]byte(shippedMagic), binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text, file, code), nil
	}
	return nil, errNoCode
}

// parseShipped takes a compiled form apart.
func parseShipped(form []byte) (about shipped, stub, code []byte, err error) {
	rest, ok := bytes.CutPrefix(form, []byte(shippedMagic))
	if !ok || len(rest) < 4 {
		return about, nil, nil, fmt.Errorf("its %d bytes are no compiled form of this version", len(form))
	}
	length := uint64(binary.LittleEndian.Uint32(rest))
	if rest = rest[4:]; length > uint64(len(rest)) {
		return about, nil, nil, errors.New("it is cut off in its description")
	}
	if err := json.Unmarshal(rest[:length], &about); err != nil {
		return about, nil, nil, fmt.Errorf("its description: %w", err)
	}
	if rest = rest[length:]; about.Stub < 0 || about.Code < 0 || about.Stub > len(rest) || about.Code != len(rest)-about.Stub {
		return about, nil, nil, fmt.Errorf("it has %d bytes after its description, want %d and %d", len(rest), about.Stub, about.Code)
	}
	return about, rest[:about.Stub], rest[about.Stub:], nil
}

// takeShipped takes the module from a compiled form, or says in notShipped why it cannot.
func (c *compiled) takeShipped(ctx context.Context, key stubKey, ship func(context.Context) ([]byte, error)) {
	if c.owner.code.dir == "" || c.key.profile {
		c.notShipped = errors.New("it goes into the cache, and the runtime has no CacheDir")
		return
	}
	form, err := ship(ctx)
	if err == nil {
		err = c.install(ctx, form, key)
	}
	c.shipped, c.notShipped = err == nil, err
}

// install puts a compiled form into the cache, if it is for the module, this engine and this
// processor, and takes the compiled module from there. It trusts the form, whose digest was
// granted.
func (c *compiled) install(ctx context.Context, form []byte, key stubKey) error {
	about, stub, code, err := parseShipped(form)
	if err != nil {
		return err
	}
	if about.Module != c.key.digest {
		return fmt.Errorf("it is of the module %.64s, not of %s", about.Module, c.key.digest)
	}
	dirs, err := filepath.Glob(filepath.Join(c.owner.code.dir, "wazero-*-"+runtime.GOARCH+"-"+runtime.GOOS))
	if err != nil {
		return err
	}
	var engines []string
	for _, dir := range dirs {
		engines = append(engines, filepath.Base(dir))
	}
	if !slices.Contains(engines, about.Engine) {
		return fmt.Errorf("it is for %.100q, and the engine here is %q", about.Engine, engines)
	}
	if about.Key != hex.EncodeToString(key[:]) {
		return errors.New("it is of another version of kubewasm, or for other limits.memoryBytes or limits.stackBytes")
	}
	if err := diskcache.Write(c.owner.stubs.path(key), stub); err != nil {
		return err
	}
	written, content, err := c.owner.stubs.read(key)
	if err != nil {
		return fmt.Errorf("its stub: %w", err)
	}
	content.close()
	name := filepath.Join(c.owner.code.dir, about.Engine, about.File)
	if !slices.Contains(c.owner.code.files(written.module), name) {
		return fmt.Errorf("its machine code has the name %.100q, which is not one of the stub", about.File)
	}
	sum := fmt.Sprintf("%08x", crc32.Checksum(code, castagnoli))
	if err := errors.Join(diskcache.Write(name+sumSuffix, []byte(sum)), diskcache.Write(name, code)); err != nil {
		return err
	}
	if err := c.fromCache(ctx, key); err != nil {
		remove(name)
		return fmt.Errorf("the engine has not taken it, as for a processor without a feature that it needs: %w", err)
	}
	return nil
}

// shipping returns what fetches the compiled form of a source, nil if none is granted.
func (p *Plugin) shipping(source Source) func(context.Context) ([]byte, error) {
	if len(p.cfg.Compiled) == 0 {
		return nil
	}
	return func(ctx context.Context) ([]byte, error) {
		from, ok := source.(CompiledSource)
		if !ok {
			return nil, fmt.Errorf("source %s has none", source)
		}
		form, err := from.FetchCompiled(ctx, Platform, p.cfg.Compiled)
		if err != nil {
			return nil, err
		}
		digest := digestOf(form)
		if !slices.ContainsFunc(p.cfg.Compiled, func(granted string) bool { return strings.EqualFold(granted, digest) }) {
			return nil, fmt.Errorf("its sha256 is %s, which compiled does not grant", digest)
		}
		return form, nil
	}
}
