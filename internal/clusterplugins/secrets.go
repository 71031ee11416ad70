package clusterplugins

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// masked stands in the place of a Secret's text.
	masked = "(secret)"
	// shortest is the number of bytes from which a text is masked, and keepSecret the time for which
	// one is masked that no object names any more.
	shortest, keepSecret = 4, time.Hour
	// formerSecrets is the number of such texts of a namespace: one that changes all the time takes
	// neither the memory nor the place of others.
	formerSecrets = 16
)

// Secrets are the texts of Secrets that plugins have in their guestConfig. It masks them in messages of
// guests, which may quote their configuration. The zero value has none, and a nil one masks nothing. It
// is safe for use by several goroutines.
type Secrets struct {
	replacer atomic.Pointer[strings.Replacer]
	mu       sync.Mutex
	seen     map[secretText]time.Time
}

// secretText is a text of a Secret of a namespace.
type secretText struct{ namespace, text string }

// set sets the texts.
func (s *Secrets) set(texts []secretText, now time.Time) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil {
		s.seen = map[secretText]time.Time{}
	}
	before := len(s.seen)
	changed := false
	present := map[secretText]bool{}
	for _, text := range texts {
		_, known := s.seen[text]
		s.seen[text], changed, present[text] = now, changed || !known, true
	}
	former := map[string][]secretText{}
	for text, at := range s.seen {
		switch {
		case now.Sub(at) > keepSecret:
			delete(s.seen, text)
		case !present[text]:
			former[text.namespace] = append(former[text.namespace], text)
		}
	}
	for _, list := range former {
		slices.SortFunc(list, func(a, b secretText) int { return s.seen[b].Compare(s.seen[a]) })
		for _, text := range list[min(len(list), formerSecrets):] {
			delete(s.seen, text)
		}
	}
	if !changed && len(s.seen) == before {
		return
	}
	parts := map[string]bool{}
	for of := range s.seen {
		split(of.text, parts)
	}
	var list []string
	for part := range parts {
		list = append(list, part)
	}
	// The longest first, as one may begin with another.
	slices.SortFunc(list, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b)) })
	pairs := make([]string, 0, 2*len(list))
	for _, part := range list {
		pairs = append(pairs, part, masked)
	}
	s.replacer.Store(strings.NewReplacer(pairs...))
}

// split adds what is to be masked of a text: the text, its lines, and the strings in it if it is JSON, each
// as it is and as messages quote it.
func split(text string, parts map[string]bool) {
	add := func(part string) {
		if part = strings.TrimSpace(part); len(part) < shortest {
			return
		}
		parts[part] = true
		for _, quote := range []func(string) string{strconv.Quote, strconv.QuoteToASCII, jsonQuote} {
			quoted := quote(part)
			parts[quoted[1:len(quoted)-1]] = true
		}
	}
	add(text)
	for line := range strings.Lines(text) {
		if len(line) >= 2*shortest {
			add(line)
		}
	}
	var walk func(any)
	walk = func(value any) {
		switch v := value.(type) {
		case string:
			add(v)
		case []any:
			for _, of := range v {
				walk(of)
			}
		case map[string]any:
			for _, of := range v {
				walk(of)
			}
		}
	}
	var value any
	if json.Unmarshal([]byte(text), &value) == nil {
		walk(value)
	}
}

// jsonQuote returns a text as a string of JSON.
func jsonQuote(text string) string {
	quoted, err := json.Marshal(text)
	if err != nil {
		return strconv.Quote(text) // There is no error of strings.
	}
	return string(quoted)
}

// Mask returns a text with the texts of Secrets masked.
func (s *Secrets) Mask(text string) string {
	if s == nil {
		return text
	}
	replacer := s.replacer.Load()
	if replacer == nil {
		return text
	}
	return replacer.Replace(text)
}

// Handler returns a handler that masks the lines for another one.
func (s *Secrets) Handler(of slog.Handler) slog.Handler { return masking{of, s} }

// masking is the handler of Secrets.Handler.
type masking struct {
	slog.Handler
	secrets *Secrets
}

// Handle implements [slog.Handler].
func (m masking) Handle(ctx context.Context, r slog.Record) error {
	if m.secrets == nil || m.secrets.replacer.Load() == nil {
		return m.Handler.Handle(ctx, r)
	}
	clean := slog.NewRecord(r.Time, r.Level, m.secrets.Mask(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		clean.AddAttrs(m.attr(a))
		return true
	})
	return m.Handler.Handle(ctx, clean)
}

// attr masks an attribute.
func (m masking) attr(a slog.Attr) slog.Attr {
	a.Value = a.Value.Resolve()
	switch a.Value.Kind() {
	case slog.KindGroup:
		group := slices.Clone(a.Value.Group())
		for i := range group {
			group[i] = m.attr(group[i])
		}
		a.Value = slog.GroupValue(group...)
	case slog.KindString, slog.KindAny:
		text := a.Value.String()
		if clean := m.secrets.Mask(text); clean != text {
			a.Value = slog.StringValue(clean)
		}
	}
	return a
}

// WithAttrs implements [slog.Handler].
func (m masking) WithAttrs(attrs []slog.Attr) slog.Handler {
	attrs = slices.Clone(attrs)
	for i := range attrs {
		attrs[i] = m.attr(attrs[i])
	}
	return masking{m.Handler.WithAttrs(attrs), m.secrets}
}

// WithGroup implements [slog.Handler].
func (m masking) WithGroup(name string) slog.Handler {
	return masking{m.Handler.WithGroup(name), m.secrets}
}
