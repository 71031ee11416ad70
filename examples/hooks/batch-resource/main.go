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
package main

import (
	"errors"
	"math"
	"strconv"
	"strings"

	"github.com/kubewasm/kubewasm/guest/json"

	"github.com/kubewasm/kubewasm/guest/api/resource"
	"github.com/kubewasm/kubewasm/guest/hooks"
)

const (
	qosLabel       = "koordinator.sh/qosClass"
	specAnnotation = "node.koordinator.sh/extended-resource-spec"
	batchCPU       = "kubernetes.io/batch-cpu"
	batchMemory    = "kubernetes.io/batch-memory"

	period                         = 100_000 // Microseconds, the kernel's default.
	minQuota, minShares, maxShares = 1000, 2, 262_144
)

// batch is the configuration.
type batch struct {
	// CFSQuota is the switch; without it, quotas are on.
	CFSQuota *bool `json:"cfsQuota"`
	// RatioPercent divides quotas, in hundredths; 100 or less does not.
	RatioPercent int64 `json:"ratioPercent"`
}

// amounts are quantities by the names of resources, as JSON has them.
type amounts map[string]json.RawMessage

// spec is the annotation.
type spec struct {
	Containers map[string]container `json:"containers"`
}

type container struct {
	Requests amounts `json:"requests"`
	Limits   amounts `json:"limits"`
}

// get returns an amount; 0 is none.
func (a amounts) get(name string) (int64, error) {
	raw, ok := a[name]
	if !ok {
		return 0, nil
	}
	q, err := resource.Parse(strings.Trim(string(raw), `"`))
	if err != nil {
		return 0, errors.New(name + " is " + string(raw) + ": " + err.Error())
	}
	return max(q.Value(), 0), nil
}

func (b *batch) Decide(req *hooks.Request, d *hooks.Decision) error {
	if req.Level() == hooks.LevelQOS || req.PodLabels().Get(qosLabel) != "BE" {
		return nil
	}
	text, ok := req.PodAnnotations().Lookup(specAnnotation)
	if !ok {
		return nil
	}
	var s spec
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return errors.New("annotation " + specAnnotation + ": " + err.Error())
	}
	containers := s.Containers
	if req.Level() == hooks.LevelContainer {
		name := req.Container().Name()
		c, ok := containers[name]
		if !ok {
			return nil
		}
		containers = map[string]container{name: c}
	}
	if len(containers) == 0 {
		return nil
	}
	var sum [3]int64 // Of requests and limits of CPU, and limits of memory.
	var unlimited [3]bool
	for name, c := range containers {
		for i, of := range [...]struct {
			amounts amounts
			name    string
		}{{c.Requests, batchCPU}, {c.Limits, batchCPU}, {c.Limits, batchMemory}} {
			n, err := of.amounts.get(of.name)
			if err != nil {
				return errors.New("annotation " + specAnnotation + ": container " + strconv.Quote(name) + ": " + err.Error())
			}
			unlimited[i] = unlimited[i] || n == 0
			if sum[i] += n; sum[i] < 0 || sum[i] > math.MaxInt64/period {
				return errors.New("annotation " + specAnnotation + ": container " + strconv.Quote(name) + ": more than there can be")
			}
		}
	}
	d.SetCPUShares(min(max(sum[0]*1024/1000, minShares), maxShares))
	if unlimited[1] || b.CFSQuota != nil && !*b.CFSQuota {
		d.SetCFSQuota(hooks.Unlimited)
	} else {
		quota := max(sum[1]*period/1000, minQuota)
		if b.RatioPercent > 100 {
			quota = max((quota*100+b.RatioPercent-1)/b.RatioPercent, minQuota)
		}
		d.SetCFSQuota(quota)
		d.SetCFSPeriod(period) // The kubelet's may be another.
	}
	if unlimited[2] {
		d.SetMemoryLimit(hooks.Unlimited)
	} else {
		d.SetMemoryLimit(sum[2])
	}
	return nil
}

func init() { hooks.Register(&batch{}) }

func main() {}
