package host_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/loading"
	"github.com/kubewasm/kubewasm/internal/wasmbin"
)

// serve starts a TLS server whose certificate its client trusts.
func serve(t testing.TB, handler http.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	return server
}

func TestHTTPS(t *testing.T) {
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a request went out without TLS")
	}))
	t.Cleanup(plain.Close)

	mux := http.NewServeMux()
	mux.HandleFunc("/module", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "0123456789") })
	mux.HandleFunc("/chunked", func(w http.ResponseWriter, _ *http.Request) {
		for range 10 {
			fmt.Fprint(w, "0123456789")
			w.(http.Flusher).Flush() // So that there is no Content-Length.
		}
	})
	mux.HandleFunc("/short", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "11")
		fmt.Fprint(w, "0123456789")
	})
	mux.HandleFunc("/encoding", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Header.Get("Accept-Encoding")) })
	mux.HandleFunc("/teapot", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	mux.HandleFunc("/nothing", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.Handle("/plain", http.RedirectHandler(plain.URL+"/module", http.StatusFound))
	mux.Handle("/file", http.RedirectHandler("file:///etc/passwd", http.StatusFound))
	mux.Handle("/loop", http.RedirectHandler("/loop", http.StatusFound))
	mux.Handle("/hop0", http.RedirectHandler("/module", http.StatusMovedPermanently))
	for i := range 5 {
		mux.Handle(fmt.Sprintf("/hop%d", i+1), http.RedirectHandler(fmt.Sprintf("/hop%d", i), http.StatusTemporaryRedirect))
	}
	server := serve(t, mux)
	closed := httptest.NewTLSServer(mux)
	closed.Close()

	refuse := func(*http.Request, []*http.Request) error { return errors.New("no redirects today") }
	tests := map[string]struct {
		url           string
		maxBytes      int64
		checkRedirect func(*http.Request, []*http.Request) error
		want, wantErr string
	}{
		"module":                          {url: server.URL + "/module", want: "0123456789"},
		"module of the largest size":      {url: server.URL + "/module", maxBytes: 10, want: "0123456789"},
		"one byte more":                   {url: server.URL + "/module", maxBytes: 9, wantErr: "/module: content length is 10 bytes, more than 9"},
		"more, of unknown length":         {url: server.URL + "/chunked", maxBytes: 99, wantErr: "/chunked: content has more than 99 bytes"},
		"less than announced":             {url: server.URL + "/short", wantErr: "unexpected EOF"},
		"as the server stores it":         {url: server.URL + "/encoding", want: "identity"},
		"not found":                       {url: server.URL + "/absent", wantErr: "/absent: status is 404 Not Found, want 200 OK"},
		"another status":                  {url: server.URL + "/teapot", wantErr: "status is 418"},
		"success without content":         {url: server.URL + "/nothing", wantErr: "status is 204"},
		"five redirects":                  {url: server.URL + "/hop4", want: "0123456789"},
		"six redirects":                   {url: server.URL + "/hop5", wantErr: "/hop5: more than 5 redirects"},
		"redirects in a circle":           {url: server.URL + "/loop", wantErr: "more than 5 redirects"},
		"redirect to http":                {url: server.URL + "/plain", wantErr: `redirect to scheme "http" of host ` + strings.TrimPrefix(plain.URL, "http://")},
		"redirect to a file":              {url: server.URL + "/file", wantErr: `redirect to scheme "file"`},
		"redirect that the client denies": {url: server.URL + "/hop0", checkRedirect: refuse, wantErr: "no redirects today"},
		"redirect that the client allows": {url: server.URL + "/plain", checkRedirect: func(*http.Request, []*http.Request) error { return nil }, wantErr: "redirect to scheme"},
		"nobody there":                    {url: closed.URL + "/module", wantErr: "connection refused"},
		"http":                            {url: plain.URL, wantErr: `scheme is "http", want https`},
		"no scheme":                       {url: "example.com/module", wantErr: `scheme is "", want https`},
		"no host":                         {url: "https:///module", wantErr: "host is missing"},
		"no URL":                          {url: "https://%zz", wantErr: "URL cannot be parsed"},
		"negative limit":                  {url: server.URL, maxBytes: -1, wantErr: "maxBytes is -1"},
		"limit above that of the host":    {url: server.URL, maxBytes: wasmbin.MaxModuleBytes + 1, wantErr: "maxBytes is 268435457, want 1 to 268435456"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			client := *server.Client()
			client.CheckRedirect = test.checkRedirect
			got, err := host.HTTPS(test.url, host.HTTPSOptions{Client: &client, MaxBytes: test.maxBytes}).Fetch(t.Context())
			checkFetch(t, got, err, test.want, test.wantErr)
		})
	}
	t.Run("certificate that nobody trusts", func(t *testing.T) {
		server := httptest.NewUnstartedServer(mux)
		server.Config.ErrorLog = log.New(io.Discard, "", 0) // It complains of the handshake.
		server.StartTLS()
		t.Cleanup(server.Close)
		got, err := host.HTTPS(server.URL, host.HTTPSOptions{}).Fetch(t.Context())
		checkFetch(t, got, err, "", "certificate")
	})
}

