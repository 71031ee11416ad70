package sched

import (
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/api/meta"
	"github.com/kubewasm/kubewasm/guest/internal/lookup"
	"github.com/kubewasm/kubewasm/guest/internal/wire"
)

// SnapshotNodeNames returns the names of the nodes of the call: in PreFilter,
// PostFilter, Reserve and Permit all that the scheduler knows. Only functions of a
// scheduling cycle up to Permit that are not about one node may call it. Natively the only nodes are those of
// package schedtest.
func SnapshotNodeNames() []string { return splitNames(string(hostNodeNames())) }

// SnapshotNode returns a node by its name, for the rest of the call, and whether
// there is one. After Permit, and natively, there is none.
func SnapshotNode(name string) (NodeInfo, bool) { return hostNodeByName(name) }

// splitNames splits names that have a NUL after each.
func splitNames(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\x00"), "\x00")
}

// appendNames appends each name with a NUL after it.
func appendNames(b []byte, names []string) []byte {
	for _, name := range names {
		b = append(append(b, name...), 0)
	}
	return b
}

// WaitingPod is a Pod that waits in Permit. Its methods need its UID only, and the grant
// "waiting-pods".
type WaitingPod struct {
	UID, Namespace, Name string
	// PendingPlugins are the plugins whose permission it waits for.
	PendingPlugins []string
}

// WaitingPods returns the Pods that wait in Permit, in no order. It needs the
// grant "waiting-pods".
func WaitingPods() (list []WaitingPod) {
	for r := wire.NewReader(hostWaitingPods()); r.Next(); {
		if r.Field != 1 {
			continue
		}
		var w WaitingPod
		for m := wire.NewReader(r.Bytes()); m.Next(); {
			switch m.Field {
			case 1:
				w.UID = string(m.Bytes())
			case 2:
				w.Namespace = string(m.Bytes())
			case 3:
				w.Name = string(m.Bytes())
			case 4:
				w.PendingPlugins = append(w.PendingPlugins, string(m.Bytes()))
			}
		}
		list = append(list, w)
	}
	return list
}

// Pod returns the whole Pod, and whether it still waits.
func (w WaitingPod) Pod() (core.Pod, bool) { return podOfBytes(hostWaitingPod(w.UID)) }

// Allow gives the permission of this plugin to the Pod. It reports whether the Pod still
// waits for it.
func (w WaitingPod) Allow() bool { return hostAllowWaitingPod(w.UID) }

// Reject makes the Pod unschedulable. The reason is the concatenation of its parts. It
// reports whether the Pod still waited. In a function that is repeated on another instance
// it reports the result of the first time.
func (w WaitingPod) Reject(reason ...string) bool {
	return hostRejectWaitingPod(w.UID + "\x00" + strings.Join(reason, ""))
}

// Activate has the queue try Pods again: those that were refused, or are kept out of the queue. It may
// be called in PreEnqueue, PostFilter, Reserve, Unreserve, Permit, PreBind and PostBind, and takes
// effect after the call, for a Pod at most once a second. A call activates at most 1,000 Pods. It
// needs the grant "activate". In a function that is repeated on another instance it has no effect
// the second time.
func Activate(pods ...PodName) {
	// A request has 8 KiB.
	for b := []byte(nil); len(pods) != 0; b = b[:0] {
		for len(pods) != 0 && len(b)+len(pods[0].Namespace)+len(pods[0].Name)+2 <= 8<<10 {
			b = appendPodNames(b, pods[:1])
			pods = pods[1:]
		}
		if len(b) == 0 {
			pods = pods[1:] // No Pod has such a name.
			continue
		}
		hostActivate(b)
	}
}

// ApplyAnnotations has the host apply annotations to an object, in PostFilter, Unreserve, PreBind and
// PostBind, after the call. They are all that the plugin manages of the object: those that it has applied
// before and that are missing now are removed. An annotation that someone else manages stays as it is,
// and the host logs that. A call applies to at most 100 objects, the latest request of each counts, and
// a request has 8 KiB. It needs the grant "apply", and a configuration that names the resource with
// apply: [annotations].
func ApplyAnnotations(resource, namespace, name string, annotations map[string]string) {
	b := appendTexts(nil, resource, namespace, name)
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		b = appendTexts(b, key, annotations[key])
	}
	hostApplyAnnotations(b)
}

// ApplyStatus is ApplyAnnotations for the fields of the status that the plugin manages, a JSON object:
// {"phase":"Ready"}. The configuration has apply: [status].
func ApplyStatus(resource, namespace, name string, status []byte) {
	hostApplyStatus(append(appendTexts(nil, resource, namespace, name), status...))
}

// AwaitObject has PreBind called again after an object has changed, if it returns the code Wait. It may
// be called for several objects. After most, 10 minutes at the longest since PreBind was first called, the
// Pod is refused. The plugin looks the object up in each call: it may be as it should be already. Between
// the calls the plugin holds no instance. It needs the grant "objects".
func AwaitObject(resource, namespace, name string, most meta.Duration) {
	b := appendTexts(nil, resource, namespace, name)
	hostAwaitObject(b[:len(b)-1], uint32(min(max(int64(most)/1e6, 0), 1<<32-1)))
}

// appendTexts appends texts, each with a NUL after it.
func appendTexts(b []byte, texts ...string) []byte {
	for _, text := range texts {
		b = append(append(b, text...), 0)
	}
	return b
}

// Eventf reports an event about the Pod that is being scheduled, of the type "Normal" or
// "Warning". The note is the concatenation of its parts. It needs the grant "events". In a
// function that is repeated on another instance it has no effect the second time.
func Eventf(eventType, reason, action string, note ...string) {
	b := wire.AppendBytes(nil, 1, eventType)
	b = wire.AppendBytes(b, 2, reason)
	b = wire.AppendBytes(b, 3, action)
	hostEvent(wire.AppendBytes(b, 4, strings.Join(note, "")))
}

// GetObject returns an object of the Kubernetes API as protobuf or, if it is a
// custom resource, as JSON; nil if there is none. The resource is named as in the plugin's configuration, such as
// "v1/persistentvolumeclaims"; the namespace is empty for those that have none.
// It needs the grant "objects".
func GetObject(resource, namespace, name string) []byte {
	return lookup.Get(resource, namespace, name)
}

// ListObjects returns the objects of a resource that a label selector selects ("app=web,tier in (a, b)",
// empty for all) in the form of GetObject, in a namespace or in all if it is empty, sorted by namespace and name.
// They come from the host page by page, so a list may be of any length. It needs the grant "objects";
// an index of a label in the configuration saves the host a look at the other objects.
func ListObjects(resource, namespace, selector string) iter.Seq[[]byte] {
	return lookup.List(resource, namespace, selector)
}

func podOfBytes(b []byte) (core.Pod, bool) {
	if len(b) == 0 {
		return core.Pod{}, false
	}
	return core.PodFromProto(append([]byte(nil), b...)), true
}
