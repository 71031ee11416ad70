package manage_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/webhook/manage"
	"github.com/kubewasm/kubewasm/host"
)

// Bodies of requests to the API are bounded, and none is read of a client that may not
// use it.
func TestAPIBoundsBodies(t *testing.T) {
	t.Parallel()
	bodies := admission.NewBodies(admission.BodyLimits{Bytes: 300 << 10, AddressBytes: 300 << 10, Wait: time.Millisecond, Timeout: 500 * time.Millisecond})
	f := start(t, func(c *manage.Config) { c.Bodies = bodies })
	server := httptest.NewServer(f.API(manage.Auth{Token: func() (string, error) { return "secret", nil }}))
	defer server.Close()
	begin := func(token string) (net.Conn, *bufio.Reader) {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(server.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if _, err := io.WriteString(conn, "POST /plugins HTTP/1.1\r\nHost: api\r\nAuthorization: Bearer "+token+"\r\nContent-Type: application/json\r\nContent-Length: 140000\r\nExpect: 100-continue\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		return conn, bufio.NewReader(conn)
	}
	answered := func(r *bufio.Reader, want int) {
		t.Helper()
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("answer is %s, want %d", resp.Status, want)
		}
	}
	_, stranger := begin("guess")
	answered(stranger, http.StatusUnauthorized)
	if got := bodies.Held(); got != 0 {
		t.Errorf("%d bytes are held", got)
	}
	_, slow := begin("secret")
	answered(slow, http.StatusContinue)
	_, second := begin("secret")
	answered(second, http.StatusTooManyRequests)
	answered(slow, http.StatusRequestTimeout)
	c := &client{t, server.URL, "secret", server.Client()}
	if code, answer := c.do("POST", "/plugins", strings.Repeat(" ", 400<<10)); code != http.StatusRequestEntityTooLarge {
		t.Errorf("answer is %d %v", code, answer)
	}
	c.want("POST", "/plugins", loadBody("p", "1", says("p"), nil), 201, map[string]any{"status": "created"})
}

// A module may come compressed, as from every other source.
func TestAPITakesCompressedModules(t *testing.T) {
	state := t.TempDir()
	f := start(t, func(c *manage.Config) { c.Directory = state })
	server := httptest.NewServer(f.API(manage.Auth{Token: func() (string, error) { return "secret", nil }}))
	defer server.Close()
	c := &client{t, server.URL, "secret", server.Client()}
	metadata := func(module []byte) map[string]any {
		return map[string]any{"metadata": map[string]any{"name": "p", "sha256": digest(module)}}
	}
	c.want("POST", "/plugins", loadBody("p", "1", compressed(t, says("small")), metadata(says("small"))), 201, map[string]any{"status": "created"})
	if got := f.ask("Pod"); got != "small" || f.List()[0].Digest != digest(says("small")) {
		t.Errorf("message is %q, %+v", got, f.List())
	}
	for name, test := range map[string]struct {
		module []byte
		want   string
	}{
		"one that becomes too long":        {compressed(t, make([]byte, 65<<20)), `plugin "p": decompress module: it has more than 67108864 bytes`},
		"one that is cut off":              {compressed(t, says("small"))[:30], `plugin "p": decompress module: unexpected EOF`},
		"one with something behind it":     {append(compressed(t, says("small")), "more"...), `plugin "p": decompress module: `},
		"one that is compressed twice":     {compressed(t, compressed(t, says("small"))), "load module"},
		"one with the digest of its bytes": {compressed(t, says("other")), "sha256 of the module is"},
	} {
		body := loadBody("p", "2", test.module, nil)
		if strings.Contains(name, "digest") {
			body = loadBody("p", "2", test.module, metadata(test.module))
		}
		code, answer := c.do("POST", "/plugins", body)
		if text, _ := answer["error"].(string); code != 400 || !strings.Contains(text, test.want) {
			t.Errorf("%s: %d %v, want 400 %s", name, code, answer, test.want)
		}
	}
	restarted(t, copied(t, state), func(_ *manage.Manager, ask func() string) {
		if got := ask(); got != "small" {
			t.Errorf("after a restart, message is %q", got)
		}
	})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/plugins", strings.NewReader("\x1f\x8b"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer secret")
	r.Header.Set("Content-Encoding", "gzip")
	resp, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusUnsupportedMediaType || !strings.Contains(string(text), "compress wasm_binary instead") {
		t.Errorf("answer is %s %s", resp.Status, text)
	}
}

