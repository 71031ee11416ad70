package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/kubewasm/kubewasm/admission/internal/policy"
	"github.com/kubewasm/kubewasm/admission/internal/serving"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/confidential"
	"github.com/kubewasm/kubewasm/host/shadow"
)

// background are the copies of a plugin that are asked after it.
type background struct {
	shadow, profile shadow.Place
}

// checkShadow returns the mistakes of PluginConfig.Shadow.
func (cfg *PluginConfig) checkShadow(rt *host.Runtime) (errs []error) {
	if cfg.Shadow == nil {
		return nil
	}
	return cfg.Shadow.Check(rt, "shadow")
}

// BeginShadow begins to ask a candidate what the plugin is asked, see package shadow of host, in
// place of one that was asked before. Verdicts of the candidate have no effect. What it looks up or
// asks its host has the answers that the plugin got in that call; while it is loaded, it asks by
// itself. Requests to the engine are kept for it, and must not be changed afterwards.
func (p *Plugin) BeginShadow(ctx context.Context, cfg shadow.Config) error {
	all := p.cfg
	all.Shadow = &cfg
	if errs := all.checkShadow(p.runtime); len(errs) != 0 {
		return fmt.Errorf("plugin %q: %w", p.Name(), errors.Join(errs...))
	}
	opts := p.backgroundOptions()
	opts.Promote = p.cfg.Promote
	s, err := shadow.Begin(cfg, opts)
	if err != nil {
		return err
	}
	return p.background.shadow.Put(ctx, s)
}

// BeginProfile begins to profile a copy of the plugin on the next calls of it.
func (p *Plugin) BeginProfile(ctx context.Context, calls int) error {
	s, err := shadow.Profile(calls, p.guest.Source(), p.backgroundOptions())
	if err != nil {
		return err
	}
	return p.background.profile.Put(ctx, s)
}

// Shadow returns the shadow of the plugin, nil if there was none.
func (p *Plugin) Shadow() *shadow.Shadow { return p.background.shadow.Shadow() }

// Profile returns the profile that runs, or ran last, nil if there was none.
func (p *Plugin) Profile() *shadow.Shadow { return p.background.profile.Shadow() }

func (p *Plugin) backgroundOptions() shadow.Options {
	return shadow.Options{
		Plugin: p.Name(), Serving: p.guest, Runtime: p.runtime, Logger: p.cfg.Logger, Observer: p.cfg.Config.Observer,
		Load: func(ctx context.Context, rt *host.Runtime, change func(*host.Config)) (shadow.Candidate, error) {
			cfg := p.cfg
			change(&cfg.Config)
			cfg.Shadow, cfg.PolicyRules.Observer = nil, nil
			return Load(ctx, rt, cfg)
		},
	}
}

func (b *background) close(ctx context.Context) error {
	return errors.Join(b.shadow.Close(ctx), b.profile.Close(ctx))
}

// none reports whether there are no copies, which is nearly always so.
func (b *background) none() bool { return b.shadow.Shadow() == nil && b.profile.Shadow() == nil }

// sample returns the shadow and the profile as far as they sample the next call, which is about
// so many bytes of objects.
func (b *background) sample(bytes int) (sampled [2]*shadow.Shadow, any bool) {
	for i, s := range [...]*shadow.Shadow{b.shadow.Shadow(), b.profile.Shadow()} {
		if s.Sampled() && s.Room(int64(bytes)) {
			sampled[i], any = s, true
		}
	}
	return sampled, any
}

// offer hands a call to the shadows that have sampled it. It keeps the body of its request, which
// counts among the bodies as long as it does; bytes is what it keeps of objects, and made how much
// of that is not the body's.
func offer(ctx context.Context, sampled [2]*shadow.Shadow, told *policy.Answers, bytes, made int, call shadow.Call) {
	for _, s := range sampled {
		if s == nil {
			continue
		}
		if told.TooMany {
			s.Drop()
			continue
		}
		free, ok := serving.Keep(ctx, int64(made+told.Bytes()))
		if !ok {
			s.Drop()
			continue
		}
		s.Offer(call, int64(bytes+made+told.Bytes()), free)
	}
}

// bytesOf returns how many bytes a request keeps.
func bytesOf(req *policy.Request) int {
	return len(req.Envelope) + len(req.Object.Raw) + len(req.OldObject.Raw) + len(req.Options.Raw) + len(req.Raw)
}

// bytesOfVerdict returns how many bytes a verdict keeps.
func bytesOfVerdict(v *verdict) int {
	return len(v.Patch) + len(v.Object) + resultBytes(&v.Verdict)
}

