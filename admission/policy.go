package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/kubewasm/kubewasm/admission/internal/policy"
	"github.com/kubewasm/kubewasm/admission/internal/serving"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/cut"
)

// Policy is what an [Engine] asks: a [Plugin] or a [Group].
type Policy interface {
	// Name returns the name by which messages call the policy.
	Name() string
	// Close waits until ctx ends for the calls that run, and frees the guests.
	Close(ctx context.Context) error

	enginePolicy
}

// enginePolicy is the part of a [Policy] that an [Engine] calls.
type enginePolicy interface {
	rules() *PolicyRules
	matcher() *matcher
	// monitor is used if the policy only monitors.
	monitor() *serving.Monitor
	// validates and mutates report what the policy is asked for.
	validates() bool
	mutates() bool
	// decide asks for a verdict. mutating is set if the object may be changed.
	decide(ctx context.Context, req *policy.Request, mutating bool) verdict
}

// PolicyRules say when a policy is asked and what its verdict counts for. The zero
// value is a policy that is asked about every request and denies it if it fails.
type PolicyRules struct {
	// Match says which requests the policy is asked about.
	Match Match `json:"match,omitempty"`
	// Namespaces knows the labels of namespaces, for Match.NamespaceSelector.
	Namespaces NamespaceLabels `json:"-"`
	// Order is the place among the policies of an engine: those with lower numbers, and of equal
	// ones those that the engine was given first. Mutators see the objects as
	// those before them left them; messages are in this order.
	Order int `json:"order,omitempty"`
	// Mode says whether verdicts count.
	Mode host.Mode `json:"mode,omitempty"`
	// FailurePolicy says what becomes of a request on which the policy fails: it
	// trapped, was not done in time, answered by no rule of the ABI, or reported itself
	// that it could not decide. A denial is not a failure. With [host.Fail] the request
	// is denied with 500 and the reason, with [host.Ignore] allowed with a warning. A policy
	// with Ignore may take a quarter of the time that the request has left, and all mutators
	// with Ignore together half of it: the others must not fail for its sake.
	FailurePolicy host.FailurePolicy `json:"failurePolicy,omitempty"`
	// Observer is told of every verdict; nil costs nothing.
	Observer Observer `json:"-"`
}

// Check returns everything that is wrong with the rules, nil if a policy can have
// them.
func (r *PolicyRules) Check() error {
	_, err := r.compile()
	return err
}

// compile checks the rules.
func (r *PolicyRules) compile() (*matcher, error) {
	var errs []error
	if err := r.Mode.Check(); err != nil {
		errs = append(errs, err)
	}
	if err := r.FailurePolicy.Check(); err != nil {
		errs = append(errs, err)
	}
	m, err := r.Match.compile(r.Namespaces)
	if err != nil {
		errs = append(errs, err)
	}
	return m, errors.Join(errs...)
}

// Observer is told what policies decide.
//
// # Notes
//
//   - Decided runs on the goroutine of the request, or of a policy that monitors, after
//     the request even, and several at the same time: it must be quick and safe for that.
type Observer interface {
	Decided(ctx context.Context, d Decision)
}

// Decision is the verdict of a policy on a request.
type Decision struct {
	Policy string
	// Mutating reports whether the policy was asked as a mutator.
	Mutating bool
	// Converting reports whether the policy was asked to convert objects: Verdict is
	// Allowed if it did.
	Converting bool
	Mode       host.Mode
	// Verdict is the verdict of the policy, whether it counts or not.
	Verdict Outcome
	// Late reports whether the request was answered before the verdict was there, as it may be
	// for a policy that monitors.
	Late bool
	// Patched reports whether the policy changed the object.
	Patched bool
	// Duration is how long it took, the wait for an instance included.
	Duration time.Duration
	// Err is why the policy failed.
	Err error
}

// Outcome is the kind of a verdict.
type Outcome string

// The outcomes.
const (
	Allowed Outcome = "allow"
	Denied  Outcome = "deny"
	Failed  Outcome = "error"
	// Dropped is no verdict: a policy that monitors was not asked, or not to the end, since too
	// many requests were answered before it was done with them.
	Dropped Outcome = "dropped"
)

// verdict is that of one policy about a request.
type verdict struct {
	policy.Verdict
	// causes are what a group adds: which of its members deny.
	causes []memberCause
	// failure says why there is no verdict.
	failure error
	// volatile reports whether the same request may get another verdict later.
	volatile bool
	// sealed is set if the guest has looked up something that is confidential as a whole.
	sealed bool
}

type memberCause struct{ name, message string }

func failed(err error) verdict { return verdict{failure: err} }

// policyVerdict is the verdict of a policy.
type policyVerdict struct {
	policy Policy
	verdict
}

