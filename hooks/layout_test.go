package hooks_test

import (
	"testing"

	"github.com/kubewasm/kubewasm/codec/hookpb"
	"github.com/kubewasm/kubewasm/hooks"
)

func TestLayout(t *testing.T) {
	cgroupfs, systemd := hooks.Layout{}, hooks.Layout{Driver: hooks.Systemd}
	crio := hooks.Layout{Driver: hooks.Systemd, Scope: "crio", Root: "/node"}
	const uid = "8dbc5577-d0e2-4706"
	for _, c := range []struct{ name, got, want string }{
		{"the class of guaranteed pods", cgroupfs.QOS(hookpb.QOSGuaranteed), "kubepods"},
		{"a class", cgroupfs.QOS(hookpb.QOSBestEffort), "kubepods/besteffort"},
		{"a pod", cgroupfs.Pod(hookpb.QOSBurstable, uid), "kubepods/burstable/pod8dbc5577-d0e2-4706"},
		{"a guaranteed pod", cgroupfs.Pod(hookpb.QOSGuaranteed, uid), "kubepods/pod8dbc5577-d0e2-4706"},
		{"a container", cgroupfs.Container("kubepods/pod1", "4b1f"), "kubepods/pod1/4b1f"},
		{"a container of cri-o", hooks.Layout{Scope: "crio"}.Container("kubepods/pod1", "4b1f"), "kubepods/pod1/crio-4b1f"},
		{"below another root", hooks.Layout{Root: "/node/k8s"}.QOS(hookpb.QOSBurstable), "node/k8s/kubepods/burstable"},
		{"a slice", systemd.QOS(hookpb.QOSBurstable), "kubepods.slice/kubepods-burstable.slice"},
		{"a pod's slice", systemd.Pod(hookpb.QOSBurstable, uid), "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod8dbc5577_d0e2_4706.slice"},
		{"a guaranteed pod's slice", systemd.Pod(hookpb.QOSGuaranteed, uid), "kubepods.slice/kubepods-pod8dbc5577_d0e2_4706.slice"},
		{"a scope", systemd.Container("kubepods.slice", "4b1f"), "kubepods.slice/cri-containerd-4b1f.scope"},
		{"a scope of cri-o", crio.Container(crio.QOS(hookpb.QOSBestEffort), "4b1f"), "node.slice/node-kubepods.slice/node-kubepods-besteffort.slice/crio-4b1f.scope"},
		{"a parent as a path", cgroupfs.Parent("/kubepods/pod1"), "kubepods/pod1"},
		{"a parent as a slice", systemd.Parent("kubepods-burstable-pod1.slice"), "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice"},
		{"a parent as a path of slices", systemd.Parent("/kubepods.slice/kubepods-pod1.slice"), "kubepods.slice/kubepods-pod1.slice"},
		{"the runtime's path", cgroupfs.Path("/kubepods/pod1/4b1f"), "kubepods/pod1/4b1f"},
		{"the runtime's unit", systemd.Path("kubepods-pod1.slice:cri-containerd:4b1f"), "kubepods.slice/kubepods-pod1.slice/cri-containerd-4b1f.scope"},
	} {
		if c.got != c.want {
			t.Errorf("%s is %q, want %q", c.name, c.got, c.want)
		}
	}
}

func TestLayoutKnowsTheClassOfAPod(t *testing.T) {
	for _, l := range []hooks.Layout{{}, {Root: "/node"}, {Driver: hooks.Systemd}, {Driver: hooks.Systemd, Root: "/node"}} {
		for _, class := range []hookpb.QOSClass{hookpb.QOSGuaranteed, hookpb.QOSBurstable, hookpb.QOSBestEffort} {
			if got := l.Class(l.Pod(class, "8dbc5577-d0e2")); got != class {
				t.Errorf("the class of %s is %s, want %s", l.Pod(class, "8dbc5577-d0e2"), got, class)
			}
		}
		if got := l.Class("system.slice/x"); got != hookpb.QOSUnspecified {
			t.Errorf("the class of another cgroup is %s", got)
		}
	}
}
