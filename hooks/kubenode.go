package hooks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
)

// errNodeUnknown is the failure of a plugin that declares a read of the node, as long as the node
// is unknown.
var errNodeUnknown = errors.New("the node is not known yet")

// SetNode sets the node of all requests without one, until the next call. Plugins that declare a
// read of the node can be asked only after the first call; before, they fail.
// The channel of [Engine.Changed] is closed if a field that a plugin reads differs from the
// previous node. node must not change afterwards.
func (e *Engine) SetNode(ctx context.Context, node *hookmsg.Node) {
	before := e.node.Swap(node)
	for _, p := range e.plugins {
		if p.sees(ctx, before, node) {
			e.signal()
			return
		}
	}
}

// sees reports whether two nodes differ in a field that the plugin reads.
func (p *plugin) sees(ctx context.Context, before, after *hookmsg.Node) bool {
	reads := p.configured
	if reads == nil {
		inst, err := p.Acquire(ctx)
		if err != nil {
			return true // The fields that it reads are unknown.
		}
		defer inst.Release()
		reads = p.reads(inst)
	}
	return !bytes.Equal(reads.AppendNode(nil, before), reads.AppendNode(nil, after)) || (before == nil) != (after == nil) && reads.NeedsNode()
}

// checkNode returns an error if a plugin declares a read of the node and the engine does not follow
// one.
func (p *plugin) checkNode(reads *hookmsg.Reads) error {
	if !p.nodeless || !reads.NeedsNode() {
		return nil
	}
	return fmt.Errorf("it reads %s, but the configuration does not follow the node", strings.Join(reads.Node(), ", "))
}

// onNode returns the request with the node. The result is a copy in into, unless the node is
// unknown or the request already has one.
func (e *Engine) onNode(req, into *hookmsg.Request) *hookmsg.Request {
	node := e.node.Load()
	if node == nil || req.Node != nil {
		return req
	}
	*into = *req
	into.Node = node
	return into
}

// release returns the buffer of a request to the pool.
func (e *Engine) release(encoded *encoding) {
	encoded.request, encoded.objects = hookmsg.Request{}, nil
	e.requests.Put(encoded)
}
