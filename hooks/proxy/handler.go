package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/hooks/internal/facts"
)

// Config configures a Handler.
type Config struct {
	// Engine decides, State keeps what it decides, Enforcer brings that to the
	// cgroups: it must be the state's. Required, and the same as those of the
	// standalone mode where both run.
	Engine   *hooks.Engine
	State    *cgroup.State
	Enforcer *cgroup.Enforcer
	// Supports are the fields that the transport carries to the runtime when a
	// container is created or updated. What is no resource of a cgroup and is not
	// carried is lost, which is logged. On cgroup v1 FieldUnified is taken out: a
	// runtime that is told of one does not make the container (runc).
	Supports hookmsg.Fields
	// Echoes says that the transport's updates of a container have what the runtime
	// was told last wherever the kubelet asks for nothing else, as those of
	// Koordinator's runtime proxy do.
	Echoes bool
	// Layout says where the cgroups of QoS classes are.
	Layout cgroup.Layout
	// Timeout is how long an answer may take: less than the runtime waits, which
	// for NRI is 2 s, or it drops the plugin. Default 1.5 s. Of a request that
	// says when the runtime gives up, it is three quarters of that at most.
	Timeout time.Duration
	// Logger receives what cannot be told to the runtime; nil drops it.
	Logger *slog.Logger
}

// Handler answers a runtime. It is safe for use by several goroutines.
type Handler struct {
	cfg Config
	// review holds a review that has not begun; reviews is held by one that has;
	// reviewing are both.
	review    chan struct{}
	reviews   sync.Mutex
	reviewing sync.WaitGroup

	// ended is closed when nothing is looked at again any more.
	ended chan struct{}
	end   func()

	mu sync.Mutex
	// creations are by the UID of the pod.
	creations map[string]map[created]creation
	// looks are the pods whose cgroups are looked at again, by UID, with how often
	// they were since the last event.
	looks map[string]int
	// blind are the updates, by the UID of the pod, that did not tell what is asked.
	blind map[string]map[created]update
	// refused counts the cgroups that were not what they were claimed to be.
	refused atomic.Uint64
	// answering are the events that have no answer yet.
	answering answering
}

// created names a container: by the runtime's identifier or, if the transport tells of
// its creation before it has one, by its name.
type created struct{ id, name string }

func createdOf(c hookmsg.ContainerMeta) created {
	if c.ID != "" {
		return created{id: c.ID}
	}
	return created{name: c.Name}
}

// update is an update of a container.
type update struct {
	req    *hookmsg.Request
	cgroup string
}

// creation is what is known of a container from the time before it had a cgroup.
type creation struct {
	// promised is what was decided and is not in the cgroup yet.
	promised *hookmsg.Resources
	// facts are those of a container that has no identifier yet.
	facts *facts.Facts
	// parent is the pod's cgroup.
	parent string
}

// DefaultTimeout is how long an answer may take, unless the configuration says
// otherwise.
const DefaultTimeout = 1500 * time.Millisecond

