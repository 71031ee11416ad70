package main

import (
	"sync"

	"go.opentelemetry.io/otel/attribute"
)

// Bounds of the label sets of one metric. An evaluation beyond them is counted all the same,
// with fewer labels of its own.
const (
	maxSetsOfPolicy = 200
	maxSets         = 5000
	maxPolicySets   = 5000
)

// other is the value of a label in place of those beyond the bounds. No name in Kubernetes has
// parentheses.
const other = "(other)"

// series bounds the label sets of a metric whose labels clients choose. The zero value is
// ready to use.
type series struct {
	mu   sync.Mutex
	seen map[attribute.Distinct]struct{}
	// sets is the number of label sets with everything that was said, ofPolicy those of
	// each policy that has some. Both are at most maxSets.
	sets     int
	ofPolicy map[string]int
	// policySets is the number of label sets with other in place of what was said.
	policySets int
}

// of returns the label set of a measurement. own are the labels of the policy and of its
// verdict, which have few values for each policy; said are those that clients choose. Beyond
// the bounds said, and then the name of the policy, is other.
func (s *series) of(policy string, own, said []attribute.KeyValue) attribute.Set {
	s.mu.Lock()
	defer s.mu.Unlock()
	labels := append(append(make([]attribute.KeyValue, 0, len(own)+len(said)), own...), said...)
	set := attribute.NewSet(labels...)
	if s.has(set) {
		return set
	}
	if len(said) != 0 {
		if s.sets < maxSets && s.ofPolicy[policy] < maxSetsOfPolicy {
			if s.ofPolicy == nil {
				s.ofPolicy = map[string]int{}
			}
			s.sets++
			s.ofPolicy[policy]++
			return s.add(set)
		}
		labels = append(labels[:0], own...)
		for _, l := range said {
			labels = append(labels, attribute.String(string(l.Key), other))
		}
		if set = attribute.NewSet(labels...); s.has(set) {
			return set
		}
	}
	if s.policySets < maxPolicySets {
		s.policySets++
		return s.add(set)
	}
	// These are few: the labels of a verdict alone.
	return attribute.NewSet(append(labels, attribute.String("policy_name", other))...)
}

func (s *series) has(set attribute.Set) bool {
	_, ok := s.seen[set.Equivalent()]
	return ok
}

func (s *series) add(set attribute.Set) attribute.Set {
	if s.seen == nil {
		s.seen = map[attribute.Distinct]struct{}{}
	}
	s.seen[set.Equivalent()] = struct{}{}
	return set
}
