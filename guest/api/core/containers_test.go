package core_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubewasm/kubewasm/guest/api/core"
)

// TestContainerTypes holds that an ephemeral container may be read as any other.
func TestContainerTypes(t *testing.T) {
	common, container := core.TypeOfEphemeralContainerCommon, core.TypeOfContainer
	if diff := cmp.Diff(container.Names, common.Names); diff != "" {
		t.Errorf("fields (-Container +EphemeralContainerCommon):\n%s", diff)
	}
	if !slices.Equal(container.Numbers, common.Numbers) || !slices.Equal(container.Inlined, common.Inlined) {
		t.Error("fields have other numbers")
	}
}

func TestAllContainers(t *testing.T) {
	root := int64(0)
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "a"}},
		Containers:     []corev1.Container{{Name: "b"}},
		EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "c", Image: "debug", SecurityContext: &corev1.SecurityContext{RunAsUser: &root, Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_PTRACE"}}},
		}}},
	}}
	proto, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	for name, view := range map[string]core.Pod{"protobuf": core.PodFromProto(proto), "JSON": core.PodFromJSON(text)} {
		t.Run(name, func(t *testing.T) {
			all := slices.Collect(view.Spec().AllContainers())
			if len(all) != 3 || all[0].Name() != "a" || all[1].Name() != "b" {
				t.Fatalf("there are %d containers", len(all))
			}
			c := all[2]
			add := c.SecurityContext().Capabilities().Add()
			if c.Name() != "c" || c.Image() != "debug" || len(add) != 1 || add[0] != "SYS_PTRACE" || !c.SecurityContext().HasRunAsUser() {
				t.Errorf("the ephemeral container is %s %s %v", c.Name(), c.Image(), add)
			}
		})
	}
}