// New checks the configuration.
func New(cfg Config) (*Handler, error) {
	var errs []error
	for name, missing := range map[string]bool{"engine": cfg.Engine == nil, "state": cfg.State == nil, "enforcer": cfg.Enforcer == nil} {
		if missing {
			errs = append(errs, fmt.Errorf("%s is missing", name))
		}
	}
	if cfg.Timeout < 0 {
		errs = append(errs, fmt.Errorf("timeout is %s, less than 0", cfg.Timeout))
	}
	if len(errs) != 0 {
		slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
		return nil, fmt.Errorf("proxy: configuration: %w", errors.Join(errs...))
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Enforcer.Applier().Version() == cgroup.V1 {
		cfg.Supports &^= hookmsg.FieldUnified
	}
	h := &Handler{
		cfg: cfg, review: make(chan struct{}, 1), ended: make(chan struct{}), creations: map[string]map[created]creation{}, looks: map[string]int{},
		blind: map[string]map[created]update{},
	}
	h.end = sync.OnceFunc(func() { close(h.ended) })
	return h, nil
}

// carrying are the stages whose answers a runtime takes.
func carrying(stage hookmsg.Stage) bool {
	switch stage {
	case hookmsg.PreCreateContainer, hookmsg.PreUpdateContainerResources, hookmsg.Reconcile:
		return true
	}
	return false
}

// Handle answers an event: it asks the plugins, keeps what they decide in the
// state, writes to the cgroup what the transport does not carry, and returns what
// it does. cgroup is the path of what the request is about, empty if it has none
// yet: what is decided then is written when an event names it.
//
// The stage Reconcile is for a transport that (re)connects and lists what runs. At
// level Pod, the stage PreUpdateContainerResources is for the kubelet's update of the
// pod itself.
//
// An error is that of [hooks.Engine.Decide]. What the kernel refuses is no error
// of the event: the enforcer tries again.
//
// # Notes
//
//   - A pod's cgroup is the kubelet's, not the runtime's: all that is decided on
//     it is written here.
//   - A request has the resources that the kubelet asks for. Of a runtime's
//     events only those before a creation and an update tell them: those of other
//     events are not looked at, and the plugins see what the state knows, or
//     nothing. Even an update may have what was answered before, see
//     [facts.Facts.Hear].
//   - A request without a cgroup parent, an environment or annotations gets those
//     that the state knows, or the node has: a runtime proxy that was restarted has
//     lost them.
//   - A cgroup that is not the one that the Layout has for the pod's UID, or does
//     not lie in it, is not believed, whoever names it: the request goes to the
//     plugins without a cgroup and a QoS class, the runtime is told what they
//     decide of its container, and nothing is written here. It is logged, and
//     counted by [Handler.Refused].
//   - What a runtime has been told it writes itself, but that is not awaited: the
//     enforcer compares, and writes what differs. After an update, the kubelet and
//     the runtime write for a while, maybe something else than what was decided. The
//     pod's cgroups are looked at again until then.
func (h *Handler) Handle(ctx context.Context, req *hookmsg.Request, cgroup string) (*hookmsg.Decision, error) {
	defer h.answering.begin(req.Stage)()
	req, cgroup = h.own(req, cgroup)
	req, asks := h.known(req, cgroup)
	if req.Stage == hookmsg.PreRunPodSandbox {
		defer h.Resync(ctx)
	}
	if req.Stage == hookmsg.PreUpdateContainerResources {
		defer h.lookAgain(req.Pod.UID) // Even after a failure: what was decided before stays.
	}
	if h.cfg.Echoes && req.Level == hookmsg.LevelContainer && req.Stage == hookmsg.PreUpdateContainerResources && asks == nil && cgroup != "" {
		h.watch(req, cgroup)
	}
	decideCtx, cancel := h.WithTimeout(ctx)
	defer cancel()
	d, err := h.cfg.Engine.Decide(decideCtx, req)
	if over(req.Stage) {
		h.forget(req, cgroup) // Whatever they decide.
		return new(hookmsg.Decision), err
	}
	if err != nil {
		return nil, err
	}
	if h.cfg.Enforcer.DryRun() {
		h.cfg.Logger.Info("dry run: the runtime is not told", slog.String("stage", req.Stage.String()), slog.String("pod", req.Pod.Namespace+"/"+req.Pod.Name),
			slog.String("container", req.Container.Name), slog.String("decided", d.Fields().String()))
		h.put(ctx, req, cgroup, d.Resources)
		h.tell(req, asks, nil)
		return new(hookmsg.Decision), nil
	}

	var carries hookmsg.Fields
	if req.Level == hookmsg.LevelContainer && carrying(req.Stage) {
		carries = h.cfg.Supports
	}
	carried := d.Select(carries)
	if lost := d.Fields() &^ carries &^ hookmsg.ResourceFields; lost != 0 && req.Stage == hookmsg.PreCreateContainer {
		h.cfg.Logger.Warn("the runtime cannot be told", slog.String("pod", req.Pod.Namespace+"/"+req.Pod.Name),
			slog.String("container", req.Container.Name), slog.String("fields", lost.String()))
	}
	if req.Level == hookmsg.LevelPod {
		h.tell(req, asks, d.Resources)
	} else {
		h.tell(req, asks, carried.Resources)
	}
	if req.Level == hookmsg.LevelContainer && req.Stage == hookmsg.PreCreateContainer {
		h.change(req, func(c *creation) { c.promised = d.Resources }) // Its cgroup is not made yet.
		return carried, nil
	}
	if req.Level == hookmsg.LevelContainer && req.Stage == hookmsg.PreUpdateContainerResources {
		h.makeRoom(decideCtx, req)
	}
	h.put(ctx, req, cgroup, d.Resources)
	return carried, nil
}

// own returns the request and the cgroup that it is about without what is not the
// pod's own, and with what it leaves out.
func (h *Handler) own(req *hookmsg.Request, cgroup string) (*hookmsg.Request, string) {
	if req.Level == hookmsg.LevelQOS {
		return req, cgroup
	}
	checked := *req
	if req.CgroupParent == "" && cgroup == "" {
		// The transport has lost it.
		if checked.CgroupParent = h.PodCgroup(req.Pod); checked.CgroupParent == "" {
			return req, ""
		}
		cgroup = checked.CgroupParent
		if req.Level == hookmsg.LevelContainer && req.Container.ID != "" {
			cgroup = h.cfg.Layout.Container(checked.CgroupParent, req.Container.ID)
		} else if req.Level == hookmsg.LevelContainer {
			cgroup = ""
		}
	}
	class, err := h.cfg.Layout.CheckPod(req.Pod, checked.CgroupParent)
	checked.QOSClass = class
	switch {
	case err != nil:
		checked.CgroupParent, cgroup = "", ""
	case cgroup == "":
	case req.Level == hookmsg.LevelContainer:
		if err = h.cfg.Layout.CheckContainer(req.Pod, checked.CgroupParent, req.Container, cgroup); err != nil {
			cgroup = ""
		}
	default:
		if _, err = h.cfg.Layout.CheckPod(req.Pod, cgroup); err != nil {
			cgroup = ""
		}
	}
	if err != nil {
		h.refused.Add(1)
		h.cfg.Logger.Warn("nothing is written for what claims another's cgroup", slog.String("stage", req.Stage.String()), slog.Any("error", err))
	}
	return &checked, cgroup
}

// PodCgroup returns the cgroup of a pod as the node has it, empty if it has none.
func (h *Handler) PodCgroup(pod hookmsg.PodMeta) string {
	return h.cfg.Layout.FindPod(pod.UID, h.cfg.Enforcer.Applier().Exists)
}

// Refused returns how many events have claimed a cgroup that was not the pod's or
// the container's own.
func (h *Handler) Refused() uint64 { return h.refused.Load() }

// WithTimeout returns a context that ends early enough for an answer.
func (h *Handler) WithTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	timeout := h.cfg.Timeout
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(deadline)*3/4)
	}
	return context.WithTimeout(ctx, timeout)
}

