package admission_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/confidential"
	"github.com/kubewasm/kubewasm/host/record"
	"github.com/kubewasm/kubewasm/host/shadow"
)

const veiled = "hunter2-very-secret"

// confidentialObjects are objects whose guest repeats them in a denial and in a trap, with the
// rule by which the value is confidential.
var confidentialObjects = map[string]struct {
	kind, object string
	rule         confidential.Rule
}{
	"a Secret":          {"Secret", `{"metadata":{"name":"s","annotations":{%s}},"type":"Opaque","stringData":{"p":"` + veiled + `"}}`, confidential.Rule{}},
	"a token":           {"TokenReview", `{"metadata":{"annotations":{%s}},"spec":{"token":"` + veiled + `"}}`, confidential.Rule{}},
	"an environment":    {"Pod", `{"metadata":{"name":"web","annotations":{%s}},"spec":{"containers":[{"env":[{"name":"P","value":"` + veiled + `"}]}]}}`, confidential.Rule{}},
	"a kind of a rule":  {"Vault", `{"metadata":{"annotations":{%s}},"spec":{"p":"` + veiled + `"}}`, confidential.Rule{Kinds: []string{"Vault"}}},
	"a field of a rule": {"Account", `{"metadata":{"annotations":{%s}},"spec":{"pin":"` + veiled + `"}}`, confidential.Rule{Fields: []string{"pin"}}},
}

// syncBuffer is a log that several goroutines write.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// What a guest says of a value that is confidential reaches the user who has sent it, and nothing
// that outlives the request.
func TestNothingConfidentialOutlivesARequest(t *testing.T) {
	for name, test := range confidentialObjects {
		t.Run(name, func(t *testing.T) {
			var log syncBuffer
			dir := t.TempDir()
			serving := config(t, "p", scripted)
			serving.Confidential, serving.Logger = test.rule, slog.New(slog.NewTextHandler(&log, nil))
			serving.Record = &record.Config{Path: dir}
			// The candidate warns, so that each call differs.
			serving.Shadow = shadowing(`{"warning":"beware"}`)
			serving.Shadow.Module.Source = serving.Module.Source
			monitoring := serving
			monitoring.Name, monitoring.Mode, monitoring.Shadow, monitoring.Record, monitoring.AllowedToMutate = "m", host.Monitor, nil, nil, true
			p, m := load(t, serving), load(t, monitoring)
			said := false
			scripts := []string{`"echo":"object"`, `"panic":"` + veiled + `"`, `"error":"` + veiled + `"`, `"label":"a=` + veiled + `"`, `"warn":"` + veiled + `"`}
			for _, script := range scripts {
				r := requestOf(fmt.Sprintf(test.object, script))
				r.Kind.Kind, r.RequestKind = test.kind, nil
				await(t, p.Shadow(), "running", running)
				before := p.Shadow().Status()
				answer := admission.NewEngine(p).Validate(t.Context(), r)
				said = said || answer.Result != nil && strings.Contains(answer.Result.Message, veiled)
				await(t, p.Shadow(), "a call", func(s shadow.Status) bool {
					return s.Compared+s.Failed+s.Uncompared > before.Compared+before.Failed+before.Uncompared
				})
				admission.NewEngine(m).Validate(t.Context(), r)
				admission.NewEngine(m).Mutate(t.Context(), r)
				e := admission.Evaluate(t.Context(), m, r, true)
				for _, text := range []string{e.Message, string(e.Patch), fmt.Sprint(e.Err)} {
					if got := e.Stain(m, r).Text(text); strings.Contains(got, veiled) {
						t.Errorf("%s: a report has %q", script, got)
					}
				}
			}
			if !said {
				t.Error("the user is not told either: the guest repeats nothing")
			}
			if status := fmt.Sprintf("%+v", p.Shadow().Status()); strings.Contains(status, veiled) {
				t.Errorf("the shadow has %s", status)
			}
			if err := p.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
			if text := log.String(); strings.Contains(text, veiled) || !strings.Contains(text, "policy would have denied") || !strings.Contains(text, "the shadow differs") {
				t.Errorf("the log is:\n%s", text)
			}
			files, err := filepath.Glob(filepath.Join(dir, "*"))
			if err != nil || len(files) == 0 {
				t.Fatalf("the recording has %d files, %v", len(files), err)
			}
			for _, file := range files {
				data, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				for _, script := range scripts { // What the test says itself, outside of what is confidential.
					data = bytes.ReplaceAll(data, []byte(script), nil)
				}
				if i := bytes.Index(data, []byte(veiled)); i >= 0 {
					t.Errorf("the recording has %q", data[max(0, i-100):i+len(veiled)])
				}
			}
		})
	}
}

