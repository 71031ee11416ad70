// Package facts holds the facts about pods and containers known to the running modes besides
// decisions, above all the resources requested by the kubelet. Events of a runtime and lists of
// running pods each have a part of them.
package facts

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
)

// Subject names a pod by its UID or, with the identifier of the runtime, a container of it. A
// container's name is not enough, since a replacement has the same name.
type Subject struct{ PodUID, ContainerID string }

// Facts are the facts about a pod or a container. The running modes share them by a [Store]. Their
// maps and resources must not change.
type Facts struct {
	// Asked are the resources requested by the kubelet, as in a request. A nil field is unknown.
	Asked *hookmsg.Resources
	// Heard is the time of the last event with resources, zero if there was none.
	Heard time.Time
	// Told are the resources in force instead: those that the runtime got for a container, or that
	// were decided on a pod's cgroup. A nil field is unknown, as after a restart.
	Told *hookmsg.Resources
	// Found has the quota and the period of the cgroup before any of them was decided. It is nil
	// before the cgroup was examined.
	Found *hookmsg.Resources
	// Protected has the amounts of memory.min, low and high of the cgroup before any of them was
	// decided, as set by the kubelet's feature MemoryQoS. It is nil before the cgroup was examined.
	Protected *hookmsg.Resources
	// Files holds the texts of files of FieldUnified before they were decided, by name.
	Files map[string]string
	// Noted is set once the notes of earlier processes on the cgroup were read. Earlier are the
	// fields that they have decided and that have not been decided or given back since.
	Noted   bool
	Earlier *hookmsg.Resources
	// Swap is the text of memory.swap.max requested by the kubelet, empty while it is unknown.
	// SwapRequest is the memory that it was derived from.
	Swap        string
	SwapRequest int64
	// ContainerAnnotations and ContainerEnvs are the values of the last event with any.
	ContainerAnnotations map[string]string
	ContainerEnvs        []hookmsg.Env
	// Judged is set once it is known whether the container started without a decision, and Undecided if it
	// did.
	Judged, Undecided bool
	// Parent is the pod's cgroup, and Cgroup that of the subject, empty before its creation.
	Parent, Cgroup string

	// askedBefore and toldBefore are the values before the last change. The kubelet falls
	// back to them if its update fails.
	askedBefore, toldBefore *hookmsg.Resources
	// listed are the resources of the last list.
	listed *hookmsg.Resources
	// revision counts changes of the facts that plugins are asked with, and events without such
	// changes.
	revision uint64
}

// asksAs reports whether the plugins would get the same request, with no event in between.
func (f *Facts) asksAs(g *Facts) bool {
	return f.Asked == g.Asked && f.Heard.Equal(g.Heard) && maps.Equal(f.ContainerAnnotations, g.ContainerAnnotations) &&
		slices.Equal(f.ContainerEnvs, g.ContainerEnvs)
}

// Hear processes the resources of an event whose sender may have read them back. Each field of the
// event is one of these:
//
//   - The value in Told: no change.
//   - The value in Told before the last change, if takesBack is set: the last change is undone.
//   - A field that is unknown in Told: a change if the cgroup has a different value. others returns
//     such fields.
//   - Any other value: the kubelet's current request.
//
// A change of the kubelet's request to exactly the value in Told passes unnoticed.
func (f *Facts) Hear(event *hookmsg.Resources, takesBack bool, others func(*hookmsg.Resources) *hookmsg.Resources) {
	if event == nil {
		return
	}
	f.Heard = time.Now()
	was, told, askedBefore, toldBefore := orNone(f.Asked), orNone(f.Told), orNone(f.askedBefore), orNone(f.toldBefore)
	if !takesBack {
		toldBefore = new(hookmsg.Resources)
	}
	asked, untold := *was, new(hookmsg.Resources)
	news := false
	for field := range event.Fields().Numbers().All() {
		news = hear(asked.Number(field), untold.Number(field), *event.Number(field), *told.Number(field), *askedBefore.Number(field), *toldBefore.Number(field)) || news
	}
	for field := range event.Fields().Texts().All() {
		news = hear(asked.Text(field), untold.Text(field), *event.Text(field), *told.Text(field), *askedBefore.Text(field), *toldBefore.Text(field)) || news
	}
	entry := func(m map[string]string, key string) *string {
		if v, ok := m[key]; ok {
			return &v
		}
		return nil
	}
	asked.Unified = maps.Clone(asked.Unified)
	put := func(m *map[string]string, key string, v *string) {
		switch {
		case v == nil:
			delete(*m, key)
		case *m == nil:
			*m = map[string]string{key: *v}
		default:
			(*m)[key] = *v
		}
	}
	for key, value := range event.Unified {
		is, unknown := entry(asked.Unified, key), (*string)(nil)
		news = hear(&is, &unknown, &value, entry(told.Unified, key), entry(askedBefore.Unified, key), entry(toldBefore.Unified, key)) || news
		put(&asked.Unified, key, is)
		put(&untold.Unified, key, unknown)
	}
	if differ := others(untold); differ.Fields() != 0 {
		asked, news = *asked.Overlay(differ), true
	}
	if news {
		f.askedBefore, f.toldBefore = f.Asked, f.Told
		f.Asked = &asked
	}
}

