package sched

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
)

// awaiter returns a plugin with the objects "things", whose watches are counted: each watch begins
// unless begin returns an error.
func awaiter(begin func() error) (p *Plugin, watches func() int) {
	n := 0
	p = &Plugin{guest: new(host.Plugin), closed: make(chan struct{})}
	p.informers = map[string]informer{"things": {Objects: Objects{
		Watch: func(func(oldObj, newObj any)) (func(), error) {
			if err := begin(); err != nil {
				return nil, err
			}
			n++
			return func() { n-- }, nil
		},
		Close: func() {},
	}}}
	return p, func() int { return n }
}

// TestAwaitingOthersEachTime holds that a guest that waits for other objects in each call is called at
// most ten times in a second, and is refused after its time.
func TestAwaitingOthersEachTime(t *testing.T) {
	for name, test := range map[string]struct {
		most  time.Duration
		calls int
	}{"at once": {0, 2}, "after a time": {3 * leastAwait, 5}} {
		t.Run(name, func(t *testing.T) {
			p, _ := awaiter(func() error { return nil })
			calls := 0
			s := p.awaitChanges(t.Context(), func() (*Status, []awaitedObject, time.Duration) {
				if calls++; calls > 1000 {
					return NewStatus(abi.Error, "called all the time"), nil, 0
				}
				return NewStatus(abi.Wait, ""), []awaitedObject{{"things", "shop", fmt.Sprint(calls % 2)}}, test.most
			})
			if s.Code() != abi.Unschedulable || calls > test.calls {
				t.Errorf("%s: %s after %d calls, want at most %d", s.Code(), s.Message(), calls, test.calls)
			}
			if len(p.awaiting.waits) != 0 {
				t.Errorf("%d waits are left", len(p.awaiting.waits))
			}
		})
	}
}

// TestWatchesOfAwait holds that a watch that fails to begin is tried again, and that none begins to stay
// when the plugin is closed meanwhile.
func TestWatchesOfAwait(t *testing.T) {
	var p *Plugin
	fails, began := errors.New("no watch"), func() error { return nil }
	p, watches := awaiter(func() error { return began() })
	object := []awaitedObject{{"things", "shop", "a"}}
	var got []string
	join := func() {
		err := p.awaiting.join(p, object, make(chan struct{}, 1))
		got = append(got, fmt.Sprint(err, " ", watches()))
	}
	began = func() error { return fails }
	join()
	began = func() error { return nil }
	join()
	join()
	p.closeObjects()
	got = append(got, fmt.Sprint("closed ", watches()))
	p, watches = awaiter(func() error { p.closeObjects(); return nil })
	join()
	if diff := cmp.Diff([]string{"no watch 0", "<nil> 1", "<nil> 1", "closed 0", "<nil> 0"}, got); diff != "" {
		t.Errorf("watches (-want +got):\n%s", diff)
	}
}
