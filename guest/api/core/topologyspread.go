package core

import "github.com/kubewasm/kubewasm/guest/api/meta"

// ParseSelector returns a selector for the Pods that the constraint of a Pod counts, for a plugin
// that compares it with many: those that its labelSelector selects and that have the same values as
// the Pod under matchLabelKeys. A key that the Pod lacks is left out. The error is that of
// [meta.LabelSelector.Parse].
func (t TopologySpreadConstraint) ParseSelector(pod Pod) (meta.Selector, error) {
	s, err := t.LabelSelector().Parse()
	if err != nil {
		return s, err
	}
	labels := pod.Metadata().Labels()
	for _, key := range t.MatchLabelKeys() {
		if value, ok := labels.Lookup(key); ok {
			s = s.Add(meta.Requirement{Key: key, Operator: meta.LabelSelectorOpIn, Values: []string{value}})
		}
	}
	return s, nil
}
