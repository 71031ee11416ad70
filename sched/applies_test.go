package sched

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/objects/lookup"
)

// applyingHandle is a scheduler that applies by a function.
type applyingHandle struct {
	Handle
	apply func(context.Context) error
}

func (h applyingHandle) Apply(ctx context.Context, _ string, _ Applied) error { return h.apply(ctx) }

// TestApplyEndsWithThePlugin holds that a plugin that is closed ends the request under way, makes none of
// the changes that are left, and takes no others.
func TestApplyEndsWithThePlugin(t *testing.T) {
	things := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, name := range []string{"a", "b", "c"} {
		if err := things.Add(podNamed(name)); err != nil {
			t.Fatal(err)
		}
	}
	var log strings.Builder
	p := &Plugin{guest: new(host.Plugin), closed: make(chan struct{}), callLogger: slog.New(slog.NewTextHandler(&log, nil))}
	p.informers = map[string]informer{"v1/things": {Objects: Objects{GenericLister: cache.NewGenericLister(things, schema.GroupResource{Resource: "things"})}}}
	requests := 0
	p.handle = applyingHandle{apply: func(ctx context.Context) error {
		if requests++; requests == 1 {
			close(p.closed)
		}
		<-ctx.Done()
		if !errors.Is(ctx.Err(), context.Canceled) {
			t.Errorf("the request ends by %v", ctx.Err())
		}
		return ctx.Err()
	}}
	p.applies.running = true // The test runs them.
	add := func(name string) {
		p.applies.add(p, queuedApply{&lookup.Apply{Resource: "v1/things", Namespace: "shop", Name: name, Status: []byte("{}")}, 1, 0})
	}
	for _, name := range []string{"a", "b", "c"} {
		add(name)
	}
	p.applies.run(p)
	add("a")
	if got, want := fmt.Sprint(requests, len(p.applies.wanted), p.applies.bytes, p.applies.running), "1 0 0 false"; got != want {
		t.Errorf("requests, changes, bytes, running: %s, want %s", got, want)
	}
	if want := `msg="changes of objects are not made: the plugin is closed" plugin="" dropped=2`; !strings.Contains(log.String(), want) {
		t.Errorf("logged: %s, want %s", log.String(), want)
	}
}
