package clusterplugins

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestEndlessChanges holds that somebody who changes an object all the time keeps nothing from being
// applied, and that an Apply that takes long leaves time for others.
func TestEndlessChanges(t *testing.T) {
	for _, test := range []struct {
		name        string
		takes       time.Duration
		least, most int
	}{
		{"at once", 0, 150, 200},
		{"a second", time.Second, 2, 4},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				applied := 0
				w := New(Config{Apply: func([]Object) {
					applied++
					time.Sleep(test.takes)
				}})
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				var running sync.WaitGroup
				running.Go(func() { w.Run(ctx) })
				for ctx.Err() == nil {
					w.tell()
					time.Sleep(10 * time.Millisecond)
				}
				running.Wait()
				if applied < test.least || applied > test.most {
					t.Errorf("the objects were applied %d times in 10 s, want %d to %d times", applied, test.least, test.most)
				}
			})
		})
	}
}
