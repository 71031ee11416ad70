package host

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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
	t := &trailWatcher{events: make(chan struct{}, 1), resets: make(chan struct{}, 1)}
	defer watched.leave(t)
	if err := t.follow(path, false); err != nil {
		return err
	}
	changed()

	burst := newBurst()
	defer burst.timer.Stop()
	loud := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.events:
			loud = true
			burst.event()
		case <-t.resets:
			burst.event()
		case <-burst.timer.C:
			burst.end()
			// The path may lead elsewhere by now. The new target is watched before the hint, so
			// nothing is missed.
			if err := t.follow(path, loud); err != nil {
				return err
			}
			loud = false
			changed()
		}
	}
}

// trailWatcher watches the directories that decide on the target of a path.
type trailWatcher struct {
	// entries are the directory entries that matter, see trail, and dirs their directories.
	// The mutex of watched guards them.
	entries []string
	dirs    []*watchedDir
	// events has a value after an event of an entry, and resets after a directory was watched
	// anew, so that events may be missing.
	events, resets chan struct{}
}

// follow watches the directories that decide now on the target of an absolute path, and no others.
// See join for loud.
func (t *trailWatcher) follow(path string, loud bool) error {
	for {
		entries := trail(path)
		err := watched.join(t, entries, loud)
		if slices.Equal(entries, trail(path)) {
			return err
		}
		// A link changed before its directory was watched.
	}
}

// watched are the directories that the process watches. One watcher is for all: a user has 128
// instances of inotify.
var watched watchedDirs

// watchedDirs watches directories for any number of trails. The zero value watches nothing.
type watchedDirs struct {
	mu sync.Mutex
	// watcher is nil while there are no directories.
	watcher *fsnotify.Watcher
	// dirs are by their paths. The paths of bind mounts may share one.
	dirs map[string]*watchedDir
}

// watchedDir is a directory that is watched.
type watchedDir struct {
	// path is the one by which the watcher knows it.
	path string
	// info is from before it was watched: another directory at the path is not this one.
	info   fs.FileInfo
	trails map[*trailWatcher]struct{}
}

// join watches the directories of entries for t, and ends the watch of those that t had before. A
// directory that was replaced is watched anew. With loud, the other trails that watch it are
// notified.
func (w *watchedDirs) join(t *trailWatcher, entries []string, loud bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var dirs []*watchedDir
	for _, entry := range entries {
		d, err := w.dir(filepath.Dir(entry), t, loud)
		if err != nil {
			w.keep(t, append(dirs, t.dirs...))
			return fmt.Errorf("watch directory %s: %w", filepath.Dir(entry), err)
		}
		d.trails[t] = struct{}{}
		dirs = append(dirs, d)
	}
	t.entries = entries
	w.keep(t, dirs)
	return nil
}

// leave ends the watch for t.
func (w *watchedDirs) leave(t *trailWatcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keep(t, nil)
	t.entries = nil
}

// keep ends the watch of directories that only t had, but for some.
func (w *watchedDirs) keep(t *trailWatcher, some []*watchedDir) {
	for _, d := range t.dirs {
		if slices.Contains(some, d) {
			continue
		}
		if delete(d.trails, t); len(d.trails) == 0 {
			w.forget(d)
		}
	}
	t.dirs = some
	if len(w.dirs) == 0 && w.watcher != nil {
		_ = w.watcher.Close() // Its error is of no use: nothing is left open.
		w.watcher = nil
	}
}

// forget ends the watch of a directory.
func (w *watchedDirs) forget(d *watchedDir) {
	known := false
	for path, other := range w.dirs {
		if other == d {
			known = true
			delete(w.dirs, path)
		}
	}
	if known {
		_ = w.watcher.Remove(d.path) // It may have ended with the directory.
	}
}

// dir returns the directory at a path, which it watches unless it does so already.
func (w *watchedDirs) dir(path string, t *trailWatcher, loud bool) (*watchedDir, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if d := w.dirs[path]; d != nil {
		if os.SameFile(d.info, info) {
			return d, nil
		}
		w.forget(d)
		for other := range d.trails {
			if other != t && loud {
				poke(other.resets)
			}
		}
	}
	for _, d := range w.dirs {
		if os.SameFile(d.info, info) {
			w.dirs[path] = d
			return d, nil
		}
	}
	if w.watcher == nil {
		if w.watcher, err = fsnotify.NewWatcher(); err != nil {
			return nil, err
		}
		w.dirs = map[string]*watchedDir{}
		go w.run(w.watcher)
	}
	if err := w.watcher.Add(path); err != nil {
		return nil, err
	}
	d := &watchedDir{path, info, map[*trailWatcher]struct{}{}}
	w.dirs[path] = d
	return d, nil
}

// run hands events to the trails until the watcher is closed.
func (w *watchedDirs) run(of *fsnotify.Watcher) {
	lost := make(chan struct{}, 1)
	go func() { // The watcher may wait for it with a lock that Add takes.
		for range of.Errors {
			poke(lost)
		}
	}()
	for {
		select {
		case event, ok := <-of.Events:
			if !ok {
				return
			}
			w.event(of, event)
		case <-lost: // Everything may have changed.
			w.event(of, fsnotify.Event{})
		}
	}
}

// event hands an event to the trails that it concerns, or to all if it has no name.
func (w *watchedDirs) event(of *fsnotify.Watcher, event fsnotify.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watcher != of {
		return
	}
	if event.Name == "" {
		for _, d := range w.dirs {
			d.tell()
		}
		return
	}
	if d := w.dirs[event.Name]; d != nil { // The directory itself.
		d.tell()
		if event.Has(fsnotify.Remove) || event.Has(fsnotify.Rename) {
			w.forget(d)
		}
	}
	d, name := w.dirs[filepath.Dir(event.Name)], filepath.Base(event.Name)
	if d == nil {
		return
	}
	for t := range d.trails {
		if slices.ContainsFunc(t.entries, func(entry string) bool {
			return filepath.Base(entry) == name && w.dirs[filepath.Dir(entry)] == d
		}) {
			poke(t.events)
		}
	}
}

// tell notifies all trails of an event.
func (d *watchedDir) tell() {
	for t := range d.trails {
		poke(t.events)
	}
}

// poke puts a value into a channel that has room for one.
func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// maxLinks is the maximum number of symbolic links that Linux follows in one path.
const maxLinks = 40

// trail returns the directory entries that decide on the target of an absolute path, in absolute
// paths without links: each symbolic link on the way, and the file in the end or the first part
// that is missing.
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
	// first is the time when it began; zero if there is none.
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
