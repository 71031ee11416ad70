// The load-aware guest scores nodes by their measured load, as two plugins of the Trimaran collection of
// scheduler-plugins do. The setting policy chooses one:
//
//   - targetLoadPacking fills nodes up to a CPU utilization, 40 % unless the configuration names another,
//     and spreads Pods beyond it.
//   - lowRiskOvercommitment prefers nodes whose Pods may use no more than the node has, by their limits
//     and by the measured average and standard deviation of the load.
//
// The load comes from look-ups, which the host keeps, so no Pod waits for the network: the values of
// queries in percent, or without queries the usage in metrics.k8s.io, which has no standard deviation. A
// node without a value has the score 0. Two things differ from the original: Pods count that were bound
// in the minute before the value was measured, and all that the scheduler has assumed since; and a Pod's
// requests are those that the scheduler counts.
//
//	pluginConfig:
//	- name: load-aware
//	  args:
//	    module: {file: /plugins/load-aware.wasm}
//	    guestConfig: {policy: lowRiskOvercommitment, queries: true}
//	    objects:
//	    - resource: metrics.kubewasm.dev/v1/cpu
//	      query: {service: "monitoring/prometheus:9090", name: node, prometheus: "100 * avg_over_time(instance:node_cpu:ratio[10m])"}
//	    - resource: metrics.kubewasm.dev/v1/cpu-deviation
//	      query: {service: "monitoring/prometheus:9090", name: node, prometheus: "100 * stddev_over_time(instance:node_cpu:ratio[10m])"}
//
// and memory and memory-deviation likewise; targetLoadPacking needs cpu alone. Without queries objects
// is {resource: metrics.k8s.io/v1beta1/nodes}.
package main

import (
	"errors"
	"math"

	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/api/meta"
	"github.com/kubewasm/kubewasm/guest/api/metrics"
	"github.com/kubewasm/kubewasm/guest/sched"
)

//kubewasm:reads node.metadata.name node.status.allocatable node.status.capacity
//kubewasm:reads pod.spec.containers.resources pod.spec.initContainers pod.spec.resources pod.spec.overhead pod.status.conditions

type loadAware struct {
	Policy  string `json:"policy"`
	Queries bool   `json:"queries"`
	// TargetUtilization is a percentage, DefaultMilliCPU the CPU of a container without requests, and
	// DefaultRequestsMultiplier the factor between requests and usage: all of targetLoadPacking.
	TargetUtilization         float64 `json:"targetUtilization"`
	DefaultMilliCPU           int64   `json:"defaultMilliCPU"`
	DefaultRequestsMultiplier float64 `json:"defaultRequestsMultiplier"`
	// SmoothingWindowSize is the number of measurements in an average, and RiskLimitWeight the weight of
	// the risk by limits: both of lowRiskOvercommitment.
	SmoothingWindowSize float64 `json:"smoothingWindowSize"`
	RiskLimitWeight     float64 `json:"riskLimitWeight"`
}

const (
	targetLoadPacking     = "targetLoadPacking"
	lowRiskOvercommitment = "lowRiskOvercommitment"
)

// Configure checks the configuration.
func (l *loadAware) Configure() error {
	if l.Policy != targetLoadPacking && l.Policy != lowRiskOvercommitment {
		return errors.New("policy is " + l.Policy + ", want " + targetLoadPacking + " or " + lowRiskOvercommitment)
	}
	if l.TargetUtilization <= 0 || l.TargetUtilization >= 100 {
		return errors.New("targetUtilization is not between 0 and 100")
	}
	return nil
}

// load is the measured load of a resource of a node, in percent of what the node has.
type load struct {
	average, deviation float64
	at                 meta.Time
}

// loadOf looks up the load of a resource, and whether there is one.
func (l *loadAware) loadOf(node core.Node, name string) (load, bool) {
	if l.Queries {
		b := sched.GetObject("metrics.kubewasm.dev/v1/"+name, "", node.Metadata().Name())
		if b == nil {
			return load{}, false
		}
		average := metrics.SampleFromJSON(b)
		found := load{average: average.Value(), at: average.Timestamp()}
		if l.Policy == lowRiskOvercommitment {
			if b := sched.GetObject("metrics.kubewasm.dev/v1/"+name+"-deviation", "", node.Metadata().Name()); b != nil {
				found.deviation = metrics.SampleFromJSON(b).Value()
			}
		}
		return found, true
	}
	b := sched.GetObject("metrics.k8s.io/v1beta1/nodes", "", node.Metadata().Name())
	if b == nil {
		return load{}, false
	}
	m := metrics.NodeMetricsFromJSON(b)
	used, has := m.Usage().Get(name), node.Status().Capacity().Get(name)
	if has.MilliValue() <= 0 {
		return load{}, false
	}
	return load{average: 100 * float64(used.MilliValue()) / float64(has.MilliValue()), at: m.Timestamp()}, true
}

// Score implements sched.ScorePlugin.
func (l *loadAware) Score(_ sched.CycleState, pod core.Pod, node sched.NodeInfo) (int64, *sched.Status) {
	if l.Policy == targetLoadPacking {
		return l.pack(pod, node), nil
	}
	return l.avoidRisk(pod, node), nil
}