// hear processes one field, and reports whether it is a change.
func hear[T comparable](asked, untold **T, event, told, askedBefore, toldBefore *T) (news bool) {
	switch {
	case event == nil:
	case told == nil:
		*untold = event
	case *event == *told:
	case toldBefore != nil && *event == *toldBefore:
		*asked, news = askedBefore, true
	default:
		*asked, news = event, true
	}
	return news
}

// Ask processes the resources of an event with only values requested by the kubelet.
func (f *Facts) Ask(event *hookmsg.Resources) {
	f.Heard = time.Now()
	f.Asked = f.Asked.Overlay(event)
}

// listIsLate is the maximum age of a list relative to an earlier event: the kubelet's list is some
// seconds late.
const listIsLate = time.Minute

// List processes the resources of a list of running pods that was begun at the given time. A field
// in the last list that is missing in this one becomes unknown. A list without resources changes
// nothing.
//
// The resources of an event take precedence: permanently over inferred resources of a list, and for
// a minute over others. Fields that the list has changed since are an exception.
func (f *Facts) List(listed *hookmsg.Resources, begun time.Time, inferred bool) {
	if listed == nil {
		return
	}
	before := f.listed
	f.listed = listed
	switch {
	case f.Heard.IsZero():
		f.Asked = listed // All known values are from the last list.
	case !inferred && begun.Sub(f.Heard) > listIsLate:
		f.Asked = f.Asked.Select(hookmsg.AllFields &^ sameFields(f.Asked, before)).Overlay(listed)
	default:
		f.Asked = listed.Overlay(f.Asked)
		if !inferred && before != nil && begun.After(f.Heard) {
			f.Asked = f.Asked.Overlay(listed.Select(hookmsg.AllFields &^ sameFields(listed, before)))
		}
	}
}

// sameFields returns the single-valued fields that both set to the same value.
func sameFields(a, b *hookmsg.Resources) (same hookmsg.Fields) {
	both := a.Fields() & b.Fields()
	for field := range both.Numbers().All() {
		if **a.Number(field) == **b.Number(field) {
			same |= field
		}
	}
	for field := range both.Texts().All() {
		if **a.Text(field) == **b.Text(field) {
			same |= field
		}
	}
	return same
}

func orNone(r *hookmsg.Resources) *hookmsg.Resources {
	if r == nil {
		return new(hookmsg.Resources)
	}
	return r
}

// Store holds the facts of the pods on a node. The zero value is empty and ready to use.
// A Store is safe for use by several goroutines.
type Store struct {
	mu sync.Mutex
	// pods maps UIDs to facts by the identifier of the container, "" for the pod itself.
	pods map[string]map[string]*Facts
	// creations is set if containers are announced before their creation.
	creations bool
}

// ExpectCreations declares that containers are announced before their creation. A container without
// an announcement may then have started undecided.
func (s *Store) ExpectCreations() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.creations = true
}

// Unjudged reports whether it is still unknown if a container started undecided.
func (s *Store) Unjudged(of Subject) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.pods[of.PodUID][of.ContainerID]
	return s.creations && (f == nil || !f.Judged)
}

// Undecided returns the number of containers that started undecided.
func (s *Store) Undecided() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, pod := range s.pods {
		for _, f := range pod {
			if f.Undecided {
				n++
			}
		}
	}
	return n
}

