package statusz

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
)

// lines is a log that keeps refusals and traps. The lines about them are masked, cut, and within the
// budgets of their plugins.
type lines struct {
	slog.Handler
	c     *Collector
	attrs []slog.Attr
	// grouped is set below a group, whose attributes mean something else.
	grouped bool
}

// Log returns a handler that passes lines on to h, and keeps those about refusals and traps: also
// those of the level info if h drops them.
func (c *Collector) Log(h slog.Handler) slog.Handler { return &lines{Handler: h, c: c} }

// Enabled implements [slog.Handler].
func (l *lines) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || l.Handler.Enabled(ctx, level)
}

// Handle implements [slog.Handler].
func (l *lines) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo && !l.grouped {
		l.keep(r)
	}
	if !l.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return l.Handler.Handle(ctx, r)
}

// keep keeps the line of a refusal, which has a request, or of a trap, which has a stack. Attributes
// of guests are in a group.
func (l *lines) keep(r slog.Record) {
	var text map[string]string
	add := func(a slog.Attr) bool {
		switch a.Key {
		case "plugin", "profile", "policy", "function", "uid", "request", "operation", "kind", "namespace", "name", "user", "message", "err", "reason", "panic", "stack":
			if a.Value.Kind() != slog.KindGroup {
				if text == nil {
					text = map[string]string{}
				}
				text[a.Key] = a.Value.String()
			}
		}
		return true
	}
	for _, a := range l.attrs {
		add(a)
	}
	r.Attrs(add)
	e := Event{Time: r.Time, Event: r.Message, Plugin: cmp.Or(text["policy"], text["plugin"]), Function: text["function"], Stack: text["stack"],
		User: text["user"], Reason: cmp.Or(text["message"], text["err"], text["reason"], text["panic"])}
	if profile := text["profile"]; profile != "" {
		e.Plugin = profile + "/" + e.Plugin
	}
	e.Object = text["request"]
	e.Monitored = strings.Contains(r.Message, "would have") || strings.Contains(r.Message, "monitor mode")
	if e.Object == "" {
		parts := []string{text["operation"], text["kind"], strings.Trim(text["namespace"]+"/"+text["name"], "/")}
		e.Object = strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), " ")
	}
	switch {
	case e.Stack != "":
		l.c.traps.add(e)
	case (text["uid"] != "" || text["request"] != "") && text["message"]+text["err"] != "":
		l.c.refusals.add(e)
	}
}

// WithAttrs implements [slog.Handler].
func (l *lines) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *l
	next.Handler = l.Handler.WithAttrs(attrs)
	if !l.grouped {
		next.attrs = append(l.attrs[:len(l.attrs):len(l.attrs)], attrs...)
	}
	return &next
}

// WithGroup implements [slog.Handler].
func (l *lines) WithGroup(name string) slog.Handler {
	next := *l
	next.Handler, next.grouped = l.Handler.WithGroup(name), l.grouped || name != ""
	return &next
}
