package serving_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/kubewasm/kubewasm/internal/serving"
)

// However a body comes and whatever becomes of it, its bytes are right, and its memory
// is given back.
func TestBodiesGiveTheirMemoryBack(t *testing.T) {
	long := strings.Repeat("0123456789", 40000)
	for name, test := range map[string]struct {
		body   io.Reader
		length int64
		code   int
		// held is what it has when it was read.
		held int64
	}{
		"nothing":                          {strings.NewReader(""), 0, 0, 1},
		"a few bytes":                      {strings.NewReader(long[:7]), 7, 0, 8},
		"a few bytes in chunks":            {strings.NewReader(long[:7]), -1, 0, 128 << 10},
		"all that is announced, by bytes":  {iotest.OneByteReader(strings.NewReader(long[:2000])), 2000, 0, 2001},
		"a long one":                       {strings.NewReader(long), 400000, 0, 400001},
		"a long one in chunks":             {strings.NewReader(long), -1, 0, 512<<10 + 1},
		"as long as may be":                {strings.NewReader(long[:1<<18] + long[:1<<18]), -1, 0, 512<<10 + 1},
		"longer than may be":               {strings.NewReader(long + long), -1, 413, 0},
		"announced longer than may be":     {strings.NewReader(""), 512<<10 + 1, 413, 0},
		"longer than announced":            {strings.NewReader(long[:100]), 7, 400, 0},
		"shorter than announced":           {iotest.TimeoutReader(strings.NewReader(long)), 400000, 400, 0},
		"a connection that ends":           {io.MultiReader(strings.NewReader("{"), iotest.ErrReader(io.ErrUnexpectedEOF)), 9, 400, 0},
		"one that is longer than all have": {strings.NewReader(long + long + long), 1 << 20, 413, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bodies := serving.NewBodies(serving.BodyLimits{Bytes: 1 << 20})
			r := httptest.NewRequest(http.MethodPost, "/", test.body)
			r.ContentLength = test.length
			body, err := bodies.Read(t.Context(), httptest.NewRecorder(), r, 512<<10)
			if test.code != 0 {
				if err == nil || err.Code != test.code {
					t.Fatalf("error is %v, want %d", err, test.code)
				}
			} else if err != nil {
				t.Fatal(err)
			} else {
				if got := bodies.Held(); got != int64(cap(body.Bytes)) || got > test.held {
					t.Errorf("%d bytes are held, body has room for %d", got, cap(body.Bytes))
				}
				if test.length > 0 && int64(len(body.Bytes)) != test.length || !strings.HasPrefix(long+long, string(body.Bytes)) && !strings.HasPrefix(name, "as long") {
					t.Errorf("body has %d bytes", len(body.Bytes))
				}
				body.Release()
			}
			if got := bodies.Held(); got != 0 {
				t.Errorf("%d bytes are held", got)
			}
		})
	}
}

// gatedReader gives the bytes of a body up to one, and the others after gate is closed.
type gatedReader struct {
	first, rest io.Reader
	gate        chan struct{}
}

func (r *gatedReader) Read(p []byte) (int, error) {
	if n, err := r.first.Read(p); err == nil {
		return n, nil
	}
	<-r.gate
	return r.rest.Read(p)
}

// Bodies that have begun are never all that there is: each gets what it needs to end.
func TestBodiesThatHaveBegunCanEnd(t *testing.T) {
	const most, begun = 1 << 20, 4
	bodies := serving.NewBodies(serving.BodyLimits{Bytes: most, Wait: time.Hour})
	request := func(i int, body io.Reader) *http.Request {
		r := httptest.NewRequest(http.MethodPost, "/", body)
		r.RemoteAddr, r.ContentLength = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 1).String(), 300<<10
		return r
	}
	gate := make(chan struct{})
	var wg sync.WaitGroup
	for i := range begun {
		r := request(i, &gatedReader{strings.NewReader(strings.Repeat("x", 128<<10-1)), strings.NewReader(strings.Repeat("y", 172<<10+1)), gate})
		wg.Go(func() {
			body, err := bodies.Read(t.Context(), httptest.NewRecorder(), r, most)
			if err != nil {
				t.Error(err)
				return
			}
			if len(body.Bytes) != 300<<10 {
				t.Errorf("body has %d bytes", len(body.Bytes))
			}
			body.Release()
		})
	}
	for deadline := time.Now().Add(time.Minute); bodies.Held() != begun*128<<10; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes are held", bodies.Held())
		}
	}
	// There is room for four more that begin, and for none if the four are to end.
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := bodies.Read(ctx, httptest.NewRecorder(), request(begun, strings.NewReader(strings.Repeat("x", 300<<10))), most); err == nil || err.Code != http.StatusServiceUnavailable {
		t.Errorf("error is %v", err)
	}
	close(gate)
	wg.Wait()
	if got := bodies.Held(); got != 0 {
		t.Errorf("%d bytes are held", got)
	}
}

