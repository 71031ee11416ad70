// Package batch has the resources of pods that run on the resources which other pods leave, for plugins
// that take their rule from a configuration or from the node.
package batch

import (
	"errors"
	"math"
	"strconv"
	"strings"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/resource"
	"github.com/kubewasm/kubewasm/guest/hooks"
	"github.com/kubewasm/kubewasm/guest/json"
	"github.com/kubewasm/kubewasm/guest/log"
)

// The label and the annotations that it reads: the pod's class and amounts, and the node's ratio.
const (
	QOSLabel       = "koordinator.sh/qosClass"
	SpecAnnotation = "node.koordinator.sh/extended-resource-spec"
	batchCPU       = "kubernetes.io/batch-cpu"
	batchMemory    = "kubernetes.io/batch-memory"

	RatioAnnotation = "node.koordinator.sh/cpu-normalization-ratio"

	period                         = 100_000 // Microseconds, the kernel's default.
	minQuota, minShares, maxShares = 1000, 2, 262_144
)

// Config is the configuration.
type Config struct {
	// CFSQuota is the switch; without it, quotas are on.
	CFSQuota *bool `json:"cfsQuota"`
	// RatioPercent divides quotas, in hundredths; 100 or less does not.
	RatioPercent int64 `json:"ratioPercent"`
}

// scaled divides a quota by the ratio of the node.
func (b *Config) scaled(req *hooks.Request, quota int64) int64 {
	if text, ok := req.Node().Annotations().Lookup(RatioAnnotation); ok {
		ratio, err := strconv.ParseFloat(text, 64)
		if err != nil || !(ratio > 0) || math.IsInf(ratio, 0) {
			log.Warn("quotas are not divided: the annotation of the node is no number above 0", "annotation", RatioAnnotation, "value", text)
		} else if ratio > 1 {
			quota = int64(math.Ceil(float64(quota) / ratio))
		}
	} else if b.RatioPercent > 100 {
		quota = (quota*100 + b.RatioPercent - 1) / b.RatioPercent
	}
	return max(quota, minQuota)
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

// unread logs an annotation that cannot be read.
func unread(req *hooks.Request, err error) {
	log.Warn("a pod keeps the resources of the kubelet: its annotation cannot be read", "pod", req.Pod().Name(), "annotation", SpecAnnotation, "err", err)
}

// Decide decides on a pod or a container.
func (b *Config) Decide(req *hooks.Request, d *hooks.Decision) error {
	if req.Level() == abi.LevelQOS || req.PodLabels().Get(QOSLabel) != "BE" {
		return nil
	}
	text, ok := req.PodAnnotations().Lookup(SpecAnnotation)
	if !ok {
		return nil
	}
	var s spec
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		unread(req, err)
		return nil
	}
	containers := s.Containers
	if req.Level() == abi.LevelContainer {
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
				unread(req, errors.New("container "+strconv.Quote(name)+": "+err.Error()))
				return nil
			}
			unlimited[i] = unlimited[i] || n == 0
			if sum[i] += n; sum[i] < 0 || sum[i] > math.MaxInt64/period {
				unread(req, errors.New("container "+strconv.Quote(name)+": more than there can be"))
				return nil
			}
		}
	}
	d.SetCPUShares(min(max(sum[0]*1024/1000, minShares), maxShares))
	if unlimited[1] || b.CFSQuota != nil && !*b.CFSQuota {
		d.SetCFSQuota(hooks.Unlimited)
	} else {
		d.SetCFSQuota(b.scaled(req, max(sum[1]*period/1000, minQuota)))
		d.SetCFSPeriod(period) // The kubelet's may be another.
	}
	if unlimited[2] {
		d.SetMemoryLimit(hooks.Unlimited)
	} else {
		d.SetMemoryLimit(sum[2])
	}
	return nil
}