// What is not confidential is told as before.
func TestOtherMessagesOutliveARequest(t *testing.T) {
	var log syncBuffer
	cfg := config(t, "m", scripted)
	cfg.Mode, cfg.Logger = host.Monitor, slog.New(slog.NewTextHandler(&log, nil))
	m := load(t, cfg)
	admission.NewEngine(m).Validate(t.Context(), requestOf(fmt.Sprintf(confidentialObjects["an environment"].object, `"deny":"the image is not signed"`)))
	if want := "the image is not signed"; !strings.Contains(log.String(), want) {
		t.Errorf("the log has no %q:\n%s", want, log.String())
	}
}

// gate is an observer that holds up a shadow after its first call.
type gate struct {
	host.Observer
	reached, open chan struct{}
	once          sync.Once
}

func (g *gate) Shadowed(_, result string) {
	if result != "dropped" {
		g.once.Do(func() {
			close(g.reached)
			<-g.open
		})
	}
}

// silent is told of everything, and does nothing.
type silent struct{}

func (silent) Called(context.Context, host.CallEvent) {}
func (silent) Built(context.Context, host.BuildEvent) {}
func (silent) CacheHits(string, string, uint64)       {}
func (silent) Refused(context.Context, string, error) {}
func (silent) Restarted(string, bool)                 {}

// Reviews that a shadow keeps count as the bodies of requests do, and have a share of their memory.
func TestReviewsThatAShadowKeepsAreCounted(t *testing.T) {
	const most = 8 << 20
	for name, size := range map[string]int{"long reviews": 3 << 20, "reviews of middle size": 400 << 10, "short reviews": 10 << 10} {
		t.Run(name, func(t *testing.T) {
			g := &gate{Observer: silent{}, reached: make(chan struct{}), open: make(chan struct{})}
			cfg := config(t, "p", scripted)
			cfg.Shadow = shadowing("")
			cfg.Shadow.Module.Source, cfg.Shadow.Queue = cfg.Module.Source, 16
			cfg.Config.Observer = g
			p := load(t, cfg)
			bodies := admission.NewBodies(admission.BodyLimits{Bytes: most})
			url := serve(t, &admission.Handler{Validator: admission.NewEngine(p), Bodies: bodies})
			await(t, p.Shadow(), "running", running)
			postReview(t, url, review("first", `{"metadata":{"name":"a"}}`))
			<-g.reached
			object := fmt.Sprintf(`{"metadata":{"name":"a"},"spec":{"hostname":%q}}`, strings.Repeat("x", size))
			const reviews = 24
			for n := range reviews {
				if r := postReview(t, url, review(fmt.Sprint("uid-", n), object)); !r.Allowed {
					t.Fatalf("review %d: %+v", n, r)
				}
			}
			status := p.Shadow().Status()
			kept := reviews - int(status.Dropped)
			if held := bodies.Held(); held > most/8 || held < int64(kept*size) || status.Held < int64(kept*size) {
				t.Errorf("%d reviews of %d bytes are kept, %d bytes are counted, and %d by the shadow", kept, size, held, status.Held)
			}
			if want := min(16, most/8/size); kept > want || want > 1 && kept < want-1 {
				t.Errorf("%d reviews are kept, want about %d", kept, want)
			}
			close(g.open)
			if err := p.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
			if held, left := bodies.Held(), p.Shadow().Status().Held; held != 0 || left != 0 {
				t.Errorf("after the end %d bytes are counted, and %d by the shadow", held, left)
			}
		})
	}
}
