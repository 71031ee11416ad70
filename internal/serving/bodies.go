// Package serving holds the parts shared by the servers of policies: the server with its
// certificates and connections, bodies of requests in bounded memory, the version of the policies
// in a request, calls that outlive their requests, and files of policies that may be written in
// place.
package serving

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"time"
)

// BodyLimits bounds the memory and the time of request bodies. Zero fields have their defaults.
type BodyLimits struct {
	// Bytes is the memory of all bodies together. Default 256 MiB. It does not count the decoded
	// form, which takes about as much again.
	Bytes int64
	// AddressBytes is the memory of all bodies from one address, so that one client cannot use up
	// the memory. An address is an IPv4 address, or the first 64 bits of an IPv6 address. Default
	// half of Bytes.
	AddressBytes int64
	// ConnectionBytes is the memory of all bodies of one connection, since HTTP/2 has several at a
	// time. Default an eighth of Bytes.
	ConnectionBytes int64
	// Wait is the time for which a body waits for memory used by others. Default 1 s.
	Wait time.Duration
	// Timeout is the time in which a body must arrive. Default 10 s.
	Timeout time.Duration
}

const (
	defaultBodiesBytes = 256 << 20
	defaultBodyWait    = time.Second
	defaultBodyTimeout = 10 * time.Second
)

// Bodies reads the bodies of requests into memory with a common bound. Memory is counted until the
// request is answered, and longer with [Keep]. A body gets the length that it announces, but at
// most 128 KiB until that much has arrived. It is safe for use by several goroutines.
type Bodies struct {
	limits BodyLimits
	// most is the maximum memory of a party, by its scope.
	most [3]int64

	mu sync.Mutex
	// shares holds the shares that are not 0.
	shares map[party]share
	// kept is the memory that outlives its request, see [Keep].
	kept int64
	// freed is closed when memory is freed; nil if no body waits for memory.
	freed chan struct{}
}

// party is a group of bodies with a common limit: those of one connection, of all connections from
// an address, or of all connections.
type party struct {
	scope scope
	from  netip.AddrPort
}

type scope int

const (
	ofConnection scope = iota
	ofAddress
	ofAll
)

// share is the memory of a party's bodies. begun is the memory of bodies that may need more:
// several such bodies get at most half of the limit. A body that has all it needs does not wait, so the waiting bodies
// never hold all the memory.
type share struct{ held, begun int64 }

// NewBodies returns Bodies with limits.
func NewBodies(limits BodyLimits) *Bodies {
	limits.Bytes = cmp.Or(limits.Bytes, defaultBodiesBytes)
	limits.AddressBytes = cmp.Or(limits.AddressBytes, limits.Bytes/2)
	limits.ConnectionBytes = cmp.Or(limits.ConnectionBytes, limits.Bytes/8)
	limits.Wait = cmp.Or(limits.Wait, defaultBodyWait)
	limits.Timeout = cmp.Or(limits.Timeout, defaultBodyTimeout)
	return &Bodies{
		limits: limits, most: [...]int64{limits.ConnectionBytes, limits.AddressBytes, limits.Bytes},
		shares: map[party]share{},
	}
}

// Held returns the memory of bodies now, in bytes.
func (b *Bodies) Held() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.shares[party{scope: ofAll}].held
}

type bodyKey struct{}

// WithBody returns a context for work on a request with a body.
func WithBody(ctx context.Context, b *Body) context.Context {
	return context.WithValue(ctx, bodyKey{}, b)
}

// keptShare is the share of all memory that may outlive its requests.
const keptShare = 8

