// The guest utilization keeps the resource usage of a workload's Pods at a share of their requests,
// by the algorithm of the HorizontalPodAutoscaler of Kubernetes 1.37, with its defaults. The policy
// needs podUsage.
package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/kubewasm/kubewasm/examples/controller/scalerguest"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/api/meta"
)

// utilization is the guest. Its fields are its configuration.
type utilization struct {
	// Resource is cpu, the default, or memory.
	Resource string `json:"resource"`
	// TargetPercent is the target usage in percent of the requests.
	TargetPercent int64 `json:"targetPercent"`
	// TolerancePercent is the deviation from the target that causes no change, in percent.
	TolerancePercent *int64 `json:"tolerancePercent"`
}

// Configure checks the configuration.
func (u *utilization) Configure() error {
	var errs []error
	switch u.Resource {
	case "":
		u.Resource = "cpu"
	case "cpu", "memory":
	default:
		errs = append(errs, fmt.Errorf("resource is %q, want cpu or memory", u.Resource))
	}
	if u.TargetPercent <= 0 || u.TargetPercent > 10_000 {
		errs = append(errs, fmt.Errorf("targetPercent is %d, want 1 to 10000", u.TargetPercent))
	}
	if u.TolerancePercent == nil {
		ten := int64(10)
		u.TolerancePercent = &ten
	}
	if *u.TolerancePercent < 0 || *u.TolerancePercent > 100 {
		errs = append(errs, fmt.Errorf("tolerancePercent is %d, want 0 to 100", *u.TolerancePercent))
	}
	return errors.Join(errs...)
}

// Defaults of the HorizontalPodAutoscaler, in milliseconds: a Pod may use more of a processor while
// it starts, and the first status of its readiness may come late.
const (
	initialization = 5 * 60 * 1000
	firstReadiness = 30 * 1000
)

// sample is the usage and the request of a Pod, in thousandths of a processor or of a byte.
type sample struct{ used, requested int64 }

// percent returns the share of the requests that is used. It returns an error for Pods that request
// nothing.
func percent(samples []sample) (int64, error) {
	var used, requested int64
	for _, s := range samples {
		used, requested = used+s.used, requested+s.requested
	}
	if requested == 0 {
		return 0, errors.New("the measured Pods request nothing")
	}
	return used * 100 / requested, nil
}

// pods holds the Pods of a workload, by the state of their measurements.
type pods struct {
	// measured Pods take their part of the load, unready ones do not yet, and missing ones have no
	// usage.
	measured, unready, missing []sample
}

// sort classifies the Pods of a request. Failed and ending Pods are left out.
func (u *utilization) sort(req scalerguest.ReplicasRequest) (all pods, err error) {
	now := req.Time().UnixSeconds() * 1000
	for _, p := range req.Pods() {
		requested, err := u.requested(p.Pod())
		if err != nil {
			return pods{}, err
		}
		status, is := p.Pod().Status(), sample{requested: requested}
		switch {
		case p.Pod().Metadata().HasDeletionTimestamp() || status.Phase() == core.PodFailed:
		case status.Phase() == core.PodPending:
			all.unready = append(all.unready, is)
		case !p.HasUsage():
			all.missing = append(all.missing, is)
		case u.Resource == "cpu" && unready(status, p.Usage(), now):
			all.unready = append(all.unready, is)
		default:
			if is.used = p.Usage().CpuMillis(); u.Resource == "memory" {
				is.used = p.Usage().MemoryBytes() * 1000
			}
			all.measured = append(all.measured, is)
		}
	}
	return all, nil
}

