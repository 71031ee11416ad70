package e2e

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/internal/loading"
	"github.com/kubewasm/kubewasm/internal/publicerr"
)

// TestErrorsShowNoSignedURL has a storage behind a registry that answers otherwise than announced.
// The log has the storage, neither of them the signature, and words for users have neither.
func TestErrorsShowNoSignedURL(t *testing.T) {
	for name, storage := range map[string]http.HandlerFunc{
		"another length": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("abc")) },
		"refused":        func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
		"no type": func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			_, _ = w.Write([]byte("abc"))
		},
		"redirects to itself": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.String(), http.StatusTemporaryRedirect)
		},
		"an odd digest": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Docker-Content-Digest", "sha256:xyz")
			_, _ = w.Write([]byte("abc"))
		},
		"an error with its URL": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"errors":[{"code":"DENIED","message":"http://` + r.Host + r.URL.String() + `"}]}`))
		},
		"an end": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		for _, part := range []string{"/blobs/", "/manifests/"} {
			t.Run(name+part, func(t *testing.T) {
				s := newServer(t, distribution(t, nil), false)
				ref := s.ref(t, "acme/zone:1")
				push(t, newClient(t, oci.Config{Registries: plain(s)}), ref, module("1"), oci.PushOptions{})
				behind := httptest.NewServer(storage)
				defer behind.Close()
				behind.Config.ErrorLog = s.Config.ErrorLog
				address := strings.TrimPrefix(behind.URL, "http://")
				s.setFault(func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
					if !strings.Contains(r.URL.Path, part) || r.Method != http.MethodGet {
						return false
					}
					http.Redirect(w, r, "http://user:SECRETPASSWORD@"+address+"/bucket?X-Amz-Signature=SECRETSIGNATURE", http.StatusTemporaryRedirect)
					return true
				})
				var log strings.Builder
				cfg := oci.Config{Registries: append(plain(s), oci.Registry{Host: address, PlainHTTP: true}), Logger: slog.New(slog.NewTextHandler(&log, nil)), CacheDir: t.TempDir()}
				client := newClient(t, cfg)
				_, err := client.Fetch(t.Context(), ref)
				_, _, about := client.Manifest(t.Context(), ref)
				for what, err := range map[string]error{"Fetch": err, "Manifest": about} {
					if err == nil {
						if what == "Fetch" || part == "/manifests/" {
							t.Errorf("%s: there is no error", what)
						}
						continue
					}
					if text := err.Error() + log.String(); strings.Contains(text, "SECRET") {
						t.Errorf("%s: %s", what, text)
					}
					if words := publicerr.Words(err); strings.Contains(words, "SECRET") || strings.Contains(words, address) || strings.Contains(words, "bucket") || !strings.Contains(words, ref.String()) {
						t.Errorf("%s: a user sees %q", what, words)
					}
				}
			})
		}
	}
}

// TestKeysAndRegistriesAreFollowed exchanges the files of a configuration while a client uses
// it.
func TestKeysAndRegistriesAreFollowed(t *testing.T) {
	s := newServer(t, ggcr(), true)
	private, public := newKey(t)
	_, other := newKey(t)
	key, config, ca := write(t, "key.pub", []byte(public)), write(t, "registries.yaml", nil), s.caFile(t)
	const text = `{registries: [{host: HOST, caFile: CA}], trust: [{repositories: ["HOST/acme/*"], anyOf: [{keyFile: KEY}]}]}`
	authority, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	full := strings.NewReplacer("HOST", s.host, "CA", ca, "KEY", key).Replace(text)
	replace := func(file, content string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	replace(config, full)
	cfg, err := oci.ReadConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	cfg.CacheDir = t.TempDir()
	client := newClient(t, cfg)
	ref := s.ref(t, "acme/zone:1")
	push(t, client, ref, module("1"), oci.PushOptions{})
	if _, err := client.Sign(t.Context(), ref, private, oci.SignOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name          string
		file, content string
		want          string // Of the error of a fetch.
	}{
		{"as it was", config, full, ""},
		{"the key is withdrawn", key, other, "is not trusted"},
		{"the key is back", key, public, ""},
		{"the key's file is not readable as a key", key, "-----BEGIN", "key is not PEM"},
		{"the key is back again", key, public, ""},
		{"the rule is gone", config, strings.Replace(full, "/acme/*", "/other/*", 1), ""},
		{"the file is half written", config, full[:40], "read configuration of registries"},
		{"the file is whole", config, full, ""},
		{"another CA", ca, otherCA(t), "certificate"},
	} {
		replace(tt.file, tt.content)
		_, err := client.Fetch(t.Context(), ref)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
	// A rule that vouched for a tag is withdrawn while its source is in use.
	withdrawn := strings.Replace(full, "/acme/*", "/other/*", 1)
	replace(ca, string(authority))
	source, pinned := client.Source(ref.String()), client.Source(s.ref(t, "acme/zone:2").String())
	if err := source.(loading.Checker).Check(""); err != nil {
		t.Fatal(err)
	}
	if err := pinned.(loading.Checker).Check(strings.Repeat("0", 64)); err != nil {
		t.Fatal(err)
	}
	push(t, client, s.ref(t, "acme/zone:2"), module("2"), oci.PushOptions{})
	replace(config, withdrawn)
	for want, source := range map[string]host.Source{"nothing vouches for what the tag leads to": source, "": pinned} {
		_, err := source.Fetch(t.Context())
		_, _, unless := source.(host.ConditionalSource).FetchUnless(t.Context(), "")
		for _, err := range []error{err, unless} {
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s without its rule: %v, want %q", source, err, want)
			}
		}
	}
	replace(config, full)
	if _, err := source.Fetch(t.Context()); err != nil {
		t.Errorf("with the rule again: %v", err)
	}
	if err := client.Source("other.example.com/zone:1").(interface{ Check(string) error }).Check(""); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("a repository without a rule: %v, want an error", err)
	}
}

// otherCA returns the certificate of another authority in PEM.
func otherCA(t *testing.T) string {
	t.Helper()
	cert, _ := keyPair(t)
	data, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