// TestAPIRefusesOtherOrigins holds that no page in a browser changes policies with the
// credentials of whoever looks at it.
func TestAPIRefusesOtherOrigins(t *testing.T) {
	f := start(t, nil)
	server := httptest.NewServer(f.API(manage.Auth{Token: func() (string, error) { return "secret", nil }}))
	defer server.Close()
	if err := f.Load(t.Context(), manage.PluginSpec{PluginConfig: admission.PluginConfig{Config: host.Config{Name: "p"}}}, says("p")); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, method, path, body string
		headers                  map[string]string
		want                     int
	}{
		{"another site", "POST", "/plugins/p/disable", "", map[string]string{"Sec-Fetch-Site": "cross-site"}, 403},
		{"another host of the site", "DELETE", "/plugins/p", "", map[string]string{"Sec-Fetch-Site": "same-site"}, 403},
		{"an old browser", "POST", "/plugins/p/disable", "", map[string]string{"Origin": "https://evil.example.com"}, 403},
		{"a page without an origin", "POST", "/plugins/p/disable", "", map[string]string{"Origin": "null"}, 403},
		{"a form", "POST", "/plugins/p/rollback", "{}", map[string]string{"Content-Type": "text/plain"}, 415},
		{"another form", "POST", "/plugins/p/rollback", "{}", map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, 415},
		{"a body without a type", "POST", "/plugins/p/rollback", "{}", nil, 415},
		{"a type that is none", "POST", "/plugins/p/rollback", "{}", map[string]string{"Content-Type": "application/json; charset"}, 415},
		{"JSON with its charset", "POST", "/plugins/p/rollback", "{}", map[string]string{"Content-Type": "application/json; charset=utf-8"}, 404},
		{"the API's own origin", "POST", "/plugins/p/disable", "", map[string]string{"Sec-Fetch-Site": "same-origin"}, 200},
		{"a program", "POST", "/plugins/p/enable", "", nil, 200},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), test.method, server.URL+test.path, strings.NewReader(test.body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer secret")
			for key, value := range test.headers {
				r.Header.Set(key, value)
			}
			resp, err := server.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if text, _ := io.ReadAll(resp.Body); resp.StatusCode != test.want {
				t.Errorf("answer is %s %s, want %d", resp.Status, text, test.want)
			}
		})
	}
}

