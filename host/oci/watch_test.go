package oci_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/oci"
)

// A layout is watched from whatever state it is in when the watch begins: an index that is half
// written, none yet, and no directory.
func TestLayoutsAreWatchedFromTheBeginning(t *testing.T) {
	index := func(dir string) string { return filepath.Join(dir, "index.json") }
	for name, begin := range map[string]func(dir string) error{
		"an index that is half written": func(dir string) error { return os.WriteFile(index(dir), nil, 0o600) },
		"no index":                      func(dir string) error { return os.Remove(index(dir)) },
		"no directory":                  func(dir string) error { return os.Rename(dir, dir+".aside") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "policies")
			client, err := oci.New(oci.Config{Trust: []oci.Trust{{Repositories: []string{"*"}, Unsigned: true}}})
			if err != nil {
				t.Fatal(err)
			}
			ref := oci.Reference{Layout: dir, Tag: "1"}
			publish := func(module string) {
				t.Helper()
				if _, err := client.Push(t.Context(), ref, []byte("\x00asm\x01\x00\x00\x00\x00\x02\x01"+module), oci.PushOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			publish("a")
			content, err := os.ReadFile(index(dir))
			if err != nil {
				t.Fatal(err)
			}
			if err := begin(dir); err != nil {
				t.Fatal(err)
			}
			hints, ended := make(chan struct{}, 100), make(chan error, 1)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			source, ok := client.Source(ref.String()).(host.Watcher)
			if !ok {
				t.Fatal("a layout cannot be watched")
			}
			go func() { ended <- source.Watch(ctx, func() { hints <- struct{}{} }) }()
			next := func() {
				t.Helper()
				select {
				case <-hints:
				case err := <-ended:
					t.Fatal(err)
				}
			}
			next() // It watches.
			if err := os.Rename(dir+".aside", dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			if err := os.WriteFile(index(dir), content, 0o600); err != nil {
				t.Fatal(err)
			}
			until := func(want string) {
				t.Helper()
				for {
					if module, err := source.Fetch(ctx); err == nil && string(module[len(module)-1:]) == want {
						return
					}
					next()
				}
			}
			next() // Of the index, which is whole now.
			until("a")
			publish("c")
			until("c")
		})
	}
}
