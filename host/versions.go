package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// Version is a version that a plugin has served with.
type Version struct {
	// Digest is the SHA-256 of the module, in hexadecimal, and Reference describes its source.
	Digest    string    `json:"digest"`
	Reference string    `json:"reference"`
	LoadedAt  time.Time `json:"loadedAt"`

	source Source
}

// maxVersions is the maximum number of versions that a plugin remembers.
const maxVersions = 5

// ErrNoVersion is returned if a plugin has not served with a version.
var ErrNoVersion = errors.New("there is no such version")

// Versions returns the versions that have served since the program has started, at most 5. The last
// one serves now, unless the plugin is unavailable.
func (p *Plugin) Versions() []Version {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.versions)
}

// remember adds the version that serves from now on.
func (p *Plugin) remember(digest string, source Source) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.versions = slices.DeleteFunc(p.versions, func(v Version) bool { return v.Digest == digest })
	if len(p.versions) == maxVersions {
		p.versions = slices.Delete(p.versions, 0, 1)
	}
	v := Version{Digest: digest, Reference: source.String(), LoadedAt: time.Now(), source: source}
	if _, ok := source.(fetchedSource); ok { // It has the bytes of the module.
		if v.source = nil; v.Reference == p.source.String() {
			v.source = p.source
		}
	}
	p.versions = append(p.versions, v)
}

// Rollback puts an earlier version into service, as [Plugin.Swap] does: the one with the digest
// sha256 or, if that is empty, the one before the version that serves. The plugin is Stale from
// then on, until its source holds another module than the one that was rolled back, if it is
// followed, or the program starts again. To last, change the declaration.
//
// The module comes from the cache of the runtime, see RuntimeConfig.KeepModules, or from its
// source. The error is [ErrNoVersion] if the plugin has no such version.
func (p *Plugin) Rollback(ctx context.Context, sha256 string) (Version, error) {
	versions := p.Versions()
	serving := p.Digest()
	i := len(versions) - 1
	for ; i >= 0; i-- {
		if v := &versions[i]; v.Digest == strings.ToLower(sha256) || sha256 == "" && v.Digest != serving {
			break
		}
	}
	if i < 0 {
		return Version{}, fmt.Errorf("plugin %q: roll back: version %q: %w", p.cfg.Name, cmp.Or(sha256, "before"), ErrNoVersion)
	}
	v := versions[i]
	if v.Digest == serving {
		return v, nil
	}
	source := v.source
	switch module, err := p.runtime.KeptModule(ctx, v.Digest); {
	case err == nil:
		source = fetchedSource{module, v.Reference}
	case source == nil:
		return v, fmt.Errorf("plugin %q: roll back to %s: its module is not kept: %w", p.cfg.Name, v.Digest, err)
	case !errors.Is(err, os.ErrNotExist) && p.cfg.Logger != nil:
		p.cfg.Logger.Error("the kept module cannot be used", "plugin", p.cfg.Name, "digest", v.Digest, "err", err)
	}
	err := p.swapIf(ctx, source, v.Digest, func() error { return nil }, func() {
		p.became(Stale, fmt.Errorf("rolled back from %s", serving))
	})
	if err != nil {
		return v, fmt.Errorf("roll back: %w", err)
	}
	return v, nil
}
