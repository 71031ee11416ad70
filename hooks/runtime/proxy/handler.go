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

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/hooks/internal/facts"
	"github.com/kubewasm/kubewasm/internal/lograte"
)

// Config configures a Handler.
type Config struct {
	// Engine decides, State holds the decisions, and Enforcer, which must have that State, applies
	// them. Required. An agent that runs the standalone mode as well shares all three with it.
	Engine   *hooks.Engine
	State    *cgroup.State
	Enforcer *cgroup.Enforcer
	// Supports are the fields that the transport carries to the runtime when a container is created
	// or updated. A field that is neither supported nor a resource of a cgroup is lost, which is
	// logged. On cgroup v1 FieldUnified is removed, since runc creates no container with it.
	Supports hookmsg.Fields
	// SupportsFile reports whether the transport carries a file of FieldUnified in a field of its
	// own, on cgroup v1 as well; nil for none.
	SupportsFile func(name string) bool
	// Echoes is set if the transport's updates of a container repeat earlier answers in fields that
	// the kubelet does not change. This is so for Koordinator's runtime proxy.
	Echoes bool
	// Layout locates the cgroups of classes, pods and containers.
	Layout cgroup.Layout
	// Timeout bounds the time of an answer. It must be less than the time after which the runtime
	// drops the plugin, which is 2 s for NRI. Default 1.5 s, and never more than three quarters of
	// the remaining time of a request's context.
	Timeout time.Duration
	// Logger receives failures, and decided fields that cannot be passed to the runtime; nil drops
	// them.
	Logger *slog.Logger
}

// Handler answers a runtime. It is safe for use by several goroutines.
type Handler struct {
	cfg Config
	// requested holds a resync that has not begun, and resyncs is held by a running one. background
	// counts all goroutines.
	requested  chan struct{}
	resyncs    sync.Mutex
	background sync.WaitGroup

	// closed is closed by Wait.
	closed chan struct{}
	end    func()

	mu sync.Mutex
	// creations holds the creations by the UID of the pod.
	creations map[string]map[created]creation
	// looks holds the pods whose cgroups are enforced again, by UID.
	looks map[string]*look
	// unstated holds the updates, by the UID of the pod, that did not state the kubelet's request.
	unstated map[string]map[created]update
	// refused counts the events with a cgroup outside of the pod.
	refused atomic.Uint64
	// answering holds the events without an answer yet.
	answering answering
}

// facts returns the facts of the state.
func (h *Handler) facts() *facts.Store { return (*facts.Store)(h.cfg.State.Facts()) }

// New validates the configuration. Call Wait before closing the parts of the Handler.
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
		cfg.Timeout = 1500 * time.Millisecond
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Logger = lograte.Logger(cfg.Logger, lograte.New(lograte.DefaultBytes)) // Pods can provoke any event repeatedly.
	if cfg.Enforcer.Applier().Version() == cgroup.V1 {
		cfg.Supports &^= hookmsg.FieldUnified
	}
	cfg.State.ExpectCreations()
	h := &Handler{
		cfg: cfg, requested: make(chan struct{}, 1), closed: make(chan struct{}), creations: map[string]map[created]creation{}, looks: map[string]*look{},
		unstated: map[string]map[created]update{},
	}
	h.end = sync.OnceFunc(func() { close(h.closed) })
	return h, nil
}

// answered reports whether a runtime applies the answer at a stage.
func answered(stage abi.Stage) bool {
	switch stage {
	case abi.PreCreateContainer, abi.PreUpdateContainerResources, abi.Reconcile:
		return true
	}
	return false
}

