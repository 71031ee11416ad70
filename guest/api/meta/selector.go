package meta

import (
	"slices"
	"strconv"

	"github.com/kubewasm/kubewasm/guest/view"
)

// The operators of a Requirement that only the selectors of nodes have.
const (
	selectorOpGt = "Gt"
	selectorOpLt = "Lt"
)

// Requirement is what a selector says of one label.
type Requirement struct {
	Key string
	// Operator is In, NotIn, Exists, DoesNotExist, or Gt and Lt, which compare
	// whole numbers.
	Operator string
	Values   []string
}

// RequirementError says what is wrong with a requirement.
type RequirementError struct {
	Requirement Requirement
	Problem     string
}

func (e *RequirementError) Error() string {
	return "selector: key " + strconv.Quote(e.Requirement.Key) + ", operator " + strconv.Quote(e.Requirement.Operator) + ": " + e.Problem
}

// Validate returns a [*RequirementError] for an operator that there is not and for
// values that do not fit the operator. What keys and values may consist of is for
// the API server to check.
func (r Requirement) Validate() error {
	problem := ""
	switch r.Operator {
	case LabelSelectorOpIn, LabelSelectorOpNotIn:
		if len(r.Values) == 0 {
			problem = "want values"
		}
	case LabelSelectorOpExists, LabelSelectorOpDoesNotExist:
		if len(r.Values) != 0 {
			problem = "want no values"
		}
	case selectorOpGt, selectorOpLt:
		if len(r.Values) != 1 {
			problem = "want one value"
		} else if _, err := strconv.ParseInt(r.Values[0], 10, 64); err != nil {
			problem = "want a whole number"
		}
	default:
		problem = "there is no such operator"
	}
	if problem != "" {
		return &RequirementError{r, problem}
	}
	return nil
}

// Matches reports whether the requirement, which is valid, is met by labels, as
// k8s.io/apimachinery/pkg/labels.Requirement does.
func (r Requirement) Matches(labels StringMap) bool {
	value, found := labels.Lookup(r.Key)
	switch r.Operator {
	case LabelSelectorOpIn:
		return found && slices.Contains(r.Values, value)
	case LabelSelectorOpNotIn:
		return !found || !slices.Contains(r.Values, value)
	case LabelSelectorOpExists:
		return found
	case LabelSelectorOpDoesNotExist:
		return !found
	case selectorOpGt, selectorOpLt:
		have, err := strconv.ParseInt(value, 10, 64)
		if !found || err != nil || len(r.Values) != 1 {
			return false
		}
		want, err := strconv.ParseInt(r.Values[0], 10, 64)
		return err == nil && (r.Operator == selectorOpGt && have > want || r.Operator == selectorOpLt && have < want)
	}
	return false
}

// Matches reports whether the selector selects an object with the labels. As in
// Kubernetes, an empty selector selects everything, and one that is not there
// nothing. It returns a [*RequirementError] if the selector makes no sense.
func (l LabelSelector) Matches(labels StringMap) (bool, error) {
	if view.View(l) == (view.View{}) {
		return false, nil
	}
	expressions := l.MatchExpressions()
	for _, e := range expressions {
		if e.Operator() == selectorOpGt || e.Operator() == selectorOpLt {
			return false, &RequirementError{e.requirement(), "there is no such operator"}
		}
		if err := e.requirement().Validate(); err != nil {
			return false, err
		}
	}
	for key, want := range l.MatchLabels().All {
		if labels.Get(key) != want || want == "" && !labels.Has(key) {
			return false, nil
		}
	}
	for _, e := range expressions {
		if !e.requirement().Matches(labels) {
			return false, nil
		}
	}
	return true, nil
}

func (l LabelSelectorRequirement) requirement() Requirement {
	return Requirement{l.Key(), l.Operator(), l.Values()}
}