func TestHTTPSThatDoesNotEnd(t *testing.T) {
	begun := make(chan struct{})
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/body" {
			fmt.Fprint(w, "0123456789")
			w.(http.Flusher).Flush()
		}
		if r.URL.RawQuery == "tell" {
			begun <- struct{}{}
		}
		<-r.Context().Done()
	}))
	for _, path := range []string{"/header", "/body"} {
		t.Run("timeout before the end of the "+path[1:], func(t *testing.T) {
			source := host.HTTPS(server.URL+path, host.HTTPSOptions{Client: server.Client(), Timeout: 50 * time.Millisecond})
			_, err := source.Fetch(t.Context())
			if want := "get " + server.URL + path + ": not complete after 50ms: "; !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("got %v, want %s…", err, want)
			}
		})
		t.Run("cancelled before the end of the "+path[1:], func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-begun
				cancel()
			}()
			_, err := host.HTTPS(server.URL+path+"?tell", host.HTTPSOptions{Client: server.Client()}).Fetch(ctx)
			if !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestHTTPSKeepsSecrets holds that credentials go to the host of the URL only,
// and neither they nor a query that may be a signature into messages.
func TestHTTPSKeepsSecrets(t *testing.T) {
	type seen struct{ User, Password, Authorization, Referer string }
	var first, second seen
	look := func(r *http.Request) seen {
		user, password, _ := r.BasicAuth()
		return seen{user, password, r.Header.Get("Authorization"), r.Header.Get("Referer")}
	}
	other := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { second = look(r) }))
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		first = look(r)
		if r.URL.Path == "/other" {
			http.Redirect(w, r, other.URL, http.StatusFound)
			return
		}
		w.WriteHeader(http.StatusForbidden)
	}))
	at := strings.Replace(server.URL, "https://", "https://ada:lovelace@", 1)
	options := host.HTTPSOptions{Client: server.Client()}

	if _, err := host.HTTPS(at+"/other?signature=secret", options).Fetch(t.Context()); err != nil {
		t.Fatal(err)
	}
	if first.User != "ada" || first.Password != "lovelace" {
		t.Errorf("the host of the URL saw %+v", first)
	}
	if diff := cmp.Diff(seen{}, second); diff != "" {
		t.Errorf("the host behind the redirect saw (-want +got):\n%s", diff)
	}

	source := host.HTTPS(at+"/zone.wasm?signature=secret#x", options)
	if got, want := source.String(), server.URL+"/zone.wasm"; got != want {
		t.Errorf("source is %s, want %s", got, want)
	}
	_, err := source.Fetch(t.Context())
	if want := "get " + server.URL + "/zone.wasm: status is 403 Forbidden, want 200 OK"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	for _, url := range []string{at + "/%zz?secret", "http://ada:lovelace@example.com?secret"} {
		err := host.HTTPS(url, options).(loading.Checker).Check("")
		if err == nil || strings.Contains(err.Error(), "lovelace") || strings.Contains(err.Error(), "secret") {
			t.Errorf("got %v", err)
		}
	}
	// An error of the connection itself, whose text net/http writes.
	other.Close()
	_, err = host.HTTPS(at+"/other?signature=secret", options).Fetch(t.Context())
	if err == nil || strings.Contains(err.Error(), "ada") || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}

func TestHTTPSThroughLoad(t *testing.T) {
	module, err := os.ReadFile("testdata/noop.wasm")
	if err != nil {
		t.Fatal(err)
	}
	requests := 0
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		if r.URL.Path == "/junk" {
			fmt.Fprint(w, "junk")
			return
		}
		_, _ = w.Write(module)
	}))
	source := func(path string) host.Source {
		return host.HTTPS(server.URL+path, host.HTTPSOptions{Client: server.Client()})
	}
	tests := map[string]struct {
		path, sha256 string
		wantErr      string
		wantRequests int
	}{
		"right digest": {path: "/module", sha256: digest(module), wantRequests: 1},
		// The digest comes first: the bytes have not been looked at.
		"wrong digest": {path: "/junk", sha256: digest(module), wantErr: "sha256 of the module is ", wantRequests: 1},
		"no digest":    {path: "/module", wantErr: "source " + server.URL + "/module needs sha256"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			check := func(does string, err error) {
				t.Helper()
				if test.wantErr == "" && err != nil || test.wantErr != "" && (err == nil || !strings.Contains(err.Error(), test.wantErr)) {
					t.Errorf("%s: got error %v, want %q", does, err, test.wantErr)
				}
				if requests != test.wantRequests {
					t.Errorf("%s: %d requests, want %d", does, requests, test.wantRequests)
				}
				requests = 0
			}
			cfg := config("noop")
			cfg.Module.Source, cfg.Module.SHA256 = source(test.path), test.sha256
			_, err := cfg.load(t.Context(), newRuntime(t))
			check("load", err)
			err = load(t, config("spins")).Swap(t.Context(), source(test.path), test.sha256)
			check("swap", err)
		})
	}
}
