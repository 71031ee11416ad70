package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubewasm/kubewasm/codec/hookpb"
	"github.com/kubewasm/kubewasm/hooks"
)

// Config configures a Handler.
type Config struct {
	// Engine decides, State keeps what it decides, Enforcer brings that to the
	// cgroups: it must be the state's. Required, and the same as those of the
	// standalone mode where both run.
	Engine   *hooks.Engine
	State    *hooks.State
	Enforcer *hooks.Enforcer
	// Carries are the fields that the transport carries to the runtime when a
	// container is created or updated. What is no resource of a cgroup and is not
	// carried is lost, which is logged. On cgroup v1 FieldUnified is taken out: a
	// runtime that is told of one does not make the container (runc).
	Carries hooks.Fields
	// Layout says where the cgroups of QoS classes are.
	Layout hooks.Layout
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

	mu sync.Mutex
	// containers are by the UID of the pod and their name.
	containers map[string]map[string]container
	// refused counts the cgroups that were not what they were claimed to be.
	refused atomic.Uint64
	// answering are the events that have no answer yet.
	answering answering
}

// container is what is known of a container from the time before it had a cgroup.
type container struct {
	// asked is what the kubelet asks for. Later events have what the runtime made
	// of that and of our answer: a plugin that divides a quota would divide it
	// again.
	asked *hookpb.Resources
	// promised is what was decided and is not in the cgroup yet.
	promised *hookpb.Resources
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
	if cfg.Enforcer.Version() == hooks.V1 {
		cfg.Carries &^= hooks.FieldUnified
	}
	return &Handler{cfg: cfg, review: make(chan struct{}, 1), containers: map[string]map[string]container{}}, nil
}

// carrying are the stages whose answers a runtime takes.
func carrying(stage hookpb.Stage) bool {
	switch stage {
	case hookpb.PreCreateContainer, hookpb.PreUpdateContainerResources, hookpb.Reconcile:
		return true
	}
	return false
}

// Handle answers an event: it asks the plugins, keeps what they decide in the
// state, writes to the cgroup what the transport does not carry, and returns what
// it does. cgroup is the path of what the request is about, empty if it has none
// yet: what is decided then is written when an event names it.
//
// The stage Reconcile is for a transport that (re)connects and lists what runs.
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
//     events are not looked at, and the plugins see what was asked before, or
//     nothing.
//   - A cgroup that is not the one that the Layout has for the pod's UID, or does
//     not lie in it, is not believed, whoever names it: the request goes to the
//     plugins without a cgroup and a QoS class, the runtime is told what they
//     decide of its container, and nothing is written here. It is logged, and
//     counted by [Handler.Refused].
//   - What a runtime has been told it writes itself, but that is not awaited: the
//     enforcer compares, and writes what differs.
func (h *Handler) Handle(ctx context.Context, req *hookpb.Request, cgroup string) (*hookpb.Decision, error) {
	defer h.answering.begin(req.Stage)()
	req, cgroup = h.own(req, cgroup)
	if req.Level == hookpb.LevelContainer {
		asked := *req
		asked.Resources = h.asked(req)
		req = &asked
	}
	if req.Stage == hookpb.PreRunPodSandbox {
		defer h.Review(ctx)
	}
	decideCtx, cancel := h.WithTimeout(ctx)
	defer cancel()
	d, err := h.cfg.Engine.Decide(decideCtx, req)
	switch req.Stage {
	case hookpb.PostStopContainer, hookpb.PostStopPodSandbox, hookpb.PreRemoveRunPodSandbox:
		// It is over, whatever they decide.
		h.forget(req, cgroup)
		return new(hookpb.Decision), err
	}
	if err != nil {
		return nil, err
	}
	if h.cfg.Enforcer.DryRun() {
		h.cfg.Logger.Info("dry run: the runtime is not told", slog.String("stage", req.Stage.String()), slog.String("pod", req.Pod.Namespace+"/"+req.Pod.Name),
			slog.String("container", req.Container.Name), slog.String("decided", hooks.FieldsOf(d).String()))
		h.put(ctx, req, cgroup, d.Resources)
		return new(hookpb.Decision), nil
	}

	var carries hooks.Fields
	if req.Level == hookpb.LevelContainer && carrying(req.Stage) {
		carries = h.cfg.Carries
	}
	carried := carries.Select(d)
	if lost := hooks.FieldsOf(d) &^ carries &^ hooks.ResourceFields; lost != 0 && req.Stage == hookpb.PreCreateContainer {
		h.cfg.Logger.Warn("the runtime cannot be told", slog.String("pod", req.Pod.Namespace+"/"+req.Pod.Name),
			slog.String("container", req.Container.Name), slog.String("fields", lost.String()))
	}
	if req.Level == hookpb.LevelContainer && req.Stage == hookpb.PreCreateContainer {
		h.change(req, func(c *container) { c.promised = d.Resources }) // Its cgroup is not made yet.
		return carried, nil
	}
	h.put(ctx, req, cgroup, d.Resources)
	return carried, nil
}

