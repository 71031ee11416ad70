package main

import (
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/hooks"
)

func TestDevices(t *testing.T) {
	config := rdma{
		Connection: device{"/dev/infiniband/rdma_cm", 10, 57},
		Devices: map[string]device{
			"0000:1f:00.0": {"/dev/infiniband/uverbs0", 231, 192}, "0000:1f:00.2": {"/dev/infiniband/uverbs1", 231, 193}, "0000:1f:00.3": {"/dev/infiniband/uverbs2", 231, 194},
		},
	}
	for _, c := range []struct {
		name, text, want, err string
		config                rdma
		stage                 abi.Stage
	}{
		{name: "a device", text: `{"rdma": [{"minor": 0, "id": "0000:1f:00.0"}]}`, want: "/dev/infiniband/rdma_cm /dev/infiniband/uverbs0"},
		{name: "virtual functions instead of it", text: `{"rdma": [{"id": "0000:1f:00.0", "extension": {"vfs": [{"busID": "0000:1f:00.2"}, {"busID": "0000:1f:00.3"}]}}]}`, want: "/dev/infiniband/rdma_cm /dev/infiniband/uverbs1 /dev/infiniband/uverbs2"},
		{name: "two devices", text: `{"rdma": [{"id": "0000:1f:00.3"}, {"id": "0000:1f:00.2"}]}`, want: "/dev/infiniband/rdma_cm /dev/infiniband/uverbs2 /dev/infiniband/uverbs1"},
		{name: "none", text: `{"rdma": []}`},
		{name: "devices of another kind", text: `{"gpu": [{"minor": 1}]}`},
		{name: "after the creation", text: `{"rdma": [{"id": "0000:1f:00.0"}]}`, stage: abi.PreStartContainer},
		{name: "one that the node does not have", text: `{"rdma": [{"id": "0000:20:00.0"}]}`, err: `devices has no "0000:20:00.0"`},
		{name: "no JSON", text: `{`},
	} {
		stage := c.stage
		if stage == 0 {
			stage = abi.PreCreateContainer
		}
		var d hooks.Decision
		err := config.Decide(hooks.NewRequest(hooks.Fields{Stage: stage, Level: abi.LevelContainer, PodAnnotations: map[string]string{allocatedAnnotation: c.text}}), &d)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: got error %v, want %q", c.name, err, c.err)
		}
		var got []string
		for _, v := range d.ContainerDevices() {
			got = append(got, v.Path)
			if v.Type != "c" || *v.FileMode != 0o666 || v.Major == 0 {
				t.Errorf("%s: got %+v", c.name, v)
			}
		}
		if err == nil && strings.Join(got, " ") != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
	var d hooks.Decision
	if err := new(rdma).Decide(hooks.NewRequest(hooks.Fields{Stage: abi.PreCreateContainer, Level: abi.LevelContainer, PodAnnotations: map[string]string{allocatedAnnotation: `{"rdma": [{"id": "x"}]}`}}), &d); err == nil {
		t.Error("a configuration without devices is no mistake")
	}
}
