package host_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/kubewasm/kubewasm/host"
)

// inotifies returns how many instances of inotify the process has.
func inotifies(t *testing.T) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && to == "anon_inode:inotify" {
			n++
		}
	}
	return n
}

// TestFollowedFilesShareAnInotify holds that files cost no instance each: a user has 128 for all
// processes.
func TestFollowedFilesShareAnInotify(t *testing.T) {
	const files = 200
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, files)
	hints := make([]chan struct{}, files)
	for i := range files {
		hints[i] = make(chan struct{}, 1000)
		source := host.File(fmt.Sprintf("%s/%d/p.wasm", dir, i/2)) // Two of each.
		go func() { ended <- source.(host.Watcher).Watch(ctx, func() { hints[i] <- struct{}{} }) }()
		<-hints[i]
	}
	if n := inotifies(t); n != 1 {
		t.Errorf("%d files have %d instances of inotify, want 1", files, n)
	}
	mkdir(t, dir+"/7")
	write(t, dir+"/7/p.wasm", "one")
	for _, i := range []int{14, 15} {
		<-hints[i]
	}
	cancel()
	for range files {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if n := inotifies(t); n != 0 {
		t.Errorf("%d instances of inotify are left", n)
	}
}