// own returns the request and the cgroup that it is about without what is not the
// pod's own.
func (h *Handler) own(req *hookpb.Request, cgroup string) (*hookpb.Request, string) {
	if req.Level == hookpb.LevelQOS || req.CgroupParent == "" && cgroup == "" {
		return req, cgroup
	}
	class, err := h.cfg.Layout.CheckPod(req.Pod, req.CgroupParent)
	checked := *req
	checked.QOSClass = class
	switch {
	case err != nil:
		checked.CgroupParent, cgroup = "", ""
	case cgroup == "":
	case req.Level == hookpb.LevelContainer:
		if err = h.cfg.Layout.CheckContainer(req.Pod, req.CgroupParent, req.Container, cgroup); err != nil {
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
func (h *Handler) put(ctx context.Context, req *hookpb.Request, cgroup string, r *hookpb.Resources) {
	if cgroup == "" {
		return
	}
	if req.Level == hookpb.LevelContainer {
		r = hooks.Overlay(h.container(req).promised, r)
	}
	h.cfg.State.Put(hooks.Desired{Cgroup: cgroup, PodUID: req.Pod.UID, Resources: r})
	if report := h.cfg.Enforcer.Enforce(ctx, h.withParent(req, cgroup)...); len(report.Gone) == 0 && req.Level == hookpb.LevelContainer {
		h.change(req, func(c *container) { c.promised = nil })
	}
}

// withParent returns a cgroup with those that have to be as wide, or may have to
// wait for it to be tighter.
func (h *Handler) withParent(req *hookpb.Request, cgroup string) []string {
	if req.Level == hookpb.LevelContainer && req.CgroupParent != "" {
		return []string{req.CgroupParent, cgroup}
	}
	return []string{cgroup}
}

// asked returns what the kubelet asks for a container.
func (h *Handler) asked(req *hookpb.Request) (r *hookpb.Resources) {
	switch req.Stage {
	case hookpb.PreCreateContainer:
		r = req.Resources
	case hookpb.PreUpdateContainerResources:
		r = hooks.Overlay(h.container(req).asked, req.Resources)
	default:
		return h.container(req).asked
	}
	h.change(req, func(c *container) { c.asked, c.parent = r, req.CgroupParent })
	return r
}

func (h *Handler) container(req *hookpb.Request) container {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.containers[req.Pod.UID][req.Container.Name]
}

// change changes what is known of a container.
func (h *Handler) change(req *hookpb.Request, f func(*container)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	containers := h.containers[req.Pod.UID]
	c := containers[req.Container.Name]
	f(&c)
	if c == (container{}) {
		delete(containers, req.Container.Name)
		if len(containers) == 0 {
			delete(h.containers, req.Pod.UID)
		}
		return
	}
	if containers == nil {
		containers = map[string]container{}
		h.containers[req.Pod.UID] = containers
	}
	containers[req.Container.Name] = c
}

// Review does what no event of a runtime asks for, on a goroutine of its own: it
// asks about the QoS classes, forgets the pods whose cgroups are gone (containerd
// does not tell of the end of those that it started before it was restarted
// itself), and enforces the whole state, in which something may have had to wait
// for something else. Handle begins one when a pod comes, a transport when it has
// connected. One that is asked for while another waits to begin is that one.
func (h *Handler) Review(ctx context.Context) {
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
		for _, class := range []hookpb.QOSClass{hookpb.QOSGuaranteed, hookpb.QOSBurstable, hookpb.QOSBestEffort} {
			cgroup := h.cfg.Layout.QOS(class)
			ctx, cancel := context.WithTimeout(ctx, h.cfg.Timeout)
			d, err := h.cfg.Engine.Decide(ctx, &hookpb.Request{Stage: hookpb.Reconcile, Level: hookpb.LevelQOS, QOSClass: class, CgroupParent: cgroup})
			cancel()
			if err != nil {
				h.cfg.Logger.Warn("review", slog.Any("error", err)) // What was decided before stays.
				continue
			}
			h.cfg.State.Put(hooks.Desired{Cgroup: cgroup, Resources: d.Resources})
		}
		h.cfg.Enforcer.Enforce(ctx)
	})
}

// Wait waits for the end of reviews. A transport does so before it ends.
func (h *Handler) Wait() { h.reviewing.Wait() }

// prune forgets the pods whose cgroups are gone.
func (h *Handler) prune() {
	for _, uid := range h.cfg.Enforcer.Prune(func(string) bool { return false }) {
		h.forgetPod(uid)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for uid, containers := range h.containers {
		for _, c := range containers {
			if c.parent != "" && !h.cfg.Enforcer.Exists(c.parent) {
				delete(h.containers, uid)
				break
			}
		}
	}
}

// forget drops what is known of a container or a pod that is over.
func (h *Handler) forget(req *hookpb.Request, cgroup string) {
	if req.Level == hookpb.LevelContainer {
		h.change(req, func(c *container) { *c = container{} })
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
	delete(h.containers, uid)
	h.mu.Unlock()
	h.cfg.State.RemovePod(uid)
	h.cfg.Engine.Forget(uid)
}
