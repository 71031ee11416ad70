package serving_test

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kubewasm/kubewasm/internal/serving"
)

// resource is what must not be used after it was freed.
type resource struct{ freed atomic.Bool }

func TestNoVersionIsFreedWhileItIsUsed(t *testing.T) {
	var v serving.Value[*resource]
	<-v.Replace(new(resource))
	done := make(chan struct{})
	var users sync.WaitGroup
	for range 4 {
		users.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				version := v.Acquire()
				if version.Value.freed.Load() {
					t.Error("a freed version is in use")
				}
				version.Release()
				runtime.Gosched() // The one that waits for the release is on this processor.
			}
		})
	}
	for range 1000 {
		old := v.Load()
		<-v.Replace(new(resource))
		old.freed.Store(true)
	}
	close(done)
	users.Wait()
}

func TestReplaceDrainsAfterTheLastRelease(t *testing.T) {
	var v serving.Value[int]
	v.Replace(1)
	version := v.Acquire()
	drained := v.Replace(2)
	select {
	case <-drained:
		t.Fatal("drained while version 1 is used")
	default:
	}
	if got := v.Load(); got != 2 {
		t.Errorf("Load = %d", got)
	}
	version.Release()
	<-drained
}

// A version that is used longer than the next one keeps what both have.
func TestReplaceDrainsAfterEarlierVersions(t *testing.T) {
	var v serving.Value[string]
	v.Replace("a with p")
	version := v.Acquire()
	v.Replace("b with p")
	drained := v.Replace("c")
	select {
	case <-drained:
		t.Fatal("drained while the first version is used")
	default:
	}
	version.Release()
	<-drained
}