// Who shares the limit of an address: connections from it, and from the 64 bits of IPv6 that a
// client has.
func TestBodiesOfOneAddress(t *testing.T) {
	for name, test := range map[string]struct {
		first, second string
		shared        bool
	}{
		"two connections":           {"10.0.0.1:1000", "10.0.0.1:1001", true},
		"two addresses":             {"10.0.0.1:1000", "10.0.0.2:1000", false},
		"an address of IPv4 in two": {"10.0.0.1:1000", "[::ffff:10.0.0.1]:1001", true},
		"two of one network":        {"[2001:db8::1]:1000", "[2001:db8::2]:1000", true},
		"two zones":                 {"[fe80::1%eth0]:1000", "[fe80::1%eth1]:1000", true},
		"two networks":              {"[2001:db8::1]:1000", "[2001:db8:0:1::1]:1000", false},
		"two sockets":               {"@", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			bodies := serving.NewBodies(serving.BodyLimits{Bytes: 1 << 20, AddressBytes: 64 << 10, Wait: time.Millisecond})
			read := func(remote string) (*serving.Body, *serving.BodyError) {
				r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(strings.Repeat("x", 40<<10)))
				r.RemoteAddr = remote
				return bodies.Read(t.Context(), httptest.NewRecorder(), r, 1<<20)
			}
			first, err := read(test.first)
			if err != nil {
				t.Fatal(err)
			}
			defer first.Release()
			second, err := read(test.second)
			switch {
			case err == nil && test.shared:
				t.Error("the second body is read")
			case err == nil:
				second.Release()
			case !test.shared || err.Code != http.StatusTooManyRequests:
				t.Error(err)
			}
		})
	}
}

// A body that is too long is told by its beginning, however short the limit is.
func TestBeginningOfABodyThatIsTooLong(t *testing.T) {
	for name, length := range map[string]int64{"announced": 2000, "in chunks": -1} {
		t.Run(name, func(t *testing.T) {
			bodies := serving.NewBodies(serving.BodyLimits{})
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(strings.Repeat("x", 2000)))
			r.ContentLength = length
			_, err := bodies.Read(t.Context(), httptest.NewRecorder(), r, 1000)
			if err == nil || err.Code != http.StatusRequestEntityTooLarge || len(err.Beginning) < 1000 {
				t.Errorf("error is %+v", err)
			}
			if got := bodies.Held(); got != 0 {
				t.Errorf("%d bytes are held", got)
			}
		})
	}
}

// A client that sends a body in chunks, and too much, gets the end of the connection after the
// answer, and not a reset, which may overtake the answer.
func TestAnswerToChunksThatAreTooMany(t *testing.T) {
	bodies := serving.NewBodies(serving.BodyLimits{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := bodies.Read(r.Context(), w, r, 1<<10)
		if err == nil {
			body.Release()
			return
		}
		err.Answer(w, "text/plain", err.Error())
	}))
	defer server.Close()
	client, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	const head = "POST / HTTP/1.1\r\nHost: server\r\nTransfer-Encoding: chunked\r\n\r\n"
	if _, err := io.WriteString(client, head+strings.Repeat("4000\r\n"+strings.Repeat("x", 0x4000)+"\r\n", 16)); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(client)
	if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 413 ") || !strings.HasSuffix(string(got), "body has more than 1024 bytes") {
		t.Errorf("answer is %q, error %v", got, err)
	}
}