// put makes resources the desired state of a cgroup, over what was promised, and
// enforces it.
func (h *Handler) put(ctx context.Context, req *hookmsg.Request, path string, r *hookmsg.Resources) {
	if path == "" {
		return
	}
	if req.Level == hookmsg.LevelContainer {
		r = h.creation(req).promised.Overlay(r)
	}
	h.cfg.State.Put(cgroup.Target{Cgroup: path, PodUID: req.Pod.UID, Resources: r})
	if report := h.cfg.Enforcer.Enforce(ctx, h.around(req, path)...); !slices.Contains(report.Gone, path) && req.Level == hookmsg.LevelContainer {
		h.change(req, func(c *creation) { c.promised = nil })
	}
}

// around returns a cgroup with those that have to be as wide, or may have to wait for
// it to be tighter: the pod's for a container's, and the other way round for an update.
func (h *Handler) around(req *hookmsg.Request, cgroup string) []string {
	switch {
	case req.Level == hookmsg.LevelContainer && req.CgroupParent != "":
		return []string{req.CgroupParent, cgroup}
	case req.Level == hookmsg.LevelPod && req.Stage == hookmsg.PreUpdateContainerResources:
		return append(h.cfg.State.Pod(req.Pod.UID), cgroup)
	}
	return []string{cgroup}
}

