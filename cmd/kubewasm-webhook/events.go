package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/kubewasm/kubewasm/internal/cut"
	"github.com/kubewasm/kubewasm/internal/serving"
)

// denials is a log that also writes an Event for each denial. The line of a denial has what an
// Event may tell: it is masked, bounded, and within the budget of its policy.
type denials struct {
	slog.Handler
	recorder atomic.Pointer[record.EventRecorder]
	// of is the log that this one was derived from, with the recorder, nil for itself.
	of    *denials
	attrs []slog.Attr
}

// writeEvents begins to write Events, until stop is called. It drops those that are too many:
// see package record.
func (d *denials) writeEvents(cluster *rest.Config) (stop func(), err error) {
	client, err := typedcore.NewForConfig(cluster)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typedcore.EventSinkImpl{Interface: client.Events("")})
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "kubewasm-webhook"})
	var r record.EventRecorder = recorder
	d.recorder.Store(&r)
	return func() {
		d.recorder.Store(nil)
		broadcaster.Shutdown()
	}, nil
}

// root returns the log that has the recorder.
func (d *denials) root() *denials {
	if d.of != nil {
		return d.of
	}
	return d
}

// Enabled implements [slog.Handler]. The line of a denial has the level info.
func (d *denials) Enabled(ctx context.Context, level slog.Level) bool {
	return d.Handler.Enabled(ctx, level) || level == slog.LevelInfo && d.root().recorder.Load() != nil
}

// Handle implements [slog.Handler].
func (d *denials) Handle(ctx context.Context, r slog.Record) error {
	if recorder := d.root().recorder.Load(); recorder != nil && r.Message == serving.DeniedMessage {
		d.event(*recorder, r)
	}
	if !d.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return d.Handler.Handle(ctx, r)
}

// event writes the Event of a denial, in the namespace of the object.
func (d *denials) event(recorder record.EventRecorder, r slog.Record) {
	text := map[string]string{}
	for _, a := range d.attrs {
		text[a.Key] = a.Value.String()
	}
	r.Attrs(func(a slog.Attr) bool {
		text[a.Key] = a.Value.String()
		return true
	})
	regarding := &corev1.ObjectReference{Kind: text["kind"], Namespace: text["namespace"], Name: text["name"]}
	if regarding.Name == "" { // An API server has yet to choose it.
		regarding = &corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: text["namespace"], Namespace: text["namespace"]}
	}
	// An API server takes 1,024 bytes.
	recorder.Event(regarding, corev1.EventTypeWarning, "DeniedByPolicy", cut.Marked(fmt.Sprintf("policy %s denied %s of the %s by %s: %s", text["policy"], text["operation"], text["kind"], text["user"], text["message"]), 1024))
}

// WithAttrs implements [slog.Handler].
func (d *denials) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &denials{Handler: d.Handler.WithAttrs(attrs), of: d.root(), attrs: append(d.attrs[:len(d.attrs):len(d.attrs)], attrs...)}
}

// WithGroup implements [slog.Handler].
func (d *denials) WithGroup(name string) slog.Handler {
	return &denials{Handler: d.Handler.WithGroup(name), of: d.root(), attrs: d.attrs}
}