// Keep counts the memory of the request's body, plus more bytes derived from it, for a caller that
// keeps them longer than the request takes. It counts until free is called. It reports whether
// there was room, which is an eighth of all memory, and does not wait. A context without a body has
// room for everything.
func Keep(ctx context.Context, more int64) (free func(), ok bool) {
	b, _ := ctx.Value(bodyKey{}).(*Body)
	if b == nil {
		return func() {}, true
	}
	all, n := b.bodies, int64(cap(b.Bytes))+more
	all.mu.Lock()
	defer all.mu.Unlock()
	p := party{scope: ofAll}
	s, most := all.shares[p], all.limits.Bytes
	// It counts as a body that has begun, so that half of the memory remains for others.
	if all.kept+n > most/keptShare || s.held+n > most || s.begun+n > most/2 {
		return nil, false
	}
	all.kept += n
	all.give(p, share{n, n})
	return sync.OnceFunc(func() {
		all.mu.Lock()
		defer all.mu.Unlock()
		all.kept -= n
		all.give(p, share{-n, -n})
		all.wake()
	}), true
}

// BodyError is the reason that a body was not read.
type BodyError struct {
	// Code is the HTTP code of the answer: 400 for a body that is cut off, 408 for one that does
	// not arrive in time, 413 for one that is too long, 429 if the client has too many, and 503 if
	// all clients together have too many.
	Code    int
	message string
	// Beginning is the beginning of a body that is too long.
	Beginning []byte
}

// Error implements error.
func (e *BodyError) Error() string { return e.message }

// Answer writes the answer, with a text of the given type.
func (e *BodyError) Answer(w http.ResponseWriter, contentType, text string) {
	DropBody(w)
	w.Header().Set("Content-Type", contentType)
	if e.Code == http.StatusTooManyRequests || e.Code == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(e.Code)
	_, _ = io.WriteString(w, text) // If the client is gone, nobody reads the answer.
}

func bodyError(code int, format string, args ...any) *BodyError {
	return &BodyError{Code: code, message: fmt.Sprintf(format, args...)}
}

// DropBody makes the answer to a request the last of its connection, and ends the wait for the rest
// of its body: otherwise net/http waits for it, and reads up to 256 KiB.
func DropBody(w http.ResponseWriter) {
	w.Header().Set("Connection", "close")
	// A writer that is not a connection has no deadline.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now())
}

// Body is a body in memory.
type Body struct {
	// Bytes is the body, valid until Release.
	Bytes []byte

	bodies *Bodies
	// parties are the parties that the body belongs to, by scope.
	parties [3]party
	// mine is the share of the body.
	mine share
}

// Release frees the memory. The body must not be used afterwards.
func (b *Body) Release() { b.free(b.mine) }

// Read reads the body of r, of at most limit bytes, until ctx ends or the timeout of the limits has
// passed. Authenticate the client first. The caller must release the body when the request is
// answered. If there is an error, answer with [BodyError.Answer].
func (b *Bodies) Read(ctx context.Context, w http.ResponseWriter, r *http.Request, limit int64) (*Body, *BodyError) {
	body := &Body{bodies: b, parties: partiesOf(r.RemoteAddr)}
	switch {
	case r.ContentLength > limit:
		return nil, body.refuse(ctx, w, r, "body has %d bytes, more than %d", r.ContentLength, limit)
	case r.ContentLength >= b.limits.Bytes:
		return nil, body.refuse(ctx, w, r, "body has %d bytes, but all bodies together may have less than %d", r.ContentLength, b.limits.Bytes)
	}
	arriving, cancel := context.WithTimeout(ctx, b.limits.Timeout)
	defer cancel()
	// Room for the announced length, plus one byte to find the end.
	most := limit
	if r.ContentLength >= 0 {
		most = r.ContentLength
	}
	if err := body.hold(ctx, min(most+1, firstRead), true); err != nil {
		return nil, err
	}
	from, stop := limitTime(arriving, w, r.Body)
	defer stop()
	if r.ContentLength < 0 {
		// The reader reports a body that is too long to net/http, which then gives the client time
		// to read the answer before closing the connection.
		from = http.MaxBytesReader(w, from, limit)
	}
	for {
		n, readErr := from.Read(body.Bytes[len(body.Bytes):cap(body.Bytes)])
		body.Bytes = body.Bytes[:len(body.Bytes)+n]
		var err *BodyError
		switch have := int64(len(body.Bytes)); {
		case have > most:
			err = bodyError(http.StatusBadRequest, "body has more than its declared %d bytes", most)
		case readErr == io.EOF:
			return body, nil
		case readErr != nil:
			err = cutOff(readErr, have, r.ContentLength)
		case have == int64(cap(body.Bytes)):
			err = body.hold(ctx, most+1, false)
		}
		if err == nil {
			continue
		}
		if err.Code == http.StatusRequestEntityTooLarge {
			err.Beginning = bytes.Clone(body.Bytes[:min(len(body.Bytes), beginningBytes)])
		}
		body.Release()
		return nil, err
	}
}