// Handle answers an event. It asks the plugins, puts their decision into the state, writes the
// fields not carried by the transport to the cgroup, and returns the others for the transport.
// cgroup is the path of the request's subject, empty if it has none yet. In that case the decision
// is written when a later event names the cgroup.
//
// The stage Reconcile is for a transport that connects and lists running pods. At level Pod, the
// stage PreUpdateContainerResources is the kubelet's update of the pod itself.
//
// An error is that of [hooks.Engine.Decide]. A value refused by the kernel is not an error of the
// event, since the enforcer retries it.
//
// # Notes
//
//   - The kubelet, not the runtime, manages a pod's cgroup, so the whole decision on it is written
//     here.
//   - The plugins see the resources requested by the kubelet. Only events before a creation and an
//     update state them, and an update may repeat an earlier answer. The resources of other events
//     are ignored: plugins then see those of the state.
//   - A request without a cgroup parent, an environment or annotations gets those of the state, or
//     of the node: since a restarted runtime proxy has lost them.
//   - A cgroup is refused unless it is the Layout's cgroup for the pod's UID or lies in that. The
//     plugins then see the request without a cgroup and a QoS class, the runtime gets their
//     decision on its container, and nothing is written here. The event is logged, and counted by
//     [Handler.Refused].
//   - A runtime writes its part itself, and Handle does not wait for that: the enforcer compares
//     the files and writes differences. After an update, the kubelet and the runtime may write
//     different values for a while. During that time the pod's cgroups are enforced again, see
//     [Handler.LookAgain].
func (h *Handler) Handle(ctx context.Context, req *hookmsg.Request, cgroup string) (*hookmsg.Decision, error) {
	defer h.answering.begin(req.Stage)()
	req, cgroup = h.checked(req, cgroup)
	if req.Stage == abi.PreUpdateContainerResources {
		h.inferAsked(req.Pod.UID) // From the previous update, which the runtime has written.
	}
	req, asks := h.withFacts(req, cgroup)
	if req.Stage == abi.PreRunPodSandbox {
		defer h.Resync(ctx)
	}
	if req.Stage == abi.PreUpdateContainerResources {
		defer h.LookAgain(req.Pod.UID) // Even after a failure: the last decision stays.
	}
	if h.cfg.Echoes && req.Level == abi.LevelContainer && req.Stage == abi.PreUpdateContainerResources && asks == nil && cgroup != "" {
		h.watchUnstated(req, cgroup)
	}
	decideCtx, cancel := h.WithTimeout(ctx)
	defer cancel()
	d, err := h.cfg.Engine.Decide(decideCtx, req)
	if ended(req.Stage) {
		h.forget(req, cgroup) // Even after a failure.
		return new(hookmsg.Decision), err
	}
	if err != nil {
		return nil, err
	}
	if h.cfg.Enforcer.DryRun() {
		h.cfg.Logger.Info("dry run: the update is not sent to the runtime", slog.String("stage", req.Stage.String()), slog.String("pod", req.Pod.Namespace+"/"+req.Pod.Name),
			slog.String("container", req.Container.Name), slog.String("decided", d.Fields().String()))
		h.put(ctx, req, cgroup, d.Resources)
		h.recordTold(req, asks, nil)
		return new(hookmsg.Decision), nil
	}

	if req.Level == abi.LevelContainer && cgroup != "" {
		h.noteStart(req, cgroup, d.Resources)
	}
	var carries hookmsg.Fields
	if req.Level == abi.LevelContainer && answered(req.Stage) {
		carries = h.cfg.Supports
	}
	carried := d.Select(carries)
	if carries != 0 && carries&hookmsg.FieldUnified == 0 {
		carried.Resources = h.withSupportedFiles(carried.Resources, d.Resources)
	}
	if lost := d.Fields() &^ carries; lost.OfResources() != lost && req.Stage == abi.PreCreateContainer {
		h.cfg.Logger.Warn("the update cannot be sent to the runtime", slog.String("pod", req.Pod.Namespace+"/"+req.Pod.Name),
			slog.String("container", req.Container.Name), slog.String("fields", lost.String()))
	}
	if req.Level == abi.LevelPod {
		h.recordTold(req, asks, d.Resources)
	} else {
		h.recordTold(req, asks, carried.Resources)
	}
	if req.Level == abi.LevelContainer && req.Stage == abi.PreCreateContainer {
		h.change(req, func(c *creation) { c.promised = d.Resources }) // Its cgroup does not exist yet.
		return carried, nil
	}
	if req.Level == abi.LevelContainer && req.Stage == abi.PreUpdateContainerResources {
		h.makeRoom(decideCtx, req)
	}
	h.put(ctx, req, cgroup, d.Resources)
	return carried, nil
}

// withSupportedFiles returns carried with the files of d that the transport carries in fields of
// its own.
func (h *Handler) withSupportedFiles(carried, d *hookmsg.Resources) *hookmsg.Resources {
	if d == nil || len(d.Unified) == 0 || h.cfg.SupportsFile == nil {
		return carried
	}
	files := maps.Clone(d.Unified)
	maps.DeleteFunc(files, func(name, _ string) bool { return !h.cfg.SupportsFile(name) })
	if len(files) == 0 {
		return carried
	}
	return carried.Overlay(&hookmsg.Resources{Unified: files})
}

// noteStart logs a container that started undecided, at the first decision on it.
func (h *Handler) noteStart(req *hookmsg.Request, cgroup string, r *hookmsg.Resources) {
	if lacks := h.cfg.Enforcer.NoteStart(target(cgroup, req, r), req.Container.ID); lacks != nil {
		h.cfg.Logger.Warn("the container started without a decision", slog.String("pod", req.Pod.Namespace+"/"+req.Pod.Name),
			slog.String("container", req.Container.Name), slog.String("fields", lacks.Fields().String()))
	}
}

