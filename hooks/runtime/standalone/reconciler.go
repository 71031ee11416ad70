package standalone

import (
	"cmp"
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

// Config configures a Reconciler.
type Config struct {
	// Engine decides, State holds the decisions, and Enforcer, which must have that State, applies
	// them. Required.
	Engine   *hooks.Engine
	State    *cgroup.State
	Enforcer *cgroup.Enforcer
	// Discovery lists the running pods. Required.
	Discovery Discovery
	// Layout locates the cgroups.
	Layout cgroup.Layout
	// Resync is the interval at which everything is decided and compared, without any
	// event. Default 60 s.
	Resync time.Duration
	// Debounce is the time for which events are collected after a pass triggered by an event. The
	// first event triggers a pass immediately. Default 10 ms.
	Debounce time.Duration
	// Rediscover is the first interval at which Discovery is asked again about a new, unlisted
	// cgroup. It doubles up to Resync, since the kubelet's pods endpoint is some seconds late.
	// Default 50 ms.
	Rediscover time.Duration
	// Logger receives failures; nil drops them.
	Logger *slog.Logger
}

// Reconciler keeps the cgroups of a node at the decisions of the plugins.
type Reconciler struct {
	cfg Config

	// resync requests another round from the deciding goroutine.
	resync chan struct{}
	// synced carries the result of a round to the enforcing goroutine.
	synced chan outcome

	// refused counts claimed cgroups outside of their subject.
	refused atomic.Uint64
	// beat is the time at which the enforcing goroutine began its last turn, 0 before and after
	// Run. listed is the time of the last answer of Discovery. Both are in nanoseconds since epoch.
	beat, listed atomic.Int64
	// obstacle is the reason that decisions are not in force, nil if there is none.
	obstacle atomic.Pointer[error]
	// watches is the number of watched directories; unwatched is set while the kernel refuses more
	// watches.
	watches   atomic.Int64
	unwatched atomic.Bool
	// unknown is the number of cgroups about which Discovery is asked again.
	unknown atomic.Int64

	mu sync.Mutex // Held during a round of decisions.
	// limitedSwap is set once a container was found with the amount of the kubelet's LimitedSwap.
	limitedSwap bool
	// pods holds the cgroups of listed pods, by UID.
	pods map[string]string
	// looked holds the checks of cgroups without the quota in the spec of their pod.
	looked map[string]looked

	rewrittenMu sync.Mutex
	// rewritten holds the cgroups of looked whose quota was written since.
	rewritten map[string]bool
}

// looked is the number of checks of a cgroup, and the time of the last one.
type looked struct {
	times int
	last  time.Time
}

// outcome is the result of a round of discovery and decisions.
type outcome struct {
	// cgroups are the cgroups of everything that runs.
	cgroups []string
	// unlimited are the cgroups without the quota in the spec of their pod.
	unlimited []string
	// obstacle is the reason that decisions are not in force, nil if there is none.
	obstacle error
	err      error
}

// epoch is the time from which a Reconciler counts, by a monotonic clock.
var epoch = time.Now()

// facts returns the facts of the state.
func (r *Reconciler) facts() *facts.Store { return (*facts.Store)(r.cfg.State.Facts()) }

// New validates the configuration. If a plugin declares a read of fields that the Discovery lacks,
// the error names the plugin, see [hooks.Engine.Lack].
func New(cfg Config) (*Reconciler, error) {
	var errs []error
	for name, missing := range map[string]bool{"engine": cfg.Engine == nil, "state": cfg.State == nil, "enforcer": cfg.Enforcer == nil, "discovery": cfg.Discovery == nil} {
		if missing {
			errs = append(errs, fmt.Errorf("%s is missing", name))
		}
	}
	for name, d := range map[string]time.Duration{"resync": cfg.Resync, "debounce": cfg.Debounce, "rediscover": cfg.Rediscover} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("%s is %s, less than 0", name, d))
		}
	}
	if len(errs) != 0 {
		slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
		return nil, fmt.Errorf("standalone: configuration: %w", errors.Join(errs...))
	}
	if d, ok := cfg.Discovery.(Partial); ok {
		name, fields := d.Unknown()
		if err := cfg.Engine.Lack(context.Background(), "the standalone mode with "+name, fields...); err != nil {
			return nil, fmt.Errorf("standalone: %w", err)
		}
	}
	for d, v := range map[*time.Duration]time.Duration{&cfg.Resync: time.Minute, &cfg.Debounce: 10 * time.Millisecond, &cfg.Rediscover: 50 * time.Millisecond} {
		if *d == 0 {
			*d = v
		}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Logger = lograte.Logger(cfg.Logger, lograte.New(lograte.DefaultBytes)) // Pods can provoke any event repeatedly.
	return &Reconciler{cfg: cfg, resync: make(chan struct{}, 1), synced: make(chan outcome), pods: map[string]string{}, looked: map[string]looked{}, rewritten: map[string]bool{}}, nil
}

