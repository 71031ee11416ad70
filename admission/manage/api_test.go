package manage_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/manage"
)

// Bodies of requests to the API are bounded, and none is read of a client that may not
// use it.
func TestAPIBoundsBodies(t *testing.T) {
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
		if _, err := io.WriteString(conn, "POST /plugins HTTP/1.1\r\nHost: api\r\nAuthorization: Bearer "+token+"\r\nContent-Length: 140000\r\nExpect: 100-continue\r\n\r\n"); err != nil {
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

// A request means what it says, or is refused.
func TestAPIRequestsAreStrict(t *testing.T) {
	f := start(t, nil)
	server := httptest.NewServer(f.API(manage.Auth{Token: func() (string, error) { return "secret", nil }}))
	defer server.Close()
	c := &client{t, server.URL, "secret", server.Client()}
	if err := f.Load(context.Background(), manage.PluginSpec{Name: "p"}, says("p")); err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]string{
		`{"metadata":{"name":"q"},"metadata":{"name":"r"}}`:                            `duplicate field "metadata"`,
		`{"metadata":{"name":"q","Limits":{}}}`:                                        `unknown field "metadata.Limits"`,
		`{"Metadata":{"name":"q"}}`:                                                    `unknown field "Metadata"`,
		`{"metadata":{"name":"q"}}{"metadata":{"name":"r"}}`:                           "after top-level value",
		`{"metadata":{"name":"q"},"match":{"rules":[{"operation":["CREATE"]}]}}`:       `unknown field "match.rules[0].operation"`,
		`{"metadata":{"name":"p"},"wasm_binary":"AA","operations":["CREATE"]}`:         "illegal base64",
		`{"metadata":{"name":"p"},"wasm_binary":"AAAA","operations":["CREATE"],"a":1}`: `unknown field "a"`,
		``: "unexpected end of JSON input",
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
