package proxy

import (
	"context"
	"log/slog"
	"time"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks/internal/facts"
)

// creation holds the facts about a container from before it had a cgroup.
type creation struct {
	// promised are the decided resources that are not in the cgroup yet.
	promised *hookmsg.Resources
	// facts are the facts about a container without an identifier.
	facts *facts.Facts
	// parent is the pod's cgroup.
	parent string
}

// created identifies a container: by the runtime's identifier or, if its creation is announced
// before it has one, by its name.
type created struct{ id, name string }

func createdOf(c hookmsg.ContainerMeta) created {
	if c.ID != "" {
		return created{id: c.ID}
	}
	return created{name: c.Name}
}

func (h *Handler) creation(req *hookmsg.Request) creation {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.creations[req.Pod.UID][createdOf(req.Container)]
}

// change changes the record of a container's creation.
func (h *Handler) change(req *hookmsg.Request, f func(*creation)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	creations, of := h.creations[req.Pod.UID], createdOf(req.Container)
	c := creations[of]
	f(&c)
	if c.promised == nil && c.facts == nil {
		delete(creations, of)
		if len(creations) == 0 {
			delete(h.creations, req.Pod.UID)
		}
		return
	}
	if creations == nil {
		creations = map[created]creation{}
		h.creations[req.Pod.UID] = creations
	}
	c.parent = req.CgroupParent
	creations[of] = c
}

// withFacts learns from the request. It returns the request with the resources requested by the
// kubelet and the other facts of the state. asks are the resources of the original request, nil if
// its stage does not state the kubelet's request.
func (h *Handler) withFacts(req *hookmsg.Request, cgroup string) (_ *hookmsg.Request, asks *hookmsg.Resources) {
	if req.Level == abi.LevelQOS {
		return req, nil
	}
	subject := facts.Subject{PodUID: req.Pod.UID, ContainerID: req.Container.ID}
	if req.Level == abi.LevelContainer && req.Container.ID == "" {
		subject = facts.Subject{} // Keeps nothing: without an identifier, the subject would be the pod.
	}
	var have facts.Facts
	switch {
	case req.Level == abi.LevelContainer && req.Stage == abi.PreCreateContainer:
		asks = req.Resources
		// An earlier container of this name or identifier was a different one.
		begin := facts.Facts{Judged: true, Asked: asks, Heard: time.Now(), Parent: req.CgroupParent, ContainerAnnotations: req.ContainerAnnotations, ContainerEnvs: req.ContainerEnvs}
		if req.Container.ID == "" {
			h.change(req, func(c *creation) { *c = creation{facts: &begin} })
			have = begin
			break
		}
		have = h.facts().Learn(subject, func(f *facts.Facts) { *f = begin })
	case ended(req.Stage):
		have = h.facts().Get(subject)
	default:
		if req.Stage == abi.PreUpdateContainerResources || req.Stage == abi.PreRunPodSandbox {
			asks = req.Resources
		}
		adopted := h.adopt(req, subject)
		have = h.facts().Learn(subject, func(f *facts.Facts) {
			if adopted != nil {
				*f = *adopted
			}
			f.Parent, f.Cgroup = req.CgroupParent, cgroup
			if len(req.ContainerAnnotations) != 0 {
				f.ContainerAnnotations = req.ContainerAnnotations
			}
			if len(req.ContainerEnvs) != 0 {
				f.ContainerEnvs = req.ContainerEnvs
			}
			others := func(r *hookmsg.Resources) *hookmsg.Resources {
				if cgroup == "" {
					return nil
				}
				return h.cfg.Enforcer.Applier().Differing(target(cgroup, req, r))
			}
			switch {
			case asks == nil:
			case req.Stage == abi.PreRunPodSandbox:
				// The runtime's sum of limits leaves out containers without a limit. The kubelet
				// has created the cgroup with its request, so only fields equal to those of the
				// cgroup count.
				if f.Asked == nil && cgroup != "" {
					f.Ask(without(asks, others(asks)))
				}
			case req.Level == abi.LevelContainer && !h.cfg.Echoes:
				f.Ask(asks)
			default:
				// Before updating a pod, the kubelet reads the pod's cgroup, and falls back to that
				// if the update fails.
				f.Hear(asks, req.Level == abi.LevelPod, others)
			}
		})
	}
	filled := *req
	filled.Resources = have.Asked
	if req.Level == abi.LevelContainer {
		if len(req.ContainerAnnotations) == 0 {
			filled.ContainerAnnotations = have.ContainerAnnotations
		}
		if len(req.ContainerEnvs) == 0 {
			filled.ContainerEnvs = have.ContainerEnvs
		}
	}
	return &filled, asks
}

// without returns the fields of resources that are not set in others.
func without(r, others *hookmsg.Resources) *hookmsg.Resources {
	return r.Select(hookmsg.AllFields &^ others.Fields())
}