// predict returns the CPU that a Pod will use, in thousandths.
func (l *loadAware) predict(pod core.Pod) (sum int64) {
	for _, c := range pod.Spec().Containers() {
		limit, limited := c.Resources().Limits().Lookup("cpu")
		request, requested := c.Resources().Requests().Lookup("cpu")
		switch {
		case limited:
			sum += limit.MilliValue()
		case requested:
			sum += int64(math.Round(float64(request.MilliValue()) * l.DefaultRequestsMultiplier))
		default:
			sum += l.DefaultMilliCPU
		}
	}
	return sum + pod.Spec().Overhead().Get("cpu").MilliValue()
}

// reported is the time after which the load has the usage of a Pod, in seconds.
const reported = 60

// unmeasured reports whether a load lacks the usage of a Pod of the node: the scheduler has assumed it, or
// it was bound too late.
func unmeasured(pod core.Pod, at meta.Time) bool {
	for _, c := range pod.Status().Conditions() {
		if c.Type() == "PodScheduled" && c.Status() == "True" {
			return c.LastTransitionTime().Unix() > at.Unix()-reported
		}
	}
	return true
}

// pack returns the score of targetLoadPacking.
func (l *loadAware) pack(pod core.Pod, node sched.NodeInfo) int64 {
	cpu, ok := l.loadOf(node.Node(), "cpu")
	if !ok {
		return 0
	}
	capacity := float64(node.Node().Status().Capacity().Get("cpu").MilliValue())
	if capacity <= 0 {
		return 0
	}
	used := cpu.average/100*capacity + float64(l.predict(pod))
	for _, p := range node.Pods() {
		if unmeasured(p, cpu.at) {
			used += float64(l.predict(p))
		}
	}
	percent, target := 100*used/capacity, l.TargetUtilization
	switch {
	case percent > 100:
		return 0
	case percent > target:
		return int64(math.Round(target * (100 - percent) / (100 - target)))
	}
	return bounded((100-target)*percent/target + target)
}

// bounded returns a score, whatever was measured.
func bounded(score float64) int64 { return int64(math.Round(min(max(score, 0), 100))) }

// amounts are those of a resource that Pods request, and may use.
type amounts struct{ request, limit float64 }

// amountsOf returns those of a Pod. A limit that is missing is the request.
func amountsOf(pod core.Pod, name string) amounts {
	request := pod.Requests()[name]
	a := amounts{request: float64(request.MilliValue())}
	spec := pod.Spec()
	for _, c := range spec.Containers() {
		a.limit += float64(c.Resources().Limits().Get(name).MilliValue())
	}
	for _, c := range spec.InitContainers() {
		a.limit = max(a.limit, float64(c.Resources().Limits().Get(name).MilliValue()))
	}
	a.limit = max(a.limit+float64(spec.Overhead().Get(name).MilliValue()), a.request)
	return a
}

// avoidRisk returns the score of lowRiskOvercommitment.
func (l *loadAware) avoidRisk(pod core.Pod, node sched.NodeInfo) int64 {
	risk, named, measured := 0.0, false, false
	for _, name := range []string{"cpu", "memory"} {
		own, others := amountsOf(pod, name), amounts{}
		for _, p := range node.Pods() {
			a := amountsOf(p, name)
			others.request += a.request
			others.limit += a.limit
		}
		of, ok := l.loadOf(node.Node(), name)
		named, measured = named || own.limit > 0, measured || ok
		has := float64(node.Node().Status().Allocatable().Get(name).MilliValue())
		risk = max(risk, l.risk(own, others, of, ok, has))
	}
	if !named || !measured {
		return 0
	}
	return bounded(100 * (1 - risk))
}

// risk returns that of a resource, from 0 to 1: a weighted sum of the share of the limits beyond the
// node's capacity, and of the probability that the load is above the requests.
func (l *loadAware) risk(own, others amounts, of load, measured bool, has float64) float64 {
	all := amounts{min(others.request+own.request, has), others.limit + own.limit}
	byLimit, byLoad := 0.0, 0.0
	if all.limit > has {
		byLimit = (all.limit - has) / (all.limit - all.request)
	}
	others.request = min(others.request, has)
	if measured {
		mean, deviation := 0.0, 0.0
		if has > 0 {
			mean, deviation = min(max(of.average/100, 0), 1), min(max(of.deviation/100, 0), 1)
		}
		deviation = min(deviation*math.Sqrt(l.SmoothingWindowSize), math.Sqrt(0.99*mean*(1-mean)))
		allocated := 0.0
		if has > 0 {
			allocated = others.request / has
		}
		below, d, fits := probability(mean, deviation, allocated)
		if others.limit < has && others.request <= others.limit {
			if others.limit == 0 {
				below = 1
			} else if fits {
				if limited := d.below(others.limit / has); limited > 0 {
					below = min(max(below/limited, 0), 1)
				}
			}
		}
		byLoad = 1 - below
	}
	return min(max(l.RiskLimitWeight*byLimit+(1-l.RiskLimitWeight)*byLoad, 0), 1)
}

func newPlugin() *loadAware {
	return &loadAware{Policy: targetLoadPacking, TargetUtilization: 40, DefaultMilliCPU: 1000, DefaultRequestsMultiplier: 1.5, SmoothingWindowSize: 5, RiskLimitWeight: 0.5}
}

func init() { sched.Register(newPlugin()) }

func main() {}
