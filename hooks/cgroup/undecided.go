package cgroup

import (
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks/internal/facts"
)

// ExpectCreations declares that a runtime announces each container before creating it.
func (s *State) ExpectCreations() { s.facts.ExpectCreations() }

// StartedUndecided returns the number of containers that ran without a decision at first. Their
// creation was not announced, and when the agent found them, their cgroups differed from the
// plugins' decisions. It is 0 before ExpectCreations.
func (s *State) StartedUndecided() int { return s.facts.Undecided() }

// NoteStart compares a container with the first decision on it, before that decision is put into
// the State. If the container was not created with the decision, it counts as started undecided,
// and NoteStart returns the fields that its cgroup lacks. It returns nil if there are none, if the
// container was created with the decision, or after the first call for it.
func (e *Enforcer) NoteStart(t Target, containerID string) *hookmsg.Resources {
	of := facts.Subject{PodUID: t.PodUID, ContainerID: containerID}
	if e.cfg.DryRun || containerID == "" || !e.state.facts.Unjudged(of) {
		return nil
	}
	t.Resources = t.Resources.Select(hookmsg.AllFields &^ ofProcesses)
	var differing *hookmsg.Resources
	if t.Resources != nil {
		differing = e.applier.Differing(t)
	}
	e.state.facts.Learn(of, func(f *facts.Facts) { f.Judged, f.Undecided = true, differing != nil })
	return differing
}
