package nri

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
	"time"

	"github.com/containerd/ttrpc"
)

// traffic counts the runtime's unanswered requests, by the messages on the connection, since an
// answer returned by a handler is not sent yet. The zero value has none.
type traffic struct {
	mu sync.Mutex
	// requests counts messages that have begun to arrive, and answers those that were sent whole.
	requests, answers framing
	// last is the time of the last message in either direction.
	last time.Time
}

// options returns options that make a server count its messages.
func (t *traffic) options() []ttrpc.ServerOpt {
	return []ttrpc.ServerOpt{ttrpc.WithServerHandshaker(handshaker(func(conn net.Conn) net.Conn { return &counted{conn, t} }))}
}

type handshaker func(net.Conn) net.Conn

func (h handshaker) Handshake(_ context.Context, conn net.Conn) (net.Conn, any, error) {
	return h(conn), nil, nil
}

// counted is a connection of a server.
type counted struct {
	net.Conn
	traffic *traffic
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.traffic.pass(&c.traffic.requests, b[:n])
	return n, err
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.traffic.pass(&c.traffic.answers, b[:n])
	return n, err
}

func (t *traffic) pass(f *framing, b []byte) {
	if len(b) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	f.pass(b)
	t.last = time.Now()
}

// waiting returns the number of requests without an answer.
func (t *traffic) waiting() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.requests.begun - t.answers.ended
}

// quiet is the time without a request after which the connection may be closed: a request that was
// sent may not have been read yet.
const quiet = 20 * time.Millisecond

// settle waits until each request has its answer, or until ctx ends.
func (t *traffic) settle(ctx context.Context) {
	tick := time.NewTicker(quiet / 4)
	defer tick.Stop()
	begun := time.Now()
	for {
		t.mu.Lock()
		settled := t.requests.begun == t.answers.ended && time.Since(t.last) >= quiet && time.Since(begun) >= quiet
		t.mu.Unlock()
		if settled {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// framing counts the messages of ttrpc in one direction of a connection: each is a header
// with its length, which does not include the header, and the rest.
type framing struct {
	begun, ended int
	header       [10]byte
	// have is the number of bytes read of the header, and left that of the remaining bytes of the
	// message.
	have, left int
}

func (f *framing) pass(b []byte) {
	for len(b) != 0 {
		if f.have < len(f.header) {
			if f.have == 0 {
				f.begun++
			}
			n := copy(f.header[f.have:], b)
			f.have, b = f.have+n, b[n:]
			if f.have < len(f.header) {
				return
			}
			f.left = int(binary.BigEndian.Uint32(f.header[:4]))
		}
		n := min(f.left, len(b))
		f.left, b = f.left-n, b[n:]
		if f.left == 0 {
			f.ended, f.have = f.ended+1, 0
		}
	}
}