// recordTold records the resources passed to the runtime, or written to the pod's cgroup, instead
// of those requested by the kubelet.
func (h *Handler) recordTold(req *hookmsg.Request, asks, decided *hookmsg.Resources) {
	if !answered(req.Stage) && req.Level == abi.LevelContainer {
		return
	}
	if req.Level == abi.LevelPod {
		asks = req.Resources // Has all fields; the event may have only some.
	}
	told := asks.Overlay(decided)
	if req.Level == abi.LevelContainer && req.Container.ID == "" {
		h.change(req, func(c *creation) {
			if c.facts != nil {
				c.facts.Told = told
			}
		})
		return
	}
	h.facts().Learn(facts.Subject{PodUID: req.Pod.UID, ContainerID: req.Container.ID}, func(f *facts.Facts) {
		if asks != nil || f.Told == nil {
			f.Told = told
		} else {
			f.Told = f.Told.Overlay(decided)
		}
	})
}

// adopt returns the facts about a container that was created without an identifier and now has one,
// nil if there are none. Only the start of a container follows its creation: other events may be
// those of the container that it replaces.
func (h *Handler) adopt(req *hookmsg.Request, subject facts.Subject) *facts.Facts {
	if req.Stage != abi.PreStartContainer && req.Stage != abi.PostStartContainer || req.Container.ID == "" || !h.facts().Get(subject).Heard.IsZero() {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	creations := h.creations[req.Pod.UID]
	c, ok := creations[created{name: req.Container.Name}]
	if !ok {
		return nil
	}
	delete(creations, created{name: req.Container.Name})
	adopted := c.facts
	c.facts = nil
	creations[createdOf(req.Container)] = c
	return adopted
}

// makeRoom decides again on a pod whose update is not announced:
//
//   - The pod is known to have less than one of its containers requests. The kernel would refuse
//     the container's update, and not every kubelet and runtime announces the pod's update.
//   - The containers now request exactly the decided resources of the pod. The kubelet, which reads
//     those from the pod's cgroup, sees nothing to update.
func (h *Handler) makeRoom(ctx context.Context, container *hookmsg.Request) {
	subject := facts.Subject{PodUID: container.Pod.UID}
	pod := h.facts().Get(subject)
	limits := exceeding(container.Resources, pod.Asked)
	if limits == nil {
		limits = reached(h.facts().Sum(container.Pod.UID), pod.Asked, pod.Told)
	}
	if limits == nil || container.CgroupParent == "" {
		return
	}
	req := *container
	req.Level, req.Container, req.ContainerAnnotations, req.ContainerEnvs = abi.LevelPod, hookmsg.ContainerMeta{}, nil, nil
	known := h.facts().Learn(subject, func(f *facts.Facts) { f.Ask(limits) })
	req.Resources = known.Asked
	d, err := h.cfg.Engine.Decide(ctx, &req)
	if err != nil {
		h.cfg.Logger.Warn("make room for a container", slog.Any("err", err))
		return
	}
	if h.facts().IfAsked(subject, known, func() { h.cfg.State.Put(target(req.CgroupParent, &req, d.Resources)) }) {
		h.recordTold(&req, req.Resources, d.Resources)
	}
}

// reached returns the limits in told that differ from those in asked and equal the sums of the
// containers; nil if there are none.
func reached(sum, asked, told *hookmsg.Resources) *hookmsg.Resources {
	if asked == nil || told == nil {
		return nil
	}
	is := func(sum, asked, told *int64) bool {
		return sum != nil && asked != nil && told != nil && *sum == *told && *sum != *asked
	}
	var r hookmsg.Resources
	if is(sum.MemoryLimitBytes, asked.MemoryLimitBytes, told.MemoryLimitBytes) {
		r.MemoryLimitBytes = sum.MemoryLimitBytes
	}
	if p := asked.CFSPeriodUS; is(sum.CFSQuotaUS, asked.CFSQuotaUS, told.CFSQuotaUS) && (p == nil || *p == *sum.CFSPeriodUS) {
		r.CFSQuotaUS, r.CFSPeriodUS = sum.CFSQuotaUS, sum.CFSPeriodUS
	}
	if r.Fields() == 0 {
		return nil
	}
	return &r
}

// exceeding returns the limits of a container that exceed the known limits of its pod, nil if there
// are none.
func exceeding(container, pod *hookmsg.Resources) *hookmsg.Resources {
	if container == nil || pod == nil {
		return nil
	}
	var r hookmsg.Resources
	if c, p := container.MemoryLimitBytes, pod.MemoryLimitBytes; c != nil && p != nil && *p >= 0 && (*c > *p || *c < 0) {
		r.MemoryLimitBytes = c
	}
	if c, p := container.CFSQuotaUS, pod.CFSQuotaUS; c != nil && p != nil && *p > 0 {
		period := func(r *hookmsg.Resources) int64 {
			if r.CFSPeriodUS != nil && *r.CFSPeriodUS > 0 {
				return *r.CFSPeriodUS
			}
			return 100_000 // The kernel's default, and the kubelet's.
		}
		if *c < 0 || float64(*c)/float64(period(container)) > float64(*p)/float64(period(pod)) {
			r.CFSQuotaUS, r.CFSPeriodUS = c, new(period(container))
		}
	}
	if r.Fields() == 0 {
		return nil
	}
	return &r
}
