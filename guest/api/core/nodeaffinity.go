package core

import (
	"errors"

	"github.com/kubewasm/kubewasm/guest/api/meta"
)

// RequiredNodeAffinity is a Pod's spec.nodeSelector and its required node affinity, read and
// checked once: for a plugin that compares a Pod with many nodes. The rules are those of
// k8s.io/component-helpers/scheduling/corev1/nodeaffinity.
type RequiredNodeAffinity struct {
	labels   []meta.Requirement // Of the nodeSelector, which is not checked.
	required bool
	terms    ParsedNodeSelector
}

// RequiredNodeAffinity reads the Pod's requirements for nodes.
func (p Pod) RequiredNodeAffinity() (r RequiredNodeAffinity) {
	spec := p.Spec()
	for key, want := range spec.NodeSelector().All {
		r.labels = append(r.labels, meta.Requirement{Key: key, Operator: NodeSelectorOpIn, Values: []string{want}})
	}
	affinity := spec.Affinity().NodeAffinity()
	if r.required = affinity.HasRequiredDuringSchedulingIgnoredDuringExecution(); r.required {
		r.terms = affinity.RequiredDuringSchedulingIgnoredDuringExecution().Parse()
	}
	return r
}

// Matches reports whether the Pod may run on the node. The error is about terms that make no
// sense; it is nil if another term matches.
func (r *RequiredNodeAffinity) Matches(node Node) (bool, error) {
	labels := node.Metadata().Labels()
	for i := range r.labels {
		if !r.labels[i].Matches(labels) {
			return false, nil
		}
	}
	if !r.required {
		return true, nil
	}
	return r.terms.Matches(node)
}

// MatchesNode reports whether the Pod may run on the node, see [RequiredNodeAffinity], which
// is for more than one node.
func (p Pod) MatchesNode(node Node) (bool, error) {
	r := p.RequiredNodeAffinity()
	return r.Matches(node)
}

// ParsedNodeSelector is a NodeSelector that was read and checked. The zero value matches no
// node.
type ParsedNodeSelector struct{ terms []parsedTerm }

// parsedTerm is a term with its requirements, of which there is at least one, or the error of the
// term.
type parsedTerm struct {
	expressions []meta.Requirement
	fields      []meta.Requirement
	err         error
}

// Parse reads the selector. A term that makes no sense is an error of Matches, as in the scheduler,
// which accepts a Pod with such a term if another one matches.
func (n NodeSelector) Parse() (s ParsedNodeSelector) {
	for _, term := range n.NodeSelectorTerms() {
		if t, ok := term.parse(); ok {
			s.terms = append(s.terms, t)
		}
	}
	return s
}

// Matches reports whether one of the selector's terms matches the node. A term without
// requirements matches none. The error is about terms that make no sense; it is nil if
// another term matches.
func (s *ParsedNodeSelector) Matches(node Node) (bool, error) {
	if node == (Node{}) {
		return false, nil
	}
	var errs []error
	for i := range s.terms {
		t := &s.terms[i]
		if t.err != nil {
			errs = append(errs, t.err)
		} else if t.matches(node) {
			return true, nil
		}
	}
	return false, errors.Join(errs...)
}

// Matches reports whether one of the selector's terms matches the node, see
// [ParsedNodeSelector], which is for more than one node.
func (n NodeSelector) Matches(node Node) (bool, error) {
	s := n.Parse()
	return s.Matches(node)
}

// nodeNameField is the only field of a Node that terms may select by.
const nodeNameField = "metadata.name"

// parse reads a term, and reports whether it has requirements.
func (n NodeSelectorTerm) parse() (t parsedTerm, ok bool) {
	var errs []error
	for _, e := range n.MatchExpressions() {
		r := e.requirement()
		t.expressions = append(t.expressions, r)
		errs = append(errs, r.Validate())
	}
	for _, f := range n.MatchFields() {
		r, problem := f.requirement(), ""
		switch {
		case r.Operator != NodeSelectorOpIn && r.Operator != NodeSelectorOpNotIn:
			problem = "there is no such operator for fields"
		case len(r.Values) != 1:
			problem = "want one value"
		}
		t.fields = append(t.fields, r)
		if problem != "" {
			errs = append(errs, &meta.RequirementError{Requirement: r, Problem: problem})
		}
	}
	t.err = errors.Join(errs...)
	return t, len(t.expressions)+len(t.fields) > 0
}

func (t *parsedTerm) matches(node Node) bool {
	if len(t.expressions) > 0 {
		labels := node.Metadata().Labels()
		for i := range t.expressions {
			if !t.expressions[i].Matches(labels) {
				return false
			}
		}
	}
	if len(t.fields) == 0 {
		return true
	}
	name := node.Metadata().Name()
	if name == "" {
		return true // A node without a name has no fields, and meets the requirements for them.
	}
	for _, f := range t.fields {
		have := ""
		if f.Key == nodeNameField {
			have = name
		}
		if (have == f.Values[0]) != (f.Operator == NodeSelectorOpIn) {
			return false
		}
	}
	return true
}

// Matches reports whether the node meets all requirements of the term, and there
// is one.
func (n NodeSelectorTerm) Matches(node Node) (bool, error) {
	t, ok := n.parse()
	if t.err != nil || !ok {
		return false, t.err
	}
	return t.matches(node), nil
}

func (n NodeSelectorRequirement) requirement() meta.Requirement {
	return meta.Requirement{Key: n.Key(), Operator: n.Operator(), Values: n.Values()}
}

// PreferredNodeAffinity are the terms of a Pod's preferred node affinity, read and checked
// once.
type PreferredNodeAffinity struct {
	terms   []parsedTerm
	weights []int64
}

// ParsePreferredNodeAffinity reads terms with a weight, an error if one of them makes no
// sense.
func ParsePreferredNodeAffinity(terms []PreferredSchedulingTerm) (a PreferredNodeAffinity, err error) {
	var errs []error
	for _, preferred := range terms {
		if preferred.Weight() == 0 {
			continue
		}
		if t, ok := preferred.Preference().parse(); ok {
			a.terms, a.weights = append(a.terms, t), append(a.weights, int64(preferred.Weight()))
			errs = append(errs, t.err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return PreferredNodeAffinity{}, err
	}
	return a, nil
}

// Score returns the sum of the weights of those terms that match the node.
func (a *PreferredNodeAffinity) Score(node Node) (score int64) {
	for i := range a.terms {
		if a.terms[i].matches(node) {
			score += a.weights[i]
		}
	}
	return score
}
