package standalone

import (
	"errors"
	"io/fs"
	"os"
	"slices"

	"github.com/fsnotify/fsnotify"
)

// watcher watches the directories of cgroups. It does not watch files, since the watch of a file
// ends without an event if its cgroup is removed.
type watcher struct {
	// inotify is nil while the kernel refuses one: a user may have 128 of them. Then events and
	// errors are nil as well.
	inotify *fsnotify.Watcher
	events  <-chan fsnotify.Event
	errors  <-chan error
	// hierarchies are the directories at which the paths of cgroups start.
	hierarchies []string
	// watched holds the watches by directory.
	watched map[string]watch
	// full is set while the kernel has no room for more watches.
	full bool
}

// watch is the watch of a directory.
type watch struct {
	cgroup string
	// info describes the directory at the path just before the watch was added.
	info fs.FileInfo
}

// current reports whether the watched directory is still the one at the path.
func (w *watch) current(dir string) bool {
	info, err := os.Lstat(dir)
	return err == nil && os.SameFile(info, w.info)
}

// readAhead is the number of events read in advance from the kernel's queue.
const readAhead = 1024

func newWatcher(hierarchies []string) *watcher {
	return &watcher{hierarchies: hierarchies, watched: map[string]watch{}}
}

// newInotify is replaced by a test.
var newInotify = fsnotify.NewBufferedWatcher

// open begins to watch if nothing is watched yet.
func (w *watcher) open() (err error) {
	w.full = false
	if w.inotify != nil {
		return nil
	}
	if w.inotify, err = newInotify(readAhead); err == nil {
		w.events, w.errors = w.inotify.Events, w.inotify.Errors
	}
	return err
}

func (w *watcher) close() {
	if w.inotify != nil {
		w.inotify.Close()
	}
}

// add watches a cgroup in each hierarchy. If the cgroup was not watched before, or if list is set,
// it returns the cgroups in it, which no event reports. Only lasting errors are returned; a missing
// cgroup is not an error.
func (w *watcher) add(cgroup string, list bool) (children []string, err error) {
	for _, h := range w.hierarchies {
		dir := h + "/" + cgroup
		if _, ok := w.watched[dir]; !ok {
			if w.full || w.inotify == nil {
				continue
			}
			info, err := os.Lstat(dir)
			if err == nil {
				err = w.inotify.Add(dir)
			}
			switch {
			case err == nil:
				w.watched[dir] = watch{cgroup, info}
			case errors.Is(err, fs.ErrNotExist):
				continue
			default:
				w.full = true // ENOSPC: the user's limit of watches.
				return children, err
			}
		} else if !list {
			continue
		}
		if children != nil {
			continue // The hierarchies have the same cgroups.
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // Gone since.
		}
		for _, entry := range entries {
			if entry.IsDir() {
				children = append(children, cgroup+"/"+entry.Name())
			}
		}
	}
	return children, nil
}

// removed ends the watch of a directory that is gone. The kernel does so for most file
// systems; on cgroupfs it keeps the watch, which counts against the user's limit.
func (w *watcher) removed(dir string) {
	if _, ok := w.watched[dir]; ok {
		w.inotify.Remove(dir) // An error means that the watch has ended.
		delete(w.watched, dir)
		w.full = false
	}
}

// sweep ends the watches of directories that are gone, even if others have their paths by now, and
// returns their cgroups. It compensates for lost events.
func (w *watcher) sweep() (gone []string) {
	for dir, watched := range w.watched {
		if watched.current(dir) {
			continue
		}
		w.removed(dir)
		gone = append(gone, watched.cgroup)
	}
	slices.Sort(gone)
	return slices.Compact(gone)
}
