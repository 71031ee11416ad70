package hooks

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
)

// Selector selects the pods that a plugin is asked about. A pod must match all fields that are set.
// At level QOS only QOSClasses counts, since a class has no namespace and no labels.
type Selector struct {
	// Namespaces are the namespaces of the pods.
	Namespaces []string `json:"namespaces,omitempty"`
	// QOSClasses are the pods' classes, or the classes themselves.
	QOSClasses []abi.QOSClass `json:"qosClasses,omitempty"`
	// Labels is a selector on the pods' labels in the syntax of kubectl: "tier in (batch, offline),
	// !pinned".
	Labels string `json:"labels,omitempty"`
}

// selector is a parsed Selector.
type selector struct {
	namespaces []string
	classes    set[abi.QOSClass]
	labels     labels.Selector // nil matches everything.
}

func (s *Selector) parse() (selector, error) {
	parsed := selector{namespaces: s.Namespaces}
	var errs []error
	for _, q := range s.QOSClasses {
		if q <= 0 || q > abi.QOSBestEffort {
			errs = append(errs, fmt.Errorf("selector: QoS class %d is not known", int32(q)))
			continue
		}
		parsed.classes |= 1 << q
	}
	if s.Labels != "" {
		var err error
		if parsed.labels, err = labels.Parse(s.Labels); err != nil {
			errs = append(errs, fmt.Errorf("selector: labels: %w", err))
		}
	}
	return parsed, errors.Join(errs...)
}

// all reports whether every request matches.
func (s *selector) all() bool { return s.classes == 0 && len(s.namespaces) == 0 && s.labels == nil }

func (s *selector) matches(req *hookmsg.Request) bool {
	if !s.classes.has(req.QOSClass) {
		return false
	}
	if req.Level == abi.LevelQOS {
		return true
	}
	if len(s.namespaces) != 0 && !slices.Contains(s.namespaces, req.Pod.Namespace) {
		return false
	}
	return s.labels == nil || s.labels.Matches(labels.Set(req.PodLabels))
}

// disjoint reports whether no request can match both. It ignores labels, of which nothing is known.
func (s *selector) disjoint(t *selector, levels set[abi.Level]) bool {
	if s.classes != 0 && t.classes != 0 && s.classes&t.classes == 0 {
		return true
	}
	if levels.has(abi.LevelQOS) || len(s.namespaces) == 0 || len(t.namespaces) == 0 {
		return false
	}
	return !slices.ContainsFunc(s.namespaces, func(n string) bool { return slices.Contains(t.namespaces, n) })
}