// known returns the request with what the kubelet asks for and what else the state
// knows, after it has learned from the request. asks are the resources of a request
// that tells what is asked, as it came.
func (h *Handler) known(req *hookmsg.Request, cgroup string) (_ *hookmsg.Request, asks *hookmsg.Resources) {
	if req.Level == hookmsg.LevelQOS {
		return req, nil
	}
	subject := facts.Subject{PodUID: req.Pod.UID, ContainerID: req.Container.ID}
	var have facts.Facts
	switch {
	case req.Level == hookmsg.LevelContainer && req.Stage == hookmsg.PreCreateContainer:
		asks = req.Resources
		// Whatever was there of this name or identifier has nothing to do with it.
		begin := facts.Facts{Asked: asks, Heard: time.Now(), Parent: req.CgroupParent, ContainerAnnotations: req.ContainerAnnotations, ContainerEnvs: req.ContainerEnvs}
		if req.Container.ID == "" {
			h.change(req, func(c *creation) { *c = creation{facts: &begin} })
			have = begin
			break
		}
		have = h.cfg.State.Facts().Learn(subject, func(f *facts.Facts) { *f = begin })
	case over(req.Stage):
		have = h.cfg.State.Facts().Get(subject)
	default:
		if req.Stage == hookmsg.PreUpdateContainerResources || req.Stage == hookmsg.PreRunPodSandbox {
			asks = req.Resources
		}
		adopted := h.adopt(req, subject)
		have = h.cfg.State.Facts().Learn(subject, func(f *facts.Facts) {
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
				return h.cfg.Enforcer.Applier().Differing(cgroup, r)
			}
			switch {
			case asks == nil:
			case req.Stage == hookmsg.PreRunPodSandbox:
				// The sum of what containers have limits of, though others have none.
				// The kubelet has made the cgroup, with what it asks for.
				if f.Asked == nil && cgroup != "" {
					f.Ask(without(asks, others(asks)))
				}
			case req.Level == hookmsg.LevelContainer && !h.cfg.Echoes:
				f.Ask(asks)
			default:
				// Before it updates a pod, the kubelet reads the pod's cgroup, and goes
				// back to that if it cannot write it.
				f.Hear(asks, req.Level == hookmsg.LevelPod, others)
			}
		})
	}
	filled := *req
	filled.Resources = have.Asked
	if req.Level == hookmsg.LevelContainer {
		if len(req.ContainerAnnotations) == 0 {
			filled.ContainerAnnotations = have.ContainerAnnotations
		}
		if len(req.ContainerEnvs) == 0 {
			filled.ContainerEnvs = have.ContainerEnvs
		}
	}
	return &filled, asks
}

// without returns the fields of resources that others do not have.
func without(r, others *hookmsg.Resources) *hookmsg.Resources {
	return r.Select(hookmsg.AllFields &^ others.Fields())
}

// tell notes what was decided in the place of what was asked.
func (h *Handler) tell(req *hookmsg.Request, asks, decided *hookmsg.Resources) {
	if !carrying(req.Stage) && req.Level == hookmsg.LevelContainer {
		return
	}
	if req.Level == hookmsg.LevelPod {
		asks = req.Resources // All that is asked, of which the event may have a part.
	}
	told := asks.Overlay(decided)
	if req.Level == hookmsg.LevelContainer && req.Container.ID == "" {
		h.change(req, func(c *creation) {
			if c.facts != nil {
				c.facts.Told = told
			}
		})
		return
	}
	h.cfg.State.Facts().Learn(facts.Subject{PodUID: req.Pod.UID, ContainerID: req.Container.ID}, func(f *facts.Facts) {
		if asks != nil || f.Told == nil {
			f.Told = told
		} else {
			f.Told = f.Told.Overlay(decided)
		}
	})
}

