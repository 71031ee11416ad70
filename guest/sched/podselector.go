package sched

import (
	"iter"

	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/api/meta"
)

// PodSelector selects Pods, to count those of nodes. The zero value selects none.
type PodSelector struct {
	namespace   string
	selector    meta.Selector
	terminating bool
	// question is the question to the host, empty if no Pod is selected.
	question string
}

// NewPodSelector returns a PodSelector for the Pods in a namespace, or in any if it is empty,
// whose labels the selector selects.
func NewPodSelector(namespace string, selector meta.Selector) PodSelector {
	s := PodSelector{namespace: namespace, selector: selector, terminating: true}
	// Without requirements it selects everything, or nothing.
	if text := selector.String(); text != "" || selector.Empty() {
		s.question = namespace + "\x00" + text
	}
	return s
}

// WithoutTerminating returns a PodSelector that leaves out Pods with a deletionTimestamp.
func (s PodSelector) WithoutTerminating() PodSelector {
	s.terminating = false
	return s
}

// Matches reports whether a Pod is selected.
func (s PodSelector) Matches(pod core.Pod) bool {
	m := pod.Metadata()
	return s.question != "" && (s.namespace == "" || m.Namespace() == s.namespace) &&
		(s.terminating || !m.HasDeletionTimestamp()) && s.selector.Matches(m.Labels())
}

// List returns the selected Pods of the cluster, sorted by namespace and name, for the rest of the
// call. It needs the grant "objects", and a configuration that names "v1/pods". An index of a label
// in that configuration (index: [{label: group}]) saves the host a look at all Pods if the selector
// has one value or some of that label. A Pod has the fields that the plugin declares.
func (s PodSelector) List() iter.Seq[core.Pod] {
	return func(yield func(core.Pod) bool) {
		if s.question != "" {
			s.list(yield)
		}
	}
}

// Count returns the number of selected Pods of each node. The host counts them, of many nodes in
// parallel, so that no Pod comes to the guest: ask about all nodes at once, as in
// Count(nodes.Slice()...) with the NodeInfos of PreFilter.
func (s PodSelector) Count(nodes ...NodeInfo) []int {
	counts := make([]int, len(nodes))
	if s.question != "" && len(nodes) > 0 {
		s.count(counts, nodes)
	}
	return counts
}
