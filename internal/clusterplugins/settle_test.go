package clusterplugins

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/internal/apiserver"
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

// writes answers writes of reports, and keeps their times.
type writes struct {
	begun time.Time
	times []time.Duration
}

func (w *writes) RoundTrip(*http.Request) (*http.Response, error) {
	w.times = append(w.times, time.Since(w.begun))
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Header: http.Header{}}, nil
}

// TestFailuresAreReportedSoon holds that the report on a version that fails does not wait for the time between
// two reports: its plugin refuses requests until it is rolled back.
func TestFailuresAreReportedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &writes{begun: time.Now()}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		Report(ctx, apiserver.Wrap("http://server", &http.Client{Transport: w}), Process{Name: "p", Namespace: "n", UID: "u"}, func() []State {
			states := []State{{Name: "a", State: "Serving"}, {Name: "b", State: "Serving"}}
			at := time.Since(w.begun)
			if at > 100*time.Millisecond {
				states[0].Failing = "it traps"
			}
			if at > 1100*time.Millisecond {
				states[1].Failing = "it traps"
			}
			if at > 2100*time.Millisecond { // It waits.
				states[1].Message = "more"
			}
			if at > 4100*time.Millisecond { // The next trial of the same plugin.
				states[1].Trial = 1
			}
			if at > 8*time.Second {
				cancel()
			}
			return states
		}, slog.New(slog.DiscardHandler))
		if diff := cmp.Diff([]time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second}, w.times); diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
		}
	})
}

// TestRefusedModules holds that a generation waits for its pin for a while, and longer while the
// controller says that nobody can load its module.
func TestRefusedModules(t *testing.T) {
	const one = "example.com/r@sha256:1111111111111111111111111111111111111111111111111111111111111111"
	object := func(generation, pinned int64, conditions string) []byte {
		return fmt.Appendf(nil, `{"metadata":{"name":"a","uid":"u","generation":%d},"spec":{"module":{"oci":"example.com/r:%d"}},"status":{"pin":{"generation":%d,"reference":%q},"conditions":[%s]}}`,
			generation, generation, pinned, one, conditions)
	}
	refused := func(generation int64) string {
		return fmt.Sprintf(`{"type":"Ready","reason":"NotLoadable","observedGeneration":%[1]d},{"type":"Resolved","status":"False","reason":"NotLoadable","observedGeneration":%[1]d,"message":"m"}`, generation)
	}
	w := New(Config{Resources: []Resource{NodeHooks}})
	k := w.kinds[0]
	k.known = true
	start := time.Now()
	for _, step := range []struct {
		after  time.Duration
		object []byte
		want   int64 // The generation that serves.
	}{
		{0, object(1, 1, ""), 1},
		{time.Second, object(2, 1, ""), 1},
		{2 * time.Second, object(2, 1, refused(1)), 1},
		{3 * time.Second, object(2, 1, refused(2)), 1},
		{time.Hour, object(2, 1, refused(2)), 1},
		{2 * time.Hour, object(3, 1, refused(2)), 1},
		{2*time.Hour + pinWait, nil, 3},
		{3 * time.Hour, object(4, 1, ""), 3},
		{3*time.Hour + time.Second, object(4, 1, refused(4)), 3},
		{4 * time.Hour, object(4, 1, ""), 3},
		{4*time.Hour + pinWait, nil, 4},
		{5 * time.Hour, object(5, 1, refused(5)), 4},
		{6 * time.Hour, object(5, 5, refused(5)), 5},
	} {
		now := start.Add(step.after)
		if step.object != nil {
			if _, err := w.put(k, step.object, now); err != nil {
				t.Fatal(err)
			}
		}
		objects, _, ok := w.snapshot(now)
		if !ok || len(objects) != 1 || objects[0].Generation != step.want {
			t.Errorf("after %s %v serve, want generation %d", step.after, objects, step.want)
		}
	}
}
