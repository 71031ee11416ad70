// Command batch-resource is a runtime hook for pods with the label
// koordinator.sh/qosClass BE, which run on the resources that other pods leave,
// after Koordinator's hook of the same name. Kubernetes gives them no requests and
// limits; an annotation has them, for each container by its name:
//
//	node.koordinator.sh/extended-resource-spec: |
//	  {"containers": {"worker": {
//	    "requests": {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "1Gi"},
//	    "limits": {"kubernetes.io/batch-cpu": "1500", "kubernetes.io/batch-memory": "1Gi"}}}}
//
// CPUs are counted in thousandths. A request makes the shares, a limit the quota or
// the memory limit; without a limit there is none. A pod has the sum, and no limit
// unless each container has one.
//
// The configuration may switch quotas off, for a node that limits the class as a
// whole. It may also divide them, on a node whose CPUs are faster than those that
// requests assume:
//
//	{"cfsQuota": false}
//	{"ratioPercent": 125}
//
// In Go the ratio of a Node with the annotation node.koordinator.sh/cpu-normalization-ratio counts
// instead, if the plugin reads it (node_annotations). The command in node takes the switch from the
// node as well.
package main

import (
	"github.com/kubewasm/kubewasm/examples/hooks/batch-resource/batch"
	"github.com/kubewasm/kubewasm/guest/hooks"
)

func init() { hooks.Register(&batch.Config{}) }

func main() {}
