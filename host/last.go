package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kubewasm/kubewasm/internal/diskcache"
	"github.com/kubewasm/kubewasm/internal/loading"
)

// lastModules is a directory with the modules that were loaded last, for the next start of a
// program whose source is away or holds a module that is refused. A file DIGEST.wasm has a module,
// and a file KEY.last the digest of the last module of a plugin. The zero value keeps nothing.
type lastModules struct {
	dir string
	max int64
}

// lastDir is the directory of the files within that of RuntimeConfig.CacheDir, and lastShare the
// part of RuntimeConfig.CacheBytes that they may have beside the others.
const (
	lastDir   = "kubewasm-last"
	lastShare = 4
)

func newLastModules(dir string, max int64) (lastModules, error) {
	l := lastModules{dir: filepath.Join(dir, lastDir), max: max / lastShare}
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return l, fmt.Errorf("make directory of the last modules: %w", err)
	}
	if err := diskcache.CheckDirectory(l.dir); err != nil {
		return l, fmt.Errorf("use directory of the last modules: %w", err)
	}
	return l, nil
}

func (l lastModules) module(digest string) string { return filepath.Join(l.dir, digest+".wasm") }
func (l lastModules) last(key string) string      { return filepath.Join(l.dir, key+".last") }

// put keeps a module, and as the last one of a key, unless that is empty.
func (l lastModules) put(key, digest string, module []byte) error {
	name := l.module(digest)
	info, err := os.Stat(name)
	trim := err != nil || info.Size() != int64(len(module))
	if !trim {
		diskcache.Use(name, info)
	} else if err := diskcache.Write(name, module); err != nil {
		return err
	}
	if key != "" {
		name = l.last(key)
		was, err := readLast(name)
		if info, statErr := os.Stat(name); err == nil && statErr == nil && was == digest {
			diskcache.Use(name, info)
		} else if err := diskcache.Write(name, []byte(digest)); err != nil {
			return err
		}
		trim = trim || err != nil
	}
	if !trim { // The directory holds what it held before.
		return nil
	}
	_, err = diskcache.Trim(l.max, l.dir)
	return err
}

// readLast reads a file of the last digest.
func readLast(name string) (digest string, err error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var text [2 * sha256.Size]byte
	if _, err := f.Read(text[:]); err != nil {
		return "", err
	}
	if digest = string(text[:]); !isDigest(digest) {
		return "", fmt.Errorf("%s is damaged", name)
	}
	return digest, nil
}

// get returns the last module of a key.
func (l lastModules) get(ctx context.Context, key string) ([]byte, error) {
	digest, err := readLast(l.last(key))
	if err != nil {
		return nil, err
	}
	return l.byDigest(ctx, digest)
}

// byDigest returns the module with a digest.
func (l lastModules) byDigest(ctx context.Context, digest string) ([]byte, error) {
	if l.dir == "" {
		return nil, os.ErrNotExist
	}
	module, err := readModuleFile(ctx, l.module(digest))
	if err != nil {
		return nil, err
	}
	if digestOf(module) != digest {
		// put would keep a file of the right size.
		return nil, errors.Join(fmt.Errorf("%s is damaged", l.module(digest)), os.Remove(l.module(digest)))
	}
	return module, nil
}

// lastKey identifies the plugin and its source among those of all programs that share a cache.
func (p *Plugin) lastKey() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s", p.adapter.Kind, p.cfg.Name, p.source))
	return hex.EncodeToString(sum[:])
}

// keepLast keeps a module in service, for [Plugin.Rollback] and, if it is that of the plugin's source,
// for the next start, unless the source does that itself.
func (p *Plugin) keepLast(source Source, module []byte, digest string) {
	l := p.runtime.last
	if l.dir == "" || p.with.Throttle != nil {
		return
	}
	key := p.lastKey()
	switch p.source.(type) {
	case loading.Keeper, bytesSource:
		key = ""
	}
	if source.String() != p.source.String() {
		key = ""
	}
	if err := l.put(key, digest, module); err != nil {
		p.runtime.cacheFailed(fmt.Errorf("keep the module of plugin %q for the next start: %w", p.cfg.Name, err))
	}
}

// last loads the last module of the plugin's source that was loaded before, and reports whether it
// could. refused is the digest of the current one, empty if it was not fetched.
func (p *Plugin) last(ctx context.Context, refused string) bool {
	if !p.runtime.keepModules || p.with.Throttle != nil {
		return false
	}
	fetch := func(ctx context.Context) ([]byte, error) {
		keeper, ok := p.source.(loading.Keeper)
		switch {
		case ok && refused == "": // Fetch has tried it.
			return nil, os.ErrNotExist
		case ok:
			return keeper.Kept(ctx)
		case p.runtime.last.dir == "":
			return nil, os.ErrNotExist
		}
		return p.runtime.last.get(ctx, p.lastKey())
	}
	module, err := fetch(ctx)
	if err == nil && digestOf(module) != refused {
		if _, err = p.build(ctx, Fetched(p.source, module), p.cfg.Module.SHA256, nil); err == nil {
			return true
		}
	}
	if p.cfg.Logger != nil && err != nil && !errors.Is(err, os.ErrNotExist) {
		p.cfg.Logger.Error("the module that served last cannot be loaded either", "plugin", p.cfg.Name, "err", err)
	}
	return false
}

// KeepModule keeps a module in CacheDir, as RuntimeConfig.KeepModules does for those of plugins, and
// reports whether it could. [Runtime.KeptModule] returns it until newer ones have taken its room.
func (rt *Runtime) KeepModule(module []byte) bool {
	if rt.last.dir == "" {
		return false
	}
	digest := digestOf(module)
	if err := rt.last.put("", digest, module); err != nil {
		rt.cacheFailed(fmt.Errorf("keep a module: %w", err))
		return false
	}
	_, err := os.Stat(rt.last.module(digest)) // A module without room is removed at once.
	return err == nil
}

// KeptModule returns a module that RuntimeConfig.KeepModules or [Runtime.KeepModule] has kept, by
// its SHA-256 in lower-case hexadecimal. The error is os.ErrNotExist if there is none.
func (rt *Runtime) KeptModule(ctx context.Context, sha256 string) ([]byte, error) {
	if !isDigest(sha256) {
		return nil, fmt.Errorf("sha256 %.80q is not 64 hexadecimal digits: %w", sha256, os.ErrNotExist)
	}
	module, err := rt.last.byDigest(ctx, sha256)
	if err != nil {
		return nil, fmt.Errorf("module %s: %w", sha256, err)
	}
	return module, nil
}
