// Command share-pools is a runtime hook that gives containers without CPUs of their own those
// that pods share on the node, after Koordinator's hook cpuset. The rule is the node's: its
// NodeResourceTopology, which koordlet writes, has it in annotations:
//
//	node.koordinator.sh/cpu-shared-pools: '[{"node": 0, "cpuset": "4-7"}, {"node": 1, "cpuset": "9-15"}]'
//	node.koordinator.sh/be-cpu-shared-pools: '[{"node": 0, "cpuset": "2-7"}, {"node": 1, "cpuset": "8-15"}]'
//	node.koordinator.sh/system-qos-resource: '{"cpuset": "0-1"}'
//	kubelet.koordinator.sh/cpu-manager-policy: '{"policy": "static"}'
//
// It needs the object, and the name of the node:
//
//	objects: [{resource: topology.node.k8s.io/v1alpha1/noderesourcetopologies}]
//
// A pod whose annotation scheduling.koordinator.sh/resource-status names NUMA nodes with CPU gets the
// pools of these. Pods with the label BE get those of be-cpu-shared-pools, if the configuration has
// {"beCPUManager": true}, Koordinator's feature BECPUManager. A pod with the label koordinator.sh/qosClass SYSTEM gets the system's CPUs, one
// that is LS all pools. Other pods of the class BestEffort get an empty set, which means that of
// the parent. All other pods get all pools, unless the kubelet's CPU manager, with the policy
// static, binds them.
//
// Pods with CPUs of their own are left to the hook cpuset. Without the object, or its pools, it
// decides nothing. Annotations that cannot be read are logged, and decide nothing either.
package main

import (
	"errors"
	"strings"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/resource"
	"github.com/kubewasm/kubewasm/guest/hooks"
	"github.com/kubewasm/kubewasm/guest/json"
	"github.com/kubewasm/kubewasm/guest/log"
)

//kubewasm:reads pod node_name pod_labels[koordinator.sh/qosClass] pod_annotations[scheduling.koordinator.sh/resource-status]
//kubewasm:decides cpuset_cpus

const (
	qosLabel          = "koordinator.sh/qosClass"
	statusAnnotation  = "scheduling.koordinator.sh/resource-status"
	topologies        = "topology.node.k8s.io/v1alpha1/noderesourcetopologies"
	poolsAnnotation   = "node.koordinator.sh/cpu-shared-pools"
	bePoolsAnnotation = "node.koordinator.sh/be-cpu-shared-pools"
	systemAnnotation  = "node.koordinator.sh/system-qos-resource"
	policyAnnotation  = "kubelet.koordinator.sh/cpu-manager-policy"
)

// sharePools is the configuration.
type sharePools struct {
	// BECPUManager gives pods that are BE the pools of their NUMA nodes.
	BECPUManager bool `json:"beCPUManager"`
}

// pool is the shared CPUs of a NUMA node.
type pool struct {
	Node   int64  `json:"node"`
	CPUSet string `json:"cpuset"`
}

// rule is that of a node.
type rule struct {
	pools, bePools []pool
	system         struct {
		CPUSet string `json:"cpuset"`
	}
	policy struct {
		Policy string `json:"policy"`
	}
}

// status is what a scheduler has chosen for a pod.
type status struct {
	CPUSet string     `json:"cpuset"`
	Nodes  []numaNode `json:"numaNodeResources"`
}

// numaNode is a node of memory with resources that a pod has there.
type numaNode struct {
	Node      int64                      `json:"node"`
	Resources map[string]json.RawMessage `json:"resources"`
}

// hasCPU reports whether a pod has CPU on one of the nodes, and not only, say, memory.
func (s *status) hasCPU() bool {
	for _, n := range s.Nodes {
		for _, name := range [...]string{"cpu", "kubernetes.io/batch-cpu"} {
			if q, err := resource.Parse(strings.Trim(string(n.Resources[name]), `"`)); err == nil && q.Sign() > 0 {
				return true
			}
		}
	}
	return false
}

func (p *sharePools) Decide(req *hooks.Request, d *hooks.Decision) error {
	if req.Level() != abi.LevelContainer {
		return nil
	}
	var s status
	if err := decode(req.PodAnnotations().Get(statusAnnotation), statusAnnotation, &s); err != nil {
		log.Warn("the CPUs of a pod stay as they are", "pod", req.Pod().Name(), "err", err)
		return nil
	}
	if s.CPUSet != "" {
		return nil
	}
	r, ok, err := ruleOf(req.Node().Name())
	if err != nil {
		log.Warn("the CPUs of pods stay as they are: the node's rule cannot be read", "err", err)
		return nil
	}
	if !ok {
		return nil
	}
	if cpus, ok := r.cpus(req, &s, p.BECPUManager); ok {
		d.SetCPUSet(cpus)
	}
	return nil
}

// ruleOf reads the rule of a node; ok is false if it has none.
func ruleOf(node string) (r rule, ok bool, err error) {
	object, ok := hooks.Get(func(b []byte) []byte { return b }, topologies, node)
	if !ok {
		return r, false, nil
	}
	var topology struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(object, &topology); err != nil {
		return r, false, errors.New("NodeResourceTopology: " + err.Error())
	}
	of := topology.Metadata.Annotations
	for _, a := range [...]struct {
		name string
		out  any
	}{{poolsAnnotation, &r.pools}, {bePoolsAnnotation, &r.bePools}, {systemAnnotation, &r.system}, {policyAnnotation, &r.policy}} {
		if err := decode(of[a.name], a.name, a.out); err != nil {
			return r, false, err
		}
	}
	return r, of[poolsAnnotation] != "", nil
}

// decode decodes an annotation; an empty one leaves out as it is.
func decode(text, name string, out any) error {
	if err := json.Unmarshal([]byte(text), out); err != nil {
		return errors.New("annotation " + name + ": " + err.Error())
	}
	return nil
}

// cpus returns the CPUs of a container; ok is false if the plugin does not decide on it. be is set if
// pods that are BE have pools.
func (r *rule) cpus(req *hooks.Request, s *status, be bool) (cpus string, ok bool) {
	background := req.PodLabels().Get(qosLabel) == "BE"
	if s.hasCPU() && (!background || be) {
		pools := r.pools
		if background {
			pools = r.bePools
		}
		var lists []string
		for _, n := range s.Nodes {
			for _, p := range pools {
				if p.Node == n.Node {
					lists = append(lists, p.CPUSet)
				}
			}
		}
		return strings.Join(lists, ","), true
	}
	all := make([]string, len(r.pools))
	for i, p := range r.pools {
		all[i] = p.CPUSet
	}
	switch qos := req.PodLabels().Get(qosLabel); {
	case qos == "SYSTEM" && r.system.CPUSet != "":
		return r.system.CPUSet, true
	case qos == "LS":
		return strings.Join(all, ","), true
	case req.QOSClass() == abi.QOSBestEffort:
		return "", true
	case r.policy.Policy == "static":
		return "", false
	}
	return strings.Join(all, ","), true
}

func init() { hooks.Register(&sharePools{}) }

func main() {}
