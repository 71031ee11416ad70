package sched

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/schedmsg"
	"github.com/kubewasm/kubewasm/host"
)

// A trial schedules a group of Pods while the guest's PodGroupPostFilter runs. The
// scheduler asks this plugin about the Pods like any other, so the trial needs an
// instance beside the one that runs: it would wait for that for ever.

// trialWait is how long a call waits for an instance while there is a trial. All
// that others have come back long before.
const trialWait = 5 * time.Second

// tryPodGroup answers what would become of the group without some Pods.
func (p *plugin) tryPodGroup(inst *host.Instance, stack []uint64) {
	i := during(inst, abi.MaskOf(abi.PodGroupPostFilter))
	if p.handle == nil || i.call.try == nil {
		inst.Abort(errNoHandle)
	}
	uids := texts(inst, inst.Read(uint32(stack[0]), uint32(stack[1])), "UID")
	question := fmt.Sprintf("%q", uids)
	b := remember(inst, question, func() []byte {
		b, err := p.try(i.call.try, uids)
		if err != nil {
			inst.Abort(err)
		}
		return b
	})
	stack[0] = uint64(inst.Write(uint32(stack[2]), uint32(stack[3]), b))
}

// try takes Pods from the scheduler's snapshot, schedules the group and puts them
// back.
func (p *plugin) try(schedule func() (*fwk.PodGroupAssignments, *fwk.Status), uids []string) (b []byte, err error) {
	if p.guest.Stats().Limit < 2 {
		return nil, errors.New("a trial runs the guest's other functions, so the plugin needs two instances at least")
	}
	p.trials.Add(1)
	defer p.trials.Add(-1)
	snapshot := p.handle.MutableSnapshotSharedLister()
	pods, err := podsOf(snapshot, uids)
	if err != nil {
		return nil, err
	}
	if err := snapshot.StartMutations(); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, snapshot.EndMutations()) }()
	for _, pod := range pods {
		if err := snapshot.RemovePod(klog.Background(), pod, pod.Spec.NodeName); err != nil {
			return nil, err
		}
	}
	assignments, status := schedule()
	return schedmsg.AppendTrial(nil, assignments, status), nil
}

// podsOf finds Pods of the snapshot by their UIDs.
func podsOf(snapshot fwk.SharedLister, uids []string) ([]*corev1.Pod, error) {
	if len(uids) == 0 {
		return nil, nil
	}
	wanted := make(map[string]bool, len(uids))
	for _, uid := range uids {
		wanted[uid] = true
	}
	nodes, err := snapshot.NodeInfos().List()
	if err != nil {
		return nil, err
	}
	var pods []*corev1.Pod
	for _, n := range nodes {
		for _, info := range n.GetPods() {
			if pod := info.GetPod(); wanted[string(pod.UID)] {
				delete(wanted, string(pod.UID))
				pods = append(pods, pod)
			}
		}
	}
	for _, uid := range sortedKeys(wanted) {
		return nil, fmt.Errorf("no Pod with the UID %.80q runs on a node", uid)
	}
	return pods, nil
}

// instance takes an instance of the version of a cycle. During a trial it gives up
// in the end: the one instance that a plugin could get may be the one that waits.
func (p *plugin) instance(pin *host.Pin) (*host.Instance, error) {
	if p.trials.Load() == 0 {
		return pin.Acquire(p.ctx)
	}
	ctx, cancel := context.WithTimeout(p.ctx, trialWait)
	defer cancel()
	return pin.Acquire(ctx)
}
