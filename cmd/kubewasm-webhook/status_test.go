package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/program/statusz"
	"github.com/kubewasm/kubewasm/internal/testkit/operate"
)

// statusPolicies returns a configuration with policies of every kind, and more of one of them.
func statusPolicies(t *testing.T, more int) string {
	t.Helper()
	labels, err := guestbuild.Build(t.Context(), "../../examples/admission/required-labels")
	if err != nil {
		t.Fatal(err)
	}
	scripted, err := guestbuild.BuildWith(t.Context(), "../../admission/testdata/scripted", true, nil)
	if err != nil {
		t.Fatal(err)
	}
	const pods, other = "match: {rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]}", "match: {rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [configmaps]}]}"
	var b strings.Builder
	fmt.Fprintf(&b, "plugins:\n- {name: labels, version: 1.2.0, module: {file: %[1]s}, guestConfig: {labels: [team]}, %[2]s}\n", labels, pods)
	fmt.Fprintf(&b, "- {name: images, module: {file: /nowhere/images.wasm}, %s}\n", other)
	fmt.Fprintf(&b, "- {name: drafts, mode: Monitor, module: {file: %[1]s}, guestConfig: {labels: [draft]}, %[2]s}\n", labels, pods)
	fmt.Fprintf(&b, "- {name: quotas, failurePolicy: Ignore, module: {file: %[1]s}, %[2]s}\n", scripted, pods)
	for i := range more {
		fmt.Fprintf(&b, "- {name: team-%02[1]d, version: 0.%[1]d.0, module: {file: %[2]s}, guestConfig: {labels: [team]}, %[3]s}\n", i, labels, pods)
	}
	return b.String()
}

// startStatus starts the built program with policies, and asks them about some Pods.
func startStatus(t *testing.T, more int) (base string) {
	t.Helper()
	dir, addr := t.TempDir(), freeAddress(t)
	certificate(t, dir)
	if err := os.WriteFile(filepath.Join(dir, "policies.yaml"), []byte(statusPolicies(t, more)), 0o600); err != nil {
		t.Fatal(err)
	}
	base = "https://" + strings.Replace(addr, "127.0.0.1", "localhost", 1)
	operate.Start(t, base+"/healthz", []string{"POD_NAME=kubewasm-webhook-7d9f-x2x"}, "-cert", filepath.Join(dir, "tls.crt"), "-key", filepath.Join(dir, "tls.key"),
		"-config", filepath.Join(dir, "policies.yaml"), "-addr", addr, "-api-token-file", filepath.Join(dir, "token"), "-ready-timeout", "1ms", "-log-level", "error", "-drain-delay", "1ms")
	for deadline, begun := time.Now().Add(4*time.Minute), false; ; time.Sleep(50 * time.Millisecond) {
		if !begun { // The policies are being loaded.
			profile, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/plugins/labels/profile", strings.NewReader(`{"calls":1}`))
			if err != nil {
				t.Fatal(err)
			}
			profile.Header.Set("Authorization", "Bearer secret")
			profile.Header.Set("Content-Type", "application/json")
			resp, err := operate.Client.Do(profile)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			begun = resp.StatusCode == http.StatusCreated
		}
		for _, metadata := range []string{`"labels":{"team":"a"}`, `"labels":{}`, `"labels":{"team":"a"},"annotations":{"panic":"no <b>quota</b>"}`} {
			const review = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE","kind":{"version":"v1","kind":"Pod"},"resource":{"version":"v1","resource":"pods"},` +
				`"namespace":"shop","name":"web","userInfo":{"username":"alice"},"object":{"metadata":{"name":"web",%s},"spec":{"containers":[{"name":"c","image":"nginx"}]}}}}`
			resp, err := operate.Client.Post(base+"/validate", "application/json", strings.NewReader(fmt.Sprintf(review, metadata)))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
		s := status(t, base, "application/json")
		if i := slices.IndexFunc(s.Plugins, func(p statusz.Plugin) bool { return p.Name == "labels" }); i >= 0 && len(s.Plugins[i].Profile) != 0 && len(s.Traps) != 0 {
			return base
		}
		if time.Now().After(deadline) {
			t.Fatal("there is no profile")
		}
	}
}

// status returns the page in JSON.
func status(t *testing.T, base, accept string) *statusz.Status {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+statusz.Path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", accept)
	resp, err := operate.Client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	s := new(statusz.Status)
	if err := json.NewDecoder(resp.Body).Decode(s); err != nil {
		t.Fatal(err)
	}
	return s
}

// The rows of docs/operating.md, and a browser with 50 policies.
func TestStatus(t *testing.T) {
	base := startStatus(t, 46)
	operate.Ask(t, "../..", "webhook", base)
	t.Run("a browser", func(t *testing.T) {
		b := operate.NewBrowser(t)
		for _, width := range []int{360, 1000} {
			p := b.Open(base+statusz.Path, width, 1200)
			if len(p.Errors) != 0 || p.Width > float64(width) || strings.Count(p.Text, "team-") < 46 || !strings.Contains(p.Text, "no <b>quota</b>") {
				t.Errorf("at %d pixels the page is %v wide, with the errors %s\n%.2000s", width, p.Width, p.Errors, p.Text)
			}
			if to := os.Getenv("KUBEWASM_PICTURES"); to != "" && width == 1000 {
				if err := os.WriteFile(filepath.Join(to, "statusz.png"), p.PNG, 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// Clients from elsewhere see no names of users and objects, unless they may use the management API.
func TestStatusWithholdsNames(t *testing.T) {
	base := startStatus(t, 0)
	own := strings.Replace(base, "localhost", "localhost.example.com", 1)
	ask := func(host, token string) string {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+statusz.Path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = strings.TrimPrefix(host, "https://")
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := operate.Client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var b bytes.Buffer
		if _, err := b.ReadFrom(resp.Body); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	for _, tt := range []struct {
		host, token string
		sees        bool
	}{{base, "", true}, {own, "", false}, {own, "guess", false}, {own, "secret", true}} {
		if got := ask(tt.host, tt.token); strings.Contains(got, "alice") != tt.sees || !strings.Contains(got, "drafts") {
			t.Errorf("by %s with the token %q:\n%s", tt.host, tt.token, got)
		}
	}
}
