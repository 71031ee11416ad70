package serving

import (
	"cmp"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
)

// connections bounds how many connections a server has. There is always room for
// one more: the one that is missed least is closed for it.
type connections struct {
	most int

	mu  sync.Mutex
	all map[net.Conn]*connection
	// events counts what has happened, as a clock.
	events int
}

// connection is what is known of a connection.
type connection struct {
	address netip.Addr
	// busy says that it is at a request, and trusted that its client has shown a
	// certificate that was verified.
	busy, trusted bool
	// since is when it became busy, or was so last.
	since int
}

func newConnections(most int) *connections {
	return &connections{most: most, all: map[net.Conn]*connection{}}
}

// changed is http.Server.ConnState.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	if state == http.StateClosed || state == http.StateHijacked {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.all, conn)
		return
	}
	trusted := false
	if secure, ok := conn.(*tls.Conn); ok && state != http.StateNew {
		// The handshake is over: there are bytes of a request.
		trusted = len(secure.ConnectionState().VerifiedChains) != 0
	}
	if victim := c.note(conn, state, trusted); victim != nil {
		if secure, ok := victim.(*tls.Conn); ok {
			victim = secure.NetConn() // Without a word to a client that may not read it.
		}
		// It is of no use any more, whatever the error is.
		_ = victim.Close()
	}
}

// note notes the state of a connection and returns one to close, or nil.
func (c *connections) note(conn net.Conn, state http.ConnState, trusted bool) (victim net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events++
	if state == http.StateNew {
		if len(c.all) >= c.most {
			victim = c.leastMissed()
			delete(c.all, victim)
		}
		from, _ := netip.ParseAddrPort(conn.RemoteAddr().String()) // Or all have none.
		c.all[conn] = &connection{address: from.Addr().Unmap(), since: c.events}
	} else if known := c.all[conn]; known != nil {
		known.busy, known.trusted, known.since = state == http.StateActive, trusted, c.events
	}
	return victim
}

// leastMissed returns a connection without a verified client if there is one, from
// the address that has most of them; of these one without a request if there is one,
// and the one that has been so for longest.
func (c *connections) leastMissed() (least net.Conn) {
	type class struct {
		trusted bool
		address netip.Addr
	}
	count := map[class]int{}
	for _, k := range c.all {
		count[class{k.trusted, k.address}]++
	}
	missed := func(a, b *connection) int {
		return cmp.Or(
			compareBool(a.trusted, b.trusted),
			cmp.Compare(count[class{b.trusted, b.address}], count[class{a.trusted, a.address}]),
			compareBool(a.busy, b.busy),
			cmp.Compare(a.since, b.since),
		)
	}
	for conn, k := range c.all {
		if least == nil || missed(k, c.all[least]) < 0 {
			least = conn
		}
	}
	return least
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
