package admission

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/kubewasm/kubewasm/admission/dialect"
	"github.com/kubewasm/kubewasm/admission/internal/policy"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/boolexpr"
	"github.com/kubewasm/kubewasm/internal/serving"
)

// Group is a policy that asks plugins and combines their verdicts by a boolean expression. It never
// changes objects. It is safe for use by several goroutines.
type Group struct {
	cfg        GroupConfig
	match      *matcher
	expression *boolexpr.Expression
	// members are in the order of their names in the expression.
	members  []*Plugin
	monitors serving.Monitor
}

// GroupConfig configures a Group.
type GroupConfig struct {
	// Name is the group's name for messages. Required.
	Name string
	// Members are the plugins by their names in the expression, which consist of letters, digits
	// and "_". They must validate and must not have rules. They belong to the group, which closes
	// them.
	Members map[string]*Plugin
	// Expression is the condition on the members' verdicts for allowing a request:
	//
	//	signed() || (reviewed() && !experimental())
	//
	// with true, false and parentheses. Members are asked from left to right until the result is
	// known, each at most once.
	Expression string
	// Message is the message of a denial to the user. Required.
	Message string
	// PolicyRules determine when the group is asked and how its verdict counts. ;; =>
	PolicyRules
}

// NewGroup returns a group. The error joins all mistakes in cfg.
func NewGroup(cfg GroupConfig) (*Group, error) {
	var errs []error
	if cfg.Name == "" {
		errs = append(errs, errors.New("name is empty"))
	}
	if cfg.Message == "" {
		errs = append(errs, errors.New("message is empty"))
	}
	names := slices.Sorted(maps.Keys(cfg.Members))
	expression, err := boolexpr.Parse(cfg.Expression, names)
	if err != nil {
		errs = append(errs, fmt.Errorf("expression: %w", err))
	}
	match, err := cfg.PolicyRules.compile()
	if err != nil {
		errs = append(errs, err)
	}
	g := &Group{cfg: cfg, match: match, expression: expression}
	for _, name := range names {
		p := cfg.Members[name]
		switch {
		case p == nil:
			errs = append(errs, fmt.Errorf("member %s has no plugin", name))
			continue
		case !p.validates():
			errs = append(errs, fmt.Errorf("member %s does not validate", name))
		case p.match != nil || p.cfg.Mode == host.Monitor:
			errs = append(errs, fmt.Errorf("member %s has rules of its own", name))
		}
		g.members = append(g.members, p)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("group %q: %w", cfg.Name, err)
	}
	return g, nil
}

// Name returns the group's name.
func (g *Group) Name() string { return g.cfg.Name }

// Close closes the members.
func (g *Group) Close(ctx context.Context) error {
	var errs []error
	for _, p := range g.members {
		errs = append(errs, p.Close(ctx))
	}
	return errors.Join(errs...)
}

func (g *Group) rules() *PolicyRules       { return &g.cfg.PolicyRules }
func (g *Group) matcher() *matcher         { return g.match }
func (g *Group) monitor() *serving.Monitor { return &g.monitors }
func (g *Group) validates() bool           { return true }
func (g *Group) mutates() bool             { return false }

// logger returns the log of the first member that has one.
func (g *Group) logger() *slog.Logger {
	for _, p := range g.members {
		if l := p.logger(); l != nil {
			return l
		}
	}
	return nil
}

// decide asks the members that the expression needs.
func (g *Group) decide(ctx context.Context, req *policy.Request, _ bool) verdict {
	answers := make([]*verdict, len(g.members))
	var failure error
	sealed := false
	allowed := g.expression.Eval(func(i int) bool {
		if failure != nil {
			return false
		}
		if answers[i] == nil {
			v := g.members[i].decide(ctx, req, false)
			if _, mutates := errors.AsType[*mutationError](v.failure); mutates {
				// The patch allows an object different from the one under review.
				v = verdict{sealed: v.sealed, Verdict: dialect.Verdict{Message: "mutation is not allowed inside of policy group"}}
			}
			answers[i] = &v
			failure, sealed = v.failure, sealed || v.sealed
		}
		return answers[i].Allowed
	})
	if failure != nil {
		v := failed(fmt.Errorf("group %q: %w", g.cfg.Name, failure))
		v.sealed = sealed
		return v
	}
	v := verdict{sealed: sealed, Verdict: dialect.Verdict{Allowed: allowed, Message: g.cfg.Message}}
	var merged resultMerger
	for i, name := range g.expression.Names() {
		a := answers[i]
		if a == nil {
			continue
		}
		merged.add(name, a.Result)
		v.volatile = v.volatile || a.volatile
		if !allowed && !a.Allowed {
			v.causes = append(v.causes, memberCause{name, messageOf(a)})
		}
	}
	v.Result = merged.result
	return v
}

// resultMerger collects warnings and audit annotations of several guests.
type resultMerger struct{ result *result }

func (m *resultMerger) add(name string, r *result) {
	if r == nil || len(r.Warnings) == 0 && len(r.AuditAnnotations) == 0 {
		return
	}
	if m.result == nil {
		m.result = &result{AuditAnnotations: map[string]string{}}
	}
	m.result.Warnings = append(m.result.Warnings, r.Warnings...)
	for key, value := range r.AuditAnnotations {
		m.result.AuditAnnotations[strings.Join([]string{name, key}, ".")] = value
	}
}
