package admission

import (
	"context"
	"log/slog"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/kubewasm/kubewasm/admission/internal/policy"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/serving"
)

// share returns a version for a request to policies, and reports whether any of them only monitors.
// Such a policy may hold the version longer than the request does.
func share(policies []Policy, version *serving.Version[*policySet]) (shared serving.Shared[*policySet], monitored bool) {
	for _, p := range policies {
		if p.rules().Mode == host.Monitor {
			return version.Share(), true
		}
	}
	return version.Alone(), false
}

// monitoring is a call of a policy that monitors, in parallel with a request.
type monitoring struct {
	policy Policy
	// place is the index of the policy in the order of the engine.
	place   int
	call    *serving.Call // nil if it was dropped.
	verdict verdict
	matches bool
}

// askBeside asks a policy that only monitors about a request, which may be answered first.
func askBeside(ctx context.Context, shared serving.Shared[*policySet], p Policy, req *policy.Request, mutating bool, place int) *monitoring {
	m := &monitoring{policy: p, place: place}
	req.Hold()
	shared.Hold()
	was := ctx
	end := func() {
		req.Free()
		shared.Release()
	}
	m.call = p.monitor().Start(ctx, requestBytes(req.AdmissionRequest), func(ctx context.Context, c *serving.Call) {
		defer end()
		m.verdict, m.matches = askPolicy(ctx, p, req, mutating, c)
	}, func() {
		defer end()
		dropped(context.WithoutCancel(was), p, mutating)
	})
	if m.call == nil {
		end()
		dropped(ctx, p, mutating)
	}
	return m
}

// wait returns the verdict if it arrives in time and the policy was asked.
func (m *monitoring) wait(ctx context.Context) (policyVerdict, bool) {
	if m.call == nil {
		return policyVerdict{}, false
	}
	if !m.call.Wait(ctx) {
		return policyVerdict{}, false
	}
	return policyVerdict{m.policy, m.verdict}, m.matches
}

// requestBytes returns the approximate memory of a request, in bytes.
func requestBytes(r *admissionv1.AdmissionRequest) int64 {
	return int64(len(r.Object.Raw) + len(r.OldObject.Raw) + len(r.Options.Raw))
}

// dropped reports to the Observer that a policy that monitors was not asked about a request.
func dropped(ctx context.Context, p Policy, mutating bool) {
	if o := p.rules().Observer; o != nil {
		o.Decided(ctx, Decision{Policy: p.Name(), Mutating: mutating, Mode: host.Monitor, Verdict: Dropped, Late: true})
	}
	if l, ok := inner(p).(logger); ok && l.logger() != nil {
		l.logger().Log(ctx, slog.LevelDebug, "monitoring policy is too slow and was not asked about all requests", "policy", p.Name())
	}
}

// ignoreShare divides the remaining time of a request into the time for a policy with
// [host.Ignore].
const ignoreShare = 4

// halfKey is the key in a context of the time after which policies with [host.Ignore] get no more
// time.
type halfKey struct{}

// withHalf returns a context with half of the time of a request, for policies that are asked one
// after the other.
func withHalf(ctx context.Context, policies []Policy) context.Context {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx
	}
	for _, p := range policies {
		if p.rules().FailurePolicy == host.Ignore {
			now := time.Now()
			return context.WithValue(ctx, halfKey{}, now.Add(deadline.Sub(now)/2))
		}
	}
	return ctx
}

// shareOf returns the context for a policy whose failure is ignored.
func shareOf(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	now := time.Now()
	end := now.Add(deadline.Sub(now) / ignoreShare)
	if half, ok := ctx.Value(halfKey{}).(time.Time); ok && half.Before(end) {
		end = half
	}
	return context.WithDeadline(ctx, end)
}
