package admission

import (
	"github.com/kubewasm/kubewasm/admission/internal/policy"
	"github.com/kubewasm/kubewasm/host/confidential"
)

// finder is a policy with a rule for confidential values.
type finder interface {
	findConfidential(req *policy.Request, s *confidential.Stain)
}

// stainOf returns the confidential values that a policy has seen while deciding.
func stainOf(p Policy, req *policy.Request, v *verdict) *confidential.Stain {
	s := new(confidential.Stain)
	if v.sealed {
		s.Seal()
	}
	if f, ok := inner(p).(finder); ok {
		f.findConfidential(req, s)
	} else {
		findConfidential(nil, req, s)
	}
	return s
}

func (p *Plugin) findConfidential(req *policy.Request, s *confidential.Stain) {
	findConfidential(&p.cfg.Confidential, req, s)
}

func (g *Group) findConfidential(req *policy.Request, s *confidential.Stain) {
	for _, p := range g.members {
		p.findConfidential(req, s)
	}
}

// findConfidential records the confidential values in the objects of a request. Policies without a rule
// of their own share what is found.
func findConfidential(rule *confidential.Rule, req *policy.Request, s *confidential.Stain) {
	if s.Sealed() {
		return
	}
	if !rule.Extended() && rule.Environment() {
		s.Join(req.Confidential(func(found *confidential.Stain) { find(nil, req, found) }))
		return
	}
	find(rule, req, s)
}

func find(rule *confidential.Rule, req *policy.Request, s *confidential.Stain) {
	kind := &req.Kind
	for _, object := range [][]byte{req.Object.Raw, req.OldObject.Raw, req.Raw} {
		if len(object) != 0 && !s.Sealed() {
			rule.Find(kind.Group, kind.Kind, object, s)
		}
	}
}
