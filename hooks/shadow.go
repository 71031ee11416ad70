package hooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/shadow"
)

// background holds the copies of a plugin that are called after it.
type background struct {
	shadow, profile shadow.Place
}

// candidate is a plugin whose decisions have no effect.
type candidate struct{ *plugin }

// Guest implements [shadow.Candidate].
func (c candidate) Guest() *host.Plugin { return c.Plugin }

// BeginShadow begins to call a candidate with a plugin's requests, and replaces an earlier
// candidate; see package shadow of host. Its decisions are checked like those of the plugin, and
// dropped.
func (e *Engine) BeginShadow(ctx context.Context, name string, cfg shadow.Config) error {
	p, err := e.find(name)
	if err != nil {
		return fmt.Errorf("begin shadow: %w", err)
	}
	opts := p.backgroundOptions(e.logger)
	if len(cfg.GuestConfig) == 0 {
		opts.Promote = func(ctx context.Context, p *shadow.Promotion) error {
			return e.swap(ctx, name, p.Source, p.SHA256, p.Claim)
		}
	}
	s, err := shadow.Begin(cfg, opts)
	if err != nil {
		return err
	}
	return p.background.shadow.Put(ctx, s)
}

// BeginProfile begins to profile a copy of a plugin on the plugin's next calls.
func (e *Engine) BeginProfile(ctx context.Context, name string, calls int) error {
	p, err := e.find(name)
	if err != nil {
		return fmt.Errorf("begin profile: %w", err)
	}
	s, err := shadow.Profile(calls, p.Source(), p.backgroundOptions(e.logger))
	if err != nil {
		return err
	}
	return p.background.profile.Put(ctx, s)
}

// Shadow returns the shadow of a plugin, nil if there was none.
func (e *Engine) Shadow(name string) *shadow.Shadow {
	if p, err := e.find(name); err == nil {
		return p.background.shadow.Shadow()
	}
	return nil
}

// Profile returns the current or last profile of a plugin, nil if there was none.
func (e *Engine) Profile(name string) *shadow.Shadow {
	if p, err := e.find(name); err == nil {
		return p.background.profile.Shadow()
	}
	return nil
}

// Guest returns the guest of a plugin, nil if there is no plugin of that name.
func (e *Engine) Guest(name string) *host.Plugin {
	if p, err := e.find(name); err == nil {
		return p.Plugin
	}
	return nil
}

func (e *Engine) find(name string) (*plugin, error) {
	i := slices.IndexFunc(e.plugins, func(p *plugin) bool { return p.Name() == name })
	if i < 0 {
		return nil, fmt.Errorf("there is no plugin %q", name)
	}
	return e.plugins[i], nil
}

func (p *plugin) backgroundOptions(logger *slog.Logger) shadow.Options {
	return shadow.Options{
		Plugin: p.Name(), Serving: p.Plugin, Runtime: p.runtime, Logger: logger, Observer: p.cfg.Observer,
		Load: func(ctx context.Context, rt *host.Runtime, change func(*host.Config)) (shadow.Candidate, error) {
			c := &plugin{
				order: p.order, stages: p.stages, levels: p.levels, policy: host.Fail, selector: p.selector, configured: p.configured,
				owns: p.owns, grants: p.grants, node: p.node, foreign: p.foreign, nodeless: p.nodeless, resources: p.resources,
			}
			if p.audit != nil { // It accepts decisions without grants.
				c.audit = func(context.Context, *hookmsg.Request, string, *GrantError) {}
			}
			c.lacks.Store(p.lacks.Load())
			cfg := p.cfg
			change(&cfg)
			if err := c.load(ctx, rt, cfg); err != nil {
				return nil, err
			}
			return candidate{c}, nil
		},
	}
}

func (b *background) close(ctx context.Context) error {
	return errors.Join(b.shadow.Close(ctx), b.profile.Close(ctx))
}

// offer passes a call to the shadow and the profile, if they sample it. d and err are the result of
// the call.
func (b *background) offer(req *hookmsg.Request, known objects, earlier []part, d *hookmsg.Decision, err error) {
	var call shadow.Call
	var bytes int64
	for _, s := range []*shadow.Shadow{b.shadow.Shadow(), b.profile.Shadow()} {
		if !s.Sampled() || !s.Room(0) {
			continue
		}
		if call == nil {
			encoded := req.Append(nil)
			call, bytes = repeat(encoded, known, slices.Clone(earlier), d, err), int64(len(encoded))
			for _, p := range earlier {
				bytes += decisionBytes(p.decision)
			}
			bytes += decisionBytes(d)
		}
		s.Offer(call, bytes, nil)
	}
}

// decisionBytes returns the approximate number of bytes kept with a decision.
func decisionBytes(d *hookmsg.Decision) int64 {
	if d == nil {
		return 0
	}
	return int64(len(d.Append(nil)))
}

// repeat returns a function that calls a candidate with the same request.
func repeat(encoded []byte, known objects, earlier []part, d *hookmsg.Decision, failure error) shadow.Call {
	return func(ctx context.Context, c shadow.Candidate) shadow.Outcome {
		p := c.(candidate).plugin
		req, err := hookmsg.ParseRequest(encoded)
		if err != nil {
			return shadow.Outcome{Err: err}
		}
		stain := stainOf(&p.cfg.Confidential, encoded)
		was := kindOf(d, failure)
		got, err := p.decide(ctx, &encoding{objects: known}, req, earlier)
		is := kindOf(got, err)
		switch {
		case err != nil && failure == nil:
			return shadow.Outcome{Serving: was, Err: err, Subject: describe(req), Stain: stain}
		case err != nil: // Two versions may fail with different words.
			return shadow.Outcome{Uncompared: true}
		case failure == nil && reflect.DeepEqual(d.Select(d.Fields()), got.Select(got.Fields())):
			return shadow.Outcome{}
		}
		before, _ := json.Marshal(d) // For display only.
		after, _ := json.Marshal(got)
		return shadow.Outcome{Serving: was, Candidate: is, Subject: describe(req), Detail: fmt.Sprintf("%s -> %s", before, after), Stain: stain}
	}
}

// kindOf returns the fields that a decision sets.
func kindOf(d *hookmsg.Decision, err error) string {
	switch {
	case err != nil:
		return "failure"
	case d.Fields() == 0:
		return "nothing"
	}
	return d.Fields().String()
}
