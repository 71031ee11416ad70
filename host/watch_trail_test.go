package host

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestWatchTrail(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"v1", "mount/..1"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "zone.wasm"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{
		"current":         "v1",
		"absolute":        filepath.Join(dir, "current", "zone.wasm"),
		"up":              "./v1/../v1/./zone.wasm",
		"circle":          "circle",
		"dangling":        "absent/zone.wasm",
		"mount/..data":    "..1",
		"mount/zone.wasm": "..data/zone.wasm",
	} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	tests := map[string]struct {
		path string
		want []string
	}{
		"file":                           {"v1/zone.wasm", []string{"v1/zone.wasm"}},
		"nothing":                        {"v1/absent", []string{"v1/absent"}},
		"nothing in nothing":             {"absent/absent", []string{"absent"}},
		"nothing below a file":           {"v1/zone.wasm/x", []string{"v1/zone.wasm/x"}},
		"file behind a linked directory": {"current/zone.wasm", []string{"current", "v1/zone.wasm"}},
		"link to an absolute path":       {"absolute", []string{"absolute", "current", "v1/zone.wasm"}},
		"link that goes up":              {"up", []string{"up", "v1/zone.wasm"}},
		"link to nothing":                {"dangling", []string{"dangling", "absent"}},
		"mounted ConfigMap":              {"mount/zone.wasm", []string{"mount/zone.wasm", "mount/..data", "mount/..1/zone.wasm"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, entry := range trail(filepath.Join(dir, test.path)) {
				rel, err := filepath.Rel(dir, entry)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, rel)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("trail (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("circle of links ends", func(t *testing.T) {
		if got := len(trail(filepath.Join(dir, "circle"))); got != maxLinks+1 {
			t.Errorf("%d entries", got)
		}
	})
}

func TestWatchBurst(t *testing.T) {
	const ms = time.Millisecond
	every := func(step, until time.Duration) (at []time.Duration) {
		for t := time.Duration(0); t < until; t += step {
			at = append(at, t)
		}
		return at
	}
	tests := map[string]struct {
		events []time.Duration // Since the first.
		want   []time.Duration // When a burst is over.
	}{
		"one event":                 {[]time.Duration{0}, []time.Duration{quiet}},
		"several steps":             {[]time.Duration{0, 1 * ms, 90 * ms, 180 * ms}, []time.Duration{180*ms + quiet}},
		"two changes":               {[]time.Duration{0, 101 * ms}, []time.Duration{quiet, 101*ms + quiet}},
		"writing for three seconds": {every(30*ms, 3*time.Second), []time.Duration{patience, 2970*ms + quiet}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				events := make(chan struct{})
				go func() {
					for _, at := range test.events {
						time.Sleep(time.Until(start.Add(at)))
						events <- struct{}{}
					}
				}()
				b := newBurst()
				defer b.timer.Stop()
				var got []time.Duration
				for len(got) < len(test.want) {
					select {
					case <-events:
						b.event()
					case <-b.timer.C:
						b.end()
						got = append(got, time.Since(start))
					}
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("ends (-want +got):\n%s", diff)
				}
			})
		})
	}
}
