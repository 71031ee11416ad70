package serving

import (
	"cmp"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
)

// connections bounds the number of connections of a server. A new connection is always accepted: if
// necessary, the least important one is closed for it.
type connections struct {
	most int

	mu  sync.Mutex
	all map[net.Conn]*connection
	// events counts events, as a logical clock.
	events int
}

// connection is the state of a connection.
type connection struct {
	address netip.Addr
	// busy reports whether it serves a request, and trusted whether its client has shown a verified
	// certificate.
	busy, trusted bool
	// since is the time of the last change to or from busy.
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
		// The handshake is over, since a request has begun.
		trusted = len(secure.ConnectionState().VerifiedChains) != 0
	}
	if victim := c.note(conn, state, trusted); victim != nil {
		if secure, ok := victim.(*tls.Conn); ok {
			victim = secure.NetConn() // Skips the TLS alert, since the client may not read it.
		}
		// The connection is abandoned, so its error does not matter.
		_ = victim.Close()
	}
}

// note records the state of a connection and returns a connection to close, or nil.
func (c *connections) note(conn net.Conn, state http.ConnState, trusted bool) (victim net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events++
	if state == http.StateNew {
		if len(c.all) >= c.most {
			victim = c.leastMissed()
			delete(c.all, victim)
		}
		from, _ := netip.ParseAddrPort(conn.RemoteAddr().String()) // Without addresses, all count as one.
		c.all[conn] = &connection{address: from.Addr().Unmap(), since: c.events}
	} else if known := c.all[conn]; known != nil {
		known.busy, known.trusted, known.since = state == http.StateActive, trusted, c.events
	}
	return victim
}

// leastMissed returns the least important connection. It prefers, in this order, connections
// without a verified client, connections from the address with the most connections, connections
// without a request, and the longest time in that state.
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
