package core

import (
	"errors"

	"github.com/kubewasm/kubewasm/guest/api/meta"
)

// MatchesNode reports whether the Pod may run on the node as far as its
// spec.nodeSelector and its required node affinity say, by the rules of
// k8s.io/component-helpers/scheduling/corev1/nodeaffinity. The error is about
// terms that make no sense; it is nil if another term matches.
func (p Pod) MatchesNode(node Node) (bool, error) {
	spec := p.Spec()
	labels := node.Metadata().Labels()
	for key, want := range spec.NodeSelector().All {
		// Get is put in place of its calls in packages that import this one only
		// because it is here.
		if labels.Get(key) != want || want == "" && !labels.Has(key) {
			return false, nil
		}
	}
	affinity := spec.Affinity().NodeAffinity()
	if !affinity.HasRequiredDuringSchedulingIgnoredDuringExecution() {
		return true, nil
	}
	return affinity.RequiredDuringSchedulingIgnoredDuringExecution().Matches(node)
}

// Matches reports whether one of the selector's terms matches the node. A term
// without requirements matches none. The error is about terms that make no sense;
// it is nil if another term matches.
func (n NodeSelector) Matches(node Node) (bool, error) {
	if node == (Node{}) {
		return false, nil
	}
	var errs []error
	for _, term := range n.NodeSelectorTerms() {
		matches, err := term.Matches(node)
		if matches {
			return true, nil
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return false, errors.Join(errs...)
}

// nodeNameField is the only field of a Node that may be selected by.
const nodeNameField = "metadata.name"

// Matches reports whether the node meets all requirements of the term, and there
// is one.
func (n NodeSelectorTerm) Matches(node Node) (bool, error) {
	expressions, fields := n.MatchExpressions(), n.MatchFields()
	if len(expressions)+len(fields) == 0 {
		return false, nil
	}
	var errs []error
	for _, e := range expressions {
		errs = append(errs, e.requirement().Validate())
	}
	for _, f := range fields {
		r, problem := f.requirement(), ""
		switch {
		case r.Operator != NodeSelectorOpIn && r.Operator != NodeSelectorOpNotIn:
			problem = "there is no such operator for fields"
		case len(r.Values) != 1:
			problem = "want one value"
		}
		if problem != "" {
			errs = append(errs, &meta.RequirementError{Requirement: r, Problem: problem})
		}
	}
	if err := errors.Join(errs...); err != nil {
		return false, err
	}
	labels := node.Metadata().Labels()
	for _, e := range expressions {
		if !e.requirement().Matches(labels) {
			return false, nil
		}
	}
	name := node.Metadata().Name()
	if name == "" {
		return true, nil // A node without a name has no fields, and meets what is said of them.
	}
	for _, f := range fields {
		have := ""
		if f.Key() == nodeNameField {
			have = name
		}
		if (have == f.Values()[0]) != (f.Operator() == NodeSelectorOpIn) {
			return false, nil
		}
	}
	return true, nil
}

func (n NodeSelectorRequirement) requirement() meta.Requirement {
	return meta.Requirement{Key: n.Key(), Operator: n.Operator(), Values: n.Values()}
}

// PreferredNodeScore returns the sum of the weights of those terms that match the
// node, an error if one of them makes no sense.
func PreferredNodeScore(terms []PreferredSchedulingTerm, node Node) (int64, error) {
	var score int64
	var errs []error
	for _, t := range terms {
		if t.Weight() == 0 {
			continue
		}
		matches, err := t.Preference().Matches(node)
		if matches {
			score += int64(t.Weight())
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return 0, err
	}
	return score, nil
}
