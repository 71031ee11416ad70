package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/sched/kube137"
	"github.com/kubewasm/kubewasm/sched/kube137/kube137test"
)

// benchState measures a counter in the state that all instances share, and the Pods of a group among
// 5,000, with an index of the label on both sides.
func benchState(b *bench) error {
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		return err
	}
	defer rt.Close(b.ctx)
	file, err := guestbuild.Build(b.ctx, source("guests/shared"))
	if err != nil {
		return err
	}
	const pods, groups = 5000, 100
	factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	handle := &kube137test.Handle{Informers: factory}
	load := func(name, index string) (fwk.Plugin, error) {
		raw := fmt.Sprintf(`{"module": {"file": %q}, "grants": ["state"], "objects": [{"resource": "v1/pods"%s}], "limits": {"instances": 1}, "cycleFuel": 1000000000000}`, file, index)
		return kube137.New(name, rt)(b.ctx, &apiruntime.Unknown{Raw: []byte(raw)}, handle)
	}
	indexed, err := load("shared", `, "index": [{"label": "group"}]`)
	if err != nil {
		return err
	}
	plain, err := load("scanning", "")
	if err != nil {
		return err
	}
	informer := factory.Core().V1().Pods().Informer()
	const byGroup = "groups"
	if err := informer.AddIndexers(cache.Indexers{byGroup: func(object any) ([]string, error) {
		p := object.(*corev1.Pod)
		return []string{p.Namespace + "/" + p.Labels["group"]}, nil
	}}); err != nil {
		return err
	}
	factory.Start(b.ctx.Done())
	factory.WaitForCacheSync(b.ctx.Done())
	var of []*corev1.Pod
	for i := range pods {
		p := pod()
		p.Name, p.UID = fmt.Sprint("web-", i), types.UID(strconv.Itoa(i))
		if p.Labels["group"] = strconv.Itoa(i % groups); i < groups {
			p.Spec.NodeName = ""
			of = append(of, p)
		} else {
			p.Spec.NodeName = fmt.Sprint("node-", i%50)
		}
		if err := informer.GetIndexer().Add(p); err != nil {
			return err
		}
	}
	var failed error
	enqueue := func(count string) func(n int) {
		p := pod()
		p.Labels["count"] = count
		return func(n int) {
			for range n {
				if s := plain.(fwk.PreEnqueuePlugin).PreEnqueue(b.ctx, p); !s.IsSuccess() {
					failed = errors.Join(failed, s.AsError())
				}
			}
		}
	}
	group := func(p fwk.PreFilterPlugin) func(n int) {
		return func(n int) {
			for i := range n {
				if _, s := p.PreFilter(b.ctx, kube137test.NewCycleState(), of[i%groups], nil); !s.IsSuccess() {
					failed = errors.Join(failed, s.AsError())
				}
			}
		}
	}
	native := nativeGroups{indexer: informer.GetIndexer(), index: byGroup}
	b.compareAll(
		comparison{"PreEnqueue that adds to a counter that all instances share", target{beyond: 500 * time.Nanosecond}, enqueue("add"), "one that does not", enqueue("none")},
		comparison{"the 50 Pods of a group among 5,000, by an index", target{ratio: 2}, group(indexed.(fwk.PreFilterPlugin)), "native, indexer", group(native)},
		comparison{"the 50 Pods of a group among 5,000, without an index", target{}, group(plain.(fwk.PreFilterPlugin)), "native, indexer", group(native)},
	)
	return failed
}

// nativeGroups does in Go what guests/shared does in PreFilter.
type nativeGroups struct {
	fwk.PreFilterPlugin
	indexer cache.Indexer
	index   string
}

func (p nativeGroups) PreFilter(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	list, err := p.indexer.ByIndex(p.index, pod.Namespace+"/"+pod.Labels["group"])
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	all, placed := 0, 0
	for _, o := range list {
		other := o.(*corev1.Pod)
		if other.Labels["group"] != pod.Labels["group"] {
			continue
		}
		if all++; other.Spec.NodeName != "" {
			placed++
		}
	}
	if all == 0 || placed == all {
		return nil, fwk.NewStatus(fwk.Unschedulable, fmt.Sprintf("%d of %d", placed, all))
	}
	return nil, nil
}
