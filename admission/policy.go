package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/kubewasm/kubewasm/admission/dialect"
	"github.com/kubewasm/kubewasm/admission/internal/policy"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/cut"
	"github.com/kubewasm/kubewasm/internal/loading"
	"github.com/kubewasm/kubewasm/internal/serving"
)

// Policy is a unit that an [Engine] asks: a [Plugin] or a [Group].
type Policy interface {
	// Name returns the name of the policy in messages.
	Name() string
	// Close waits until ctx ends for running calls, and frees the guests.
	Close(ctx context.Context) error

	enginePolicy
}

// enginePolicy is the part of a [Policy] that an [Engine] calls.
type enginePolicy interface {
	rules() *PolicyRules
	matcher() *matcher
	// monitor returns the Monitor, used if the policy only monitors.
	monitor() *serving.Monitor
	// validates and mutates report whether the policy is asked to validate and to mutate.
	validates() bool
	mutates() bool
	// decide asks for a verdict. mutating is set if the object may be changed.
	decide(ctx context.Context, req *policy.Request, mutating bool) verdict
}

// PolicyRules determine when a policy is asked and how its verdict counts. The zero value asks the
// policy about every request, and denies a request if the policy fails.
type PolicyRules struct {
	// Match selects the requests that the policy is asked about.
	Match Match `json:"match,omitempty"`
	// Namespaces returns the labels of namespaces, for Match.NamespaceSelector.
	Namespaces NamespaceLabels `json:"-"`
	// Order is the place among the policies of an engine. Lower numbers come first, and policies
	// with equal numbers keep the order in which the engine was given them. Mutators see the object
	// as changed by those before them; messages are in this order.
	Order int `json:"order,omitempty"`
	// Mode determines whether verdicts count.
	Mode host.Mode `json:"mode,omitempty"`
	// FailurePolicy applies to a request on which the policy fails. A policy fails if it traps,
	// times out, violates the ABI, or reports that it could not decide. A denial is not a failure.
	// With [host.Fail] the request is denied with 500 and the reason, with [host.Ignore] allowed
	// with a warning. So that others do not fail for its sake, a policy with Ignore may take a
	// quarter of the request's remaining time. All mutators with Ignore together may take half of
	// it.
	FailurePolicy host.FailurePolicy `json:"failurePolicy,omitempty"`
	// Observer is called with every verdict. It may be nil, at no cost.
	Observer Observer `json:"-"`
}

// Check returns all mistakes in the rules, nil if there are none.
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

// Observer receives the decisions of policies.
//
// # Notes
//
//   - Decided runs on the goroutine of the request, or on that of a policy that monitors, possibly
//     after the request, and concurrently. It must be fast and safe for concurrent use.
type Observer interface {
	Decided(ctx context.Context, d Decision)
}

// Decision is the verdict of a policy on a request.
type Decision struct {
	Policy string
	// Mutating reports whether the policy was asked as a mutator.
	Mutating bool
	// Converting reports whether the policy was asked to convert objects: Verdict is then Allowed
	// if it succeeded.
	Converting bool
	Mode       host.Mode
	// Verdict is the verdict of the policy, even if it does not count.
	Verdict Outcome
	// Late reports whether the request was answered before the verdict arrived, which is possible
	// for a policy that monitors.
	Late bool
	// Patched reports whether the policy changed the object.
	Patched bool
	// Duration is the time of the call, including the wait for an instance.
	Duration time.Duration
	// Err is the reason of a failure.
	Err error
}

// Outcome is the kind of a verdict.
type Outcome string

// The outcomes.
const (
	Allowed Outcome = "allow"
	Denied  Outcome = "deny"
	Failed  Outcome = "error"
	// Dropped means that there is no verdict: too many requests were answered before a policy that
	// monitors had finished, so it was not asked, or its call was stopped.
	Dropped Outcome = "dropped"
)

// verdict is the verdict of one policy on a request.
type verdict struct {
	dialect.Verdict
	// causes are added by a group: its members that deny.
	causes []memberCause
	// failure is the reason that there is no verdict.
	failure error
	// volatile reports whether the same request may get another verdict later.
	volatile bool
	// sealed is set if the guest has looked up something entirely confidential.
	sealed bool
}

type memberCause struct{ name, message string }

func failed(err error) verdict { return verdict{failure: err} }

// policyVerdict is a verdict with its policy.
type policyVerdict struct {
	policy Policy
	verdict
}

// askPolicy asks a policy about a validation or a mutation if its rules match. If that is unknown,
// the policy has failed. It has also failed if this package, an Observer or a NamespaceLabels
// panics, since net/http recovers no panic on the goroutines that ask policies.
//
// call is nil unless the policy monitors; requests do not wait for it.
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

// observed reports a verdict to the Observer, and returns the verdict as it counts: for a policy
// that monitors, it is logged and dropped.
func observed(ctx context.Context, p Policy, req *policy.Request, mutating bool, start time.Time, v verdict, call *serving.Call) verdict {
	rules := p.rules()
	if call != nil && call.Dropped() {
		dropped(ctx, p, mutating)
		return verdict{Verdict: dialect.Verdict{Allowed: true}}
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
		return verdict{Verdict: dialect.Verdict{Allowed: true, Result: v.Result}}
	}
	return v
}

// logger is a policy with a log for lines that requests can provoke.
type logger interface{ logger() *slog.Logger }

// panicked is the verdict of a policy for a panic r of the host. A fault of the host in one policy
// must not take the server down.
func panicked(p Policy, r any) verdict {
	if l, ok := inner(p).(logger); ok && l.logger() != nil {
		l.logger().Error("host panicked", "policy", p.Name(), "panic", r, "stack", string(debug.Stack()))
	}
	return failed(fmt.Errorf("policy %q: host panicked: %v", p.Name(), r))
}

// Bounds in the log of texts chosen by guests and clients.
const (
	loggedPatchBytes  = 16 << 10
	loggedReasonBytes = 4 << 10
	loggedNameBytes   = 256
)

// logVerdict logs the reason of a denial or a failure, also for a policy that monitors. The log of
// a policy has a budget, beyond which lines are dropped and counted. Quotas log for themselves.
func logVerdict(ctx context.Context, p Policy, req *policy.Request, v *verdict) {
	l, ok := inner(p).(logger)
	if !ok || l.logger() == nil || v.failure == nil && v.Allowed && !v.Mutates() || errors.Is(v.failure, loading.ErrQuota) {
		return
	}
	denied, failed, level := serving.DeniedMessage, "policy failed", slog.LevelWarn
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
