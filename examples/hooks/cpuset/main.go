// Command cpuset is a runtime hook that binds containers to CPUs, after Koordinator's
// hook of the same name. CPUs that a scheduler picked for a pod are in an annotation:
//
//	scheduling.koordinator.sh/resource-status: '{"cpuset": "0-3,8"}'
//
// Bound containers have these CPUs to themselves, and a quota would only
// throttle them. So it is lifted, for the pod as well: the quotas of its
// containers must not exceed its own.
//
// All others share the remaining CPUs, which the configuration lists for each
// NUMA node:
//
//	{"sharePools": [{"node": 0, "cpuset": "4-7"}, {"node": 1, "cpuset": "9-15"}],
//	 "beSharePools": [{"node": 0, "cpuset": "2-7"}, {"node": 1, "cpuset": "8-15"}],
//	 "systemCPUSet": "0-1", "kubeletPolicy": "static", "keepQuota": false}
//
// A pod whose annotation names NUMA nodes with CPU gets the pools of these nodes. If
// its label koordinator.sh/qosClass is BE and beSharePools is set, it gets those of
// beSharePools instead. A pod that is SYSTEM gets the system's CPUs, one that is LS
// all pools. Other pods of the class BestEffort get an empty set, which means that of
// the parent. All other pods get all pools, unless the kubelet's CPU manager, with
// the policy static, binds them.
//
// Without sharePools it decides only on pods with CPUs in their annotation. An annotation that cannot
// be read is logged, and its pod left alone.
package main

import (
	"strings"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/resource"
	"github.com/kubewasm/kubewasm/guest/hooks"
	"github.com/kubewasm/kubewasm/guest/json"
	"github.com/kubewasm/kubewasm/guest/log"
)

const (
	qosLabel         = "koordinator.sh/qosClass"
	statusAnnotation = "scheduling.koordinator.sh/resource-status"
)

// cpuset is the configuration.
type cpuset struct {
	SharePools    []pool `json:"sharePools"`
	BESharePools  []pool `json:"beSharePools"`
	SystemCPUSet  string `json:"systemCPUSet"`
	KubeletPolicy string `json:"kubeletPolicy"`
	// KeepQuota leaves the quotas of bound pods alone.
	KeepQuota bool `json:"keepQuota"`
}

// pool is the shared CPUs of a NUMA node.
type pool struct {
	Node   int64  `json:"node"`
	CPUSet string `json:"cpuset"`
}

// status is the annotation.
type status struct {
	CPUSet string     `json:"cpuset"`
	Nodes  []numaNode `json:"numaNodeResources"`
}

type numaNode struct {
	Node      int64                      `json:"node"`
	Resources map[string]json.RawMessage `json:"resources"`
}

func (c *cpuset) Decide(req *hooks.Request, d *hooks.Decision) error {
	if req.Level() == abi.LevelQOS {
		return nil
	}
	var s status
	if text, ok := req.PodAnnotations().Lookup(statusAnnotation); ok {
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			log.Warn("the CPUs of a pod stay as they are: its annotation cannot be read", "pod", req.Pod().Name(), "annotation", statusAnnotation, "err", err)
			return nil
		}
	}
	if s.CPUSet != "" {
		if !isList(s.CPUSet) {
			log.Warn("the CPUs of a pod stay as they are: its annotation has no list of CPUs", "pod", req.Pod().Name(), "annotation", statusAnnotation, "cpuset", s.CPUSet)
			return nil
		}
		if !c.KeepQuota {
			d.SetCFSQuota(hooks.Unlimited)
		}
		if req.Level() == abi.LevelContainer {
			d.SetCPUSet(s.CPUSet)
		}
		return nil
	}
	if req.Level() == abi.LevelContainer && c.SharePools != nil {
		if cpus, ok := c.shared(req, s.Nodes); ok {
			d.SetCPUSet(cpus)
		}
	}
	return nil
}

// shared returns the CPUs of a container without any of its own; ok is false if the
// plugin does not decide on it.
func (c *cpuset) shared(req *hooks.Request, nodes []numaNode) (cpus string, ok bool) {
	qos := req.PodLabels().Get(qosLabel)
	if namesCPU(nodes) {
		switch {
		case qos != "BE":
			return join(c.SharePools, nodes), true
		case c.BESharePools != nil:
			return join(c.BESharePools, nodes), true
		}
	}
	switch {
	case qos == "SYSTEM" && c.SystemCPUSet != "":
		return c.SystemCPUSet, true
	case qos == "LS":
		return join(c.SharePools, nil), true
	case req.QOSClass() == abi.QOSBestEffort:
		return "", true
	case c.KubeletPolicy == "static":
		return "", false
	}
	return join(c.SharePools, nil), true
}

// namesCPU reports whether CPU is allocated on one of the nodes, and not only, say,
// memory.
func namesCPU(nodes []numaNode) bool {
	for _, n := range nodes {
		for _, name := range [...]string{"cpu", "kubernetes.io/batch-cpu"} {
			if q, err := resource.Parse(strings.Trim(string(n.Resources[name]), `"`)); err == nil && q.Sign() > 0 {
				return true
			}
		}
	}
	return false
}

// join returns the CPUs of the pools of some nodes, nil for all.
func join(pools []pool, nodes []numaNode) string {
	var lists []string
	add := func(match func(p *pool) bool) {
		for i := range pools {
			if match(&pools[i]) {
				lists = append(lists, pools[i].CPUSet)
			}
		}
	}
	if nodes == nil {
		add(func(*pool) bool { return true })
	}
	for _, n := range nodes {
		add(func(p *pool) bool { return p.Node == n.Node })
	}
	return strings.Join(lists, ",")
}

func isList(cpus string) bool {
	return !strings.ContainsFunc(cpus, func(r rune) bool { return (r < '0' || r > '9') && r != '-' && r != ',' })
}

func init() { hooks.Register(&cpuset{}) }

func main() {}
