package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks/runtime/standalone"
	"github.com/kubewasm/kubewasm/host"
)

// maxReload is the longest time between two attempts to load what could not be loaded.
const maxReload = 10 * time.Minute

// errReplaced ends an agent that was replaced by another.
var errReplaced = errors.New("a new configuration replaces the old one")

// reload is a mode of an agent that ends once another agent can take its place: the file has
// another configuration, or other plugins of it are for the node. The other agent has loaded its
// plugins by then. A configuration that cannot be applied is logged and changes nothing.
type reload struct {
	file string
	// text is the configuration of the agent.
	text []byte
	// follow makes reload follow the file, in addition to the labels of the node.
	follow    bool
	relabeled <-chan struct{}
	// hooks are the NodeHooks, nil without them.
	hooks *nodeHooks
	// build creates an agent. If again is set, nothing has changed, but what could not be loaded may be
	// loaded now; otherwise the error is errStillStale.
	build  func(text []byte, again bool) (*agent, error)
	logger *slog.Logger

	// stale is set while the configuration in the file, or the labels of the node, are not applied.
	stale atomic.Bool
	mu    sync.Mutex
	next  *agent
}

// setReload lets another agent replace a when necessary.
func (a *agent) setReload(r *reload) {
	a.reload, r.relabeled = r, a.relabeled
	a.modes = append(a.modes, r)
}

// Run follows the configuration until ctx ends or another agent is ready.
func (r *reload) Run(ctx context.Context) error {
	outer := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	failed := func(err error) {
		if ctx.Err() == nil {
			r.stale.Store(true)
			r.logger.Error("the configuration is refused; the agent continues with the previous one", slog.Any("err", err))
		}
	}
	take := func(text []byte, again bool) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.next != nil || ctx.Err() != nil {
			return nil
		}
		next, err := r.build(text, again)
		if err == nil {
			r.next = next
			cancel()
		}
		return err
	}
	all.Go(func() {
		again := time.NewTimer(0)
		again.Stop()
		wait := host.DefaultFollowInterval
		var changed <-chan struct{}
		if r.hooks != nil {
			if changed = r.hooks.changed; r.hooks.stale() {
				again.Reset(wait)
			}
		}
		for {
			retry := false
			select {
			case <-ctx.Done():
				return
			case <-r.relabeled:
			case <-changed:
			case <-again.C:
				retry = r.hooks != nil && !r.stale.Load()
			}
			err := take(r.text, retry)
			if err != nil && !errors.Is(err, errStillStale) {
				failed(err)
			}
			if err != nil {
				again.Reset(wait)
				wait = min(2*wait, maxReload)
			}
		}
	})
	if r.follow {
		digest := sha256.Sum256(r.text)
		applied := hex.EncodeToString(digest[:])
		all.Go(func() {
			err := host.Follow(ctx, host.File(r.file), host.FollowOptions{
				Applied: applied, Failed: failed, Checked: func(sha256 string) { r.stale.Store(sha256 != applied) },
			}, func(_ context.Context, text []byte, _ string) error { return take(text, false) })
			if err != nil {
				failed(err)
			}
		})
	}
	all.Wait()
	if r.next != nil {
		return errReplaced
	}
	return context.Cause(outer)
}

// handOver restores the fields decided by plugins that the next agent does not have unchanged.
func (a *agent) handOver(ctx context.Context, next *agent, logger *slog.Logger) {
	var fields hookmsg.Fields
	var whole bool // Of unified.
	files := map[string]bool{}
	for i := range a.plugins {
		stays := false
		for j := range next.plugins {
			stays = stays || reflect.DeepEqual(a.plugins[i], next.plugins[j])
		}
		for _, name := range a.plugins[i].Owns {
			if field, key, err := hookmsg.ParseField(name); err == nil && !stays {
				fields |= field
				whole = whole || field == hookmsg.FieldUnified && key == ""
				files[key] = files[key] || field == hookmsg.FieldUnified
			}
		}
	}
	if fields &= standalone.Restorable; fields == 0 || ctx.Err() != nil {
		return
	}
	for _, mode := range a.modes {
		if m, ok := mode.(*standalone.Reconciler); ok {
			if _, err := m.Restore(ctx, fields, func(name string) bool { return whole || files[name] }); err != nil {
				logger.Warn("some decisions of the previous configuration's plugins were not restored", slog.Any("err", err))
			}
			return
		}
	}
	logger.Warn("decisions of the previous configuration's plugins stay: without the standalone mode, the running pods are unknown", slog.String("fields", fields.String()))
}
