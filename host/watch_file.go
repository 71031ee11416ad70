package host

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Watch implements [Watcher]. Changes of directories further up are not
// noticed, unless they lead to a part of the path that was missing.
func (s fileSource) Watch(ctx context.Context, changed func()) error {
	path, err := filepath.Abs(string(s))
	if err != nil {
		return err
	}
	w, err := watchTrail(path)
	if err != nil {
		return err
	}
	defer func() { w.close() }()
	changed()

	burst := newBurst()
	defer burst.timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event := <-w.Events:
			if w.concerns(event.Name) {
				burst.event()
			}
		case <-w.Errors:
			// Events were lost, so everything may have changed.
			burst.event()
		case <-burst.timer.C:
			burst.end()
			// The path may lead elsewhere by now. The old watcher is closed after
			// the new one has begun and before the hint, so nothing is missed.
			next, err := watchTrail(path)
			if err != nil {
				return err
			}
			w.close()
			w = next
			changed()
		}
	}
}

// trailWatcher watches the directories that decide what a path leads to.
type trailWatcher struct {
	*fsnotify.Watcher
	// entries are the directory entries that matter: see trail.
	entries []string
}

// watchTrail watches the directories that decide now what an absolute path leads
// to. A watcher is replaced, not adjusted: it would still know a directory that
// was renamed, or deleted and created again, by its old name.
func watchTrail(path string) (*trailWatcher, error) {
	for {
		entries := trail(path)
		w, err := newTrailWatcher(entries)
		if slices.Equal(entries, trail(path)) {
			return w, err
		}
		// A link changed before its directory was watched.
		if err == nil {
			w.close()
		}
	}
}

func newTrailWatcher(entries []string) (*trailWatcher, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	w := &trailWatcher{watcher, entries}
	for _, entry := range entries {
		if err := watcher.Add(filepath.Dir(entry)); err != nil {
			w.close()
			return nil, fmt.Errorf("watch directory %s: %w", filepath.Dir(entry), err)
		}
	}
	return w, nil
}

// concerns reports whether an event of this name can change what the path leads
// to. The events of a directory itself are its deletion and its renaming.
func (w *trailWatcher) concerns(name string) bool {
	return slices.ContainsFunc(w.entries, func(entry string) bool {
		return name == entry || name == filepath.Dir(entry)
	})
}

// close ends the watching. Its error is of no use: nothing is left open.
func (w *trailWatcher) close() { _ = w.Close() }

// maxLinks is how many symbolic links Linux follows in one path.
const maxLinks = 40

// trail returns the directory entries that decide what an absolute path leads
// to, in absolute paths without links: each symbolic link on the way, and the
// file in the end or the first part that is missing.
//
// For a ConfigMap that kubelet mounts in /etc/plugins these are
// /etc/plugins/zone.wasm, a link to ..data/zone.wasm; /etc/plugins/..data, the
// link that kubelet swaps; and /etc/plugins/..2026_11_02/zone.wasm, the file.
func trail(path string) []string {
	var entries []string
	dir, parts := root(path), partsOf(path)
	for links := 0; len(parts) > 0; {
		entry := filepath.Join(dir, parts[0])
		parts = parts[1:]
		info, err := os.Lstat(entry)
		switch {
		case err != nil:
			return append(entries, entry)
		case info.Mode()&fs.ModeSymlink != 0:
			entries = append(entries, entry)
			target, err := os.Readlink(entry)
			if links++; err != nil || links > maxLinks {
				return entries
			}
			if filepath.IsAbs(target) {
				dir = root(target)
			}
			parts = append(partsOf(target), parts...)
		case len(parts) == 0:
			entries = append(entries, entry)
		default:
			dir = entry
		}
	}
	return entries
}

// root returns the directory that an absolute path begins in.
func root(path string) string { return filepath.VolumeName(path) + string(filepath.Separator) }

// partsOf returns the names in a path, in order.
func partsOf(path string) []string {
	path = path[len(filepath.VolumeName(path)):]
	return slices.DeleteFunc(strings.Split(filepath.ToSlash(path), "/"), func(part string) bool { return part == "" || part == "." })
}

// A burst of events is over when none came for quiet; one that lasts is reported
// after patience. A file is written in several steps, and one that is written
// without end must not go unnoticed.
const (
	quiet    = 100 * time.Millisecond
	patience = 2 * time.Second
)

type burst struct {
	// timer fires when the burst is over.
	timer *time.Timer
	// first is when it began; zero if there is none.
	first time.Time
}

func newBurst() *burst {
	timer := time.NewTimer(quiet)
	timer.Stop()
	return &burst{timer: timer}
}

func (b *burst) event() {
	now := time.Now()
	if b.first.IsZero() {
		b.first = now
	}
	b.timer.Reset(min(quiet, patience-now.Sub(b.first)))
}

func (b *burst) end() { b.first = time.Time{} }