// Sync lists the running pods, asks the plugins about all of them and enforces the decisions.
// Subjects that Discovery no longer lists and that have no cgroup are removed from the state. A
// failure does not stop the rest; the errors are joined.
//
// A pod is not changed if its cgroup differs from that of the Layout for its UID. Neither is a
// container whose cgroup is outside of its pod's. A *[cgroup.ClaimError] names each.
func (r *Reconciler) Sync(ctx context.Context) (cgroup.Report, error) {
	o := r.decide(ctx)
	report := r.cfg.Enforcer.Enforce(ctx)
	return report, errors.Join(o.err, report.Err)
}

// Refused returns the number of cgroups, counted in each round, that were outside of their pod or
// container.
func (r *Reconciler) Refused() uint64 { return r.refused.Load() }

// Watches returns the number of directories that Run watches, which count against the limit of the
// user (fs.inotify.max_user_watches). all reports whether every directory is watched. If the kernel
// refuses more watches, changes in the other directories are found at the next resync.
func (r *Reconciler) Watches() (n int, all bool) {
	return int(r.watches.Load()), !r.unwatched.Load()
}

// patience is the number of Config.Resync periods by which a periodic task may be late.
const patience = 3

// Ready returns nil while the running pods are known and decisions can be in force. Otherwise the
// error gives the time since when the pods are unknown, or the obstacle found by the last round.
// They are unknown before the first round, and if Discovery has failed for three times
// Config.Resync. An obstacle is a cgroup that is not at the Layout's path, or cannot be written.
func (r *Reconciler) Ready() error { return r.ready(time.Now()) }

func (r *Reconciler) ready(now time.Time) error {
	listed := r.listed.Load()
	if listed == 0 {
		return errors.New("standalone: the running pods are unknown so far")
	}
	if ago := now.Sub(epoch) - time.Duration(listed); ago > patience*r.cfg.Resync {
		return fmt.Errorf("standalone: the running pods have been unknown for %s", ago.Round(time.Second))
	}
	if err := r.obstacle.Load(); err != nil {
		return fmt.Errorf("standalone: %w", *err)
	}
	return nil
}

// Check returns the reason that no decision would be in force: Discovery does not answer, or
// cgroups are not at the Layout's paths, or cannot be written. It asks no plugin, writes nothing,
// and does not need Run.
func (r *Reconciler) Check(ctx context.Context) error {
	err := r.cfg.Enforcer.Check(r.cfg.Layout)
	pods, errPods := r.cfg.Discovery.Pods(ctx)
	if err != nil || errPods != nil {
		return errors.Join(err, errPods)
	}
	cgroups := map[string]string{}
	for i := range pods {
		p := &pods[i]
		cgroup := cmp.Or(p.Cgroup, r.cfg.Layout.Pod(p.QOSClass, p.UID))
		if _, err := r.cfg.Layout.CheckPod(p.meta(), cgroup); err == nil {
			cgroups[p.UID] = cgroup
		}
	}
	return r.findObstacle(pods, cgroups)
}

// Healthy returns an error if Run has not checked the cgroups for three times Config.Resync: the
// kernel or the process hangs. Plugins and Discovery cannot cause that, since another goroutine
// calls them.
func (r *Reconciler) Healthy() error { return r.healthy(time.Now()) }

func (r *Reconciler) healthy(now time.Time) error {
	if beat := r.beat.Load(); beat != 0 {
		if ago := now.Sub(epoch) - time.Duration(beat); ago > patience*r.cfg.Resync {
			return fmt.Errorf("standalone: the cgroups have not been looked at for %s", ago.Round(time.Second))
		}
	}
	return nil
}

