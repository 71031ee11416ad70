package admission_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/testkit/race"
)

// versioned is a guest that denies everything with its version, nine digits.
func versioned(version int64) host.Source {
	return host.Bytes([]byte("\x00asm\x01\x00\x00\x00" +
		"\x01\x0a\x02\x60\x02\x7f\x7f\x00\x60\x00\x01\x7e" +
		"\x02\x1a\x01\x08kubewasm\x0dstatus_reason\x00\x00" +
		"\x03\x03\x02\x01\x01" +
		"\x05\x03\x01\x00\x01" +
		"\x07\x27\x03\x06memory\x02\x00\x0fkubewasm_abi_v1\x00\x01\x08validate\x00\x02" +
		"\x0a\x15\x02\x08\x00\x42\x80\x80\x80\x80\x10\x0b\x0a\x00\x41\x00\x41\x09\x10\x00\x42\x02\x0b" +
		"\x0b\x0f\x01\x00\x41\x00\x0b\x09" + fmt.Sprintf("%09d", version)))
}

// looping is a guest that never returns.
var looping = host.Bytes([]byte("\x00asm\x01\x00\x00\x00" +
	"\x01\x05\x01\x60\x00\x01\x7e" +
	"\x03\x03\x02\x00\x00" +
	"\x05\x03\x01\x00\x01" +
	"\x07\x27\x03\x06memory\x02\x00\x0fkubewasm_abi_v1\x00\x00\x08validate\x00\x01" +
	"\x0a\x13\x02\x08\x00\x42\x80\x80\x80\x80\x10\x0b\x08\x00\x03\x40\x0c\x00\x0b\x00\x0b"))

// labelled chooses objects by a label.
func labelled(label string) admission.PolicyRules {
	return admission.PolicyRules{Match: admission.Match{ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{label: "yes"}}}}
}

// usage is what the process has.
type usage struct {
	heap, resident, guests uint64
	goroutines             int
}

func measure(t *testing.T, rt *host.Runtime) usage {
	t.Helper()
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // What finalizers kept.
	runtime.ReadMemStats(&m)
	u := usage{heap: m.HeapAlloc, guests: rt.MemoryInUse(), goroutines: runtime.NumGoroutine()}
	if status, err := os.ReadFile("/proc/self/status"); err == nil {
		for line := range strings.Lines(string(status)) {
			if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
				kib, err := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				u.resident = kib << 10
			}
		}
	}
	return u
}

// hammered is a server with three plugins. "scripted" does what an object's annotations
// ask for, "slow" is always stopped and may fail, and "swapped" is replaced all the time
// and denies with its version.
type hammered struct {
	t      *testing.T
	rt     *host.Runtime
	engine *admission.Engine
	server *httptest.Server
	client *http.Client

	scripted, slow, swapped *admission.Plugin
	// The version of swapped that is in service is one of oldest to newest.
	oldest, newest atomic.Int64
}

func newHammered(t *testing.T) *hammered {
	h := &hammered{t: t, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16, MaxConnsPerHost: 16}}}
	var err error
	if h.rt, err = host.NewRuntime(host.RuntimeConfig{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.rt.Close(context.Background()) })
	cfg := config(t, "scripted", scripted)
	cfg.Limits.Instances = 4
	h.scripted = h.load(cfg)
	cfg = admission.PluginConfig{Config: host.Config{Name: "slow", Module: host.ModuleConfig{Source: looping}, Limits: host.Limits{Timeout: 5 * time.Millisecond}}, PolicyRules: labelled("slow")}
	cfg.FailurePolicy = host.Ignore
	h.slow = h.load(cfg)
	h.swapped = h.version(0)
	h.engine = admission.NewEngine(h.scripted, h.slow, h.swapped)
	h.server = httptest.NewServer(&admission.Handler{Validator: h.engine})
	t.Cleanup(h.server.Close)
	t.Cleanup(h.client.CloseIdleConnections)
	return h
}

func (h *hammered) load(cfg admission.PluginConfig) *admission.Plugin {
	p, err := admission.Load(context.Background(), h.rt, cfg)
	if err != nil {
		h.t.Error(err)
		return nil
	}
	return p
}

// version returns a version of swapped.
func (h *hammered) version(n int64) *admission.Plugin {
	return h.load(admission.PluginConfig{Config: host.Config{Name: "swapped", Module: host.ModuleConfig{Source: versioned(n)}}, PolicyRules: labelled("swapped")})
}

// swap replaces swapped by its next version until done is closed.
func (h *hammered) swap(done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		default:
		}
		next := h.version(h.newest.Load() + 1)
		if next == nil {
			return
		}
		h.newest.Add(1)
		<-h.engine.Replace(h.scripted, h.slow, next)
		h.oldest.Add(1)
		if err := h.swapped.Close(context.Background()); err != nil {
			h.t.Error(err)
		}
		h.swapped = next
	}
}

