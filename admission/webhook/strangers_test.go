package webhook_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/webhook"
	"github.com/kubewasm/kubewasm/admission/webhook/admissionmetrics"
)

// strange opens a connection from an address that is not that of other clients.
func (s *server) strange(t *testing.T, protocols ...string) *tls.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "https://"))
	if err != nil {
		t.Skipf("there is no second address: %v", err)
	}
	t.Cleanup(func() { conn.Close() })
	pool := x509.NewCertPool()
	pool.AddCert(s.ca.cert)
	return tls.Client(conn, &tls.Config{RootCAs: pool, ServerName: "127.0.0.1", NextProtos: protocols})
}

// send sends text on a connection. A server that has closed it is no error.
func send(conn net.Conn, text string) { _, _ = io.WriteString(conn, text) }

// answer reads an answer.
func answer(t *testing.T, conn net.Conn) *http.Response {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodPost})
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	resp.Body = io.NopCloser(strings.NewReader(string(body)))
	return resp
}

const head = "POST /validate HTTP/1.1\r\nHost: webhook\r\nContent-Type: application/json\r\n"

// beginnings are bodies that begin and do not go on.
var beginnings = map[string]string{
	"nothing of a long one":       head + "Content-Length: 700000\r\n\r\n",
	"some of a long one":          head + "Content-Length: 700000\r\n\r\n" + strings.Repeat(" ", 100<<10),
	"a chunk of one without end":  head + "Transfer-Encoding: chunked\r\n\r\n1000\r\n" + strings.Repeat(" ", 0x1000) + "\r\n",
	"one that waits to be called": head + "Content-Length: 700000\r\nExpect: 100-continue\r\n\r\n",
}

// Where a CA says who may ask, others have nothing read and nothing held.
func TestStrangersAreAnsweredBeforeTheirBody(t *testing.T) {
	bodies := admission.NewBodies(admission.BodyLimits{})
	s := run(t, func(s *server, c *webhook.Config) {
		c.ClientCAFile = filepath.Join(s.dir, "ca.crt")
		write(t, c.ClientCAFile, "CERTIFICATE", issue(t, "client ca", nil).der)
		c.Bodies = bodies
	})
	for name, beginning := range beginnings {
		t.Run(name, func(t *testing.T) {
			conn := s.strange(t)
			send(conn, beginning)
			resp := answer(t, conn)
			if resp.StatusCode != http.StatusUnauthorized || !resp.Close {
				t.Errorf("answer is %s, and the connection stays: %t", resp.Status, !resp.Close)
			}
			if held := bodies.Held(); held != 0 {
				t.Errorf("%d bytes are held", held)
			}
		})
	}
}

// However many bodies strangers begin, their memory is bounded, and a client with
// another address is served.
func TestSlowBodiesDoNotStarveOthers(t *testing.T) {
	for name, beginning := range beginnings {
		t.Run(name, func(t *testing.T) {
			const most = 1 << 20
			bodies := admission.NewBodies(admission.BodyLimits{Bytes: most, Wait: 20 * time.Millisecond, Timeout: time.Minute})
			s := run(t, func(_ *server, c *webhook.Config) { c.Bodies, c.DrainTimeout = bodies, time.Millisecond })
			const strangers = 40
			refused := make(chan *http.Response, strangers)
			var waiting sync.WaitGroup
			for range strangers {
				conn := s.strange(t)
				waiting.Go(func() {
					send(conn, beginning)
					conn.SetReadDeadline(time.Now().Add(time.Minute))
					r := bufio.NewReader(conn)
					for {
						resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodPost})
						if err != nil {
							return // It was waited for until the end.
						}
						if resp.StatusCode != http.StatusContinue {
							refused <- resp
							return
						}
					}
				})
			}
			// Two of 128 KiB are half of what one address may have, and others may
			// want more.
			first := <-refused
			if first.StatusCode != http.StatusTooManyRequests || first.Header.Get("Retry-After") != "1" || !first.Close {
				t.Errorf("answer is %s %v", first.Status, first.Header)
			}
			c := s.client(t, nil)
			for range 20 {
				if code, body := post(t, c, s.url+"/validate"); code != 200 {
					t.Errorf("a good client gets %d %q", code, body)
				}
				if held := bodies.Held(); held > most/2+16<<10 {
					t.Errorf("%d bytes are held", held)
				}
			}
			if err := s.stop(); err != nil && !strings.Contains(err.Error(), "wait for requests") {
				t.Error(err)
			}
			waiting.Wait()
			until(t, func() bool { return bodies.Held() == 0 })
		})
	}
}