// decide asks the plugins about everything that runs and puts their decisions into the state.
func (r *Reconciler) decide(ctx context.Context) outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	var o outcome
	begun := time.Now()
	pods, err := r.cfg.Discovery.Pods(ctx)
	listed := err == nil
	errs := []error{err}
	var back []cgroup.Target // Fields that plugins no longer decide.
	// askOnce makes the request about a cgroup that an event would make. It reports false if an
	// event came while the plugins decided, which makes their decision outdated.
	owned := r.cfg.Engine.Owned()
	noted := owned&hookmsg.FieldCoreSchedGroup != 0 || r.cfg.Engine.OwnsFiles()
	askOnce := func(req *hookmsg.Request, path string, learn func(*facts.Facts)) bool {
		subject := facts.Subject{PodUID: req.Pod.UID, ContainerID: req.Container.ID}
		var known facts.Facts
		if req.Level != abi.LevelQOS {
			known = r.facts().Learn(subject, learn)
			req.Resources = known.Asked
			// An event contains all annotations or variables.
			if len(known.ContainerAnnotations) != 0 {
				req.ContainerAnnotations = known.ContainerAnnotations
			}
			if len(known.ContainerEnvs) != 0 {
				req.ContainerEnvs = known.ContainerEnvs
			}
		}
		if ctx.Err() != nil {
			return true
		}
		d, answered, err := r.cfg.Engine.DecideAnswered(ctx, req)
		if err != nil {
			errs = append(errs, err) // The earlier decision stays.
			return true
		}
		state, _ := r.cfg.State.Get(path)
		if noted && req.Level != abi.LevelQOS && !known.Noted && r.cfg.Enforcer.Applier().Exists(path) {
			known.Files, known.Earlier = r.notes(path, known.Files)
			r.facts().Learn(subject, func(f *facts.Facts) { f.Files, f.Earlier, f.Noted = known.Files, known.Earlier, true })
		}
		before := known.Earlier.Overlay(state.Resources)
		target := cgroup.Target{Cgroup: path, PodUID: req.Pod.UID, Level: req.Level, Resources: d.Resources}
		if lacks := r.cfg.Enforcer.NoteStart(target, req.Container.ID); lacks != nil {
			r.cfg.Logger.Warn("the container started without a decision", slog.String("pod", req.Pod.Namespace+"/"+req.Pod.Name),
				slog.String("container", req.Container.Name), slog.String("fields", lacks.Fields().String()))
		}
		if files := r.findFiles(known.Files, before, target); len(files) != len(known.Files) {
			r.facts().Learn(subject, func(f *facts.Facts) { f.Files = files })
		}
		if !r.facts().IfAsked(subject, known, func() { r.cfg.State.Put(target) }) {
			return false
		}
		if req.Level == abi.LevelPod {
			r.facts().Learn(subject, func(f *facts.Facts) { f.Told = f.Asked.Overlay(d.Resources) })
		}
		dropped := before.Fields() & answered.Fields() &^ d.Resources.Fields()
		files := givenFiles(&known, before, d.Resources, answered.File)
		if earlier := stillEarlier(known.Earlier, d.Resources, dropped, files); known.Earlier != nil {
			r.facts().Learn(subject, func(f *facts.Facts) { f.Earlier = earlier })
		}
		if dropped != 0 || files != nil {
			r.facts().Learn(subject, func(f *facts.Facts) { f.Files = without(f.Files, files) })
			given := undecided(req.Resources, req.Level, dropped).Overlay(protected(known.Protected, before, dropped)).Overlay(&hookmsg.Resources{Unified: files})
			back = append(back, cgroup.Target{Cgroup: path, PodUID: req.Pod.UID, Level: req.Level, Resources: given})
		}
		return true
	}
	ask := func(req *hookmsg.Request, path string, inferred, derived bool, hugepages map[string]int64, swap int64) {
		o.cgroups = append(o.cgroups, path)
		var found *hookmsg.Resources
		if derived && req.Level != abi.LevelQOS {
			found = r.find(facts.Subject{PodUID: req.Pod.UID, ContainerID: req.Container.ID}, path, req.Resources)
			req.Resources = inForce(req.Resources, found)
			if req.Resources != nil {
				if files := r.files(facts.Subject{PodUID: req.Pod.UID, ContainerID: req.Container.ID}, path, hugepages, swap); files != nil {
					req.Resources = req.Resources.Overlay(&hookmsg.Resources{Unified: files})
				}
			}
			if q := req.Resources; q != nil && q.CFSQuotaUS != nil && *q.CFSQuotaUS < 0 {
				o.unlimited = append(o.unlimited, path)
			}
		}
		protection := r.findProtection(facts.Subject{PodUID: req.Pod.UID, ContainerID: req.Container.ID}, path, owned)
		listed := req.Resources
		learn := func(f *facts.Facts) {
			f.Parent, f.Cgroup, f.Found, f.Protected = req.CgroupParent, path, found, protection
			f.List(listed, begun, inferred)
		}
		// If events keep coming, the decision on an event stands.
		for tries := 0; tries < 3 && !askOnce(req, path, learn); tries++ {
		}
	}
	for class := abi.QOSGuaranteed; class <= abi.QOSBestEffort; class++ {
		cgroup := r.cfg.Layout.QOS(class)
		ask(&hookmsg.Request{Stage: abi.Reconcile, Level: abi.LevelQOS, QOSClass: class, CgroupParent: cgroup}, cgroup, false, false, nil, 0)
	}
	// refuse reports a subject that is not changed, while others are decided on.
	refuse := func(err error) bool {
		if err != nil {
			r.refused.Add(1)
			errs = append(errs, err)
		}
		return err != nil
	}
	for i := range pods {
		p := &pods[i]
		cgroup := p.Cgroup
		if cgroup == "" {
			cgroup = r.cfg.Layout.Pod(p.QOSClass, p.UID)
		}
		class, err := r.cfg.Layout.CheckPod(p.meta(), cgroup)
		if refuse(err) {
			continue
		}
		if p.Cgroup != "" {
			p.QOSClass = class
		}
		r.pods[p.UID] = cgroup
		ask(p.request(cgroup, nil), cgroup, false, p.Derived, p.Hugepages, 0)
		for j := range p.Containers {
			c := &p.Containers[j]
			container := c.Cgroup
			if container == "" {
				container = r.cfg.Layout.Container(cgroup, c.ID)
			}
			if !refuse(r.cfg.Layout.CheckContainer(p.meta(), cgroup, c.meta(), container)) {
				ask(p.request(cgroup, c), container, c.Inferred, p.Derived, c.Hugepages, c.SwapRequest)
			}
		}
	}
	if _, err := r.giveBack(ctx, back); err != nil {
		errs = append(errs, fmt.Errorf("restore values without a decision: %w", err))
	}
	slices.Sort(o.cgroups)
	if listed {
		r.listed.Store(int64(time.Since(epoch)))
		o.obstacle = r.findObstacle(pods, r.pods)
		r.obstacle.Store(nil)
		if o.obstacle != nil {
			r.obstacle.Store(&o.obstacle)
		}
		r.forgetGone(o.cgroups)
	}
	o.err = errors.Join(append(errs, ctx.Err())...)
	return o
}

