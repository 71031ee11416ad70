package cgroup

import (
	"slices"
	"strings"
	"sync"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks/internal/facts"
)

// State is the desired state of a node: the last decision on each cgroup. The running modes put
// their decisions there and an [Enforcer] applies them, so the modes agree by construction.
//
// It is kept in memory. After a restart the plugins are asked again about running pods. They decide
// by the request alone, so they decide the same.
//
// The zero value is empty and ready to use. A State is safe for use by several
// goroutines.
type State struct {
	facts facts.Store

	mu      sync.Mutex
	cgroups map[string]Target
	// held are fields of cgroups that are left alone for now.
	held map[string]hookmsg.Fields
	// version is the number of changes so far.
	version uint64
}

// Facts returns the facts about pods and containers known to the running modes, besides decisions,
// so that each mode asks the plugins the same.
func (s *State) Facts() *Facts { return (*Facts)(&s.facts) }

// Facts are shared by the packages of this module that observe pods: they convert it to its
// underlying type. Other packages only pass it on.
type Facts facts.Store

// Put replaces the desired state of the target's cgroup, and reports whether that changes it.
// Resources that set nothing remove the cgroup from the state, and its files stay unchanged. The
// resources must not change afterwards.
func (s *State) Put(t Target) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, has := s.cgroups[t.Cgroup]
	switch {
	case t.Resources.Fields() == 0:
		if !has {
			return false
		}
		delete(s.cgroups, t.Cgroup)
	case has && old.PodUID == t.PodUID && old.Level == t.Level && old.Resources.Equal(t.Resources):
		return false
	default:
		if s.cgroups == nil {
			s.cgroups = map[string]Target{}
		}
		s.cgroups[t.Cgroup] = t
	}
	s.version++
	return true
}

// Hold leaves fields of a cgroup alone until Release, regardless of the desired state. It is for
// fields whose next values from another writer are to be observed.
func (s *State) Hold(cgroup string, fields hookmsg.Fields) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == nil {
		s.held = map[string]hookmsg.Fields{}
	}
	s.held[cgroup] = fields
}

// Release ends Hold. An [Enforcer] resumes with the fields after [Enforcer.Forget], or with
// different resources.
func (s *State) Release(cgroup string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, cgroup)
}

// holds reports whether one of the fields of a cgroup is left alone.
func (s *State) holds(cgroup string, field hookmsg.Fields) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[cgroup]&field != 0
}

// Get returns the desired state of a cgroup; ok is false if there is none.
func (s *State) Get(cgroup string) (t Target, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok = s.cgroups[cgroup]
	return t, ok
}

// All returns the desired state of every cgroup, sorted by path: each cgroup before those in it.
func (s *State) All() []Target {
	all, _ := s.since(0)
	return all
}

// since returns the result of All with its version, nil if that equals the given version. An empty
// state that never changed has version 0.
func (s *State) since(version uint64) (all []Target, now uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.version == version {
		return nil, version
	}
	all = make([]Target, 0, len(s.cgroups))
	for _, t := range s.cgroups {
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b Target) int { return strings.Compare(a.Cgroup, b.Cgroup) })
	return all, s.version
}

// Pod returns the cgroups of a pod, sorted by path.
func (s *State) Pod(uid string) (cgroups []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for cgroup, t := range s.cgroups {
		if uid != "" && t.PodUID == uid {
			cgroups = append(cgroups, cgroup)
		}
	}
	slices.Sort(cgroups)
	return cgroups
}

// Fields returns the fields that are desired of any cgroup.
func (s *State) Fields() (fields hookmsg.Fields) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.cgroups {
		fields |= t.Resources.Fields()
	}
	return fields
}

// Len returns the number of cgroups.
func (s *State) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.cgroups)
}

// Remove drops a cgroup and those in it.
func (s *State) Remove(cgroup string) {
	s.remove(func(t Target) bool { return t.Cgroup == cgroup || strings.HasPrefix(t.Cgroup, cgroup+"/") })
}

// RemovePod drops the cgroups of a pod, and the facts about it.
func (s *State) RemovePod(uid string) {
	s.facts.Forget(facts.Subject{PodUID: uid})
	s.remove(func(t Target) bool { return uid != "" && t.PodUID == uid })
}

// remove drops the cgroups for which drop returns true.
func (s *State) remove(drop func(Target) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for cgroup, t := range s.cgroups {
		if drop(t) {
			delete(s.cgroups, cgroup)
			s.version++
		}
	}
}
