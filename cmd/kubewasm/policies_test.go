package main

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/webhook/manage"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
)

// managed starts a server with the management API, and returns its URL and the file of its CA.
func managed(t *testing.T, token string) (server, authority string) {
	t.Helper()
	rt, err := host.NewRuntime(compiled.Config())
	if err != nil {
		t.Fatal(err)
	}
	m, err := manage.New(t.Context(), manage.Config{Runtime: rt, Engine: admission.NewEngine(), Directory: filepath.Join(t.TempDir(), "state")})
	if err != nil {
		t.Fatal(err)
	}
	api := m.API(manage.Auth{Token: func() (string, error) { return token, nil }})
	mux := http.NewServeMux()
	mux.Handle("/plugins", api)
	mux.Handle("/plugins/", api)
	mux.Handle("/break-glass", api)
	s := httptest.NewTLSServer(mux)
	t.Cleanup(func() {
		s.Close()
		if err := m.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if err := rt.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s.URL, file(t, "ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
}

// TestPolicies does with a server what its operator does.
func TestPolicies(t *testing.T) {
	server, authority := managed(t, "secret")
	token := file(t, "token", "secret\n")
	flags := []string{"policies", "--server", server, "--token-file", token, "--certificate-authority", authority}
	module := built(t, "../../examples/admission/required-labels")
	settings := file(t, "settings.yaml", "metadata: {version: 1.0.0}\noperations: [CREATE]\nguestConfig: {labels: [owner]}\n")
	later := file(t, "later.yaml", "metadata: {version: 1.1.0}\noperations: [CREATE]\nguestConfig: {labels: [owner, team]}\n")
	for _, step := range []struct {
		name  string
		args  []string
		code  int
		wants []string
	}{
		{"nothing is there", []string{"list"}, 0, []string{"NAME  VERSION"}},
		{"load", []string{"--settings", settings, "load", "owner", module}, 0, []string{`policy "owner": created`}},
		{"list", []string{"list"}, 0, []string{"owner  1.0.0    Serving", "api"}},
		{"load a later version", []string{"--settings", later, "load", "owner", module}, 0, []string{`policy "owner": created`}},
		{"disable", []string{"disable", "owner"}, 0, []string{`policy "owner": disabled`}},
		{"it is disabled", []string{"list"}, 0, []string{"owner  1.1.0    Disabled"}},
		{"enable", []string{"enable", "owner"}, 0, []string{`policy "owner": enabled`}},
		{"versions", []string{"versions", "owner"}, 0, []string{"1.1.0", "1.0.0"}},
		{"roll back", []string{"rollback", "owner"}, 0, []string{`policy "owner": rolled back to 1.0.0, sha256 `}},
		{"roll back to a version", []string{"rollback", "owner", "1.1.0"}, 0, []string{`rolled back to 1.1.0`}},
		{"a version that was never there", []string{"rollback", "owner", "7"}, 1, []string{"404 Not Found: ", `"7"`}},
		{"a shadow", []string{"shadow", "owner", module}, 0, []string{`policy "owner": begun`}},
		{"what it has found", []string{"shadow", "owner"}, 0, []string{"0 calls compared"}},
		{"end it", []string{"end", "owner"}, 0, []string{`policy "owner": ended`}},
		{"promote what has ended", []string{"promote", "owner"}, 1, []string{"owner"}},
		{"as JSON", []string{"-o", "json", "list"}, 0, []string{`"name": "owner"`, `"version": "1.1.0"`}},
		{"a name with a slash", []string{"remove", "a/../owner"}, 1, []string{"404 Not Found: policy \"a/../owner\": not found"}},
		{"break glass", []string{"break-glass", "30m", "the registry is away"}, 0, []string{"127.0.0.1: all policies only monitor until "}},
		{"for too long", []string{"break-glass", "30h", "r"}, 1, []string{"127.0.0.1", "at most 24h0m0s"}},
		{"mend it", []string{"-o", "json", "break-glass", "end"}, 0, []string{`"status": "enforced"`}},
		{"remove", []string{"remove", "owner"}, 0, []string{`policy "owner": removed`}},
		{"it is gone", []string{"remove", "owner"}, 1, []string{`404 Not Found: policy "owner": not found`}},
		{"a module that is none", []string{"load", "none", settings}, 1, []string{"400 Bad Request: "}},
	} {
		code, out, stderr := kubewasm(t, append(append([]string{}, flags...), step.args...)...)
		for _, want := range step.wants {
			if code != step.code || !strings.Contains(out+stderr, want) {
				t.Errorf("%s: exit code %d, want %d and %q: %s%s", step.name, code, step.code, want, out, stderr)
			}
		}
	}
}

// TestPoliciesMistakes names the mistakes in the reader's words, and gives the token to nobody.
func TestPoliciesMistakes(t *testing.T) {
	server, authority := managed(t, "secret")
	token := file(t, "token", "secret")
	redirects := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/plugins" {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
			return
		}
		t.Errorf("a request went to %s", r.URL)
	}))
	defer redirects.Close()
	hostile := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": "\x1b[2Jcleared"})
	}))
	defer hostile.Close()
	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{"no server", []string{"list"}, "name the server with --server"},
		{"no verb", []string{"--server", server}, "say what to do: list, load"},
		{"another verb", []string{"--server", server, "lst"}, `"lst" is none of list, load`},
		{"no name", []string{"--server", server, "disable"}, "policies disable: 0 arguments, want 1"},
		{"too many", []string{"--server", server, "rollback", "a", "b", "c"}, "3 arguments, want 1 or 2"},
		{"break glass without a time", []string{"--server", server, "break-glass", "soon", "r"}, `"soon" is neither end nor a duration such as 30m`},
		{"break glass without a reason", []string{"--server", server, "break-glass", "30m"}, "give the reason"},
		{"no URL", []string{"--server", "localhost:8443", "list"}, "want https://HOST:PORT"},
		{"a password in the URL", []string{"--server", "https://a:b@localhost", "list"}, "want https://HOST:PORT"},
		{"a token without TLS", []string{"--server", "http://webhook.example.com", "--token-file", token, "list"}, "the token would be readable on the network"},
		{"an empty token", []string{"--server", server, "--token-file", file(t, "empty", "\n"), "list"}, "is empty"},
		{"no such CA", []string{"--server", server, "--certificate-authority", token, "list"}, "has no certificate in PEM"},
		{"another CA", []string{"--server", server, "--token-file", token, "list"}, "certificate"},
		{"another token", []string{"--server", server, "--certificate-authority", authority, "--token-file", file(t, "other", "wrong"), "list"}, "401 Unauthorized: not authorized"},
		{"a key without a certificate", []string{"--server", server, "--client-key", token, "list"}, "--client-certificate and --client-key"},
		{"settings of nothing", []string{"--server", server, "--settings", token, "list"}, "--settings is for load and shadow"},
		{"settings that are no object", []string{"--server", server, "--settings", token, "load", "a", "b.wasm"}, "--settings: "},
		{"a redirection", []string{"--server", redirects.URL, "--token-file", token, "list"}, "answers 307 Temporary Redirect"},
		{"an error of others", []string{"--server", hostile.URL, "list"}, `\u001b[2Jcleared`},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, out, stderr := kubewasm(t, append([]string{"policies"}, test.args...)...)
			if code != 1 || !strings.Contains(stderr, test.want) || strings.Contains(out+stderr, "secret") {
				t.Errorf("exit code %d, want 1 and %q: %s%s", code, test.want, out, stderr)
			}
		})
	}
	t.Run("the environment names the server", func(t *testing.T) {
		t.Setenv("KUBEWASM_SERVER", server)
		t.Setenv("KUBEWASM_TOKEN_FILE", token)
		if code, out, stderr := kubewasm(t, "policies", "--certificate-authority", authority, "list"); code != 0 {
			t.Errorf("exit code %d: %s%s", code, out, stderr)
		}
	})
}

// TestBreakGlassWaitsForNoReplica has a replica that answers only once another was asked.
func TestBreakGlassWaitsForNoReplica(t *testing.T) {
	var asked sync.WaitGroup
	asked.Add(2)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Done()
		asked.Wait()
		_, _ = w.Write([]byte(`{"status": "enforced", "address": "elsewhere"}`))
	}))
	defer s.Close()
	c, err := (&policiesFlags{server: s.URL}).client()
	if err != nil {
		t.Fatal(err)
	}
	all, err := c.breakAll(t.Context(), []string{"127.0.0.1", "127.0.0.1"}, http.MethodDelete, nil)
	one := glassDone{Address: "127.0.0.1", Status: "enforced"}
	if diff := cmp.Diff([]glassDone{one, one}, all); diff != "" || err != nil {
		t.Errorf("error is %v, and the answers (-want +got):\n%s", err, diff)
	}
}