// send sends the review of an object with labels and annotations.
func (h *hammered) send(uid, labels, annotations string) (*admissionv1.AdmissionResponse, error) {
	body := review(uid, `{"metadata":{"labels":{`+labels+`},"annotations":{`+annotations+`}}}`)
	resp, err := h.client.Post(h.server.URL+"/validate?timeout=30s", "application/json", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(out, &answer); err != nil || answer.Response == nil || string(answer.Response.UID) != uid {
		return nil, fmt.Errorf("%d %s: %w", resp.StatusCode, out, err)
	}
	return answer.Response, nil
}

// hammerRequests are the requests that the clients choose from.
var hammerRequests = []struct {
	name string
	// percent is how many of all requests these are.
	percent             int
	labels, annotations string // With UID for that of the request.
	// right reports whether an answer, whose message is message, is that of the request.
	// oldest is the oldest version of swapped when it was sent.
	right func(h *hammered, uid string, oldest int64, got *admissionv1.AdmissionResponse, message string) bool
}{
	{"is denied by name", 60, ``, `"deny":"UID"`, func(_ *hammered, uid string, _ int64, got *admissionv1.AdmissionResponse, message string) bool {
		return !got.Allowed && message == "scripted: "+uid
	}},
	{"is allowed", 20, ``, ``, func(_ *hammered, _ string, _ int64, got *admissionv1.AdmissionResponse, _ string) bool {
		return got.Allowed && got.Warnings == nil
	}},
	{"is denied by a version in service", 12, `"swapped":"yes"`, ``, func(h *hammered, _ string, oldest int64, got *admissionv1.AdmissionResponse, message string) bool {
		version, found := strings.CutPrefix(message, "swapped: ")
		n, err := strconv.ParseInt(version, 10, 64)
		return !got.Allowed && found && err == nil && oldest <= n && n <= h.newest.Load()
	}},
	{"makes the guest trap", 5, ``, `"panic":"UID"`, func(_ *hammered, uid string, _ int64, got *admissionv1.AdmissionResponse, message string) bool {
		return !got.Allowed && got.Result.Code == 500 && strings.HasPrefix(message, `plugin "scripted": validate trapped`) && strings.Contains(message, "panic: "+uid)
	}},
	{"takes too long and is ignored", 3, `"slow":"yes"`, ``, func(_ *hammered, _ string, _ int64, got *admissionv1.AdmissionResponse, _ string) bool {
		return got.Allowed && len(got.Warnings) == 1 && strings.HasSuffix(got.Warnings[0], "(ignored)")
	}},
}

// request sends one of hammerRequests, that which draw of 100 falls to, and returns what
// is wrong with its answer.
func (h *hammered) request(uid string, draw int) error {
	kind := 0
	for ; draw >= hammerRequests[kind].percent; kind++ {
		draw -= hammerRequests[kind].percent
	}
	r := hammerRequests[kind]
	oldest := h.oldest.Load()
	got, err := h.send(uid, r.labels, strings.ReplaceAll(r.annotations, "UID", uid))
	if err != nil {
		return err
	}
	message := ""
	if got.Result != nil {
		message = got.Result.Message
	}
	if !r.right(h, uid, oldest, got, message) {
		return fmt.Errorf("answer to request %s, which %s, is %+v, %+v", uid, r.name, got, got.Result)
	}
	return nil
}

// round sends n requests by 16 clients while swapped is replaced.
func (h *hammered) round(name string, n int) {
	done := make(chan struct{})
	var swapping, clients sync.WaitGroup
	swapping.Go(func() { h.swap(done) })
	for c := range 16 {
		clients.Go(func() {
			r := rand.New(rand.NewPCG(uint64(c), 7))
			for i := range n / 16 {
				if err := h.request(fmt.Sprintf("%s-%d-%d", name, c, i), r.IntN(100)); err != nil {
					h.t.Error(err)
					return
				}
			}
		})
	}
	clients.Wait()
	close(done)
	swapping.Wait()
}

// TestHammer sends requests over 16 connections while a plugin is replaced all the
// time, one traps and one is stopped. Every verdict must be the one that its
// request asks for, and nothing may grow. KUBEWASM_HAMMER_REQUESTS is how many
// there are, 4000 by default.
func TestHammer(t *testing.T) {
	requests := 4000
	if text := os.Getenv("KUBEWASM_HAMMER_REQUESTS"); text != "" {
		var err error
		if requests, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	h := newHammered(t)
	h.round("warm", requests/4)
	before := measure(t, h.rt)
	h.round("hot", requests)
	h.client.CloseIdleConnections()
	after := measure(t, h.rt)
	t.Logf("%d requests, %d versions; before %+v, after %+v", requests, h.newest.Load(), before, after)
	if n := len(h.rt.Plugins()); n != 3 {
		t.Errorf("%d plugins are open, want 3", n)
	}
	const room = 24 << 20
	if race.Enabled {
		return // The detector keeps the memory that it has seen.
	}
	if after.heap > before.heap+room/4 || after.resident > before.resident+room || after.guests > before.guests+room {
		t.Errorf("memory grew from %+v to %+v", before, after)
	}
	if after.goroutines > before.goroutines+8 {
		t.Errorf("goroutines grew from %d to %d", before.goroutines, after.goroutines)
	}
}
