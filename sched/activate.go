package sched

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
)

// GrantActivate lets a guest have the queue try Pods again.
const GrantActivate = "activate"

// activating are the functions that may activate Pods. Others run for each node or for each pending
// Pod, or refuse the Pod in each cycle, and two Pods could keep each other and the scheduler busy.
var activating = abi.MaskOf(abi.PreEnqueue, abi.PostFilter, abi.Reserve, abi.Unreserve, abi.Permit, abi.PreBind, abi.PostBind)

const (
	// maxActivated is the number of Pods that a call may activate, and maxActivations that of all
	// Pods that are still to be.
	maxActivated   = 1_000
	maxActivations = 10_000
	// activateEvery is the least time between two activations of a Pod.
	activateEvery = time.Second
	// maxNamespace and maxPodName are the lengths of the longest names that Pods have.
	maxNamespace, maxPodName = 63, 253
	// activateTick is the interval at which Pods to activate are checked.
	activateTick = 10 * time.Millisecond
)

// activations are the Pods that guests have activated. A call may hold the lock of the queue, which
// activation takes, so it comes after the call.
type activations struct {
	mu sync.Mutex
	// wanted are the Pods to activate, and last the times of the last activations, of Pods that exist
	// only: guests choose the names.
	wanted  map[types.NamespacedName]struct{}
	last    map[types.NamespacedName]time.Time
	running bool
}

// activate is the host function of the same name.
func (p *Plugin) activate(inst *host.Instance, question string) {
	c := &during(inst, activating).call
	if question == "" {
		return
	}
	parts := strings.Split(question, "\x00")
	if len(parts)%2 != 1 || parts[len(parts)-1] != "" {
		inst.Abort(fmt.Errorf("%.80q are not pairs of a namespace and a name with a NUL after each", question))
	}
	if c.activated += len(parts) / 2; c.activated > maxActivated {
		inst.Abort(fmt.Errorf("the call activates %d Pods, more than %d", c.activated, maxActivated))
	}
	c.effect(inst, question, func() bool {
		if !p.monitored {
			p.activations.add(p, parts[:len(parts)-1])
		}
		return true
	})
}

// add adds Pods, namespaces and names in turn. A kit for tests takes them at once.
func (a *activations) add(p *Plugin, parts []string) {
	var pods []types.NamespacedName
	for pair := range slices.Chunk(parts, 2) {
		if len(pair[0]) <= maxNamespace && len(pair[1]) <= maxPodName {
			pods = append(pods, types.NamespacedName{Namespace: strings.Clone(pair[0]), Name: strings.Clone(pair[1])})
		}
	}
	kit, ok := p.handle.(interface {
		Activating(pods []types.NamespacedName) bool
	})
	if ok && kit.Activating(pods) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.wanted == nil {
		a.wanted, a.last = map[types.NamespacedName]struct{}{}, map[types.NamespacedName]time.Time{}
	}
	for _, name := range pods {
		if _, ok := a.wanted[name]; ok {
			continue
		}
		if len(a.wanted) >= maxActivations {
			p.callLogger.Warn("too many Pods are activated: some are not", "plugin", p.Name(), "pods", len(a.wanted))
			break
		}
		a.wanted[name] = struct{}{}
	}
	if !a.running {
		a.running = true
		go a.run(p)
	}
}

// run activates Pods until there are none left.
func (a *activations) run(p *Plugin) {
	ticker := time.NewTicker(activateTick)
	defer ticker.Stop()
	for {
		now := time.Now()
		var due []*corev1.Pod
		for _, name := range a.due(now) {
			if pod := p.handle.Pending(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}); pod != nil {
				due = append(due, pod)
			}
		}
		left := a.activated(due, now)
		if len(due) != 0 {
			p.handle.Activate(due)
		}
		if !left {
			return
		}
		select {
		case <-p.closed:
			return
		case <-ticker.C:
		}
	}
}

// due takes the Pods that are to be activated now.
func (a *activations) due(now time.Time) (due []types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name := range a.wanted {
		if last, ok := a.last[name]; ok && now.Before(last.Add(activateEvery)) {
			continue
		}
		due = append(due, name)
		delete(a.wanted, name)
	}
	slices.SortFunc(due, func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
	return due
}

// activated records the Pods that are activated now, and reports whether run goes on. It forgets the
// activations that put no more off.
func (a *activations) activated(pods []*corev1.Pod, now time.Time) (left bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.last, func(_ types.NamespacedName, at time.Time) bool { return now.Sub(at) >= activateEvery })
	for _, pod := range pods {
		a.last[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] = now
	}
	a.running = len(a.wanted) != 0 || len(a.last) != 0
	return a.running
}
