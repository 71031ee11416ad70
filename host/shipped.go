package host

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/kubewasm/kubewasm/internal/diskcache"
	"github.com/kubewasm/kubewasm/internal/loading"
)

// Platform is that of the process, as compiled forms name it.
const Platform = runtime.GOOS + "/" + runtime.GOARCH

// CompiledFile returns the name of the file with the compiled form of a module in a file, such
// as zone.wasm.linux-amd64.
func CompiledFile(module, platform string) string {
	return module + "." + strings.ReplaceAll(platform, "/", "-")
}

// FetchCompiled implements loading.CompiledSource.
func (s fileSource) FetchCompiled(ctx context.Context, platform string, _ []string) ([]byte, error) {
	return fileSource(CompiledFile(string(s), platform)).Fetch(ctx)
}

// shippedMagic begins a compiled form. The length of the next part follows in 4 bytes, the
// description as JSON, and the file of the cache.
const shippedMagic = "kubewasm compiled 2\n"

// shipped describes a compiled form.
type shipped struct {
	// Module is the digest of the module, Key the moduleKey, in hexadecimal.
	Module string `json:"module"`
	Key    string `json:"key"`
	// Engine is the engineName. The features of the processor are in the file.
	Engine string `json:"engine"`
	// Size is that of the file in bytes.
	Size int `json:"size"`
}

// Precompile returns the compiled form of a module for this platform, for plugins with the limits,
// of which MemoryBytes and StackBytes count; zero means the default. It is for this version of
// wazero and of the rewriter, and for processors with the features of this one that wazero uses.
// The error is that of [Runtime.Load] for a module that does not compile, or of a platform for
// which wazero has no compiler.
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
	c := rt.share(key, 1, module, nil)
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

// ship returns the compiled form of a cached module.
func (c *compiled) ship() ([]byte, error) {
	key := moduleKeyOf(c.key.digest, c.rewriting(), c.owner.goPass)
	file, err := os.ReadFile(c.owner.modules.path(key))
	if err != nil {
		return nil, fmt.Errorf("the cache has no machine code for %s: %w", Platform, err)
	}
	text, err := json.Marshal(shipped{Module: c.key.digest, Key: hex.EncodeToString(key[:]), Engine: engineName(), Size: len(file)})
	if err != nil {
		return nil, err
	}
	return slices.Concat([]byte(shippedMagic), binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text, file), nil
}

// parseShipped takes a compiled form apart.
func parseShipped(form []byte) (about shipped, file []byte, err error) {
	rest, ok := bytes.CutPrefix(form, []byte(shippedMagic))
	if !ok || len(rest) < 4 {
		return about, nil, fmt.Errorf("its %d bytes are not a compiled form of this version", len(form))
	}
	length := uint64(binary.LittleEndian.Uint32(rest))
	if rest = rest[4:]; length > uint64(len(rest)) {
		return about, nil, errors.New("its description is truncated")
	}
	if err := json.Unmarshal(rest[:length], &about); err != nil {
		return about, nil, fmt.Errorf("its description: %w", err)
	}
	if file = rest[length:]; about.Size != len(file) {
		return about, nil, fmt.Errorf("it has %d bytes after its description, want %d", len(file), about.Size)
	}
	return about, file, nil
}

// takeShipped takes the module from a compiled form, or sets notShipped to the reason why it
// cannot.
func (c *compiled) takeShipped(ctx context.Context, key moduleKey, ship func(context.Context) ([]byte, error)) {
	if c.files == nil {
		c.notShipped = errors.New("it needs a cache, and the runtime has no CacheDir")
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
func (c *compiled) install(ctx context.Context, form []byte, key moduleKey) error {
	about, file, err := parseShipped(form)
	if err != nil {
		return err
	}
	if about.Module != c.key.digest {
		return fmt.Errorf("it is of module %.64s, not of %s", about.Module, c.key.digest)
	}
	if engine := engineName(); about.Engine != engine {
		return fmt.Errorf("it is for %.100q, but the engine here is %q", about.Engine, engine)
	}
	if about.Key != hex.EncodeToString(key[:]) {
		return errors.New("it is for a different version of kubewasm, limits.memoryBytes or limits.stackBytes")
	}
	name := c.owner.modules.path(key)
	if err := diskcache.Write(name, file); err != nil {
		return err
	}
	if err := c.fromCache(ctx, key); err != nil {
		_ = os.Remove(name)
		return err
	}
	return nil
}

// shipping returns a function that fetches the compiled form of a source, nil if none is granted.
func (p *Plugin) shipping(source Source) func(context.Context) ([]byte, error) {
	if len(p.cfg.Module.Compiled) == 0 {
		return nil
	}
	return func(ctx context.Context) ([]byte, error) {
		from, ok := source.(loading.CompiledSource)
		if !ok {
			return nil, fmt.Errorf("source %s has none", source)
		}
		form, err := from.FetchCompiled(ctx, Platform, p.cfg.Module.Compiled)
		if err != nil {
			return nil, err
		}
		digest := digestOf(form)
		if !slices.ContainsFunc(p.cfg.Module.Compiled, func(granted string) bool { return strings.EqualFold(granted, digest) }) {
			return nil, fmt.Errorf("its sha256 is %s, which compiled does not grant", digest)
		}
		return form, nil
	}
}
