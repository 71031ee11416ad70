package proxy

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/hooks/internal/facts"
)

// Resync does what no event of a runtime asks for, on a goroutine of its own: it asks
// about the QoS classes, forgets the pods whose cgroups are gone, and enforces the whole
// state. (After a restart, containerd does not announce the end of the pods that it had
// started before.) Handle begins one when a pod comes, a transport when it has connected.
// Calls before a resync begins ask for the same one.
func (h *Handler) Resync(ctx context.Context) {
	select {
	case h.requested <- struct{}{}:
	default:
		return
	}
	ctx = context.WithoutCancel(ctx) // It outlives the event.
	h.background.Go(func() {
		h.resyncs.Lock()
		defer h.resyncs.Unlock()
		<-h.requested
		h.prune()
		for _, class := range []hookmsg.QOSClass{hookmsg.QOSGuaranteed, hookmsg.QOSBurstable, hookmsg.QOSBestEffort} {
			path := h.cfg.Layout.QOS(class)
			ctx, cancel := context.WithTimeout(ctx, h.cfg.Timeout)
			d, err := h.cfg.Engine.Decide(ctx, &hookmsg.Request{Stage: hookmsg.Reconcile, Level: hookmsg.LevelQOS, QOSClass: class, CgroupParent: path})
			cancel()
			if err != nil {
				h.cfg.Logger.Warn("resync", slog.Any("err", err)) // What was decided before stays.
				continue
			}
			h.cfg.State.Put(cgroup.Target{Cgroup: path, Level: hookmsg.LevelQOS, Resources: d.Resources})
		}
		h.cfg.Enforcer.Enforce(ctx)
	})
}

// Wait ends the work in the background and waits for it. A transport calls it before it
// ends.
func (h *Handler) Wait() {
	h.end()
	h.background.Wait()
}

// prune forgets the pods whose cgroups are gone.
func (h *Handler) prune() {
	for _, podUID := range h.cfg.Enforcer.Prune(func(string) bool { return false }) {
		h.forgetPod(podUID)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for podUID, creations := range h.creations {
		for _, c := range creations {
			if c.parent != "" && !h.cfg.Enforcer.Applier().Exists(c.parent) {
				delete(h.creations, podUID)
				break
			}
		}
	}
}

// update is an update of a container.
type update struct {
	req    *hookmsg.Request
	cgroup string
}

// lookAfter are the intervals at which a pod's cgroups are enforced again after an
// event. The kubelet writes a pod's cgroup some milliseconds after the runtime has heard
// of the update, or some seconds on a busy node.
var lookAfter = [...]time.Duration{20 * time.Millisecond, 100 * time.Millisecond, 400 * time.Millisecond, 2 * time.Second, 8 * time.Second}

// LookAgain enforces the decisions on a pod several times in the next ten seconds, on a
// goroutine of its own. A transport calls it when the kubelet or the runtime is about to
// write to the pod's cgroups, or has just done so.
func (h *Handler) LookAgain(podUID string) {
	if podUID == "" || h.cfg.Enforcer.DryRun() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if l := h.looks[podUID]; l != nil {
		l.done = 0
		select {
		case l.again <- struct{}{}:
		default:
		}
		return
	}
	l := &look{again: make(chan struct{}, 1)}
	h.looks[podUID] = l
	h.background.Go(func() {
		for {
			h.mu.Lock()
			n := l.done
			if n == len(lookAfter) {
				delete(h.looks, podUID)
				h.restate(podUID)
				h.mu.Unlock()
				if cgroups := h.cfg.State.Pod(podUID); len(cgroups) != 0 {
					h.cfg.Enforcer.Enforce(context.Background(), cgroups...)
				}
				return
			}
			l.done = n + 1
			h.mu.Unlock()
			wait := time.NewTimer(lookAfter[n])
			select {
			case <-h.closed:
				wait.Stop()
				return
			case <-l.again: // Another event: the first interval again.
				wait.Stop()
				continue
			case <-wait.C:
			}
			h.inferAsked(podUID)
			if cgroups := h.cfg.State.Pod(podUID); len(cgroups) != 0 {
				h.cfg.Enforcer.Enforce(context.Background(), cgroups...)
			}
		}
	})
}

// look is the series of looks at a pod.
type look struct {
	// done is the number of looks since the last event, which again tells of.
	done  int
	again chan struct{}
}

// restate ends the waits for updates of a pod that did not state what the kubelet asks for.
// h.mu is held.
func (h *Handler) restate(podUID string) {
	for _, u := range h.unstated[podUID] {
		h.cfg.State.Release(u.cgroup)
		h.cfg.Enforcer.Forget(u.cgroup)
	}
	delete(h.unstated, podUID)
}

// watchUnstated begins to look for what an update writes that does not state what the
// kubelet asks for: a runtime proxy that has lost a container passes the kubelet's update
// on to the runtime, and an empty one to the hooks. Nothing is put back in these limits
// before it is seen.
func (h *Handler) watchUnstated(req *hookmsg.Request, cgroup string) {
	h.cfg.State.Hold(cgroup, unstatedFields)
	limits := h.cfg.Enforcer.Applier().Limits(cgroup)
	h.facts().Learn(facts.Subject{PodUID: req.Pod.UID, ContainerID: req.Container.ID}, func(f *facts.Facts) { f.Told = f.Told.Overlay(limits) })
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unstated[req.Pod.UID] == nil {
		h.unstated[req.Pod.UID] = map[created]update{}
	}
	h.unstated[req.Pod.UID][createdOf(req.Container)] = update{req, cgroup}
}

// unstatedFields are those of [cgroup.Applier.Limits].
const unstatedFields = hookmsg.FieldCFSQuota | hookmsg.FieldCFSPeriod | hookmsg.FieldMemoryLimit

// inferAsked takes the limits that such updates have written to the containers of a pod
// as what the kubelet asks for, and decides on them.
func (h *Handler) inferAsked(podUID string) {
	h.mu.Lock()
	updates := slices.Collect(maps.Values(h.unstated[podUID]))
	h.mu.Unlock()
	for _, u := range updates {
		desired, _ := h.cfg.State.Get(u.cgroup)
		// A field that has the decided value was written here.
		written := h.cfg.Enforcer.Applier().Differing(target(u.cgroup, u.req, desired.Resources))
		limits := h.cfg.Enforcer.Applier().Limits(u.cgroup)
		if own := without(desired.Resources, written); own != nil {
			limits = without(limits, own)
		}
		subject := facts.Subject{PodUID: podUID, ContainerID: u.req.Container.ID}
		before := h.facts().Get(subject).Asked
		req := *u.req
		known := h.facts().Learn(subject, func(f *facts.Facts) {
			f.Hear(limits, false, func(*hookmsg.Resources) *hookmsg.Resources { return nil })
			f.Told = f.Told.Overlay(limits)
		})
		req.Resources = known.Asked
		if req.Resources == before {
			continue
		}
		h.cfg.State.Release(u.cgroup)
		h.cfg.Enforcer.Forget(u.cgroup)
		ctx, cancel := context.WithTimeout(context.Background(), h.cfg.Timeout)
		d, err := h.cfg.Engine.Decide(ctx, &req)
		if err != nil {
			h.cfg.Logger.Warn("an update that the runtime proxy did not state", slog.Any("err", err))
		} else if h.putDecided(ctx, &req, u.cgroup, d.Resources, &known) {
			h.facts().Learn(subject, func(f *facts.Facts) { f.Told = f.Told.Overlay(d.Resources) })
		}
		cancel()
	}
}
