package sched

import (
	"encoding/binary"
	"slices"
	"strings"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/objects"
	"github.com/kubewasm/kubewasm/internal/objects/lookup"
)

// indexing is implemented by a [Handle] whose informers can have indexes.
type indexing interface {
	// Indexer returns the store of the informer of a resource, with the indexes added that it does not
	// have. It is called after Lister.
	Indexer(resource schema.GroupVersionResource, indexes cache.Indexers) (cache.Indexer, error)
}

// indexName is the name of the index of a label. Plugins share it.
func indexName(label string) string { return "kubewasm/label/" + label }

// index adds indexes to an informer. Where there are none, lists look at all objects.
func (p *Plugin) index(i *informer, resource schema.GroupVersionResource, indexes []host.ObjectIndex) error {
	h, ok := p.handle.(indexing)
	if !ok || len(indexes) == 0 {
		return nil
	}
	all := cache.Indexers{}
	for _, index := range indexes {
		i.labels = append(i.labels, index.Label)
		all[indexName(index.Label)] = func(object any) ([]string, error) {
			m, err := meta.Accessor(object)
			if err != nil {
				return nil, nil // It is found by no label.
			}
			if value, ok := m.GetLabels()[index.Label]; ok {
				return []string{value}, nil
			}
			return nil, nil
		}
	}
	var err error
	i.indexer, err = h.Indexer(resource, all)
	return err
}

// find returns the objects that can have the labels of a selector, if an index has them: those that
// it selects if it has Only.
func (i *informer) find(s *lookup.Selector) (found []any, ok bool) {
	if i.indexer == nil {
		return nil, false
	}
	for _, r := range s.Equal {
		if !slices.Contains(i.labels, r.Key) {
			continue
		}
		for _, value := range r.Values {
			list, err := i.indexer.ByIndex(indexName(r.Key), value)
			if err != nil {
				return nil, false
			}
			found = append(found, list...)
		}
		return found, true
	}
	return nil, false
}

// Indexed implements [lookup.Indexed].
func (l lookups) Indexed(inst *host.Instance, q *lookup.List) ([]metav1.Object, bool, error) {
	if i, ok := l.informers[q.Resource]; !ok || i.indexer == nil || len(q.Selector.Equal) == 0 {
		return nil, false, nil
	}
	if _, err := l.lister(inst, q.Resource, q.Namespace); err != nil {
		return nil, false, err
	}
	i := l.informers[q.Resource]
	return listOnce(inst, "index\x00"+q.Resource+"\x00"+q.Namespace+"\x00"+q.Selector.String(), func() ([]metav1.Object, bool, error) {
		found, ok := i.find(&q.Selector)
		list := make([]metav1.Object, 0, len(found))
		for _, object := range found {
			m, err := meta.Accessor(object)
			if err != nil {
				return nil, false, err
			}
			list = append(list, m)
		}
		inst.Spend(sortWork * int64(len(list)))
		slices.SortFunc(list, lookup.Compare[metav1.Object])
		return list, ok, nil
	})
}

// listOnce returns the result of list, the same for a question as long as the call lasts, and
// when it is repeated.
func listOnce(inst *host.Instance, question string, list func() ([]metav1.Object, bool, error)) ([]metav1.Object, bool, error) {
	c := &inst.State().(*instance).call
	for n := range c.listed {
		if c.listed[n].resource == question {
			return c.listed[n].objects, true, nil
		}
	}
	if c.first != nil {
		for n := range c.first.listed {
			if l := c.first.listed[n]; l.resource == question {
				c.listed = append(c.listed, listed{question, l.objects, nil})
				return l.objects, true, nil
			}
		}
	}
	objects, ok, err := list()
	if err != nil || !ok {
		return nil, ok, err
	}
	inst.Keep(int(unsafe.Sizeof(metav1.Object(nil)))*len(objects) + len(question))
	c.listed = append(c.listed, listed{question, objects, nil})
	return objects, true, nil
}

// podsResource is the resource that a configuration names for list_pods.
const podsResource = "v1/pods"

// listPods gives the refs of the Pods that a selector selects, as 64-bit little-endian numbers.
func (p *Plugin) listPods(inst *host.Instance, stack []uint64) {
	i := inst.State().(*instance)
	q := &i.counted
	q.parse(inst, lookup.ReadQuestion(inst, stack[1], stack[2]), &p.selectors)
	terminating := uint32(stack[0]) != 0
	question := "pods\x00" + q.text
	if terminating {
		question = "all " + question
	}
	refs := p.podRefs(inst, question, func() ([]metav1.Object, bool, error) { return p.selectPods(inst, q, terminating) })
	stack[0] = uint64(inst.Write(uint32(stack[3]), uint32(stack[4]), refs))
}

// podRefs returns the refs of the Pods that answer a question, as 64-bit little-endian numbers. The call
// may use them until it ends.
func (p *Plugin) podRefs(inst *host.Instance, question string, list func() ([]metav1.Object, bool, error)) []byte {
	i := inst.State().(*instance)
	c := &i.call
	if _, _, err := listOnce(inst, question, list); err != nil {
		inst.Abort(err)
	}
	l := &c.listed[slices.IndexFunc(c.listed, func(l listed) bool { return l.resource == question })]
	if l.pods == nil { // A guest may ask without end.
		inst.Keep(2 * int(unsafe.Sizeof((*objects.Object)(nil))) * len(l.objects))
		for _, pod := range l.objects {
			l.pods = append(l.pods, p.objects.Pod(pod.(*corev1.Pod)))
		}
		c.pods = append(c.pods, l.pods...)
	}
	i.buffer = i.buffer[:0]
	for _, object := range l.pods {
		i.buffer = binary.LittleEndian.AppendUint64(i.buffer, uint64(object.Ref))
	}
	return i.buffer
}

// selectPods returns the Pods that a question selects.
func (p *Plugin) selectPods(inst *host.Instance, q *podQuestion, terminating bool) ([]metav1.Object, bool, error) {
	lister, err := lookups{p}.lister(inst, podsResource, q.namespace)
	if err != nil {
		return nil, false, err
	}
	i := p.informers[podsResource]
	found, ok := i.find(&q.selector)
	if !ok {
		all, err := lister.List(labels.Everything())
		if err != nil {
			return nil, false, err
		}
		found = make([]any, len(all))
		for n := range all {
			found[n] = all[n]
		}
	}
	only, pods := ok && q.selector.Only, make([]*corev1.Pod, 0, min(len(found), spendAfter))
	for n, object := range found {
		if n%spendAfter == 0 {
			inst.Spend(q.selector.Work * int64(min(spendAfter, len(found)-n)))
		}
		pod, ok := object.(*corev1.Pod)
		if ok && (q.namespace == "" || pod.Namespace == q.namespace) && (terminating || pod.DeletionTimestamp == nil) &&
			(only || q.selector.Matches(labels.Set(pod.Labels))) {
			pods = append(pods, pod)
		}
	}
	inst.Spend(sortWork * int64(len(pods)))
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		if a.Namespace != b.Namespace {
			return strings.Compare(a.Namespace, b.Namespace)
		}
		return strings.Compare(a.Name, b.Name)
	})
	list := make([]metav1.Object, len(pods))
	for n, pod := range pods {
		list[n] = pod
	}
	return list, true, nil
}

// spendAfter is the number of Pods between two checks of the fuel.
const spendAfter = 256
