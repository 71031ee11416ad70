package main

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// benchGuest measures what a Go guest needs for one label and the taints of a
// real Node, the host's part of the call included.
func benchGuest(b *bench) error {
	file, err := guestbuild.Build(b.ctx, source("guests/filter"))
	if err != nil {
		return err
	}
	n, p := node(1, 50), pod()
	nodeBytes, err := codec.Node(n)
	if err != nil {
		return err
	}
	podBytes, err := codec.Pod(p)
	if err != nil {
		return err
	}
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		return err
	}
	defer rt.Close(b.ctx)
	podRef := abi.MakeRef(1, 0)
	plugin, err := rt.Load(b.ctx, host.Config{
		Name: "filter", Source: host.File(file), Kind: abi.KindScheduler,
		Imports: schedulerImports(func(ref abi.Ref) []byte {
			if ref == podRef {
				return podBytes
			}
			return nodeBytes
		}),
	})
	if err != nil {
		return err
	}
	inst, err := plugin.Acquire(b.ctx)
	if err != nil {
		return err
	}
	defer inst.Release()

	var failed error
	filter := func(ref abi.Ref) {
		code, err := inst.Call(b.ctx, abi.Filter, uint64(abi.MakeRef(1, 0)), uint64(podRef), uint64(ref))
		if err == nil && abi.Code(code) != abi.Success {
			err = fmt.Errorf("filter returned %s: %s", abi.Code(code), inst.Reason())
		}
		if err != nil {
			failed = err
		}
	}
	native := func(times int) {
		for range times {
			if !nativeFilter(p, n) {
				failed = fmt.Errorf("the native filter rejects the node")
			}
		}
	}
	version := uint32(1)
	what := fmt.Sprintf("label and taints of a %.1f KB Node, Go guest, ", float64(len(nodeBytes))/1e3)
	b.compare(what+"first time in a version", target{time: 1500 * time.Nanosecond}, func(times int) {
		for range times {
			version = abi.NextVersion(version)
			filter(abi.MakeRef(version, 1))
		}
	}, "native check", native)
	b.compare(what+"again", target{time: 200}, func(times int) {
		for range times {
			filter(abi.MakeRef(version, 1))
		}
	}, "native check", native)
	if failed != nil {
		return failed
	}
	b.compare(what+"first time in a version", target{ratio: 1}, func(times int) {
		for range times {
			version = abi.NextVersion(version)
			filter(abi.MakeRef(version, 1))
		}
	}, "native decode of the whole Node", func(times int) {
		for range times {
			if err := new(corev1.Node).Unmarshal(nodeBytes); err != nil {
				failed = err
			}
		}
	})
	return failed
}

// nativeFilter does what the filter guest does.
func nativeFilter(p *corev1.Pod, n *corev1.Node) bool {
	if n.Labels[zoneLabel] == "" {
		return false
	}
next:
	for i := range n.Spec.Taints {
		t := &n.Spec.Taints[i]
		if t.Effect != corev1.TaintEffectNoSchedule && t.Effect != corev1.TaintEffectNoExecute {
			continue
		}
		for j := range p.Spec.Tolerations {
			if p.Spec.Tolerations[j].ToleratesTaint(klog.Background(), t, true) {
				continue next
			}
		}
		return false
	}
	return true
}

// schedulerImports are the host functions of a scheduler guest that does no more
// than to ask for objects.
func schedulerImports(object func(abi.Ref) []byte) []host.Import {
	refuse := func(inst *host.Instance) []byte {
		inst.Violate(fmt.Errorf("the benchmark does not offer it"))
		return nil
	}
	return []host.Import{
		{
			Module: abi.ModuleObjects, Name: abi.ImportObject,
			Params: []abi.ValueType{abi.I64, abi.I32, abi.I32}, Results: []abi.ValueType{abi.I32},
			Func: func(inst *host.Instance, stack []uint64) {
				stack[0] = uint64(inst.Write(uint32(stack[1]), uint32(stack[2]), object(abi.Ref(stack[0]))))
			},
		},
		host.GuestReads(abi.ModuleScheduler, abi.ImportNodeScores, refuse),
		host.GuestReads(abi.ModuleScheduler, abi.ImportNodeNames, refuse),
		host.GuestWrites(abi.ModuleScheduler, abi.ImportResultScores, func(*host.Instance, []byte) {}),
		host.GuestWrites(abi.ModuleScheduler, abi.ImportResultNodeNames, func(*host.Instance, []byte) {}),
	}
}
