package kube137_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/codec"
	"github.com/kubewasm/kubewasm/guest/api/core"
)

// TestHostPortsConflictAsInTheScheduler compares the SDK's answer for every pair of ports with
// the framework's.
func TestHostPortsConflictAsInTheScheduler(t *testing.T) {
	var ports []corev1.ContainerPort
	for _, ip := range []string{"", "0.0.0.0", "10.0.0.1", "10.0.0.2"} {
		for _, protocol := range []corev1.Protocol{"", corev1.ProtocolTCP, corev1.ProtocolUDP} {
			for _, port := range []int32{80, 443} {
				ports = append(ports, corev1.ContainerPort{HostIP: ip, Protocol: protocol, HostPort: port})
			}
		}
	}
	raw, err := codec.Encode(&corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Ports: ports}}}})
	if err != nil {
		t.Fatal(err)
	}
	views := core.PodFromProto(raw).HostPorts()
	for i, a := range ports {
		for j, b := range ports {
			info := fwk.HostPortInfo{}
			info.Add(a.HostIP, string(a.Protocol), a.HostPort)
			if got, want := views[i].ConflictsOnHost(views[j]), info.CheckConflict(b.HostIP, string(b.Protocol), b.HostPort); got != want {
				t.Errorf("%+v and %+v: got %v, want %v", a, b, got, want)
			}
		}
	}
}
