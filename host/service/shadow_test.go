package service_test

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/service"
	"github.com/kubewasm/kubewasm/host/service/testdata/testservice"
	"github.com/kubewasm/kubewasm/host/shadow"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// counting counts the questions of guests.
type counting struct {
	asked
	n atomic.Int64
}

func (c *counting) Ask(ctx context.Context, req *testservice.Message) (*testservice.Message, error) {
	c.n.Add(1)
	return c.asked.Ask(ctx, req)
}

// shadowed calls a plugin with a candidate until so many calls of each kind were compared, or had
// nothing to compare.
func shadowed(t *testing.T, candidate []byte, hosts *counting, calls ...func(*testservice.Test) error) shadow.Status {
	t.Helper()
	cfg := config(t)
	cfg.Shadow = &shadow.Config{Module: host.ModuleConfig{Bytes: candidate}, Rate: 1, CPU: 1}
	p, err := testservice.LoadTest(t.Context(), runtime(t), cfg, hosts)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(context.Background())
	const each = 5
	n, want := int64(0), uint64(each*len(calls))
	for start := time.Now(); ; {
		s := p.Shadow().Status()
		if s.State == shadow.Stopped {
			t.Fatalf("the candidate is stopped: %s", s.Reason)
		}
		if s.Compared+s.Uncompared+s.Failed+s.Asked >= want {
			break
		}
		if time.Since(start) > time.Minute {
			t.Fatalf("%+v", s)
		}
		for _, call := range calls {
			if err := call(p); err != nil && errors.Is(err, host.ErrClosed) {
				t.Fatal(err)
			}
			n++
		}
	}
	if got := hosts.n.Load(); got > n {
		t.Errorf("the host was asked %d times in %d calls", got, n)
	}
	return p.Shadow().Status()
}

func TestShadow(t *testing.T) {
	wasm := module(t, testservice.Schema())
	other := bytes.Replace(wasm, []byte("no such da"), []byte("no such DA"), 1)
	if bytes.Equal(wasm, other) {
		t.Fatal("the guest has no such text")
	}
	request := func(p *testservice.Test) error {
		m := everything()
		_, err := p.Echo(t.Context(), m)
		m.Pod.Name, m.Nodes[0].Name, m.Text = "reused", "reused", "reused" // The variables are the caller's.
		return err
	}
	ask := func(p *testservice.Test) error { _, err := p.AskHost(t.Context(), everything()); return err }
	fail := func(p *testservice.Test) error { _, err := p.Fail(t.Context(), everything()); return err }
	trap := func(p *testservice.Test) error { _, err := p.Trap(t.Context(), everything()); return err }
	for _, c := range []struct {
		name      string
		candidate []byte
		calls     []func(*testservice.Test) error
		// change is the only group of differences, empty for none.
		change     string
		uncompared bool
	}{
		{"the same", wasm, []func(*testservice.Test) error{request, ask, fail}, "", false},
		{"both trap", wasm, []func(*testservice.Test) error{trap}, "", true},
		{"another error", other, []func(*testservice.Test) error{fail}, "error", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := shadowed(t, c.candidate, &counting{}, c.calls...)
			if c.uncompared != (s.Uncompared != 0) || s.Failed != 0 || s.Asked != 0 || c.change == "" && s.Same != s.Compared {
				t.Errorf("got %+v", s)
			}
			if c.change != "" && (len(s.Groups) != 1 || !strings.HasPrefix(s.Groups[0].Change, c.change) || s.Same != 0) {
				t.Errorf("the groups are %+v", s.Groups)
			}
		})
	}
}

// A candidate reads objects as they were, and asks the host nothing: what the serving version has
// not asked has no answer.
func TestShadowOfAPluginThatAsks(t *testing.T) {
	file, err := guestbuild.Build(t.Context(), "testdata/testservice/asks")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ candidate string }{"the same question": {`{"text": "a"}`}, "another question": {`{"text": "b"}`}} {
		t.Run(name, func(t *testing.T) {
			cfg, hosts := config(t), &counting{}
			cfg.Module, cfg.GuestConfig, cfg.Limits.Fuel = host.ModuleConfig{File: file}, host.GuestConfig(`{"text": "a"}`), 100_000_000
			cfg.Shadow = &shadow.Config{Module: host.ModuleConfig{File: file}, GuestConfig: host.GuestConfig(c.candidate), Rate: 1, CPU: 1}
			p, err := testservice.LoadTest(t.Context(), runtime(t), cfg, hosts)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close(context.Background())
			pod := &corev1.Pod{}
			var s shadow.Status
			n := 0
			for start := time.Now(); s.Compared+s.Asked < 5; s = p.Shadow().Status() {
				if s.State == shadow.Stopped || s.Failed != 0 || time.Since(start) > time.Minute {
					t.Fatalf("got %+v", s)
				}
				// Into the same variable, as client.Get reads.
				n++
				label := strconv.Itoa(n)
				*pod = corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "u1", ResourceVersion: label, Labels: map[string]string{"app": label}}}
				got, err := p.AskHost(t.Context(), &testservice.Message{Pod: pod})
				if err != nil || got.Text != "a of "+label {
					t.Fatalf("got %+v, error %v", got, err)
				}
			}
			if same := c.candidate == `{"text": "a"}`; same != (s.Asked == 0) || same != (s.Compared != 0) || s.Same != s.Compared {
				t.Errorf("got %+v", s)
			}
			if got := hosts.n.Load(); got != int64(n) {
				t.Errorf("the host was asked %d times in %d calls", got, n)
			}
		})
	}
}

func TestShadowMistakes(t *testing.T) {
	cfg := config(t)
	cfg.Mode = "Try"
	cfg.Shadow = &shadow.Config{Rate: 2}
	_, err := testservice.LoadTest(t.Context(), runtime(t), cfg, asked{})
	for _, want := range []string{`mode is "Try", want Enforce or Monitor`, "shadow.rate is 2", "shadow.module"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %q", err, want)
		}
	}
}

// A monitored plugin is called, and its answers are none to the caller.
func TestMonitor(t *testing.T) {
	cfg, hosts := config(t), &counting{}
	cfg.Mode = host.Monitor
	p, err := testservice.LoadTest(t.Context(), runtime(t), cfg, hosts)
	if err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func(context.Context, *testservice.Message) (*testservice.Message, error){
		"an answer": p.AskHost, "an error": p.Fail, "a trap": p.Trap, "a malformed response": p.Echo,
	} {
		got, err := call(t.Context(), everything())
		if !errors.Is(err, service.ErrMonitored) || !errors.Is(err, service.ErrIgnored) || got == nil || got.Text != "" || got.Pod != nil {
			t.Errorf("%s: got %v, error %v", name, got, err)
		}
		if errors.As(err, new(*host.StatusError)) || errors.As(err, new(*host.TrapError)) {
			t.Errorf("%s: the error %v has the plugin's", name, err)
		}
		// Those of the caller are its own.
		if got, err := call(t.Context(), nil); err == nil || errors.Is(err, service.ErrMonitored) || got != nil {
			t.Errorf("%s: without a request got %v, error %v", name, got, err)
		}
	}
	if hosts.n.Load() != 1 {
		t.Errorf("the host was asked %d times", hosts.n.Load())
	}
	if got, err := p.CallBytes(t.Context(), "Echo", nil); !errors.Is(err, service.ErrMonitored) || got != nil {
		t.Errorf("by bytes got %v, error %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Echo(ctx, everything()); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
}