// adopt returns the facts of a container that was created without an identifier and
// is about to have one, nil if there are none. Only the start of a container follows
// its creation: other events may be of the one that it replaces.
func (h *Handler) adopt(req *hookmsg.Request, subject facts.Subject) *facts.Facts {
	if req.Stage != hookmsg.PreStartContainer && req.Stage != hookmsg.PostStartContainer || req.Container.ID == "" || !h.cfg.State.Facts().Get(subject).Heard.IsZero() {
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

// makeRoom decides on a pod again that is known to ask for less than one of its
// containers, whose update the kernel would refuse: not every kubelet and runtime
// tell of the pod's own update.
func (h *Handler) makeRoom(ctx context.Context, container *hookmsg.Request) {
	subject := facts.Subject{PodUID: container.Pod.UID}
	pod := h.cfg.State.Facts().Get(subject).Asked
	wider := wider(container.Resources, pod)
	if wider == nil || container.CgroupParent == "" {
		return
	}
	req := *container
	req.Level, req.Container, req.ContainerAnnotations, req.ContainerEnvs = hookmsg.LevelPod, hookmsg.ContainerMeta{}, nil, nil
	req.Resources = h.cfg.State.Facts().Learn(subject, func(f *facts.Facts) { f.Ask(wider) }).Asked
	d, err := h.cfg.Engine.Decide(ctx, &req)
	if err != nil {
		h.cfg.Logger.Warn("make room for a container", slog.Any("error", err))
		return
	}
	h.tell(&req, req.Resources, d.Resources)
	h.cfg.State.Put(cgroup.Target{Cgroup: req.CgroupParent, PodUID: req.Pod.UID, Resources: d.Resources})
}

// wider returns the limits of a container that its pod is known to have less of, nil
// if there are none.
func wider(container, pod *hookmsg.Resources) *hookmsg.Resources {
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

func (h *Handler) creation(req *hookmsg.Request) creation {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.creations[req.Pod.UID][createdOf(req.Container)]
}

// change changes what is known of a container's creation.
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

// lookAfter is when a pod's cgroups are looked at again after an event, each time
// counted from the last one. The kubelet writes a pod's cgroup some milliseconds
// after the runtime has heard of it, or some seconds on a busy node.
var lookAfter = [...]time.Duration{20 * time.Millisecond, 100 * time.Millisecond, 400 * time.Millisecond, 2 * time.Second, 8 * time.Second}

// LookAgain enforces what was decided on a pod several times in the next seconds, on
// a goroutine of its own: something else is about to be written to its cgroups. A
// transport that is told when it was written may call it then.
func (h *Handler) LookAgain(pod hookmsg.PodMeta) { h.lookAgain(pod.UID) }

func (h *Handler) lookAgain(uid string) {
	if uid == "" || h.cfg.Enforcer.DryRun() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	_, looking := h.looks[uid]
	h.looks[uid] = 0
	if looking {
		return
	}
	h.reviewing.Go(func() {
		for {
			h.mu.Lock()
			n := h.looks[uid]
			if n == len(lookAfter) {
				delete(h.looks, uid)
				delete(h.blind, uid)
				h.mu.Unlock()
				return
			}
			h.looks[uid] = n + 1
			h.mu.Unlock()
			select {
			case <-h.ended:
				return
			case <-time.After(lookAfter[n]):
			}
			h.overhear(uid)
			if cgroups := h.cfg.State.Pod(uid); len(cgroups) != 0 {
				h.cfg.Enforcer.Enforce(context.Background(), cgroups...)
			}
		}
	})
}

// watch begins to look for what an update writes that does not tell it: a runtime
// proxy that has lost a container passes on what the kubelet asks for.
func (h *Handler) watch(req *hookmsg.Request, cgroup string) {
	limits := h.cfg.Enforcer.Applier().Limits(cgroup)
	h.cfg.State.Facts().Learn(facts.Subject{PodUID: req.Pod.UID, ContainerID: req.Container.ID}, func(f *facts.Facts) { f.Told = f.Told.Overlay(limits) })
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.blind[req.Pod.UID] == nil {
		h.blind[req.Pod.UID] = map[created]update{}
	}
	h.blind[req.Pod.UID][createdOf(req.Container)] = update{req, cgroup}
}

// overhear takes the limits that containers of a pod have got from such updates for
// what the kubelet asks for, and decides on them.
func (h *Handler) overhear(uid string) {
	h.mu.Lock()
	updates := slices.Collect(maps.Values(h.blind[uid]))
	h.mu.Unlock()
	for _, u := range updates {
		desired, _ := h.cfg.State.Get(u.cgroup)
		// What it is to have is nobody else's.
		written := h.cfg.Enforcer.Applier().Differing(u.cgroup, desired.Resources)
		limits := h.cfg.Enforcer.Applier().Limits(u.cgroup)
		if own := without(desired.Resources, written); own != nil {
			limits = without(limits, own)
		}
		subject := facts.Subject{PodUID: uid, ContainerID: u.req.Container.ID}
		before := h.cfg.State.Facts().Get(subject).Asked
		req := *u.req
		req.Resources = h.cfg.State.Facts().Learn(subject, func(f *facts.Facts) {
			f.Hear(limits, false, func(*hookmsg.Resources) *hookmsg.Resources { return nil })
			f.Told = f.Told.Overlay(limits)
		}).Asked
		if req.Resources == before {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), h.cfg.Timeout)
		d, err := h.cfg.Engine.Decide(ctx, &req)
		if err != nil {
			h.cfg.Logger.Warn("an update that the runtime proxy did not tell of", slog.Any("error", err))
		} else {
			h.put(ctx, &req, u.cgroup, d.Resources)
			h.cfg.State.Facts().Learn(subject, func(f *facts.Facts) { f.Told = f.Told.Overlay(d.Resources) })
		}
		cancel()
	}
}

// over reports whether what a request is about has ended.
func over(stage hookmsg.Stage) bool {
	switch stage {
	case hookmsg.PostStopContainer, hookmsg.PostStopPodSandbox, hookmsg.PreRemoveRunPodSandbox:
		return true
	}
	return false
}

// Resync does what no event of a runtime asks for, on a goroutine of its own: it
// asks about the QoS classes, forgets the pods whose cgroups are gone (containerd
// does not tell of the end of those that it started before it was restarted
// itself), and enforces the whole state, in which something may have had to wait
// for something else. Handle begins one when a pod comes, a transport when it has
// connected. One that is asked for while another waits to begin is that one.
func (h *Handler) Resync(ctx context.Context) {
	select {
	case h.review <- struct{}{}:
	default:
		return
	}
	ctx = context.WithoutCancel(ctx) // It outlives the event.
	h.reviewing.Go(func() {
		h.reviews.Lock()
		defer h.reviews.Unlock()
		<-h.review
		h.prune()
		for _, class := range []hookmsg.QOSClass{hookmsg.QOSGuaranteed, hookmsg.QOSBurstable, hookmsg.QOSBestEffort} {
			path := h.cfg.Layout.QOS(class)
			ctx, cancel := context.WithTimeout(ctx, h.cfg.Timeout)
			d, err := h.cfg.Engine.Decide(ctx, &hookmsg.Request{Stage: hookmsg.Reconcile, Level: hookmsg.LevelQOS, QOSClass: class, CgroupParent: path})
			cancel()
			if err != nil {
				h.cfg.Logger.Warn("review", slog.Any("error", err)) // What was decided before stays.
				continue
			}
			h.cfg.State.Put(cgroup.Target{Cgroup: path, Resources: d.Resources})
		}
		h.cfg.Enforcer.Enforce(ctx)
	})
}

// Wait waits for the end of reviews, and ends what looks at cgroups again. A transport
// does so before it ends.
func (h *Handler) Wait() {
	h.end()
	h.reviewing.Wait()
}

// prune forgets the pods whose cgroups are gone.
func (h *Handler) prune() {
	for _, uid := range h.cfg.Enforcer.Prune(func(string) bool { return false }) {
		h.forgetPod(uid)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for uid, creations := range h.creations {
		for _, c := range creations {
			if c.parent != "" && !h.cfg.Enforcer.Applier().Exists(c.parent) {
				delete(h.creations, uid)
				break
			}
		}
	}
}

// forget drops what is known of a container or a pod that is over.
func (h *Handler) forget(req *hookmsg.Request, cgroup string) {
	if req.Level == hookmsg.LevelContainer {
		h.change(req, func(c *creation) { *c = creation{} })
		h.mu.Lock()
		delete(h.blind[req.Pod.UID], createdOf(req.Container))
		h.mu.Unlock()
		if req.Container.ID != "" {
			h.cfg.State.Facts().Forget(facts.Subject{PodUID: req.Pod.UID, ContainerID: req.Container.ID})
		}
		if cgroup != "" {
			h.cfg.State.Remove(cgroup)
			h.cfg.Enforcer.Forget(cgroup)
		}
		return
	}
	h.forgetPod(req.Pod.UID)
}

func (h *Handler) forgetPod(uid string) {
	h.mu.Lock()
	delete(h.creations, uid)
	delete(h.blind, uid)
	h.mu.Unlock()
	h.cfg.State.RemovePod(uid)
	h.cfg.Engine.Forget(uid)
}