// A body that does not arrive in time is not waited for, and its memory is free.
func TestSlowBodyEnds(t *testing.T) {
	t.Parallel()
	bodies := admission.NewBodies(admission.BodyLimits{Timeout: 50 * time.Millisecond})
	s := run(t, func(_ *server, c *webhook.Config) { c.Bodies = bodies })
	for name, beginning := range beginnings {
		t.Run(name, func(t *testing.T) {
			conn := s.strange(t)
			send(conn, beginning)
			if strings.Contains(beginning, "Expect") {
				if resp := answer(t, conn); resp.StatusCode != http.StatusContinue {
					t.Errorf("answer is %s", resp.Status)
				}
			}
			resp := answer(t, conn)
			if resp.StatusCode != http.StatusRequestTimeout || !resp.Close {
				t.Errorf("answer is %s", resp.Status)
			}
			until(t, func() bool { return bodies.Held() == 0 })
		})
	}
	// The API server's own timeout ends it, too.
	bodies = admission.NewBodies(admission.BodyLimits{Timeout: time.Hour})
	s = run(t, func(_ *server, c *webhook.Config) { c.Bodies = bodies })
	conn := s.strange(t)
	send(conn, strings.Replace(beginnings["nothing of a long one"], "/validate", "/validate?timeout=200ms", 1))
	if resp := answer(t, conn); resp.StatusCode != http.StatusRequestTimeout {
		t.Errorf("answer is %s", resp.Status)
	}
}

// When all memory is taken, a client is told to come back, and served when it does.
func TestBodiesOfAllClients(t *testing.T) {
	t.Parallel()
	metrics, registry := admissionmetrics.New(), prometheus.NewRegistry()
	registry.MustRegister(metrics)
	bodies := admission.NewBodies(admission.BodyLimits{Bytes: 300 << 10, AddressBytes: 300 << 10, Wait: time.Millisecond, Timeout: time.Hour})
	s := run(t, func(_ *server, c *webhook.Config) {
		c.Bodies, c.Counter, c.Metrics = bodies, metrics, promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	})
	conn := s.strange(t)
	send(conn, head+"Content-Length: 140000\r\n\r\n")
	const first = 128 << 10
	until(t, func() bool { return bodies.Held() == first })
	c := s.client(t, nil)
	if _, body := get(t, c, s.url+"/metrics"); !strings.Contains(body, fmt.Sprintf("kubewasm_admission_body_bytes %d\n", first)) {
		t.Errorf("metrics are\n%s", body)
	}
	if code, body := post(t, c, s.url+"/validate"); code != 200 {
		t.Errorf("a short review gets %d %q", code, body)
	}
	resp, err := c.Post(s.url+"/validate", "application/json", strings.NewReader(strings.Repeat(" ", 64<<10)+review))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") != "1" {
		t.Errorf("a long review gets %s %v", resp.Status, resp.Header)
	}
	resp, err = c.Post(s.url+"/validate", "application/json", strings.NewReader(strings.Repeat(" ", 400<<10)+review))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("one that never fits gets %s", resp.Status)
	}
	conn.NetConn().Close()
	until(t, func() bool { return bodies.Held() == 0 })
	resp, err = c.Post(s.url+"/validate", "application/json", strings.NewReader(strings.Repeat(" ", 64<<10)+review))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("a long review gets %s afterwards", resp.Status)
	}
}

