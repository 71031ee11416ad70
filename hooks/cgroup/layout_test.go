package cgroup_test

import (
	"errors"
	"path"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
)

func TestLayout(t *testing.T) {
	cgroupfs, systemd := cgroup.Layout{}, cgroup.Layout{Driver: cgroup.Systemd}
	crio := cgroup.Layout{Driver: cgroup.Systemd, Scope: "crio", Root: "/node"}
	const uid = "8dbc5577-d0e2-4706"
	for _, c := range []struct{ name, got, want string }{
		{"the class of guaranteed pods", cgroupfs.QOS(abi.QOSGuaranteed), "kubepods"},
		{"a class", cgroupfs.QOS(abi.QOSBestEffort), "kubepods/besteffort"},
		{"a pod", cgroupfs.Pod(abi.QOSBurstable, uid), "kubepods/burstable/pod8dbc5577-d0e2-4706"},
		{"a guaranteed pod", cgroupfs.Pod(abi.QOSGuaranteed, uid), "kubepods/pod8dbc5577-d0e2-4706"},
		{"a container", cgroupfs.Container("kubepods/pod1", "4b1f"), "kubepods/pod1/4b1f"},
		{"a container of cri-o", cgroup.Layout{Scope: "crio"}.Container("kubepods/pod1", "4b1f"), "kubepods/pod1/crio-4b1f"},
		{"below another root", cgroup.Layout{Root: "/node/k8s"}.QOS(abi.QOSBurstable), "node/k8s/kubepods/burstable"},
		{"a slice", systemd.QOS(abi.QOSBurstable), "kubepods.slice/kubepods-burstable.slice"},
		{"a pod's slice", systemd.Pod(abi.QOSBurstable, uid), "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod8dbc5577_d0e2_4706.slice"},
		{"a guaranteed pod's slice", systemd.Pod(abi.QOSGuaranteed, uid), "kubepods.slice/kubepods-pod8dbc5577_d0e2_4706.slice"},
		{"a scope", systemd.Container("kubepods.slice", "4b1f"), "kubepods.slice/cri-containerd-4b1f.scope"},
		{"a scope of cri-o", crio.Container(crio.QOS(abi.QOSBestEffort), "4b1f"), "node.slice/node-kubepods.slice/node-kubepods-besteffort.slice/crio-4b1f.scope"},
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

// What a runtime says of its cgroups, for each runtime and driver, is believed if
// it is what the kubelet makes of the UID.
func TestLayoutChecksWhatARuntimeSays(t *testing.T) {
	const uid, id = "8dbc5577-d0e2-4706-8787-57d52c03ddf2", "4b1f0c6a2f3e"
	// A static pod goes by the hash of its configuration.
	const static = "0123456789abcdef0123456789abcdef"
	cgroupfs, systemd := cgroup.Layout{}, cgroup.Layout{Driver: cgroup.Systemd}
	for _, c := range []struct {
		name              string
		layout            cgroup.Layout
		uid               string
		parent, container string // As the runtime has them.
		want              abi.QOSClass
	}{
		{"containerd with cgroupfs", cgroupfs, uid, "/kubepods/burstable/pod" + uid, "/kubepods/burstable/pod" + uid + "/" + id, abi.QOSBurstable},
		{"containerd with systemd", systemd, uid, "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod8dbc5577_d0e2_4706_8787_57d52c03ddf2.slice", "kubepods-besteffort-pod8dbc5577_d0e2_4706_8787_57d52c03ddf2.slice:cri-containerd:" + id, abi.QOSBestEffort},
		{"containerd with the slice alone", systemd, uid, "kubepods-pod8dbc5577_d0e2_4706_8787_57d52c03ddf2.slice", "kubepods-pod8dbc5577_d0e2_4706_8787_57d52c03ddf2.slice:cri-containerd:" + id, abi.QOSGuaranteed},
		{"CRI-O with cgroupfs", cgroup.Layout{Scope: "crio"}, uid, "/kubepods/besteffort/pod" + uid, "/kubepods/besteffort/pod" + uid + "/crio-" + id, abi.QOSBestEffort},
		{"CRI-O with systemd", cgroup.Layout{Driver: cgroup.Systemd, Scope: "crio"}, uid, "kubepods-burstable-pod8dbc5577_d0e2_4706_8787_57d52c03ddf2.slice", "kubepods-burstable-pod8dbc5577_d0e2_4706_8787_57d52c03ddf2.slice:crio:" + id, abi.QOSBurstable},
		{"a static pod", systemd, static, "kubepods-burstable-pod" + static + ".slice", "kubepods-burstable-pod" + static + ".slice:cri-containerd:" + id, abi.QOSBurstable},
		{"a static guaranteed pod", cgroupfs, static, "/kubepods/pod" + static, "/kubepods/pod" + static + "/" + id, abi.QOSGuaranteed},
		{"another cgroupRoot", cgroup.Layout{Root: "/node/k8s"}, uid, "/node/k8s/kubepods/pod" + uid, "/node/k8s/kubepods/pod" + uid + "/" + id, abi.QOSGuaranteed},
		{"another cgroupRoot with systemd", cgroup.Layout{Driver: cgroup.Systemd, Root: "/my-node/k8s"}, static, "my_node-k8s-kubepods-burstable-pod" + static + ".slice", "my_node-k8s-kubepods-burstable-pod" + static + ".slice:cri-containerd:" + id, abi.QOSBurstable},
		{"another scope than configured", systemd, static, "kubepods-pod" + static + ".slice", "kubepods-pod" + static + ".slice:docker:" + id, abi.QOSGuaranteed},

		{"another pod's", cgroupfs, uid, "/kubepods/burstable/pod" + static, "/kubepods/burstable/pod" + static + "/" + id, 0},
		{"another root's", cgroupfs, uid, "/node/kubepods/pod" + uid, "/node/kubepods/pod" + uid + "/" + id, 0},
		{"a cgroup that another pod made in its own", cgroupfs, uid, "/kubepods/pod" + static + "/kubepods/pod" + uid, "/kubepods/pod" + static + "/kubepods/pod" + uid + "/" + id, 0},
		{"the system's", systemd, uid, "system.slice", "system.slice:cri-containerd:" + id, 0},
		{"the kubelet's reserve", cgroupfs, uid, "/kube-reserved", "/kube-reserved/" + id, 0},
		{"the kubelet's root", systemd, uid, "kubepods.slice", "kubepods.slice:cri-containerd:" + id, 0},
		{"a class", cgroupfs, uid, "/kubepods/burstable", "/kubepods/burstable/" + id, 0},
		{"the user's", systemd, uid, "user.slice/user-1000.slice", "user-1000.slice:cri-containerd:" + id, 0},
		{"a slice of the UID elsewhere", systemd, static, "evil-kubepods-pod" + static + ".slice", "evil-kubepods-pod" + static + ".slice:cri-containerd:" + id, 0},
		{"a slice that climbs", systemd, uid, "../system.slice", "../system.slice:cri-containerd:" + id, 0},
		{"the other driver's", systemd, uid, "/kubepods/pod" + uid, "/kubepods/pod" + uid + "/" + id, 0},
		{"nothing", cgroupfs, uid, "", "", 0},
		{"the root", cgroupfs, uid, "/", "/" + id, 0},
		{"a UID that is a path", cgroupfs, "../burstable/podvictim", "/kubepods/burstable/podvictim", "/kubepods/burstable/podvictim/" + id, 0},
		{"a UID that is a slice", systemd, "x.slice", "kubepods-podx.slice.slice", "kubepods-podx.slice.slice:cri-containerd:" + id, 0},
		{"no UID", cgroupfs, "", "/kubepods/pod", "/kubepods/pod/" + id, 0},
	} {
		pod, container := hookmsg.PodMeta{Namespace: "shop", Name: "web", UID: c.uid}, hookmsg.ContainerMeta{Name: "nginx", ID: id}
		parent := c.layout.Parent(c.parent)
		got, err := c.layout.CheckPod(pod, parent)
		if got != c.want || (err == nil) != (c.want != 0) {
			t.Errorf("%s: got %s, error %v", c.name, got, err)
		}
		if c.want == 0 {
			if refused := (*cgroup.ClaimError)(nil); !errors.As(err, &refused) || refused.Claimed != parent || !errors.Is(err, cgroup.ErrEscapes) {
				t.Errorf("%s: got error %v", c.name, err)
			}
			continue
		}
		own := c.layout.Path(c.container)
		if err := c.layout.CheckContainer(pod, parent, container, own); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		for _, claimed := range []string{
			"", parent, parent + "/", parent + "/x", parent + "/" + id + "/init", parent + "/x/" + id, parent + "/.." + id, parent + "/../" + id, parent + "/x" + id, "system.slice/" + id, own + "/x", own + "x", own + "/",
		} {
			if err := c.layout.CheckContainer(pod, parent, container, claimed); err == nil {
				t.Errorf("%s: the container is in %q", c.name, claimed)
			}
		}
		for _, id := range []string{"", ".", "..", "../x", "a/b", ".x", "a.slice", "a b", "a\x00", strings.Repeat("a", 129)} {
			container.ID = id
			if err := c.layout.CheckContainer(pod, parent, container, parent+"/"+id); err == nil {
				t.Errorf("%s: the identifier %q is one", c.name, id)
			}
		}
	}
}

// FuzzCheckedCgroups holds that a cgroup that is believed is the pod's, or lies right
// in it, whatever a runtime calls it.
func FuzzCheckedCgroups(f *testing.F) {
	f.Add("8dbc5577", "4b1f", "/kubepods/burstable/pod8dbc5577", "/kubepods/burstable/pod8dbc5577/4b1f", false)
	f.Add("8dbc-5577", "4b1f", "kubepods-pod8dbc_5577.slice", "kubepods-pod8dbc_5577.slice:cri-containerd:4b1f", true)
	f.Add("../x", "../y", "kubepods/../x", "kubepods/../x/../y", false)
	f.Fuzz(func(t *testing.T, uid, id, claimedParent, claimed string, systemd bool) {
		layout := cgroup.Layout{}
		if systemd {
			layout.Driver = cgroup.Systemd
		}
		pod, parent, own := hookmsg.PodMeta{UID: uid}, layout.Parent(claimedParent), layout.Path(claimed)
		class, err := layout.CheckPod(pod, parent)
		if err != nil {
			return
		}
		if parent != layout.Pod(class, uid) || path.Clean(parent) != parent || !strings.HasPrefix(parent, "kubepods") || strings.Contains(parent, "..") {
			t.Errorf("%q is the cgroup of the pod %q", parent, uid)
		}
		if layout.CheckContainer(pod, parent, hookmsg.ContainerMeta{ID: id}, own) != nil {
			return
		}
		if path.Clean(own) != own || path.Dir(own) != parent || !strings.Contains(path.Base(own), id) || id == "" {
			t.Errorf("%q is the cgroup of the container %q in %q", own, id, parent)
		}
	})
}

func TestFindPod(t *testing.T) {
	there := map[string]bool{"kubepods/burstable/podu1": true, "kubepods/podu2": true, "kubepods/besteffort/podu3": true, "kubepods/burstable/pod": true, "system.slice": true}
	for uid, want := range map[string]string{
		"u1": "kubepods/burstable/podu1", "u2": "kubepods/podu2", "u3": "kubepods/besteffort/podu3", "u4": "", "": "", "u4/../podu2": "", "../../../system.slice": "", "..": "",
	} {
		if got := (cgroup.Layout{}).FindPod(uid, func(cgroup string) bool { return there[path.Clean(cgroup)] }); got != want {
			t.Errorf("the cgroup of %q is %q, want %q", uid, got, want)
		}
	}
}
