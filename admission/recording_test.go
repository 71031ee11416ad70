package admission_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/record"
	"github.com/kubewasm/kubewasm/internal/testkit/race"
	"github.com/kubewasm/kubewasm/internal/testkit/replaying"
)

func fetched(t testing.TB, source host.Source) []byte {
	t.Helper()
	module, err := source.Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return module
}

// verdicts are what guests of other ABIs always answer.
var verdicts = map[string]string{"stellar": `{"allowed":false,"message":"no"}`}

// Policies of every dialect are recorded while clients hammer the webhook, and everything
// that crossed can be repeated.
func TestARecordingOfReviewsReplays(t *testing.T) {
	calls := replaying.Calls(t, 3000)
	for _, reset := range []host.ResetPolicy{host.ResetOnError, host.ResetPerCall} {
		t.Run(string(reset), func(t *testing.T) {
			dir := t.TempDir()
			var plugins []*admission.Plugin
			var policies []admission.Policy
			var modules [][]byte
			for _, guest := range []string{scripted, requiredLabels, "stellar"} {
				cfg := admission.PluginConfig{Dialects: withStellar, Config: host.Config{Name: guest}}
				if verdict := verdicts[guest]; verdict != "" {
					cfg.Module.Source = host.Bytes(saying(t, guest, verdict))
				} else {
					cfg = config(t, guest, guest)
				}
				cfg.Limits.Instances, cfg.Reset = 3, reset
				cfg.Record = &record.Config{Path: dir, QueueBytes: 1 << 30}
				p := load(t, cfg)
				plugins, policies, modules = append(plugins, p), append(policies, p), append(modules, fetched(t, cfg.Module.Source))
			}
			url := serve(t, &admission.Handler{Validator: admission.NewEngine(policies...)})
			var clients sync.WaitGroup
			const parallel = 8
			for client := range parallel {
				clients.Go(func() {
					for i := range calls / len(plugins) / parallel {
						uid := fmt.Sprintf("uid-%d-%d", client, i)
						script := "deny"
						if i%20 == 7 {
							script = "panic"
						}
						postReview(t, url, review(uid, fmt.Sprintf(`{"metadata":{"labels":{"n":"%d"},"annotations":{%q:%q}}}`, i, script, uid)))
					}
				})
			}
			clients.Wait()
			for _, p := range plugins {
				if err := p.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			replaying.Verify(t, shared, dir, calls/2, modules...)
		})
	}
}

// TestRecordingAllocations holds that recording all calls takes no more memory for each than a
// copy of its object, what writes the file included. Each call is written before the next one: in
// the queue each has a buffer of its own.
func TestRecordingAllocations(t *testing.T) {
	allocated := func(recorded bool) (allocations, bytes float64) {
		cfg := config(t, "labels", requiredLabels)
		cfg.GuestConfig = []byte(`{"labels":["app"]}`)
		dir := t.TempDir()
		if recorded {
			cfg.Record = &record.Config{Path: dir, QueueBytes: 1 << 30}
		}
		e := admission.NewEngine(load(t, cfg))
		r := requestOf(string(podJSON(t)))
		ctx := t.Context()
		const calls = 500
		call := func() {
			if !e.Validate(ctx, r).Allowed {
				t.Fatal("denied")
			}
		}
		if recorded {
			call()
			for shared.Recorders()[dir].Bytes == 0 {
				runtime.Gosched()
			}
			call = written(t, dir, call)
		}
		for range calls {
			call()
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range calls {
			call()
		}
		runtime.ReadMemStats(&after)
		return float64(after.Mallocs-before.Mallocs) / calls, float64(after.TotalAlloc-before.TotalAlloc) / calls
	}
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	off, offBytes := allocated(false)
	on, onBytes := allocated(true)
	if more, want := onBytes-offBytes, float64(len(podJSON(t))); more > want {
		t.Errorf("%.0f bytes more for a call, want at most the %.0f of its object", more, want)
	}
	if more, want := on-off, 40.0; more > want {
		t.Errorf("%.0f allocations more for a call, want at most %.0f, the writer's among them", more, want)
	}
}

// written returns a function that calls f, waits until the recording in dir is longer, and
// allocates nothing.
func written(t *testing.T, dir string, f func()) func() {
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Fatalf("the recording has %d files, error %v", len(files), err)
	}
	file, err := os.Open(filepath.Join(dir, files[0].Name()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	length := func() int64 {
		n, err := file.Seek(0, io.SeekEnd)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return func() {
		before := length()
		f()
		for length() == before {
			runtime.Gosched()
		}
	}
}

// saying returns the module of a guest of another ABI that has a verdict.
func saying(t *testing.T, guest, verdict string) []byte {
	t.Helper()
	module, err := os.ReadFile("testdata/verdict/" + guest + ".wasm")
	if err != nil {
		t.Fatal(err)
	}
	const room = 600
	if len(verdict) > room {
		t.Fatalf("the verdict has %d bytes, more than %d", len(verdict), room)
	}
	module = bytes.Replace(module, bytes.Repeat([]byte("@"), room), []byte(verdict+strings.Repeat(" ", room-len(verdict))), 1)
	if guest == "stellar" {
		module = bytes.Replace(module, []byte("@LEN@RC@"), binary.LittleEndian.AppendUint64(nil, uint64(len(verdict))), 1)
	}
	return module
}
