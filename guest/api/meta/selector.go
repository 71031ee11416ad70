package meta

import (
	"slices"
	"strconv"
	"strings"

	"github.com/kubewasm/kubewasm/guest/view"
)

// The operators of a Requirement that only the selectors of nodes have.
const (
	selectorOpGt = "Gt"
	selectorOpLt = "Lt"
)

// Requirement is a selector's requirement for one label.
type Requirement struct {
	Key string
	// Operator is In, NotIn, Exists, DoesNotExist, or Gt and Lt, which compare
	// whole numbers.
	Operator string
	Values   []string
}

// RequirementError is a mistake in a requirement.
type RequirementError struct {
	Requirement Requirement
	Problem     string
}

func (e *RequirementError) Error() string {
	return "selector: key " + strconv.Quote(e.Requirement.Key) + ", operator " + strconv.Quote(e.Requirement.Operator) + ": " + e.Problem
}

// Validate returns a [*RequirementError] for an unknown operator, for values that do not fit the
// operator, and for a key or values that no label can have, as
// k8s.io/apimachinery/pkg/labels.NewRequirement does.
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
	if problem == "" && !isLabelKey(r.Key) {
		problem = "no label has this key"
	}
	for _, value := range r.Values {
		if problem == "" && value != "" && !isLabelName(value) {
			problem = "no label has the value " + strconv.Quote(value)
		}
	}
	if problem != "" {
		return &RequirementError{r, problem}
	}
	return nil
}

// isLabelKey reports whether a label can have the key: a name, or a DNS subdomain, a slash
// and a name.
func isLabelKey(key string) bool {
	const maxPrefix = 253
	prefix, name, prefixed := strings.Cut(key, "/")
	if !prefixed {
		return isLabelName(key)
	}
	if len(prefix) > maxPrefix {
		return false
	}
	for part := range strings.SplitSeq(prefix, ".") {
		if part == "" || part[0] == '-' || part[len(part)-1] == '-' {
			return false
		}
		for i := range len(part) {
			if c := part[i]; c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') {
				return false
			}
		}
	}
	return isLabelName(name)
}

// isLabelName reports whether s is a name in the form of keys and values of labels: up to 63
// letters, digits, '-', '_' and '.', with a letter or a digit at both ends.
func isLabelName(s string) bool {
	if len(s) == 0 || len(s) > 63 {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
		case i == 0 || i == len(s)-1 || c != '-' && c != '_' && c != '.':
			return false
		}
	}
	return true
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

// sortTexts sorts by Shell's algorithm: slices.Sort would add 14 KB to a guest.
func sortTexts(texts []string) {
	for gap := len(texts) / 2; gap > 0; gap /= 2 {
		for i, text := range texts[gap:] {
			for i += gap; i >= gap && text < texts[i-gap]; i -= gap {
				texts[i] = texts[i-gap]
			}
			texts[i] = text
		}
	}
}

// String returns the requirement in the syntax of k8s.io/apimachinery/pkg/labels: "app=web",
// "app in (shop,web)", "!app".
func (r Requirement) String() string {
	values := slices.Clone(r.Values)
	sortTexts(values)
	list := strings.Join(values, ",")
	switch r.Operator {
	case LabelSelectorOpExists:
		return r.Key
	case LabelSelectorOpDoesNotExist:
		return "!" + r.Key
	case LabelSelectorOpIn:
		if len(values) == 1 {
			return r.Key + "=" + list
		}
		return r.Key + " in (" + list + ")"
	case LabelSelectorOpNotIn:
		return r.Key + " notin (" + list + ")"
	case selectorOpGt:
		return r.Key + ">" + list
	case selectorOpLt:
		return r.Key + "<" + list
	}
	return r.Key + " " + r.Operator + " (" + list + ")"
}

// Selector is a LabelSelector that was read and checked, for a plugin that compares one
// selector with many objects. The zero value selects nothing.
type Selector struct {
	requirements []Requirement
	selects      bool
}

// NewSelector returns a selector for objects that meet all requirements. It returns a
// [*RequirementError] if one of them makes no sense; the Selector then selects nothing.
func NewSelector(requirements ...Requirement) (Selector, error) {
	for _, r := range requirements {
		if err := r.Validate(); err != nil {
			return Selector{}, err
		}
	}
	return Selector{requirements: requirements, selects: true}, nil
}

// Parse reads the selector. As in Kubernetes, an empty selector selects everything, and a missing
// one nothing. It returns a [*RequirementError] if the selector makes no sense; the Selector then
// selects nothing.
func (l LabelSelector) Parse() (Selector, error) {
	if view.View(l) == (view.View{}) {
		return Selector{}, nil
	}
	var requirements []Requirement
	for key, want := range l.MatchLabels().All {
		requirements = append(requirements, Requirement{key, LabelSelectorOpIn, []string{want}})
	}
	for _, e := range l.MatchExpressions() {
		r := e.requirement()
		if r.Operator == selectorOpGt || r.Operator == selectorOpLt {
			return Selector{}, &RequirementError{r, "there is no such operator"}
		}
		requirements = append(requirements, r)
	}
	return NewSelector(requirements...)
}

// Add returns a selector with more requirements: valid ones beside those of s. One that selects
// nothing stays so.
func (s Selector) Add(requirements ...Requirement) Selector {
	s.requirements = append(s.requirements[:len(s.requirements):len(s.requirements)], requirements...)
	return s
}

// String returns the requirements, sorted by key, with commas between them. It is empty for a
// selector that selects everything, and for one that selects nothing, as in Kubernetes. Two
// selectors with the same text, unless it is empty, select the same.
func (s Selector) String() string {
	if !s.selects {
		return ""
	}
	sorted := slices.Clone(s.requirements)
	for i := range sorted {
		for ; i > 0 && sorted[i].Key < sorted[i-1].Key; i-- {
			sorted[i], sorted[i-1] = sorted[i-1], sorted[i]
		}
	}
	var text []byte
	for i, r := range sorted {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(text, r.String()...)
	}
	return string(text)
}

// Empty reports whether the selector selects everything.
func (s Selector) Empty() bool { return s.selects && len(s.requirements) == 0 }

// Matches reports whether the selector selects an object with the labels.
func (s Selector) Matches(labels StringMap) bool {
	for _, r := range s.requirements {
		if !r.Matches(labels) {
			return false
		}
	}
	return s.selects
}

// Matches reports whether the selector selects an object with the labels, see
// [LabelSelector.Parse], which is for more than one object.
func (l LabelSelector) Matches(labels StringMap) (bool, error) {
	s, err := l.Parse()
	return s.Matches(labels), err
}

func (l LabelSelectorRequirement) requirement() Requirement {
	return Requirement{l.Key(), l.Operator(), l.Values()}
}
