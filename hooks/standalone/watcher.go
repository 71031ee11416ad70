package standalone

import (
	"errors"
	"io/fs"
	"os"

	"github.com/fsnotify/fsnotify"
)

// watcher watches the directories of cgroups. It watches no files: the watch of a file
// whose cgroup is removed ends without an event.
type watcher struct {
	// inotify is nil while the kernel gives none: a user has 128 of them. Then events
	// and errors are nil, too.
	inotify *fsnotify.Watcher
	events  <-chan fsnotify.Event
	errors  <-chan error
	// hierarchies are the directories in which the paths of cgroups begin.
	hierarchies []string
	// watched are the cgroups that are watched, by directory.
	watched map[string]string
	// full is set while the kernel has no room for more watches.
	full bool
}

// readAhead is the number of events that are read ahead of the kernel's queue.
const readAhead = 1024

func newWatcher(hierarchies []string) *watcher {
	return &watcher{hierarchies: hierarchies, watched: map[string]string{}}
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

// add watches a cgroup in each hierarchy. If it was not watched before, add returns the
// cgroups in it, of which no event tells. The error is one that will not go by itself; a
// cgroup that is not there is none.
func (w *watcher) add(cgroup string) (children []string, err error) {
	for _, h := range w.hierarchies {
		dir := h + "/" + cgroup
		if _, ok := w.watched[dir]; ok || w.full || w.inotify == nil {
			continue
		}
		err := w.inotify.Add(dir)
		switch {
		case err == nil:
			w.watched[dir] = cgroup
		case errors.Is(err, fs.ErrNotExist):
			continue
		default:
			w.full = true // ENOSPC: the user's limit of watches.
			return children, err
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

// removed drops a directory that is gone. The kernel has dropped its watch.
func (w *watcher) removed(dir string) {
	if _, ok := w.watched[dir]; ok {
		delete(w.watched, dir)
		w.full = false
	}
}