// findObstacle returns the reason that no decision can be in force, nil if some can. cgroups are
// the cgroups of the pods, by UID.
func (r *Reconciler) findObstacle(pods []Pod, cgroups map[string]string) error {
	if err := r.cfg.Enforcer.Check(r.cfg.Layout); err != nil {
		return err
	}
	running, example := 0, ""
	for i := range pods {
		cgroup, ok := cgroups[pods[i].UID]
		if !ok || len(pods[i].Containers) == 0 {
			continue
		}
		if r.cfg.Enforcer.Applier().Exists(cgroup) {
			return nil
		}
		running++
		example = cgroup
	}
	if running == 0 {
		return nil
	}
	return fmt.Errorf("none of the %d running pods has its cgroup in the layout's place, such as %s", running, example)
}

// quotaLooks is the number of rounds that check a cgroup without the quota in the spec of its pod.
const quotaLooks = 3

// looksAgain reports whether to check a cgroup without the quota in the spec of its pod: in the
// first rounds, after an event that wrote it, and once in Config.Resync. On a node without
// cpuCFSQuota no cgroup ever gets one, and each round would open all of them.
func (r *Reconciler) looksAgain(cgroup string, now time.Time) bool {
	r.rewrittenMu.Lock()
	again := r.rewritten[cgroup]
	delete(r.rewritten, cgroup)
	r.rewrittenMu.Unlock()
	l := r.looked[cgroup]
	if !again && l.times >= quotaLooks && now.Sub(l.last) < r.cfg.Resync {
		return false
	}
	r.looked[cgroup] = looked{times: l.times + 1, last: now}
	return true
}