// What a policy is asked about beside what it is for is logged, and listed.
func TestMatchThatDiffersIsTold(t *testing.T) {
	var log bytes.Buffer
	f := start(t, func(c *manage.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	module, err := metadata.Add(says("p"), &metadata.Metadata{ABI: 1, Matches: []metadata.Rule{{Operations: []string{"CREATE"}, APIGroups: []string{""}, APIVersions: []string{"*"}, Resources: []string{"pods"}}}})
	if err != nil {
		t.Fatal(err)
	}
	spec := func(operations string) manage.PluginSpec {
		file, err := manage.ParseFile([]byte("plugins: [{name: p, module: {bytes: AAAA}, match: {rules: [{operations: [" + operations + "], apiGroups: [''], apiVersions: [v1], resources: [pods]}]}}]"))
		if err != nil {
			t.Fatal(err)
		}
		file.Plugins[0].Module = host.ModuleConfig{}
		return file.Plugins[0]
	}
	if err := f.Load(t.Context(), spec("CREATE"), module); err != nil {
		t.Fatal(err)
	}
	if got := f.List()[0].Warnings; len(got) != 0 || strings.Contains(log.String(), "may not be what is meant") {
		t.Errorf("warnings are %q, log is %s", got, &log)
	}
	if err := f.Load(t.Context(), spec("CREATE, DELETE"), module); err != nil {
		t.Fatal(err)
	}
	const want = "match has what the module is not for: DELETE pods.v1"
	if got := f.List()[0].Warnings; len(got) != 2 || got[0] != want || !strings.Contains(log.String(), `level=WARN msg="match may not be what is meant" policy=p warning="`+want+`"`) {
		t.Errorf("warnings are %q, log is %s", got, &log)
	}
	if got := f.ask("Pod"); got != "p" {
		t.Errorf("message is %q", got)
	}
}

// A request means what it says, or is refused.
func TestAPIRequestsAreStrict(t *testing.T) {
	f := start(t, nil)
	server := httptest.NewServer(f.API(manage.Auth{Token: func() (string, error) { return "secret", nil }}))
	defer server.Close()
	c := &client{t, server.URL, "secret", server.Client()}
	if err := f.Load(context.Background(), manage.PluginSpec{PluginConfig: admission.PluginConfig{Config: host.Config{Name: "p"}}}, says("p")); err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]string{
		`{"metadata":{"name":"q"},"metadata":{"name":"r"}}`:                            "metadata occurs twice",
		`{"metadata":{"name":"q","Limits":{}}}`:                                        `unknown field "metadata.Limits"`,
		`{"Metadata":{"name":"q"}}`:                                                    `unknown field "Metadata"`,
		`{"metadata":{"name":"q"}}{"metadata":{"name":"r"}}`:                           "there is more than one document",
		`{"metadata":{"name":"q"},"match":{"rules":[{"operation":["CREATE"]}]}}`:       `unknown field "match.rules[0].operation"`,
		`{"metadata":{"name":"p"},"wasm_binary":"AA","operations":["CREATE"]}`:         "illegal base64",
		`{"metadata":{"name":"p"},"wasm_binary":"AAAA","operations":["CREATE"],"a":1}`: `unknown field "a"`,
		``: "the document is empty",
	} {
		code, answer := c.do("POST", "/plugins", body)
		if text, _ := answer["error"].(string); code != 400 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %v, want %s", body, code, answer, want)
		}
	}
	if code, answer := c.do("POST", "/plugins/p/rollback", `{"Version":"1"}`); code != 400 {
		t.Errorf("answer is %d %v", code, answer)
	}
	if got := f.ask("Pod"); got != "p" {
		t.Errorf("message is %q", got)
	}
}

// What the API says of a module that cannot be fetched has no query of a URL, which may be signed.
func TestAPIShowsNoSignedURL(t *testing.T) {
	const signature = "X-Amz-Signature=0123456789abcdef"
	server := httptest.NewTLSServer(http.NotFoundHandler()) // Its certificate is nobody's.
	defer server.Close()
	f := start(t, func(c *manage.Config) { c.Directory = filepath.Join(t.TempDir(), "state") })
	file, err := manage.ParseFile(fmt.Appendf(nil, "plugins:\n- name: far\n  module: {sha256: %q, https: %q}\n", strings.Repeat("0", 64), server.URL+"/module?"+signature))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Apply(t.Context(), file); err == nil {
		t.Fatal("a module is fetched from a server with any certificate")
	}
	api := httptest.NewServer(f.API(manage.Auth{Token: func() (string, error) { return "secret", nil }}))
	defer api.Close()
	c := &client{t, api.URL, "secret", api.Client()}
	code, answer := c.do(http.MethodGet, "/plugins", nil)
	text, err := json.Marshal(answer)
	if err != nil {
		t.Fatal(err)
	}
	if code != http.StatusOK || !strings.Contains(string(text), "/module") || strings.Contains(string(text), signature) {
		t.Errorf("the answer is %d %s", code, text)
	}
}
