// Package facts holds what the running modes know of pods and containers beside what
// was decided on their cgroups: above all what the kubelet asks for, which the events
// of a runtime and the lists of what runs tell in part.
package facts

import (
	"maps"
	"sync"
	"time"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
)

// Subject names a pod by its UID or, with the identifier of the runtime, a container
// of it. A container's name does not: the one that replaces it has the same.
type Subject struct{ PodUID, ContainerID string }

// Facts are what is known of a pod or a container beside what was decided on its
// cgroup. The running modes learn them from each other by a [Store]. What they point
// to must not change.
type Facts struct {
	// Asked are the resources that the kubelet asks for, as in a request. nil fields
	// are not known.
	Asked *hookmsg.Resources
	// Heard is when an event of a runtime told them, zero if none did.
	Heard time.Time
	// Told are the resources that are in force in their place: what the runtime was
	// told of a container, or what was decided on a pod's cgroup. nil fields are not
	// known, as after a restart.
	Told *hookmsg.Resources
	// ContainerAnnotations and ContainerEnvs are those of the last event that had
	// any.
	ContainerAnnotations map[string]string
	ContainerEnvs        []hookmsg.Env
	// Parent is the pod's cgroup, Cgroup the one that the facts are about: empty
	// before it is made.
	Parent, Cgroup string

	// askedBefore and toldBefore are what the last news replaced. The kubelet goes
	// back to them if it cannot have what it asks for.
	askedBefore, toldBefore *hookmsg.Resources
	// listed is what the last list had.
	listed *hookmsg.Resources
}

// Hear takes the resources of an event whose sender may have read back what is in
// force. A field that is what was told is no news; what was told before the last news
// takes them back, if the sender may; any other value is what the kubelet asks for. Of
// fields of which nothing is known to be told, those are news that the cgroup has
// otherwise: others returns them.
//
// A kubelet that comes to ask for exactly what it was given in the place of something
// else is not understood by this, and keeps what it has.
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
	for field := range (event.Fields() & hookmsg.NumberFields).All() {
		news = hear(asked.Number(field), untold.Number(field), *event.Number(field), *told.Number(field), *askedBefore.Number(field), *toldBefore.Number(field)) || news
	}
	for field := range (event.Fields() & hookmsg.TextFields).All() {
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

// hear takes one field, and reports whether it is news.
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

// Ask takes the resources of an event that has nothing but what the kubelet asks for.
func (f *Facts) Ask(event *hookmsg.Resources) {
	f.Heard = time.Now()
	f.Asked = f.Asked.Overlay(event)
}

// listIsLate is how long after an event a list may still have what was before it: that
// of the kubelet is some seconds behind.
const listIsLate = time.Minute

// List takes the resources of a list of what runs that was begun at a time. A field that
// the list had and has no more is not known any more; a list without any resources
// changes nothing.
//
// What an event has told counts more at any time if the list has its resources
// inferred, and for a minute otherwise, but for fields that the list has changed in the
// meantime.
func (f *Facts) List(listed *hookmsg.Resources, begun time.Time, inferred bool) {
	if listed == nil {
		return
	}
	before := f.listed
	f.listed = listed
	if f.Heard.IsZero() || !inferred && begun.Sub(f.Heard) > listIsLate {
		f.Asked = f.Asked.Select(hookmsg.AllFields &^ sameFields(f.Asked, before)).Overlay(listed)
		return
	}
	asked := listed.Overlay(f.Asked)
	if !inferred && before != nil && begun.After(f.Heard) {
		asked = asked.Overlay(listed.Select(hookmsg.AllFields &^ sameFields(listed, before)))
	}
	f.Asked = asked
}

// sameFields returns the fields with one value that both set to the same.
func sameFields(a, b *hookmsg.Resources) (same hookmsg.Fields) {
	both := a.Fields() & b.Fields()
	for field := range (both & hookmsg.NumberFields).All() {
		if **a.Number(field) == **b.Number(field) {
			same |= field
		}
	}
	for field := range (both & hookmsg.TextFields).All() {
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
	// pods are by UID, in each the containers by identifier, "" for the pod itself.
	pods map[string]map[string]*Facts
}

// Get returns what is known of a pod or a container.
func (s *Store) Get(of Subject) Facts {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.pods[of.PodUID][of.ContainerID]; f != nil {
		return *f
	}
	return Facts{}
}

// Learn changes what is known of a pod or a container, and returns it. Of a pod
// without a UID nothing is kept.
func (s *Store) Learn(of Subject, learn func(*Facts)) Facts {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.pods[of.PodUID][of.ContainerID]
	if f == nil {
		f = new(Facts)
	}
	learn(f)
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

// Forget drops what is known of a container, or of a pod with its containers.
func (s *Store) Forget(of Subject) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods[of.PodUID], of.ContainerID)
	if of.ContainerID == "" || len(s.pods[of.PodUID]) == 0 {
		delete(s.pods, of.PodUID)
	}
}

// Prune drops what is known of pods and containers whose cgroups do not exist any more,
// and returns the UIDs of the pods of which nothing is left.
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
