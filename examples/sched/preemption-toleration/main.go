// The preemption-toleration guest lets the Pods of a PriorityClass tolerate preemption by Pods that are
// hardly more important, for some time or for ever. It behaves as the plugin PreemptionToleration of
// scheduler-plugins, for the same annotations:
//
//	apiVersion: scheduling.k8s.io/v1
//	kind: PriorityClass
//	metadata:
//	  name: batch
//	  annotations:
//	    preemption-toleration.scheduling.x-k8s.io/minimum-preemptable-priority: "10000"
//	    preemption-toleration.scheduling.x-k8s.io/toleration-seconds: "3600"
//	value: 100
//
// A Pod of this class is evicted for Pods of a priority of at least 10000 only, until an hour after it was
// scheduled. From then on each Pod of a higher priority may evict it. A negative number of seconds is for
// ever. Without the first annotation, or with a value that is no number, the class tolerates nothing.
//
// It takes the place of DefaultPreemption. It needs the grants "clock", "objects" and "preempt":
//
//	profiles:
//	- plugins:
//	    postFilter: {enabled: [{name: preemption-toleration}], disabled: [{name: "*"}]}
//	  pluginConfig:
//	  - name: preemption-toleration
//	    args:
//	      module: {file: /plugins/preemption-toleration.wasm}
//	      grants: [clock, objects, preempt]
//	      objects:
//	      - resource: scheduling.k8s.io/v1/priorityclasses
package main

import (
	"errors"
	"strconv"
	"time"

	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/api/scheduling"
	"github.com/kubewasm/kubewasm/guest/log"
	"github.com/kubewasm/kubewasm/guest/sched"
)

//kubewasm:reads pod.spec.priority pod.spec.priorityClassName pod.status.conditions

const (
	priorityClasses   = "scheduling.k8s.io/v1/priorityclasses"
	prefix            = "preemption-toleration.scheduling.x-k8s.io/"
	minimumPriority   = prefix + "minimum-preemptable-priority"
	tolerationSeconds = prefix + "toleration-seconds"
)

type toleration struct{}

// policy is that of a PriorityClass.
type policy struct {
	// minimum is the least priority of the Pods that its Pods do not tolerate.
	minimum int64
	// seconds is the time for which they tolerate others after they were scheduled, for ever if it is
	// negative.
	seconds int64
}

// parse reads the annotations of a PriorityClass.
func parse(class scheduling.PriorityClass) (p policy, _ error) {
	annotations := class.Metadata().Annotations()
	p.minimum = int64(class.Value()) + 1
	var errs [2]error
	if text, ok := annotations.Lookup(minimumPriority); ok {
		p.minimum, errs[0] = strconv.ParseInt(text, 10, 32)
	}
	if text, ok := annotations.Lookup(tolerationSeconds); ok {
		p.seconds, errs[1] = strconv.ParseInt(text, 10, 64)
	}
	return p, errors.Join(errs[:]...)
}

// tolerates reports whether a Pod tolerates the preemption by one of a priority.
func (p policy) tolerates(pod core.Pod, priority int32, now time.Time) bool {
	if int64(priority) >= p.minimum {
		return false
	}
	if p.seconds < 0 {
		return true
	}
	for _, c := range pod.Status().Conditions() {
		if c.Type() == core.PodScheduled && c.Status() == core.ConditionTrue {
			return now.Unix()-c.LastTransitionTime().Unix() < p.seconds
		}
	}
	return true // It has no node for all to see yet.
}

// PotentialVictims returns the Pods of a lower priority that do not tolerate the preemption.
func (toleration) PotentialVictims(_ sched.CycleState, pod core.Pod, node sched.NodeInfo) (victims []core.Pod, _ *sched.Status) {
	policies := map[string]policy{}
	now, priority := time.Now(), pod.Spec().Priority()
	for _, p := range node.Pods() {
		spec := p.Spec()
		if spec.Priority() >= priority {
			continue
		}
		name := spec.PriorityClassName()
		of, known := policies[name]
		if !known && name != "" {
			b := sched.GetObject(priorityClasses, "", name)
			if b == nil {
				return nil, sched.AsStatus(errors.New("there is no PriorityClass " + name))
			}
			var err error
			if of, err = parse(scheduling.PriorityClassFromProto(b)); err != nil {
				log.Error("A PriorityClass has a policy that makes no sense: it tolerates nothing", "class", name, "err", err)
				of = policy{}
			}
			policies[name] = of
		}
		if name == "" || !of.tolerates(p, priority, now) {
			victims = append(victims, p)
		}
	}
	return victims, nil
}

func init() { sched.Register(toleration{}) }

func main() {}
