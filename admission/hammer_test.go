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

// TestHammer sends requests over 16 connections while a plugin is swapped all the
// time, one traps and one is stopped. Every verdict must be the one that its
// request asks for, and nothing may grow. KUBEWASM_HAMMER_REQUESTS is how many
// there are, 4000 unless it says otherwise.
func TestHammer(t *testing.T) {
	requests := 4000
	if text := os.Getenv("KUBEWASM_HAMMER_REQUESTS"); text != "" {
		var err error
		if requests, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.Background())
	plugin := func(cfg admission.PluginConfig) *admission.Plugin {
		p, err := admission.Load(context.Background(), rt, cfg)
		if err != nil {
			t.Error(err)
			return nil
		}
		return p
	}
	main := config(t, "scripted", scripted)
	main.Limits.Instances = 4
	slow := admission.PluginConfig{Config: host.Config{Name: "slow", Source: looping, Limits: host.Limits{Timeout: 5 * time.Millisecond}}, PolicyRules: labelled("slow")}
	slow.FailurePolicy = host.Ignore
	first, second := plugin(main), plugin(slow)
	// The version that is in service is one of oldest to newest.
	var oldest, newest atomic.Int64
	swapped := func(version int64) *admission.Plugin {
		return plugin(admission.PluginConfig{Config: host.Config{Name: "swapped", Source: versioned(version)}, PolicyRules: labelled("swapped")})
	}
	current := swapped(0)
	engine := admission.NewEngine(first, second, current)
	server := httptest.NewServer(&admission.Handler{Validator: engine})
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16, MaxConnsPerHost: 16}}
	defer client.CloseIdleConnections()

	send := func(uid, labels, annotations string) (*admissionv1.AdmissionResponse, error) {
		body := review(uid, `{"metadata":{"labels":{`+labels+`},"annotations":{`+annotations+`}}}`)
		resp, err := client.Post(server.URL+"/validate?timeout=30s", "application/json", strings.NewReader(body))
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
	// check sends one request and returns what is wrong with its answer.
	check := func(uid string, kind int) error {
		labels, annotations := "", ""
		switch {
		case kind < 60:
			annotations = `"deny":"` + uid + `"`
		case kind < 80:
		case kind < 92:
			labels = `"swapped":"yes"`
		case kind < 97:
			annotations = `"panic":"` + uid + `"`
		default:
			labels = `"slow":"yes"`
		}
		from := oldest.Load()
		got, err := send(uid, labels, annotations)
		if err != nil {
			return err
		}
		message := ""
		if got.Result != nil {
			message = got.Result.Message
		}
		ok := false
		switch {
		case kind < 60:
			ok = !got.Allowed && message == "scripted: "+uid
		case kind < 80:
			ok = got.Allowed && got.Warnings == nil
		case kind < 92:
			version, found := strings.CutPrefix(message, "swapped: ")
			n, err := strconv.ParseInt(version, 10, 64)
			ok = !got.Allowed && found && err == nil && from <= n && n <= newest.Load()
		case kind < 97:
			ok = !got.Allowed && got.Result.Code == 500 && strings.HasPrefix(message, `plugin "scripted": validate trapped`) && strings.Contains(message, "panic: "+uid)
		default:
			ok = got.Allowed && len(got.Warnings) == 1 && strings.HasSuffix(got.Warnings[0], "(ignored)")
		}
		if !ok {
			return fmt.Errorf("answer to %s of kind %d is %+v, %+v", uid, kind, got, got.Result)
		}
		return nil
	}
	round := func(name string, n int) {
		done := make(chan struct{})
		var swapping, clients sync.WaitGroup
		swapping.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				next := swapped(newest.Load() + 1)
				if next == nil {
					return
				}
				newest.Add(1)
				if err := engine.Replace(context.Background(), first, second, next); err != nil {
					t.Error(err)
				}
				oldest.Add(1)
				if err := current.Close(context.Background()); err != nil {
					t.Error(err)
				}
				current = next
			}
		})
		for c := range 16 {
			clients.Go(func() {
				r := rand.New(rand.NewPCG(uint64(c), 7))
				for i := range n / 16 {
					if err := check(fmt.Sprintf("%s-%d-%d", name, c, i), r.IntN(100)); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		clients.Wait()
		close(done)
		swapping.Wait()
	}
	round("warm", requests/4)
	before := measure(t, rt)
	round("hot", requests)
	client.CloseIdleConnections()
	after := measure(t, rt)
	t.Logf("%d requests, %d versions; before %+v, after %+v", requests, newest.Load(), before, after)
	if n := len(rt.Plugins()); n != 3 {
		t.Errorf("%d plugins are open, want 3", n)
	}
	const room = 24 << 20
	if race.Enabled {
		return // It keeps what it has seen.
	}
	if after.heap > before.heap+room/4 || after.resident > before.resident+room || after.guests > before.guests+room {
		t.Errorf("memory grew from %+v to %+v", before, after)
	}
	if after.goroutines > before.goroutines+8 {
		t.Errorf("goroutines grew from %d to %d", before.goroutines, after.goroutines)
	}
}
