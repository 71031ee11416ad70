package hooks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
)

// ErrNodeUnknown is the failure of a plugin that declares that it reads the node, before the
// node is known.
var ErrNodeUnknown = errors.New("the node is not known yet")

// SetNode makes node the node of all requests that have none, until the next call. Plugins
// that declare that they read the node are asked from then on; before, they fail with
// [ErrNodeUnknown]. [Engine.Changed] tells of a node that differs from the one before in
// what a plugin reads. node must not change afterwards.
func (e *Engine) SetNode(ctx context.Context, node *hookmsg.Node) {
	before := e.node.Swap(node)
	for _, p := range e.plugins {
		if p.sees(ctx, before, node) {
			e.signal()
			return
		}
	}
}

// sees reports whether two nodes differ in what the plugin reads.
func (p *plugin) sees(ctx context.Context, before, after *hookmsg.Node) bool {
	reads := p.configured
	if reads == nil {
		inst, err := p.Acquire(ctx)
		if err != nil {
			return true // It is unknown what it reads.
		}
		defer inst.Release()
		reads = p.reads(inst)
	}
	return !bytes.Equal(reads.AppendNode(nil, before), reads.AppendNode(nil, after)) || (before == nil) != (after == nil) && reads.NeedsNode()
}

// checkNode reports what a plugin declares to read of a node that the engine does not follow.
func (p *plugin) checkNode(reads *hookmsg.Reads) error {
	if !p.nodeless || !reads.NeedsNode() {
		return nil
	}
	return fmt.Errorf("it reads %s, and the configuration does not have the node followed", strings.Join(reads.Node(), ", "))
}

// onNode returns the request with the node, which is a copy in into unless the node is
// unknown or the request has one.
func (e *Engine) onNode(req, into *hookmsg.Request) *hookmsg.Request {
	node := e.node.Load()
	if node == nil || req.Node != nil {
		return req
	}
	*into = *req
	into.Node = node
	return into
}

// release gives the buffer of a request back.
func (e *Engine) release(encoded *encoding) {
	encoded.request, encoded.objects = hookmsg.Request{}, nil
	e.requests.Put(encoded)
}