// convertSampled converts an object, and has the shadows convert it that sample the call. The
// object is not changed afterwards.
func (p *Plugin) convertSampled(ctx context.Context, object []byte, desired string) ([]byte, error) {
	sampled, any := p.background.sample(len(object))
	if !any {
		return p.convertChecked(ctx, object, desired)
	}
	var told policy.Answers
	converted, failure := p.convertChecked(policy.WithAnswers(ctx, &told), object, desired)
	offer(ctx, sampled, &told, len(object), len(converted), func(ctx context.Context, c shadow.Candidate) shadow.Outcome {
		told := told.Repeat()
		got, err := c.(*Plugin).convertChecked(policy.WithAnswers(ctx, told), object, desired)
		o := shadow.Outcome{Serving: outcomeOf(failure), Subject: fmt.Sprintf("%s to %s", subjectOfObject(object), desired), Stain: new(confidential.Stain)}
		p.cfg.Confidential.Find("", "", object, o.Stain)
		told.Find(&p.cfg.Confidential, o.Stain)
		switch {
		case told.Unknown != "":
			o.Asked = told.Unknown
			return o
		case err != nil && failure == nil:
			o.Err = err
			return o
		case err != nil: // Two versions fail with different words.
			return shadow.Outcome{Uncompared: true}
		case failure == nil:
			patch, err := until(ctx).Diff(converted, got)
			if err != nil {
				o.Err = err
				return o
			}
			if patch == nil {
				return shadow.Outcome{}
			}
			o.Detail = string(patch)
		}
		o.Candidate = outcomeOf(err)
		return o
	})
	return converted, failure
}

func outcomeOf(err error) string {
	if err != nil {
		return string(Failed)
	}
	return "converted"
}

// repeat returns what asks a candidate the same. It keeps the request, which is not changed after
// the engine was called with it.
func (p *Plugin) repeat(req *policy.Request, mutating bool, serving verdict, told *policy.Answers) shadow.Call {
	request, raw := *req.AdmissionRequest, req.Raw
	return func(ctx context.Context, c shadow.Candidate) shadow.Outcome {
		candidate := c.(*Plugin)
		req := policy.NewRequest(&request)
		defer req.Free()
		req.Raw = raw
		told := told.Repeat()
		v := candidate.decide(policy.WithAnswers(ctx, told), req, mutating)
		o := shadow.Outcome{Subject: fmt.Sprintf("%s %s %s/%s", request.Operation, request.Kind.Kind, request.Namespace, request.Name)}
		o.Stain = stainOf(p, req, &verdict{sealed: serving.sealed || v.sealed})
		told.Find(&p.cfg.Confidential, o.Stain)
		was, wasText := answerOf(ctx, req, &serving)
		is, isText := answerOf(ctx, req, &v)
		switch {
		case told.Unknown != "":
			o.Serving, o.Asked = was, told.Unknown
		case v.failure != nil && serving.failure == nil:
			o.Serving, o.Err = was, v.failure
		case was == is && wasText == isText:
			return shadow.Outcome{Uncompared: was == string(Failed)}
		default:
			o.Serving, o.Candidate = was, is
			o.Detail = fmt.Sprintf("%s%s -> %s%s", was, wasText, is, isText)
		}
		return o
	}
}

// answerOf returns the kind of a verdict, and the rest of it that counts.
func answerOf(ctx context.Context, req *policy.Request, v *verdict) (kind, text string) {
	rest := struct {
		Code    uint32          `json:"code,omitempty"`
		Message string          `json:"message,omitempty"`
		Result  any             `json:"result,omitempty"`
		Patch   json.RawMessage `json:"patch,omitempty"`
	}{Code: v.Code, Message: v.Message}
	if v.Result != nil {
		rest.Result = v.Result
	}
	switch {
	case v.failure != nil:
		return string(Failed), "" // Two versions fail with different words.
	case !v.Allowed:
		kind = string(Denied)
	case v.Mutates():
		patch, _, err := changes(ctx, req.AdmissionRequest, &v.Verdict)
		if err != nil {
			return string(Failed), ""
		}
		if kind = string(Allowed); patch != nil {
			kind, rest.Patch = "patch", patch
		}
	default:
		kind = string(Allowed)
	}
	b, err := json.Marshal(rest)
	if err != nil {
		return kind, " " + err.Error()
	}
	if string(b) == "{}" {
		return kind, ""
	}
	return kind, " " + string(b)
}
