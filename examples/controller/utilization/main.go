// The guest utilization keeps what the Pods of a workload use at a share of what they
// request, by the algorithm of the HorizontalPodAutoscaler. The policy needs podUsage.
package main

import (
	"errors"
	"fmt"
	"math"

	"github.com/kubewasm/kubewasm/examples/controller/scalerguest"
)

// utilization is the guest. Its fields are its configuration.
type utilization struct {
	// Resource is cpu, the default, or memory.
	Resource string `json:"resource"`
	// TargetPercent is how much of its requests a workload should use.
	TargetPercent int64 `json:"targetPercent"`
	// TolerancePercent is how far the use may be off the target without a change.
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

// load is what Pods use and request.
type load struct {
	pods, used, requested int64
}

func (l *load) add(m load) {
	l.pods += m.pods
	l.used += m.used
	l.requested += m.requested
}

// percent returns the share of the requests that is used.
func (l *load) percent() float64 { return 100 * float64(l.used) / float64(l.requested) }

// Replicas returns the number of replicas with which the use would be at the target.
func (u *utilization) Replicas(req scalerguest.ReplicasRequest, resp *scalerguest.ReplicasResponse) error {
	current := req.Workload().SpecReplicas()
	// Pods that cannot take their part of the load are waiting. Nobody knows what those
	// use that are not measured.
	var measured, waiting, missing load
	for _, p := range req.Pods() {
		pod := p.Pod()
		if phase := pod.Status().Phase(); phase == "Failed" || phase == "Succeeded" || !pod.Metadata().DeletionTimestamp().IsZero() {
			continue
		}
		requested, err := u.requested(p)
		switch {
		case err != nil:
			return err
		case !p.HasUsage():
			missing.add(load{1, 0, requested})
		case !ready(p):
			waiting.add(load{1, 0, requested})
		case u.Resource == "cpu":
			measured.add(load{1, p.Usage().CpuMillis(), requested})
		default:
			measured.add(load{1, p.Usage().MemoryBytes(), requested})
		}
	}
	if current == 0 {
		return answer(resp, 0, "the workload is scaled to zero")
	}
	if measured.pods == 0 {
		return fmt.Errorf("none of %d Pods is ready and measured", waiting.pods+missing.pods)
	}
	percent := measured.percent()
	state := fmt.Sprintf("%.0f%% of the requested %s is used, the target is %d%%", percent, u.Resource, u.TargetPercent)
	// In doubt the change is the smaller one: Pods that are not measured use nothing if
	// more are wanted, and what they request if fewer are. Those that are not ready will
	// take their part.
	all := measured
	switch more := percent > float64(u.TargetPercent); {
	case u.close(percent):
		return answer(resp, current, state)
	case more:
		all.add(missing)
		all.add(waiting)
	default:
		missing.used = missing.requested * max(100, u.TargetPercent) / 100
		all.add(missing)
	}
	adjusted := all.percent()
	if u.close(adjusted) || (adjusted > float64(u.TargetPercent)) != (percent > float64(u.TargetPercent)) {
		return answer(resp, current, state+"; other Pods are not measured yet")
	}
	want := math.Ceil(adjusted / float64(u.TargetPercent) * float64(all.pods))
	if (want > float64(current)) != (adjusted > float64(u.TargetPercent)) {
		want = float64(current) // The workload is on its way.
	}
	return answer(resp, int32(min(want, math.MaxInt32)), state)
}

// close reports whether a share is at the target.
func (u *utilization) close(percent float64) bool {
	return math.Abs(percent/float64(u.TargetPercent)-1)*100 <= float64(*u.TolerancePercent)
}

// requested returns what the containers of a Pod request, in thousandths of a processor or in
// bytes.
func (u *utilization) requested(p scalerguest.Pod) (sum int64, err error) {
	for _, c := range p.Pod().Spec().Containers() {
		q := c.Resources().Requests().Get(u.Resource)
		if q.IsZero() {
			return 0, fmt.Errorf("container %s of Pod %s does not request %s", c.Name(), p.Pod().Metadata().Name(), u.Resource)
		}
		if u.Resource == "cpu" {
			sum += q.MilliValue()
		} else {
			sum += q.Value()
		}
	}
	return sum, nil
}

// ready reports whether a Pod is ready.
func ready(p scalerguest.Pod) bool {
	for _, c := range p.Pod().Status().Conditions() {
		if c.Type() == "Ready" {
			return c.Status() == "True"
		}
	}
	return false
}

// answer fills the response.
func answer(resp *scalerguest.ReplicasResponse, replicas int32, reason string) error {
	resp.Replicas, resp.Reason = &replicas, reason
	return nil
}

func init() { scalerguest.RegisterScaler(&utilization{}) }

func main() {}
