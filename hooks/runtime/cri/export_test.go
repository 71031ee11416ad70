package cri

import (
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
)

var (
	Resources = resources
	PodCgroup = podCgroup
)

// Known returns what is known of the kubelet's wish by what the runtime holds and
// what it tells when it is asked to be verbose.
func Known(l *runtimeapi.LinuxContainerResources, info map[string]string) *hookmsg.Resources {
	r := resources(l)
	if asked := containerInfo(info).Config.Linux.Resources; asked != nil {
		keepEqual(r, resources(asked))
	}
	return r
}
