package standalone

import "github.com/fsnotify/fsnotify"

// RefuseInotify makes the kernel seem to have no room for another instance, until
// restore is called.
func RefuseInotify(err error) (restore func()) {
	newInotify = func(uint) (*fsnotify.Watcher, error) { return nil, err }
	return func() { newInotify = fsnotify.NewBufferedWatcher }
}
