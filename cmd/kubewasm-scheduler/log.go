package main

import (
	"context"
	"log/slog"
	"slices"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/kubewasm/kubewasm/internal/foreign"
)

// klogHandler writes to the log of kube-scheduler, as its flags say at the time. Texts of guests
// become one line each.
type klogHandler struct {
	// attrs are those of the logger, and prefix that of the names of further ones. klog v2.140
	// loses attributes that its own handler is given.
	attrs  []slog.Attr
	prefix string
}

// Enabled implements [slog.Handler].
func (h *klogHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return logr.ToSlogHandler(klog.Background()).Enabled(ctx, level)
}

// Handle implements [slog.Handler].
func (h *klogHandler) Handle(ctx context.Context, r slog.Record) error {
	escaped := slog.NewRecord(r.Time, r.Level, foreign.Line(r.Message), r.PC)
	escaped.AddAttrs(h.attrs...)
	r.Attrs(func(a slog.Attr) bool {
		escaped.AddAttrs(h.escape(a))
		return true
	})
	return logr.ToSlogHandler(klog.Background()).Handle(ctx, escaped)
}

// escape returns an attribute whose names and texts are one line each.
func (h *klogHandler) escape(a slog.Attr) slog.Attr {
	a.Key, a.Value = h.prefix+foreign.Line(a.Key), a.Value.Resolve()
	switch a.Value.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(foreign.Line(a.Value.String()))
	case slog.KindGroup: // Attributes of guests, with names of their choice.
		group := slices.Clone(a.Value.Group())
		for i := range group {
			group[i] = new(klogHandler).escape(group[i])
		}
		a.Value = slog.GroupValue(group...)
	case slog.KindAny:
		if err, ok := a.Value.Any().(error); ok {
			a.Value = slog.StringValue(foreign.Line(err.Error()))
		}
	}
	return a
}

// WithAttrs implements [slog.Handler].
func (h *klogHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := &klogHandler{slices.Clone(h.attrs), h.prefix}
	for _, a := range attrs {
		with.attrs = append(with.attrs, h.escape(a))
	}
	return with
}

// WithGroup implements [slog.Handler].
func (h *klogHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return &klogHandler{h.attrs, h.prefix + name + "."}
}