// askPolicy asks a policy about a validation or a mutation if its rules match. A policy
// about which that is not known has failed, and so has one at which this package, an
// Observer or a NamespaceLabels panics: policies are asked on goroutines of their own,
// where net/http recovers nothing.
//
// Requests do not wait for call, which is nil unless the policy monitors.
func askPolicy(ctx context.Context, p Policy, req *policy.Request, mutating bool, call *serving.Call) (v verdict, matches bool) {
	defer func() {
		if r := recover(); r != nil {
			v, matches = panicked(p, r), true
		}
	}()
	var start time.Time
	rules := p.rules()
	if rules.Observer != nil {
		start = time.Now()
	}
	var err error
	if rules.FailurePolicy == host.Ignore && rules.Mode != host.Monitor {
		var cancel context.CancelFunc
		ctx, cancel = shareOf(ctx)
		defer cancel()
	}
	matches = true
	if m := p.matcher(); m != nil {
		matches, err = m.matches(ctx, req.AdmissionRequest)
	}
	switch {
	case err != nil:
		v = failed(fmt.Errorf("policy %q: match: %w", p.Name(), err))
	case !matches:
		return v, false
	default:
		v = p.decide(ctx, req, mutating)
	}
	if rules.Observer != nil || rules.Mode == host.Monitor {
		v = observed(ctx, p, req, mutating, start, v, call)
	}
	if rules.Mode != host.Monitor && (v.failure != nil || !v.Allowed) {
		logVerdict(ctx, p, req, &v)
	}
	return v, true
}

// observed tells the Observer of a verdict, and returns what it counts for: that of a
// policy that monitors is logged and dropped.
func observed(ctx context.Context, p Policy, req *policy.Request, mutating bool, start time.Time, v verdict, call *serving.Call) verdict {
	rules := p.rules()
	if call != nil && call.Dropped() {
		dropped(ctx, p, mutating)
		return verdict{Verdict: policy.Verdict{Allowed: true}}
	}
	if rules.Observer != nil {
		d := Decision{
			Policy: p.Name(), Mutating: mutating, Mode: cmp.Or(rules.Mode, host.Enforce), Verdict: Denied,
			Patched: v.failure == nil && v.Allowed && v.Mutates(), Duration: time.Since(start), Err: v.failure, Late: call != nil && call.Late(),
		}
		switch {
		case v.failure != nil:
			d.Verdict = Failed
		case v.Allowed:
			d.Verdict = Allowed
		}
		rules.Observer.Decided(ctx, d)
	}
	if rules.Mode == host.Monitor {
		logVerdict(ctx, p, req, &v)
		return verdict{Verdict: policy.Verdict{Allowed: true, Result: v.Result}}
	}
	return v
}

// logger is a policy that has a log for lines that requests can repeat.
type logger interface{ logger() *slog.Logger }

// panicked is the verdict of a policy at which the host has panicked with r: a fault
// of ours in one policy must not take the server down.
func panicked(p Policy, r any) verdict {
	if l, ok := p.(logger); ok && l.logger() != nil {
		l.logger().Error("host panicked", "policy", p.Name(), "panic", r, "stack", string(debug.Stack()))
	}
	return failed(fmt.Errorf("policy %q: host panicked: %v", p.Name(), r))
}

// What the log gets of texts that guests and clients choose.
const (
	loggedPatchBytes  = 16 << 10
	loggedReasonBytes = 4 << 10
	loggedNameBytes   = 256
)

// DeniedMessage is the message of the line in the log for a denial, which has the attributes policy,
// uid, group, kind, namespace, name, operation, user and message. Nothing confidential is in them.
const DeniedMessage = "policy denied the request"

// logVerdict writes down why a policy denies or has failed, or what one that monitors would have
// done. The log of a policy has a budget, beyond which lines are dropped and counted.
func logVerdict(ctx context.Context, p Policy, req *policy.Request, v *verdict) {
	l, ok := p.(logger)
	if !ok || l.logger() == nil || v.failure == nil && v.Allowed && !v.Mutates() {
		return
	}
	denied, failed, level := DeniedMessage, "policy failed", slog.LevelWarn
	if p.rules().Mode == host.Monitor {
		denied, failed, level = "policy would have denied the request", "policy would have failed", slog.LevelInfo
	}
	if v.failure == nil {
		level = slog.LevelInfo
	}
	if !l.logger().Enabled(ctx, level) {
		return
	}
	stain := stainOf(p, req, v)
	name := func(text string) string { return cut.Text(text, loggedNameBytes) }
	reason := func(text string) string { return cut.Text(stain.Text(text), loggedReasonBytes) }
	attrs := []any{
		"policy", p.Name(), "uid", name(string(req.UID)), "group", name(req.Kind.Group), "kind", name(req.Kind.Kind), "namespace", name(req.Namespace), "name", name(req.Name),
		"operation", name(string(req.Operation)), "user", name(req.UserInfo.Username),
	}
	if req.SubResource != "" {
		attrs = append(attrs, "subresource", name(req.SubResource))
	}
	switch {
	case v.failure != nil:
		l.logger().Log(ctx, level, failed, append(attrs, "err", reason(v.failure.Error()))...)
	case !v.Allowed:
		l.logger().Log(ctx, level, denied, append(attrs, "message", reason(messageOf(v)))...)
	default:
		patch, _, err := changes(ctx, req.AdmissionRequest, &v.Verdict)
		if err != nil {
			l.logger().Log(ctx, level, failed, append(attrs, "err", reason(err.Error()))...)
		} else if patch != nil {
			l.logger().Log(ctx, level, "policy would have changed the object", append(attrs, "patch", cut.Text(stain.Text(string(patch)), loggedPatchBytes))...)
		}
	}
}
