package sigstore

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/kubewasm/kubewasm/host/oci"
)

// Follow has cfg verify identities by the trusted root in a file of [New]. The file is read again
// before each fetch and verification. One that cannot be read is then an error of these, as with a
// file of keys: its former content may have been withdrawn. No file, an empty name, leaves cfg as it
// is. Follow wraps Reload of cfg, so that later changes of its settings do not count.
func Follow(cfg *oci.Config, trustedRootFile string) error {
	if trustedRootFile == "" {
		return nil
	}
	f := &followed{file: trustedRootFile}
	if err := f.read(); err != nil {
		return err
	}
	cfg.Keyless = f
	settings := *cfg
	cfg.Reload = func() (oci.Config, error) {
		if err := f.read(); err != nil {
			return oci.Config{}, err
		}
		if settings.Reload == nil {
			return settings, nil
		}
		return settings.Reload()
	}
	return nil
}

// followed is a Keyless whose trusted root follows a file.
type followed struct {
	file string
	now  atomic.Pointer[version]
}

// version is a content of the file.
type version struct {
	*Keyless
	text []byte
}

var (
	_ oci.Keyless = (*followed)(nil)
	_ oci.Log     = (*followed)(nil)
)

// read reads the trusted root, unless the file has not changed.
func (f *followed) read() error {
	text, err := os.ReadFile(f.file)
	if err != nil {
		return fmt.Errorf("read trusted root: %w", err)
	}
	if now := f.now.Load(); now != nil && bytes.Equal(text, now.text) {
		return nil
	}
	k, err := parse(text)
	if err != nil {
		return fmt.Errorf("%s: %w", f.file, err)
	}
	f.now.Store(&version{k, text})
	return nil
}

// Verify implements [oci.Keyless].
func (f *followed) Verify(ctx context.Context, s *oci.Signature, id oci.Identity) (oci.Verified, error) {
	return f.now.Load().Verify(ctx, s, id)
}

// SignedAt implements [oci.Log].
func (f *followed) SignedAt(ctx context.Context, s *oci.Signature) (time.Time, error) {
	return f.now.Load().SignedAt(ctx, s)
}