// find returns the quota and the period of a cgroup before any of them was decided. It checks the
// cgroup once, and again while a quota that the kubelet should request is missing: a new cgroup has
// none yet.
func (r *Reconciler) find(of facts.Subject, cgroup string, asked *hookmsg.Resources) *hookmsg.Resources {
	before := r.facts().Get(of).Found
	if before != nil && (asked == nil || asked.CFSQuotaUS == nil || *before.CFSQuotaUS >= 0) {
		return before
	}
	if decided, _ := r.cfg.State.Get(cgroup); decided.Resources.Fields()&limitFields != 0 {
		return before
	}
	if before != nil && !r.looksAgain(cgroup, time.Now()) {
		return before
	}
	if found := r.cfg.Enforcer.Applier().Limits(cgroup); found.CFSQuotaUS != nil && found.CFSPeriodUS != nil {
		return found
	}
	return before
}

// findProtection returns the protected amounts of memory of a cgroup before any of them was
// decided, if plugins own them. It checks the cgroup once.
func (r *Reconciler) findProtection(of facts.Subject, cgroup string, owned hookmsg.Fields) *hookmsg.Resources {
	before := r.facts().Get(of).Protected
	if before != nil || owned&protectionFields == 0 || of.PodUID == "" || !r.cfg.Enforcer.Applier().Exists(cgroup) {
		return before
	}
	if decided, _ := r.cfg.State.Get(cgroup); decided.Resources.Fields()&protectionFields != 0 {
		return before
	}
	return r.cfg.Enforcer.Applier().Protection(cgroup)
}

// forgetGone drops the state of pods and containers that have ended. listed are the sorted cgroups
// of everything that runs. An unlisted cgroup that exists may belong to a container that a proxy
// has just decided on.
func (r *Reconciler) forgetGone(listed []string) {
	runs := func(cgroup string) bool {
		_, ok := slices.BinarySearch(listed, cgroup)
		return ok
	}
	gone := r.cfg.Enforcer.Prune(runs)
	maps.DeleteFunc(r.looked, func(cgroup string, _ looked) bool { return !runs(cgroup) })
	r.rewrittenMu.Lock()
	maps.DeleteFunc(r.rewritten, func(cgroup string, _ bool) bool { return !runs(cgroup) })
	r.rewrittenMu.Unlock()
	for uid, cgroup := range r.pods {
		if !runs(cgroup) && !r.cfg.Enforcer.Applier().Exists(cgroup) {
			gone = append(gone, uid)
			delete(r.pods, uid)
		}
	}
	for _, uid := range gone {
		r.cfg.Engine.Forget(uid)
	}
}

// Run reconciles until ctx ends, and returns the error of ctx. It may be called only once.
//
// Plugins are asked on a separate goroutine, so that a hanging plugin does not stop the enforcement
// of earlier decisions.
func (r *Reconciler) Run(ctx context.Context) error {
	l := &loop{
		Reconciler: r, watcher: newWatcher(r.cfg.Enforcer.Applier().Hierarchies()),
		classes: map[string]bool{}, dirty: map[string]bool{}, unknown: map[string]time.Time{}, sandboxes: map[string]bool{}, rediscover: r.cfg.Rediscover,
		// A start reads the list once, and its events once more: all that runs is listed.
		pace: pace{tokens: 2},
	}
	for class := abi.QOSGuaranteed; class <= abi.QOSBestEffort; class++ {
		l.classes[r.cfg.Layout.QOS(class)] = true
	}
	defer l.watcher.close()
	var decider sync.WaitGroup
	defer decider.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	decider.Go(func() {
		changed := r.cfg.Engine.Changed()
		for {
			select {
			case <-ctx.Done():
				return
			case <-r.resync:
			case <-changed:
			}
			changed = r.cfg.Engine.Changed() // A change during the round triggers another.
			o := r.decide(ctx)
			select {
			case <-ctx.Done():
				return
			case r.synced <- o:
			}
		}
	})
	l.ctx = ctx
	l.run()
	return context.Cause(ctx)
}

// demand requests a round of decisions. Calls before it begins share the round.
func (r *Reconciler) demand() {
	select {
	case r.resync <- struct{}{}:
	default:
	}
}