// Replicas returns the number of replicas at which the usage would meet the target.
func (u *utilization) Replicas(req scalerguest.ReplicasRequest, resp *scalerguest.ReplicasResponse) error {
	current := req.Workload().SpecReplicas()
	if current == 0 {
		return answer(resp, 0, "the workload is scaled to zero")
	}
	all, err := u.sort(req)
	if err != nil {
		return err
	}
	if len(all.measured) == 0 {
		return fmt.Errorf("none of %d Pods is ready and measured", len(all.unready)+len(all.missing))
	}
	used, err := percent(all.measured)
	if err != nil {
		return err
	}
	state := fmt.Sprintf("%d%% of the requested %s is used, the target is %d%%", used, u.Resource, u.TargetPercent)
	// In doubt, choose the smaller change. Unmeasured Pods count as unused if more replicas are
	// wanted, and as using their requests if fewer are. Unready Pods will take their part.
	ratio, samples := u.ratio(used), all.measured
	more := ratio > 1 && len(all.unready) > 0
	if !more && len(all.missing) == 0 {
		if u.close(ratio) {
			return answer(resp, current, state)
		}
		return answer(resp, replicas(ratio, len(samples)), state)
	}
	if ratio != 1 {
		for _, s := range all.missing {
			if ratio < 1 {
				s.used = s.requested * max(100, u.TargetPercent) / 100
			}
			samples = append(samples, s)
		}
	}
	if more {
		samples = append(samples, all.unready...)
	}
	if used, err = percent(samples); err != nil {
		return err
	}
	was := ratio
	ratio = u.ratio(used)
	if u.close(ratio) || was < 1 && ratio > 1 || was > 1 && ratio < 1 {
		return answer(resp, current, state+"; other Pods are not measured yet")
	}
	want := replicas(ratio, len(samples))
	if ratio < 1 && want > current || ratio > 1 && want < current {
		want = current // The workload is already scaling.
	}
	return answer(resp, want, state)
}

// ratio returns the ratio of the usage to the target.
func (u *utilization) ratio(percent int64) float64 {
	return float64(percent) / float64(u.TargetPercent)
}

// close reports whether a ratio is within the tolerance of 1.
func (u *utilization) close(ratio float64) bool {
	tolerance := float64(*u.TolerancePercent) / 100
	return 1-tolerance <= ratio && ratio <= 1+tolerance
}

// replicas returns the number of replicas for a ratio of usage to target, given the current number.
func replicas(ratio float64, now int) int32 {
	return int32(min(math.Ceil(ratio*float64(now)), math.MaxInt32))
}

// requested returns the request of a Pod, in thousandths: that of the Pod as a whole if it has one,
// and otherwise the sum of its containers and sidecars. Each of these must request something.
func (u *utilization) requested(pod core.Pod) (sum int64, err error) {
	for name := range pod.Spec().Resources().Requests().All {
		if name == core.ResourceCPU || name == core.ResourceMemory || strings.HasPrefix(name, core.ResourceHugePagesPrefix) {
			amount, ok := pod.Requests()[u.Resource]
			if !ok {
				return 0, fmt.Errorf("pod %s requests resources, but no %s", pod.Metadata().Name(), u.Resource)
			}
			return amount.MilliValue(), nil
		}
	}
	containers := slices.Clone(pod.Spec().Containers())
	for _, c := range pod.Spec().InitContainers() {
		if c.RestartPolicy() == core.ContainerRestartPolicyAlways {
			containers = append(containers, c)
		}
	}
	for _, c := range containers {
		amount, ok := c.Resources().Requests().Lookup(u.Resource)
		if !ok {
			return 0, fmt.Errorf("container %s of Pod %s does not request %s", c.Name(), pod.Metadata().Name(), u.Resource)
		}
		sum += amount.MilliValue()
	}
	return sum, nil
}

// unready reports whether the processor usage of a Pod is not meaningful yet: the Pod is starting,
// or has never been ready.
func unready(status core.PodStatus, usage scalerguest.Usage, now int64) bool {
	conditions := status.Conditions()
	n := slices.IndexFunc(conditions, func(c core.PodCondition) bool { return c.Type() == core.PodReady })
	if n < 0 || !status.HasStartTime() {
		return true
	}
	isFalse, changed, started := conditions[n].Status() == core.ConditionFalse, millis(conditions[n].LastTransitionTime()), millis(status.StartTime())
	if started+initialization > now {
		// The window must have begun after the Pod became ready.
		return isFalse || usage.UnixSeconds()*1000 < changed+usage.WindowMillis()
	}
	return isFalse && started+firstReadiness > changed
}

// millis returns a time in milliseconds since 1970, or a moment long before that if there is none.
func millis(t meta.Time) int64 {
	if t.IsZero() {
		return math.MinInt64 / 2
	}
	return t.Unix() * 1000
}

// answer fills the response.
func answer(resp *scalerguest.ReplicasResponse, replicas int32, reason string) error {
	resp.Replicas, resp.Reason = &replicas, reason
	return nil
}

func init() { scalerguest.RegisterScaler(&utilization{}) }

func main() {}