// checked returns the request and its cgroup, without a cgroup outside of the pod, and with a
// cgroup that the request leaves out.
func (h *Handler) checked(req *hookmsg.Request, cgroup string) (*hookmsg.Request, string) {
	if req.Level == abi.LevelQOS {
		return req, cgroup
	}
	own := *req
	if req.CgroupParent == "" && cgroup == "" {
		if own.CgroupParent = h.podCgroup(req.Pod); own.CgroupParent == "" {
			return req, ""
		}
		cgroup = own.CgroupParent
		if req.Level == abi.LevelContainer && req.Container.ID != "" {
			cgroup = h.cfg.Layout.Container(own.CgroupParent, req.Container.ID)
		} else if req.Level == abi.LevelContainer {
			cgroup = ""
		}
	}
	class, err := h.cfg.Layout.CheckPod(req.Pod, own.CgroupParent)
	own.QOSClass = class
	switch {
	case err != nil:
		own.CgroupParent, cgroup = "", ""
	case cgroup == "":
	case req.Level == abi.LevelContainer:
		if err = h.cfg.Layout.CheckContainer(req.Pod, own.CgroupParent, req.Container, cgroup); err != nil {
			cgroup = ""
		}
	default:
		if _, err = h.cfg.Layout.CheckPod(req.Pod, cgroup); err != nil {
			cgroup = ""
		}
	}
	if err != nil {
		h.refused.Add(1)
		h.cfg.Logger.Warn("the event claims the cgroup of another pod or container: nothing is written", slog.String("stage", req.Stage.String()), slog.Any("err", err))
	}
	return &own, cgroup
}

// podCgroup returns the cgroup of a pod on the node, empty if there is none.
func (h *Handler) podCgroup(pod hookmsg.PodMeta) string {
	return h.cfg.Layout.FindPod(pod.UID, h.cfg.Enforcer.Applier().Exists)
}

// Refused returns the number of events that claimed a cgroup outside of the pod or the container.
func (h *Handler) Refused() uint64 { return h.refused.Load() }

// Timeout returns the time limit of an answer.
func (h *Handler) Timeout() time.Duration { return h.cfg.Timeout }

// WithTimeout returns a context that ends early enough for an answer.
func (h *Handler) WithTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	timeout := h.cfg.Timeout
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(deadline)*3/4)
	}
	return context.WithTimeout(ctx, timeout)
}

// put sets the desired state of a cgroup to r, overlaid on the resources promised at the creation,
// and enforces it.
func (h *Handler) put(ctx context.Context, req *hookmsg.Request, path string, r *hookmsg.Resources) {
	h.putDecided(ctx, req, path, r, nil)
}

// putDecided works like put, unless the facts that the plugins were asked with have changed since.
// It reports whether it put the decision. known is nil for an event, whose decision goes to the
// runtime in any case.
func (h *Handler) putDecided(ctx context.Context, req *hookmsg.Request, path string, r *hookmsg.Resources, known *facts.Facts) bool {
	if path == "" {
		return false
	}
	if req.Level == abi.LevelContainer {
		r = h.creation(req).promised.Overlay(r)
	}
	if known == nil {
		h.cfg.State.Put(target(path, req, r))
	} else if !h.facts().IfAsked(facts.Subject{PodUID: req.Pod.UID, ContainerID: req.Container.ID}, *known, func() { h.cfg.State.Put(target(path, req, r)) }) {
		return false
	}
	if report := h.cfg.Enforcer.Enforce(ctx, h.around(req, path)...); !slices.Contains(report.Gone, path) && req.Level == abi.LevelContainer {
		h.change(req, func(c *creation) { c.promised = nil })
	}
	return true
}

// target returns the target of resources for the subject of a request.
func target(path string, req *hookmsg.Request, r *hookmsg.Resources) cgroup.Target {
	return cgroup.Target{Cgroup: path, PodUID: req.Pod.UID, Level: req.Level, Resources: r}
}

// around returns a cgroup with the cgroups that bound it or that it bounds: that of the pod for a
// container, and those of the containers for an update of a pod.
func (h *Handler) around(req *hookmsg.Request, cgroup string) []string {
	switch {
	case req.Level == abi.LevelContainer && req.CgroupParent != "":
		return []string{req.CgroupParent, cgroup}
	case req.Level == abi.LevelPod && req.Stage == abi.PreUpdateContainerResources:
		return append(h.cfg.State.Pod(req.Pod.UID), cgroup)
	}
	return []string{cgroup}
}

// ended reports whether the subject of a request at the stage has ended.
func ended(stage abi.Stage) bool {
	switch stage {
	case abi.PostStopContainer, abi.PostStopPodSandbox, abi.PreRemoveRunPodSandbox:
		return true
	}
	return false
}

// forget drops the facts about a container or a pod that has ended.
func (h *Handler) forget(req *hookmsg.Request, cgroup string) {
	if req.Level == abi.LevelContainer {
		h.change(req, func(c *creation) { *c = creation{} })
		h.mu.Lock()
		if u, ok := h.unstated[req.Pod.UID][createdOf(req.Container)]; ok {
			h.cfg.State.Release(u.cgroup)
			delete(h.unstated[req.Pod.UID], createdOf(req.Container))
		}
		h.mu.Unlock()
		if req.Container.ID != "" {
			h.facts().Forget(facts.Subject{PodUID: req.Pod.UID, ContainerID: req.Container.ID})
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
	h.restate(uid)
	h.mu.Unlock()
	h.cfg.State.RemovePod(uid)
	h.cfg.Engine.Forget(uid)
}
