package kube137

import (
	"context"
	"errors"
	"iter"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/codec/schedmsg"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/informers"
	"github.com/kubewasm/kubewasm/internal/objects/lookup"
	"github.com/kubewasm/kubewasm/sched"
)

// frameworkOf describes the framework of this minor to the engine.
func frameworkOf(h fwk.Handle, e *evictions) sched.Framework {
	f := sched.Framework{Minor: minor, Lacks: lacks, AppendPods: appendPods, Usage: usageOf, Images: imagesOf, Freeze: freeze}
	if h != nil {
		f.Handle, f.Profile = handle{h, e}, h.ProfileName()
	}
	return f
}

func freeze(n sched.NodeInfo) sched.NodeInfo { return n.(fwk.NodeInfo).Snapshot() }

func appendPods(pods []*corev1.Pod, n sched.NodeInfo) []*corev1.Pod {
	for _, info := range n.(fwk.NodeInfo).GetPods() {
		pods = append(pods, info.GetPod())
	}
	return pods
}

func usageOf(of sched.NodeInfo) schedmsg.NodeInfo {
	n := of.(fwk.NodeInfo)
	usage := schedmsg.NodeInfo{
		Requested: n.GetRequested(), NonZeroRequested: n.GetNonZeroRequested(), Allocatable: n.GetAllocatable(),
		PVCRefCounts: n.GetPVCRefCounts(), Pods: len(n.GetPods()),
	}
	for ip, ports := range n.GetUsedPorts() {
		for p := range ports {
			usage.UsedPorts = append(usage.UsedPorts, schedmsg.HostPort{IP: ip, Protocol: p.Protocol, Port: p.Port})
		}
	}
	return usage
}

func imagesOf(n sched.NodeInfo) (images []schedmsg.Image) {
	for name, image := range n.(fwk.NodeInfo).GetImageStates() {
		images = append(images, schedmsg.Image{Name: name, Size: image.Size, NumNodes: image.NumNodes})
	}
	return images
}

// handle is the scheduler for the engine.
type handle struct {
	fwk.Handle
	evicting *evictions
}

func (h handle) Nodes() (sched.Nodes, error) {
	list, err := h.SnapshotSharedLister().NodeInfos().List()
	return nodes(list), err
}

func (h handle) Node(name string) sched.NodeInfo {
	if info, err := h.SnapshotSharedLister().NodeInfos().Get(name); err == nil {
		return info
	}
	return nil
}

func (h handle) WaitingPods() iter.Seq[sched.WaitingPod] {
	var list []sched.WaitingPod
	h.IterateOverWaitingPods(func(w fwk.WaitingPod) { list = append(list, waitingPod(w)) })
	return func(yield func(sched.WaitingPod) bool) {
		for _, w := range list {
			if !yield(w) {
				return
			}
		}
	}
}

func (h handle) WaitingPod(uid types.UID) sched.WaitingPod {
	if w := h.GetWaitingPod(uid); w != nil {
		return waitingPod(w)
	}
	return nil
}

// waitingPod returns a waiting Pod for the engine.
func waitingPod(w fwk.WaitingPod) sched.WaitingPod { return w }

func (h handle) Eventf(regarding, related runtime.Object, eventType, reason, action, note string) {
	h.EventRecorder().Eventf(regarding, related, eventType, reason, action, "%s", note)
}

func (h handle) Lister(grant host.ObjectGrant) (sched.Objects, error) {
	resource, err := lookup.ParseResource(grant.Resource)
	if err != nil {
		return sched.Objects{}, err
	}
	typed, err := h.SharedInformerFactory().ForResource(resource)
	if err != nil {
		return untyped(h.KubeConfig(), grant)
	}
	informer := typed.Informer() // It registers it with the factory.
	return sched.Objects{
		GenericLister: typed.Lister(),
		Synced:        func() (bool, error) { return informer.HasSynced(), nil },
		Watch: func(changed func(oldObj, newObj any)) (func(), error) {
			handler, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
				AddFunc:    func(o any) { changed(nil, o) },
				UpdateFunc: changed,
				DeleteFunc: func(o any) { changed(o, nil) },
			})
			return func() { _ = informer.RemoveEventHandler(handler) }, err
		},
		Close: func() {},
	}, nil
}

// untyped returns the objects of a resource of which client-go has no informer: custom resources and
// metrics.
func untyped(config *rest.Config, grant host.ObjectGrant) (sched.Objects, error) {
	list, err := informers.ListerOf(config, grant)
	if err != nil {
		return sched.Objects{}, err
	}
	return sched.Objects{GenericLister: list, Synced: list.Synced, Watch: list.Watch, Close: list.Close}, nil
}

func (h handle) Pending(pod *corev1.Pod) *corev1.Pod {
	now, err := h.SharedInformerFactory().Core().V1().Pods().Lister().Pods(pod.Namespace).Get(pod.Name)
	if err != nil || pod.UID != "" && now.UID != pod.UID || now.Spec.NodeName != "" || now.DeletionTimestamp != nil {
		return nil
	}
	return now
}

// Indexer implements an interface of the engine, for indexes of lists.
func (h handle) Indexer(resource schema.GroupVersionResource, indexes cache.Indexers) (cache.Indexer, error) {
	generic, err := h.SharedInformerFactory().ForResource(resource)
	if err != nil {
		return nil, err
	}
	informer := generic.Informer()
	for name := range informer.GetIndexer().GetIndexers() {
		delete(indexes, name)
	}
	if len(indexes) != 0 {
		err = informer.AddIndexers(indexes)
	}
	return informer.GetIndexer(), err
}

func (h handle) Activate(pods []*corev1.Pod) {
	byName := make(map[string]*corev1.Pod, len(pods))
	for _, pod := range pods {
		byName[pod.Namespace+"/"+pod.Name] = pod
	}
	h.Handle.Activate(klog.Background(), byName)
}

func (h handle) Apply(ctx context.Context, manager string, of sched.Applied) error {
	kind := of.Object.GetObjectKind().GroupVersionKind().Kind
	if kind == "" {
		kinds, _, err := scheme.Scheme.ObjectKinds(of.Object)
		if err != nil {
			return err
		}
		kind = kinds[0].Kind
	}
	return informers.Apply(ctx, h.KubeConfig(), manager, kind, of.Object, of.Resource, of.Annotations, of.Status)
}

func (h handle) Refused(pod *corev1.Pod, note string) {
	if h.EventRecorder() != nil {
		h.Eventf(pod, nil, corev1.EventTypeWarning, "FailedScheduling", "PreEnqueue", note)
	}
}

func (h handle) Parallel(pieces int, operation string, work func(piece int)) {
	h.Parallelizer().Until(context.Background(), pieces, work, operation)
}

func (h handle) Without(pods []*corev1.Pod, f func()) (err error) {
	snapshot := h.MutableSnapshotSharedLister()
	if err := snapshot.StartMutations(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, snapshot.EndMutations()) }()
	for _, pod := range pods {
		if err := snapshot.RemovePod(klog.Background(), pod, pod.Spec.NodeName); err != nil {
			return err
		}
	}
	f()
	return nil
}
