package standalone

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/fsnotify/fsnotify"
)

// watch watches the directories of cgroups. A directory, not its files: a watch
// on a file whose cgroup is removed dies without a word.
type watch struct {
	// inotify is nil while the kernel gives none: a user has 128 of them.
	inotify *fsnotify.Watcher
	// hierarchies are the directories in which the paths of cgroups begin.
	hierarchies []string
	watched     map[string]bool
	// full says that the kernel has no room for more watches.
	full bool
}

// events is how many the kernel's queue may be read ahead.
const events = 1024

func newWatch(hierarchies []string) *watch {
	return &watch{hierarchies: hierarchies, watched: map[string]bool{}}
}

// newInotify is fsnotify's, but in a test.
var newInotify = fsnotify.NewBufferedWatcher

// open begins to watch if nothing is watched yet.
func (w *watch) open() (err error) {
	w.full = false
	if w.inotify == nil {
		w.inotify, err = newInotify(events)
	}
	return err
}

func (w *watch) close() {
	if w.inotify != nil {
		w.inotify.Close()
	}
}

// hints are the events, and what went wrong with others; of nothing that is
// watched there are none.
func (w *watch) hints() (<-chan fsnotify.Event, <-chan error) {
	if w.inotify == nil {
		return nil, nil
	}
	return w.inotify.Events, w.inotify.Errors
}

// add watches a cgroup in each hierarchy, and returns the cgroups in it if it was
// not watched before: nobody will be told of those. The error is one that will
// not pass by itself; a cgroup that is not there is none.
func (w *watch) add(cgroup string) (children []string, err error) {
	for _, h := range w.hierarchies {
		dir := h + "/" + cgroup
		if w.watched[dir] || w.full || w.inotify == nil {
			continue
		}
		err := w.inotify.Add(dir)
		switch {
		case err == nil:
			w.watched[dir] = true
		case errors.Is(err, fs.ErrNotExist):
			continue
		default:
			w.full = true // ENOSPC: the user's limit of watches.
			return children, err
		}
		if children != nil {
			continue // The hierarchies are alike.
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

// removed forgets a directory that is gone: the kernel has done so.
func (w *watch) removed(dir string) {
	if w.watched[dir] {
		delete(w.watched, dir)
		w.full = false
	}
}

// cgroup splits the path of an event: a cgroup's directory that is watched, with
// the name in it, or without one if the event is about the directory itself.
func (w *watch) cgroup(path string) (cgroup, name string) {
	for _, h := range w.hierarchies {
		rest, ok := strings.CutPrefix(path, h+"/")
		if !ok {
			continue
		}
		if w.watched[path] {
			return rest, ""
		}
		return filepath.Dir(rest), filepath.Base(rest)
	}
	return "", ""
}
