package proxy

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/hooks/internal/facts"
)

// Resync does the work that no event of a runtime asks for, on a new goroutine. It asks about the
// QoS classes, forgets the pods whose cgroups are gone, and enforces the whole state. (After a
// restart, containerd does not announce the end of the pods that it had started before.) Handle
// begins a resync when a pod comes, and a transport when it has connected. Calls before a resync
// begins share it.
func (h *Handler) Resync(ctx context.Context) {
	select {
	case h.requested <- struct{}{}:
	default:
		return
	}
	ctx = context.WithoutCancel(ctx) // The resync outlives the event.
	h.background.Go(func() {
		h.resyncs.Lock()
		defer h.resyncs.Unlock()
		<-h.requested
		h.prune()
		for _, class := range []abi.QOSClass{abi.QOSGuaranteed, abi.QOSBurstable, abi.QOSBestEffort} {
			path := h.cfg.Layout.QOS(class)
			ctx, cancel := context.WithTimeout(ctx, h.cfg.Timeout)
			d, err := h.cfg.Engine.Decide(ctx, &hookmsg.Request{Stage: abi.Reconcile, Level: abi.LevelQOS, QOSClass: class, CgroupParent: path})
			cancel()
			if err != nil {
				h.cfg.Logger.Warn("resync", slog.Any("err", err)) // The earlier decision stays.
				continue
			}
			h.cfg.State.Put(cgroup.Target{Cgroup: path, Level: abi.LevelQOS, Resources: d.Resources})
		}
		h.cfg.Enforcer.Enforce(ctx)
	})
}

// Wait stops background work and waits for it to end. A transport calls it before it ends.
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

// lookAfter are the intervals at which a pod's cgroups are enforced again after an event. The
// kubelet writes a pod's cgroup some milliseconds after the runtime has received the update, or
// some seconds on a busy node.
var lookAfter = [...]time.Duration{20 * time.Millisecond, 100 * time.Millisecond, 400 * time.Millisecond, 2 * time.Second, 8 * time.Second}

// LookAgain enforces the decisions on a pod several times in the next ten seconds, on a new
// goroutine. A transport calls it when the kubelet or the runtime is about to write to the pod's
// cgroups, or has just done so.
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
			case <-l.again: // Another event: start again with the first interval.
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

// look is a series of repeated enforcements of a pod's cgroups.
type look struct {
	// done is the number of enforcements since the last event, which is signaled by again.
	done  int
	again chan struct{}
}

// restate ends the waits for updates of a pod that did not state the kubelet's request. h.mu must
// be held.
func (h *Handler) restate(podUID string) {
	for _, u := range h.unstated[podUID] {
		h.cfg.State.Release(u.cgroup)
		h.cfg.Enforcer.Forget(u.cgroup)
	}
	delete(h.unstated, podUID)
}

// watchUnstated begins to observe the values written by an update that does not state the kubelet's
// request. A runtime proxy that has lost a container passes the kubelet's update to the runtime,
// and an empty one to the hooks. These limits are not enforced until the written values are seen.
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

// unstatedFields are the fields of [cgroup.Applier.Limits].
const unstatedFields = hookmsg.FieldCFSQuota | hookmsg.FieldCFSPeriod | hookmsg.FieldMemoryLimit

// inferAsked takes the limits written to the containers of a pod by such updates as the kubelet's
// request, and decides on them.
func (h *Handler) inferAsked(podUID string) {
	h.mu.Lock()
	updates := slices.Collect(maps.Values(h.unstated[podUID]))
	h.mu.Unlock()
	for _, u := range updates {
		desired, _ := h.cfg.State.Get(u.cgroup)
		// A field with the decided value was written here.
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
			h.cfg.Logger.Warn("an update without values from the runtime proxy", slog.Any("err", err))
		} else if h.putDecided(ctx, &req, u.cgroup, d.Resources, &known) {
			h.facts().Learn(subject, func(f *facts.Facts) { f.Told = f.Told.Overlay(d.Resources) })
		}
		cancel()
	}
}
