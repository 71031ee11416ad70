package hooks

import (
	"bytes"
	"slices"
	"strings"
	"sync"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
)

// State is the desired state of a node: what was decided last on each cgroup.
// Each running mode puts its decisions there and an [Enforcer] brings them to
// the cgroups, so the modes agree by construction. Beside that it holds what the
// modes know of pods and containers, see [Facts], so they ask the plugins the same.
//
// It lives in memory. After a restart it is made anew by asking the plugins
// about what runs; they decide by the request alone, so they decide the same.
//
// The zero value is empty and ready to use. A State is safe for use by several
// goroutines.
type State struct {
	mu      sync.Mutex
	cgroups map[string]*desired
	version uint64
	// facts are by the UIDs of pods and the identifiers of their containers, "" for
	// the pod itself.
	facts map[string]map[string]*Facts
}

// Desired is what a cgroup should have.
type Desired struct {
	// Cgroup is the path below the root, as in a [Target].
	Cgroup string
	// PodUID is the pod's that the cgroup is or lies in, empty for a QoS class.
	PodUID string
	// Resources are the decided fields. They must not change any more.
	Resources *hookmsg.Resources
}

type desired struct {
	Desired
	encoded []byte
}

// Put makes d the desired state of its cgroup, in the place of what was, and
// reports whether that makes a difference. A decision that sets no resources
// takes the cgroup out of the state: what is in its files stays there.
func (s *State) Put(d Desired) (changed bool) {
	encoded := hookmsg.AppendDecision(nil, &hookmsg.Decision{Resources: d.Resources})
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.cgroups[d.Cgroup]
	if FieldsOf(&hookmsg.Decision{Resources: d.Resources}) == 0 {
		if old != nil {
			delete(s.cgroups, d.Cgroup)
			s.version++
		}
		return old != nil
	}
	if old != nil && old.PodUID == d.PodUID && bytes.Equal(old.encoded, encoded) {
		return false
	}
	if s.cgroups == nil {
		s.cgroups = map[string]*desired{}
	}
	s.cgroups[d.Cgroup] = &desired{d, encoded}
	s.version++
	return true
}

// Get returns the desired state of a cgroup.
func (s *State) Get(cgroup string) (Desired, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.cgroups[cgroup]; d != nil {
		return d.Desired, true
	}
	return Desired{}, false
}

// All returns the desired state of every cgroup, sorted by path: a cgroup comes
// before those in it.
func (s *State) All() []Desired {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Desired, 0, len(s.cgroups))
	for _, d := range s.cgroups {
		all = append(all, d.Desired)
	}
	slices.SortFunc(all, func(a, b Desired) int { return strings.Compare(a.Cgroup, b.Cgroup) })
	return all
}

// Pod returns the cgroups of a pod, sorted by path.
func (s *State) Pod(uid string) (cgroups []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for cgroup, d := range s.cgroups {
		if uid != "" && d.PodUID == uid {
			cgroups = append(cgroups, cgroup)
		}
	}
	slices.Sort(cgroups)
	return cgroups
}

// Len returns the number of cgroups.
func (s *State) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.cgroups)
}

// Version moves whenever something changes.
func (s *State) Version() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// Remove drops a cgroup and those in it.
func (s *State) Remove(cgroup string) {
	s.prune(func(d *Desired) bool { return d.Cgroup == cgroup || strings.HasPrefix(d.Cgroup, cgroup+"/") })
}

// RemovePod drops the cgroups of a pod, and what is known of it.
func (s *State) RemovePod(uid string) {
	s.Forget(Subject{PodUID: uid})
	s.prune(func(d *Desired) bool { return uid != "" && d.PodUID == uid })
}

// prune drops the cgroups for which drop returns true.
func (s *State) prune(drop func(*Desired) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for cgroup, d := range s.cgroups {
		if drop(&d.Desired) {
			delete(s.cgroups, cgroup)
			s.version++
		}
	}
}
