package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/kubewasm/kubewasm/admission/internal/policy"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/confidential"
	"github.com/kubewasm/kubewasm/host/shadow"
	"github.com/kubewasm/kubewasm/internal/answers"
	"github.com/kubewasm/kubewasm/internal/loading"
	"github.com/kubewasm/kubewasm/internal/serving"
)

// background holds the copies of a plugin that are called after it.
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

// BeginShadow begins to call a candidate with the plugin's requests, and replaces an earlier
// candidate; see package shadow of host. Verdicts of the candidate have no effect. Its look-ups and
// host capabilities return the answers that the plugin got in the same call; only while loading, it
// gets its own. Requests to the engine are kept for it, and must not be changed afterwards.
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

// BeginProfile begins to profile a copy of the plugin on the plugin's next calls.
func (p *Plugin) BeginProfile(ctx context.Context, calls int) error {
	s, err := shadow.Profile(calls, p.guest.Source(), p.backgroundOptions())
	if err != nil {
		return err
	}
	return p.background.profile.Put(ctx, s)
}

// Shadow returns the shadow of the plugin, nil if there was none.
func (p *Plugin) Shadow() *shadow.Shadow { return p.background.shadow.Shadow() }

// Profile returns the current or last profile, nil if there was none.
func (p *Plugin) Profile() *shadow.Shadow { return p.background.profile.Shadow() }

func (p *Plugin) backgroundOptions() shadow.Options {
	return shadow.Options{
		Plugin: p.Name(), Serving: p.guest, Runtime: p.runtime, Logger: p.cfg.Logger, Observer: p.cfg.Config.Observer,
		Load: func(ctx context.Context, rt *host.Runtime, change func(*host.Config)) (shadow.Candidate, error) {
			cfg := p.cfg
			change(&cfg.Config)
			cfg.Shadow, cfg.Swapped, cfg.PolicyRules.Observer = nil, nil, nil
			return Load(ctx, rt, cfg)
		},
	}
}

func (b *background) close(ctx context.Context) error {
	return errors.Join(b.shadow.Close(ctx), b.profile.Close(ctx))
}

// none reports whether there are no copies, which is nearly always the case.
func (b *background) none() bool { return b.shadow.Shadow() == nil && b.profile.Shadow() == nil }

// sample returns the shadow and the profile if they sample the next call, whose objects have about
// the given number of bytes.
func (b *background) sample(bytes int) (sampled [2]*shadow.Shadow, any bool) {
	for i, s := range [...]*shadow.Shadow{b.shadow.Shadow(), b.profile.Shadow()} {
		if s.Sampled() && s.Room(int64(bytes)) {
			sampled[i], any = s, true
		}
	}
	return sampled, any
}

// offer passes a call to the shadows that sample it. It keeps the body of the request, which counts
// among the Bodies meanwhile. bytes is the size of the kept objects, and made the part of that size
// outside the body.
func offer(ctx context.Context, sampled [2]*shadow.Shadow, told *answers.Answers, bytes, made int, call shadow.Call) {
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

// bytesOf returns the number of bytes kept with a request.
func bytesOf(req *policy.Request) int {
	return len(req.Envelope) + len(req.Object.Raw) + len(req.OldObject.Raw) + len(req.Options.Raw) + len(req.Raw)
}

// bytesOfVerdict returns the number of bytes kept with a verdict.
func bytesOfVerdict(v *verdict) int {
	return len(v.Patch) + len(v.Object) + resultBytes(&v.Verdict)
}

// convertSampled converts an object, and passes it to the shadows that sample the call. The object
// must not change afterwards.
func (p *Plugin) convertSampled(ctx context.Context, object []byte, desired string) ([]byte, error) {
	sampled, any := p.background.sample(len(object))
	if !any {
		return p.convertChecked(ctx, object, desired)
	}
	var told answers.Answers
	converted, failure := p.convertChecked(answers.With(ctx, &told), object, desired)
	offer(ctx, sampled, &told, len(object), len(converted), func(ctx context.Context, c shadow.Candidate) shadow.Outcome {
		told := told.Repeat()
		got, err := c.(*Plugin).convertChecked(answers.With(ctx, told), object, desired)
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
		case err != nil: // Two versions may fail with different words.
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

// repeat returns a function that calls a candidate with the same request. It keeps the request,
// which must not change after the call of the engine.
func (p *Plugin) repeat(req *policy.Request, mutating bool, serving verdict, told *answers.Answers) shadow.Call {
	request, raw, index := *req.AdmissionRequest, req.Raw, req.Index
	return func(ctx context.Context, c shadow.Candidate) shadow.Outcome {
		if errors.Is(serving.failure, loading.ErrQuota) {
			return shadow.Outcome{Uncompared: true}
		}
		candidate := c.(*Plugin)
		req := policy.NewRequest(&request, index)
		defer req.Free()
		req.Raw = raw
		told := told.Repeat()
		v := candidate.decide(answers.With(ctx, told), req, mutating)
		o := shadow.Outcome{Subject: fmt.Sprintf("%s %s %s/%s", request.Operation, request.Kind.Kind, request.Namespace, request.Name)}
		o.Stain = stainOf(p, req, &verdict{sealed: serving.sealed || v.sealed})
		told.Find(&p.cfg.Confidential, o.Stain)
		was, wasText := answerOf(ctx, req, &serving)
		is, isText := answerOf(ctx, req, &v)
		switch {
		case errors.Is(v.failure, loading.ErrQuota): // The quota is that of both versions.
			return shadow.Outcome{Uncompared: true}
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

// answerOf returns the kind of a verdict, and the other parts of it that count.
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
		return string(Failed), "" // Two versions may fail with different words.
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