// partiesOf returns the parties of a body from a remote address.
func partiesOf(remote string) [3]party {
	from, _ := netip.ParseAddrPort(remote) // A remote without an address counts as one connection.
	addr := from.Addr().Unmap().WithZone("")
	if addr.Is6() {
		prefix, _ := addr.Prefix(64) // Never fails: every address has that many bits.
		addr = prefix.Addr()
	}
	return [...]party{{ofConnection, from}, {ofAddress, netip.AddrPortFrom(addr, 0)}, {scope: ofAll}}
}

// cutOff returns the error of a body that could not be read to its end. have is the number of bytes
// that have arrived.
func cutOff(err error, have, length int64) *BodyError {
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &tooLong):
		return bodyError(http.StatusRequestEntityTooLarge, "body has more than %d bytes", tooLong.Limit)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return bodyError(http.StatusBadRequest, "body is cut off after %d of %d bytes", have, length)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return bodyError(http.StatusRequestTimeout, "body did not arrive in time: %d bytes did", have)
	}
	return bodyError(http.StatusBadRequest, "read body: %v", err)
}

// firstRead bounds the memory of a body until that much of it has arrived, since an announced
// length is only a claim.
const firstRead = 128 << 10

// beginningBytes is the part read of a body that is too long. A review first names its object, and
// then the user's groups.
const beginningBytes = 16 << 10

// refuse returns the error of a body that announces too much. Its Beginning holds the bytes that
// have arrived by the time there are beginningBytes of them, or a body's wait for memory is over.
func (b *Body) refuse(ctx context.Context, w http.ResponseWriter, r *http.Request, format string, args ...any) *BodyError {
	err := bodyError(http.StatusRequestEntityTooLarge, format, args...)
	// A client that sends Expect would send the whole body.
	if r.Header.Get("Expect") != "" || b.hold(ctx, beginningBytes, true) != nil {
		return err
	}
	defer b.Release()
	ctx, cancel := context.WithTimeout(ctx, b.bodies.limits.Wait)
	defer cancel()
	from, stop := limitTime(ctx, w, r.Body)
	defer stop()
	n, _ := io.ReadFull(from, b.Bytes[:beginningBytes]) // An error leaves the bytes that have arrived.
	err.Beginning = bytes.Clone(b.Bytes[:n])
	return err
}

// limitTime returns a body whose Read ends with ctx, with [os.ErrDeadlineExceeded]. Call stop after
// the last Read.
func limitTime(ctx context.Context, w http.ResponseWriter, body io.ReadCloser) (_ io.ReadCloser, stop func()) {
	deadline, _ := ctx.Deadline()
	connection := http.NewResponseController(w)
	if connection.SetReadDeadline(deadline) == nil {
		// Data after the body is not part of it.
		return body, func() { _ = connection.SetReadDeadline(time.Time{}) }
	}
	// The writer hides the connection, as a middleware without Unwrap or a test does. Even if the
	// read does not end, the request ends in time.
	t := &timedBody{ctx: ctx, ReadCloser: body, reads: make(chan timedRead), stopped: make(chan struct{})}
	go t.run()
	return t, func() { close(t.stopped) }
}

// timedBody is a body that another goroutine reads.
type timedBody struct {
	io.ReadCloser
	ctx     context.Context
	reads   chan timedRead
	stopped chan struct{}
	// rest is the data that has arrived and was not yet returned by Read.
	rest timedRead
}

type timedRead struct {
	bytes []byte
	err   error
}

// timedReadBytes is the size of a buffer of such a body.
const timedReadBytes = 16 << 10

