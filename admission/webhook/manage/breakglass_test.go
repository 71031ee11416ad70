package manage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/webhook/manage"
	"github.com/kubewasm/kubewasm/host"
)

// lines is a log to be read while it is written.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// in returns an end of break glass as a file or a request has it.
func in(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339Nano) }

func TestBreakGlass(t *testing.T) {
	t.Parallel()
	log := new(lines)
	f := start(t, func(c *manage.Config) { c.Logger = slog.New(slog.NewTextHandler(log, nil)) })
	spec := manage.PluginSpec{Version: "1", PluginConfig: admission.PluginConfig{Config: host.Config{Name: "api"}}}
	if err := f.Load(t.Context(), spec, says("no")); err != nil {
		t.Fatal(err)
	}
	apply := func(glass string) error {
		t.Helper()
		file, err := manage.ParseFile([]byte("plugins: [" + plugin("a", "") + ", {name: gone, module: {file: /nowhere.wasm}}]\n" + glass))
		if err != nil {
			t.Fatal(err)
		}
		return f.Apply(t.Context(), file)
	}
	if err := apply(""); err == nil || !strings.Contains(err.Error(), `"gone"`) {
		t.Fatalf("error is %v, want that of the policy without a module", err)
	}
	denied := f.ask("Pod")
	if !strings.Contains(denied, "api: no") || !strings.Contains(denied, "a: a") {
		t.Fatalf("message is %q", denied)
	}

	// All policies, those that cannot be loaded too, stop to count, and count again.
	api := f.API(manage.Auth{Token: func() (string, error) { return "t", nil }})
	do := func(method, body string) (int, string) {
		r := httptest.NewRequest(method, "/break-glass", strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer t")
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	for _, test := range []struct {
		body, want string
	}{
		{`{}`, "for is 0s, want more than 0 and at most 24h0m0s"},
		{`{"for": "25h", "reason": "r"}`, "for is 25h0m0s"},
		{`{"for": "1h"}`, "reason is missing"},
		{`{"for": "1h", "reason": "` + strings.Repeat("x", 257) + `"}`, "reason has 257 bytes, want at most 256"},
		{`{"for": 3, "reason": "r"}`, "want a duration such as 100ms"},
	} {
		if code, got := do(http.MethodPost, test.body); code != http.StatusBadRequest || !strings.Contains(got, test.want) {
			t.Errorf("answer to %.40s is %d %s, want %s", test.body, code, got, test.want)
		}
	}
	if code, got := do(http.MethodPost, `{"for": "1h", "reason": "the registry is away"}`); code != http.StatusOK {
		t.Fatalf("answer is %d %s", code, got)
	}
	if got := f.ask("Pod"); got != "" {
		t.Errorf("message is %q while the glass is broken", got)
	}
	if b := f.BreakGlass(); b == nil || b.Reason != "the registry is away" || time.Until(b.Until) > time.Hour {
		t.Errorf("break glass is %+v", b)
	}
	if !log.has("the glass is broken: policies only monitor") || !log.has("the registry is away") || !log.has("policy would have denied the request") {
		t.Errorf("log is %s", log.text.String())
	}
	if err := f.Load(t.Context(), manage.PluginSpec{Version: "1", PluginConfig: admission.PluginConfig{Config: host.Config{Name: "late"}}}, says("late")); err != nil {
		t.Fatal(err)
	}
	if got := f.ask("Pod"); got != "" {
		t.Errorf("message is %q: a policy that was loaded meanwhile counts", got)
	}
	if err := f.Remove("late"); err != nil {
		t.Fatal(err)
	}
	if code, got := do(http.MethodDelete, ""); code != http.StatusOK || f.ask("Pod") != denied || !log.has("policies are enforced again") {
		t.Errorf("answer is %d %s, and then the message %q", code, got, f.ask("Pod"))
	}
	if code, got := do(http.MethodGet, ""); code != http.StatusOK || strings.TrimSpace(got) != "{}" {
		t.Errorf("answer is %d %s", code, got)
	}

	// While two break it, the end of one enforces nothing.
	if code, got := do(http.MethodPost, `{"for": "1h", "reason": "one"}`); code != http.StatusOK {
		t.Fatalf("answer is %d %s", code, got)
	}
	_ = apply(fmt.Sprintf("breakGlass: {until: %q, reason: two}\n", in(time.Hour)))
	said := log.count("policies are enforced again")
	if code, got := do(http.MethodDelete, ""); code != http.StatusConflict || log.count("policies are enforced again") != said {
		t.Errorf("answer is %d %s, and the log %s", code, got, log.text.String())
	}

	// A file breaks the glass of its replicas alike, and mends it.
	_ = apply(fmt.Sprintf("breakGlass: {until: %q, reason: maintenance}\n", in(time.Hour)))
	if got := f.ask("Pod"); got != "" {
		t.Errorf("message is %q with the file's break glass", got)
	}
	if code, got := do(http.MethodDelete, ""); code != http.StatusConflict || !strings.Contains(got, "the configuration file lets policies only monitor") {
		t.Errorf("answer is %d %s", code, got)
	}
	_ = apply("")
	if got := f.ask("Pod"); got != denied {
		t.Errorf("message is %q, want %q", got, denied)
	}
	_ = apply(fmt.Sprintf("breakGlass: {until: %q, reason: past}\n", in(-time.Hour)))
	if got := f.ask("Pod"); got != denied {
		t.Errorf("message is %q, want %q: the end is past", got, denied)
	}
	if err := apply(fmt.Sprintf("breakGlass: {until: %q}\n", in(48*time.Hour))); err == nil || !strings.Contains(err.Error(), "want at most 24h0m0s") || !strings.Contains(err.Error(), "breakGlass.reason is missing") {
		t.Errorf("error is %v, want both mistakes", err)
	}

	// It ends by itself.
	if err := f.SetBreakGlass(&manage.BreakGlass{Until: time.Now().Add(50 * time.Millisecond), Reason: "short"}); err != nil {
		t.Fatal(err)
	}
	f.until(t, "Pod", denied)
	if f.BreakGlass() != nil {
		t.Error("break glass has not ended")
	}
}

// A process that ends while the glass is broken, as webhooks in trouble do, does not close the
// cluster again; one that comes back after the end enforces.
func TestBreakGlassLastsBeyondARestart(t *testing.T) {
	dir := state(t)
	restarted(t, dir, func(m *manage.Manager, ask func() string) {
		if err := m.SetBreakGlass(&manage.BreakGlass{Until: time.Now().Add(time.Hour), Reason: "r"}); err != nil {
			t.Fatal(err)
		}
	})
	restarted(t, dir, func(m *manage.Manager, ask func() string) {
		if got := ask(); got != "" || m.BreakGlass() == nil {
			t.Errorf("message is %q after a restart, with %+v", got, m.BreakGlass())
		}
	})
	kept := filepath.Join(dir, "break-glass.list")
	for name, text := range map[string]string{
		"past":    fmt.Sprintf(`{"until": %q, "reason": "r"}`, in(-time.Second)),
		"damaged": `{"until": `,
		"endless": `{"until": "9999-01-01T00:00:00Z", "reason": "r"}`,
	} {
		if err := os.WriteFile(kept, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		restarted(t, dir, func(m *manage.Manager, ask func() string) {
			if got := ask(); got != "p: p; q: q" {
				t.Errorf("%s: message is %q", name, got)
			}
			if err := m.SetBreakGlass(nil); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
		if _, err := os.Stat(kept); !os.IsNotExist(err) {
			t.Errorf("%s: the file is still there", name)
		}
	}
}

// TestBreakGlassDuringClose breaks the glass while the Manager is closed: what was accepted is kept
// for the next start.
func TestBreakGlassDuringClose(t *testing.T) {
	dir := state(t)
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.Background())
	for range 20 {
		m, err := manage.New(t.Context(), manage.Config{Runtime: rt, Engine: admission.NewEngine(), Directory: dir})
		if err != nil {
			t.Fatal(err)
		}
		var setting sync.WaitGroup
		var accepted atomic.Int64
		first := make(chan struct{}, 8)
		for range 8 { // They wait for each other to write the file.
			setting.Go(func() {
				err := m.SetBreakGlass(&manage.BreakGlass{Until: time.Now().Add(time.Hour), Reason: "r"})
				if err == nil {
					accepted.Add(1)
				} else if !errors.Is(err, host.ErrClosed) {
					t.Error(err)
				}
				first <- struct{}{}
			})
		}
		<-first
		if err := m.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		setting.Wait()
		if err := os.Remove(filepath.Join(dir, "break-glass.list")); accepted.Load() != 0 && err != nil {
			t.Fatalf("it is not kept: %v", err)
		}
	}
}

// The level of the log is that of the file in service.
func TestLogLevel(t *testing.T) {
	t.Parallel()
	level := new(slog.LevelVar)
	level.Set(slog.LevelWarn)
	f := start(t, func(c *manage.Config) { c.LogLevel = level })
	for _, test := range []struct {
		text string
		want slog.Level
	}{
		{"plugins: []\nlogLevel: debug\n", slog.LevelDebug},
		{"plugins: []\nlogLevel: error\n", slog.LevelError},
		{"plugins: []\n", slog.LevelWarn},
	} {
		file, err := manage.ParseFile([]byte(test.text))
		if err == nil {
			err = f.Apply(context.Background(), file)
		}
		if err != nil || level.Level() != test.want {
			t.Errorf("%q: level is %s, %v, want %s", test.text, level.Level(), err, test.want)
		}
	}
	if _, err := manage.ParseFile([]byte("plugins: []\nlogLevel: loud\n")); err == nil || !strings.Contains(err.Error(), "logLevel") {
		t.Errorf("error is %v, want the mistake", err)
	}
}