// Get returns the facts about a pod or a container.
func (s *Store) Get(of Subject) Facts {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.pods[of.PodUID][of.ContainerID]; f != nil {
		return *f
	}
	return Facts{}
}

// AskedOf returns the resources requested for the pod, or for the container of it, with a cgroup;
// nil if they are unknown.
func (s *Store) AskedOf(podUID, cgroup string) *hookmsg.Resources {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.pods[podUID] {
		if f.Cgroup == cgroup {
			return f.Asked
		}
	}
	return nil
}

// EachAsked calls f with the cgroup of each pod and container whose resources are known. The Store is
// not locked meanwhile.
func (s *Store) EachAsked(f func(cgroup string, pod bool, asked *hookmsg.Resources)) {
	type subject struct {
		cgroup string
		pod    bool
		asked  *hookmsg.Resources
	}
	var all []subject
	s.mu.Lock()
	for _, pod := range s.pods {
		for id, of := range pod {
			if of.Cgroup != "" && of.Asked != nil {
				all = append(all, subject{of.Cgroup, id == "", of.Asked})
			}
		}
	}
	s.mu.Unlock()
	for _, one := range all {
		f(one.cgroup, one.pod, one.asked)
	}
}

// Sum returns the sums of the quotas and the memory limits requested by the kubelet for the
// containers of a pod. A sum is nil if a container is known without its amount, or if no container
// is known. The quotas have one period.
func (s *Store) Sum(podUID string) *hookmsg.Resources {
	s.mu.Lock()
	defer s.mu.Unlock()
	var quota, memory, period int64
	some, quotas, memories := false, true, true
	for id, f := range s.pods[podUID] {
		if id == "" {
			continue
		}
		some = true
		asked := orNone(f.Asked)
		if q, p := asked.CFSQuotaUS, asked.CFSPeriodUS; q == nil || *q <= 0 || p == nil || period != 0 && *p != period {
			quotas = false
		} else {
			quota, period = quota+*q, *p
		}
		if m := asked.MemoryLimitBytes; m == nil || *m <= 0 {
			memories = false
		} else {
			memory += *m
		}
	}
	sum := new(hookmsg.Resources)
	if some && quotas {
		sum.CFSQuotaUS, sum.CFSPeriodUS = &quota, &period
	}
	if some && memories {
		sum.MemoryLimitBytes = &memory
	}
	return sum
}

// Learn changes the facts about a pod or a container, and returns them. For a pod without a UID it
// keeps nothing.
func (s *Store) Learn(of Subject, learn func(*Facts)) Facts {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.pods[of.PodUID][of.ContainerID]
	if f == nil {
		f = new(Facts)
	}
	before := *f
	learn(f)
	if f.revision = before.revision; !f.asksAs(&before) {
		f.revision++
	}
	if of.PodUID == "" {
		return *f
	}
	if s.pods == nil {
		s.pods = map[string]map[string]*Facts{}
	}
	if s.pods[of.PodUID] == nil {
		s.pods[of.PodUID] = map[string]*Facts{}
	}
	s.pods[of.PodUID][of.ContainerID] = f
	return *f
}

// IfAsked calls f if the plugins would still get the request of the returned facts, and reports
// whether it did. If not, another decision has been made, or is about to be. The facts do not
// change meanwhile. For a pod without a UID there are no facts.
func (s *Store) IfAsked(of Subject, known Facts, f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of.PodUID != "" {
		if now := s.pods[of.PodUID][of.ContainerID]; now == nil || now.revision != known.revision {
			return false
		}
	}
	f()
	return true
}

// Forget drops the facts about a container, or of a pod with its containers.
func (s *Store) Forget(of Subject) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods[of.PodUID], of.ContainerID)
	if of.ContainerID == "" || len(s.pods[of.PodUID]) == 0 {
		delete(s.pods, of.PodUID)
	}
}

// Prune drops the facts about pods and containers whose cgroups no longer exist, and returns the
// UIDs of the pods of which nothing is left.
func (s *Store) Prune(exists func(cgroup string) bool) (pods []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid, subjects := range s.pods {
		for id, f := range subjects {
			if f.Cgroup != "" && !exists(f.Cgroup) || f.Cgroup == "" && f.Parent != "" && !exists(f.Parent) {
				delete(subjects, id)
			}
		}
		if len(subjects) == 0 {
			delete(s.pods, uid)
			pods = append(pods, uid)
		}
	}
	return pods
}