func (t *timedBody) run() {
	// Two buffers are needed, since the reader may hold one of them.
	var buffers [2][timedReadBytes]byte
	for i := 0; ; i++ {
		buffer := buffers[i%2][:]
		n, err := t.ReadCloser.Read(buffer)
		select {
		case t.reads <- timedRead{buffer[:n], err}:
		case <-t.stopped:
			return
		}
		if err != nil {
			return
		}
	}
}

// Read implements io.Reader.
func (t *timedBody) Read(p []byte) (int, error) {
	if len(t.rest.bytes) == 0 && t.rest.err == nil {
		select {
		case t.rest = <-t.reads:
		case <-t.ctx.Done():
			return 0, os.ErrDeadlineExceeded
		}
	}
	n := copy(p, t.rest.bytes)
	if t.rest.bytes = t.rest.bytes[n:]; len(t.rest.bytes) != 0 {
		return n, nil
	}
	return n, t.rest.err
}

// hold replaces the memory of the body by n bytes, and waits until that is within the limits.
// begins is set if the body may need more later.
func (b *Body) hold(ctx context.Context, n int64, begins bool) *BodyError {
	all := b.bodies
	if most := all.limits.Bytes; n > most {
		return bodyError(http.StatusRequestEntityTooLarge, "body may have %d bytes, and all bodies together %d", n, most)
	}
	more, old := share{held: n}, b.mine
	if begins {
		more.begun = n
	}
	var patience <-chan time.Time
	all.mu.Lock()
	for refused := b.add(more); refused != nil; refused = b.add(more) {
		if all.freed == nil {
			all.freed = make(chan struct{})
		}
		freed := all.freed
		all.mu.Unlock()
		if patience == nil {
			patience = time.After(all.limits.Wait)
		}
		select {
		case <-freed:
		case <-patience:
			return refused
		case <-ctx.Done():
			return refused
		}
		all.mu.Lock()
	}
	all.mu.Unlock()
	b.Bytes = append(make([]byte, 0, n), b.Bytes...)
	if old.held != 0 {
		b.free(old)
	}
	return nil
}

// add adds to the share of the body, or returns the reason that the sum is beyond the limits. The
// only body of an address or of a connection may be as long as all bodies together. The lock must
// be held.
func (b *Body) add(more share) *BodyError {
	all := b.bodies
	for _, p := range b.parties {
		s, most := all.shares[p], all.most[p.scope]
		if more.held <= 0 || p.scope != ofAll && s == b.mine {
			continue
		}
		if s.held+more.held > most || more.begun != 0 && s.begun != 0 && s.begun+more.begun > most/2 {
			return p.refuse(s, more, most)
		}
	}
	for _, p := range b.parties {
		all.give(p, more)
	}
	b.mine.held, b.mine.begun = b.mine.held+more.held, b.mine.begun+more.begun
	return nil
}

// refuse returns the error for a party with share s and limit most that gets no more.
func (p party) refuse(s, more share, most int64) *BodyError {
	code, whose := http.StatusTooManyRequests, "the bodies of this connection"
	switch p.scope {
	case ofAddress:
		whose = "the bodies from " + p.from.Addr().String()
	case ofAll:
		code, whose = http.StatusServiceUnavailable, "all bodies"
	}
	return bodyError(code, "%s have %d bytes, and %d more are too many: the limit is %d", whose, s.held, more.held, most)
}

// free returns a part of the body's share.
func (b *Body) free(less share) {
	all := b.bodies
	all.mu.Lock()
	defer all.mu.Unlock()
	b.add(share{-less.held, -less.begun})
	all.wake()
}

// give adds to the share of a party. The lock must be held.
func (b *Bodies) give(p party, more share) {
	s := b.shares[p]
	s.held, s.begun = s.held+more.held, s.begun+more.begun
	if b.shares[p] = s; s == (share{}) {
		delete(b.shares, p)
	}
}

// wake wakes the bodies that wait for memory. The lock must be held.
func (b *Bodies) wake() {
	if b.freed != nil {
		close(b.freed)
		b.freed = nil
	}
}