// A connection of HTTP/2 has few requests at a time, and its bodies have a share.
func TestStreamsOfOneConnection(t *testing.T) {
	t.Parallel()
	// The first refusal is the last stream of the connection: by then all have begun.
	bodies := admission.NewBodies(admission.BodyLimits{Bytes: 64 << 20, ConnectionBytes: 512 << 10, Wait: 3 * time.Second, Timeout: time.Minute})
	s := run(t, func(_ *server, c *webhook.Config) { c.Bodies = bodies })
	conn := s.strange(t, "h2")
	send(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	frame := make([]byte, 9)
	if _, err := io.ReadFull(conn, frame); err != nil || frame[3] != 4 {
		t.Fatalf("frame is %x, %v", frame, err)
	}
	settings := make([]byte, int(frame[0])<<16|int(frame[1])<<8|int(frame[2]))
	if _, err := io.ReadFull(conn, settings); err != nil {
		t.Fatal(err)
	}
	got := map[uint16]uint32{}
	for ; len(settings) >= 6; settings = settings[6:] {
		got[binary.BigEndian.Uint16(settings)] = binary.BigEndian.Uint32(settings[2:])
	}
	// RFC 9113, section 6.5.2: concurrent streams, window of a stream, frame, headers.
	if got[3] != 16 || got[4] != 64<<10 || got[5] != 16<<10 || got[6] == 0 || got[6] > 32<<10 {
		t.Errorf("settings are %v", got)
	}

	c := s.client(t, nil)
	c.Timeout = time.Minute
	transport := c.Transport.(*http.Transport)
	transport.ForceAttemptHTTP2, transport.MaxConnsPerHost = true, 1
	ctx, cancel := context.WithCancel(t.Context())
	var refused atomic.Int64
	var waiting sync.WaitGroup
	for range 10 {
		body, _ := io.Pipe()
		waiting.Go(func() {
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/validate?timeout=30s", body)
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("Content-Type", "application/json")
			resp, err := c.Do(r)
			if err != nil {
				return
			}
			resp.Body.Close()
			if resp.ProtoMajor != 2 || resp.StatusCode != http.StatusTooManyRequests {
				t.Errorf("answer is %s %s", resp.Proto, resp.Status)
			}
			refused.Add(1)
		})
	}
	until(t, func() bool { return refused.Load() == 8 })
	if held := bodies.Held(); held != 2*128<<10 {
		t.Errorf("%d bytes are held", held)
	}
	cancel()
	waiting.Wait()
	until(t, func() bool { return bodies.Held() == 0 })
}

// However many connections strangers open, a client with another address keeps its
// own, and a new one finds room.
func TestConnectionsAreBounded(t *testing.T) {
	for name, text := range map[string]string{"idle": "", "with half a request": "POST /validate HTTP/1.1\r\nHost:"} {
		t.Run(name, func(t *testing.T) {
			const most, strangers = 8, 60
			s := run(t, func(_ *server, c *webhook.Config) { c.MaxConnections = most })
			var dials atomic.Int64
			c := s.client(t, nil)
			c.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				dials.Add(1)
				return new(net.Dialer).DialContext(ctx, network, addr)
			}
			var ended atomic.Int64
			for i := range strangers {
				conn := s.strange(t)
				go func() {
					send(conn, text) // With a handshake before it.
					io.Copy(io.Discard, conn)
					ended.Add(1)
				}()
				if i%10 == 9 {
					if code, body := post(t, c, s.url+"/validate"); code != 200 {
						t.Errorf("a good client gets %d %q", code, body)
					}
				}
			}
			until(t, func() bool { return ended.Load() == strangers-(most-1) })
			if n := dials.Load(); n != 1 {
				t.Errorf("the good client has had %d connections", n)
			}
			if code, body := post(t, s.client(t, nil), s.url+"/validate"); code != 200 {
				t.Errorf("another good client gets %d %q", code, body)
			}
		})
	}
}

// A client with a certificate keeps its connection, though strangers share its address.
func TestConnectionWithACertificateStays(t *testing.T) {
	trusted := issue(t, "client ca", nil)
	s := run(t, func(s *server, c *webhook.Config) {
		c.MaxConnections = 4
		c.ClientCAFile = filepath.Join(s.dir, "ca.crt")
		write(t, c.ClientCAFile, "CERTIFICATE", trusted.der)
	})
	var dials atomic.Int64
	c := s.client(t, issue(t, "apiserver", trusted))
	c.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		dials.Add(1)
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	for range 30 {
		if code, body := post(t, c, s.url+"/validate"); code != 200 {
			t.Errorf("the client gets %d %q", code, body)
		}
		if code, _ := get(t, s.client(t, nil), s.url+"/healthz"); code != 200 {
			t.Errorf("a probe gets %d", code)
		}
	}
	if n := dials.Load(); n != 1 {
		t.Errorf("the client has had %d connections", n)
	}
}

func TestHeadersAreBounded(t *testing.T) {
	t.Parallel()
	s := run(t, nil)
	conn := s.strange(t)
	send(conn, "POST /validate HTTP/1.1\r\nHost: webhook\r\n")
	for range 64 {
		send(conn, "X-More: "+strings.Repeat("x", 1<<10)+"\r\n")
	}
	if resp := answer(t, conn); resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("answer is %s", resp.Status)
	}
}
