//go:build !wasip1

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/codec/hookpb"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/framework"
	"github.com/kubewasm/kubewasm/internal/json/jsonpatch"
	"github.com/kubewasm/kubewasm/internal/manifest"
	"github.com/kubewasm/kubewasm/sched"
)

// names are the values of a flag that may be given several times.
type names []string

func (n *names) String() string { return strings.Join(*n, ",") }

func (n *names) Set(s string) error {
	*n = append(*n, s)
	return nil
}

// trial is a run of a plugin on objects.
type trial struct {
	rt      *host.Runtime
	cfg     host.Config
	objects *manifest.Objects
	fuel    fuelCounter
	out     *tabwriter.Writer
	// refusals counts what the plugin said no to.
	refusals int
}

func run(ctx context.Context, t *tool, args []string) (err error) {
	flags := t.flags("run")
	file := flags.String("f", "", "`FILE` of Kubernetes objects, YAML or JSON; - is standard input")
	config := flags.String("config", "", "`FILE` with the plugin's configuration, YAML or JSON")
	logged := flags.Bool("log", false, "print what the plugin logs")
	var grants names
	flags.Var(&grants, "grant", "`NAME` of something that the plugin may ask the host for; may be repeated")
	path, err := parse(flags, args, "")
	if err != nil {
		return err
	}
	if *file == "" {
		return errors.New("run: name a file of objects with -f")
	}
	objects, err := readObjects(*file)
	if err != nil {
		return err
	}
	guest, err := readConfig(*config)
	if err != nil {
		return err
	}
	wasm, err := module(ctx, path)
	if err != nil {
		return err
	}
	bytes, err := os.ReadFile(wasm)
	if err != nil {
		return err
	}
	r, err := examine(ctx, bytes, guest)
	if err != nil {
		return fmt.Errorf("run %s: %w", path, err)
	}
	if r.mask == 0 {
		return fmt.Errorf("run %s: %w", path, r.err)
	}
	name := pluginName
	if r.Metadata != nil && r.Metadata.Name != "" {
		name = r.Metadata.Name
	}
	trial := &trial{objects: objects, out: tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)}
	trial.cfg = host.Config{
		Name: name, Source: host.Bytes(bytes), Guest: guest, Grants: grants, Observer: &trial.fuel, Limits: host.Limits{Instances: 1},
	}
	if *logged {
		trial.cfg.Logger = slog.New(slog.NewTextHandler(t.err, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	if trial.rt, err = newRuntime(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, trial.rt.Close(context.WithoutCancel(ctx))) }()
	for _, kind := range []struct {
		kind abi.Kind
		run  func(context.Context) error
	}{{abi.KindScheduler, trial.schedule}, {abi.KindAdmission, trial.admit}, {abi.KindHook, trial.hook}} {
		if r.mask.Of(kind.kind) == 0 {
			continue
		}
		if err := kind.run(ctx); err != nil {
			return err
		}
		if err := trial.out.Flush(); err != nil {
			return err
		}
	}
	if trial.refusals > 0 {
		return errRefused
	}
	return nil
}

func readObjects(file string) (*manifest.Objects, error) {
	var data []byte
	var err error
	if file == "-" {
		data, err = io.ReadAll(os.Stdin)
	} else {
		data, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, err
	}
	objects, err := manifest.Read(data)
	if err == nil {
		err = objects.Named()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return objects, nil
}

// cost returns what the calls since the last cost took.
func (t *trial) cost() string {
	fuel, took := t.fuel.take()
	return fmt.Sprintf("%s\t%d", took.Round(100*time.Nanosecond), fuel)
}

// schedule does for each Pod without a node what the scheduler does: PreFilter
// once, Filter for each Node, Score for those that are left, NormalizeScore once.
func (t *trial) schedule(ctx context.Context) error {
	pods := slices.DeleteFunc(slices.Clone(t.objects.Pods), func(pod *corev1.Pod) bool { return pod.Spec.NodeName != "" })
	if len(pods) == 0 || len(t.objects.Nodes) == 0 {
		return fmt.Errorf("a scheduler plugin needs Pods without a spec.nodeName and Nodes, and there are %d and %d", len(pods), len(t.objects.Nodes))
	}
	cluster, err := framework.NewCluster(t.objects)
	if err != nil {
		return err
	}
	cluster.Recorder = recorder{t}
	p, err := t.loadScheduler(ctx, cluster)
	if err != nil {
		return err
	}
	defer p.Close(context.WithoutCancel(ctx))
	t.fuel.take()
	fmt.Fprintln(t.out, "POD\tNODE\tVERDICT\tSCORE\tTIME\tFUEL\tREASON")
	for _, pod := range pods {
		if err := t.schedulePod(ctx, p, cluster, pod); err != nil {
			return err
		}
	}
	return nil
}

// loadScheduler loads the plugin into a scheduler.
func (t *trial) loadScheduler(ctx context.Context, cluster *framework.Cluster) (sched.Plugin, error) {
	args := sched.Args{Config: t.cfg.Guest, Grants: t.cfg.Grants, Instances: t.cfg.Limits.Instances}
	if slices.Contains(args.Grants, sched.GrantObjects) {
		args.Objects = cluster.Resources
	}
	raw, err := json.Marshal(&args)
	if err != nil {
		return nil, err
	}
	factory := sched.New(t.cfg.Name, t.rt, sched.WithSource(t.cfg.Source), sched.WithObserver(t.cfg.Observer), sched.WithLogger(t.cfg.Logger))
	p, err := factory(ctx, &runtime.Unknown{Raw: raw}, cluster.Handle)
	if err != nil {
		return nil, err
	}
	return p.(sched.Plugin), nil
}

// recorder prints the events that the plugin reports.
type recorder struct{ *trial }

func (r recorder) WithLogger(klog.Logger) events.EventRecorderLogger { return r }

func (r recorder) Eventf(regarding, _ runtime.Object, eventType, reason, _, note string, args ...any) {
	about := ""
	if m, err := meta.Accessor(regarding); err == nil {
		about = m.GetNamespace() + "/" + m.GetName()
	}
	fmt.Fprintf(r.out, "%s\t(event)\t%s\t\t\t\t%s: %s\n", about, eventType, reason, fmt.Sprintf(note, args...))
}

// candidate is a Node for a Pod.
type candidate struct {
	name, cost string
	status     *fwk.Status
	score      string
}

func (t *trial) schedulePod(ctx context.Context, p sched.Plugin, cluster *framework.Cluster, pod *corev1.Pod) error {
	podName := pod.Namespace + "/" + pod.Name
	state := framework.NewCycleState()
	infos := make([]fwk.NodeInfo, len(cluster.Nodes))
	for i, n := range cluster.Nodes {
		infos[i] = n
	}
	var only *fwk.PreFilterResult
	skip := false
	if plugin, ok := p.(fwk.PreFilterPlugin); ok {
		result, status := plugin.PreFilter(ctx, state, pod, infos)
		fmt.Fprintf(t.out, "%s\t(PreFilter)\t%s\t\t%s\t%s\n", podName, status.Code(), t.cost(), status.Message())
		switch {
		case status.IsSkip():
			skip = true
		case status.Code() == fwk.Error:
			return status.AsError()
		case !status.IsSuccess():
			t.refusals++
			return nil
		}
		only = result
	}
	var candidates []*candidate
	var passed []*candidate
	var scores fwk.NodeScoreList
	for _, info := range infos {
		c := &candidate{name: info.Node().Name}
		candidates = append(candidates, c)
		filter, ok := p.(fwk.FilterPlugin)
		switch {
		case !only.AllNodes() && !only.NodeNames.Has(c.name):
			c.status = fwk.NewStatus(fwk.Unschedulable, "PreFilter left it out")
		case ok && !skip:
			c.status = filter.Filter(ctx, state, pod, info)
		}
		if c.status.Code() == fwk.Error {
			return c.status.AsError()
		}
		if scorer, ok := p.(fwk.ScorePlugin); ok && c.status.IsSuccess() {
			score, status := scorer.Score(ctx, state, pod, info)
			if !status.IsSuccess() {
				return fmt.Errorf("score Node %s: %w", c.name, status.AsError())
			}
			passed, scores = append(passed, c), append(scores, fwk.NodeScore{Name: c.name, Score: score})
		}
		c.cost = t.cost()
	}
	if scorer, ok := p.(fwk.ScorePlugin); ok && scorer.ScoreExtensions() != nil && len(scores) > 0 {
		if status := scorer.ScoreExtensions().NormalizeScore(ctx, state, pod, scores); !status.IsSuccess() {
			return fmt.Errorf("normalize scores: %w", status.AsError())
		}
		t.fuel.take()
	}
	for i, c := range passed {
		c.score = fmt.Sprint(scores[i].Score)
	}
	fits := false
	for _, c := range candidates {
		fits = fits || c.status.IsSuccess()
		fmt.Fprintf(t.out, "%s\t%s\t%s\t%s\t%s\t%s\n", podName, c.name, c.status.Code(), c.score, c.cost, c.status.Message())
	}
	if !fits {
		t.refusals++
	}
	return nil
}

// admit asks about the creation of each object.
func (t *trial) admit(ctx context.Context) error {
	p, err := admission.Load(ctx, t.rt, admission.PluginConfig{Module: t.cfg, AllowedToMutate: true})
	if err != nil {
		return err
	}
	engine := admission.NewEngine(p)
	defer engine.Close(context.WithoutCancel(ctx))
	t.fuel.take()
	fmt.Fprintln(t.out, "OBJECT\tVERDICT\tTIME\tFUEL\tMESSAGE")
	for i := range t.objects.All {
		object, request := &t.objects.All[i], t.objects.All[i].Admission()
		if p.Mutates() {
			response := engine.Mutate(ctx, request)
			if !t.admitted(object, response, "mutated") {
				continue
			}
			if len(response.Patch) != 0 {
				changed, err := jsonpatch.Apply(request.Object.Raw, response.Patch)
				if err != nil {
					return fmt.Errorf("patch %s: %w", describe(object), err)
				}
				request.Object.Raw = changed
			}
		}
		if p.Validates() {
			t.admitted(object, engine.Validate(ctx, request), "allowed")
		}
	}
	return nil
}

// admitted prints the answer to a request, which is word if the plugin allows it,
// and returns whether it does.
func (t *trial) admitted(object *manifest.Object, response *admissionv1.AdmissionResponse, word string) bool {
	text := message(response)
	switch {
	case !response.Allowed:
		word = fmt.Sprintf("denied %d", response.Result.Code)
		t.refusals++
	case len(response.Patch) != 0:
		text = string(response.Patch)
	case word == "mutated":
		text = "nothing changes"
	}
	fmt.Fprintf(t.out, "%s\t%s\t%s\t%s\n", describe(object), word, t.cost(), text)
	for _, warning := range response.Warnings {
		fmt.Fprintf(t.out, "\t\t\t\tWarning: %s\n", warning)
	}
	return response.Allowed
}

func describe(o *manifest.Object) string {
	if o.Namespace == "" {
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

func message(response *admissionv1.AdmissionResponse) string {
	if response.Result == nil {
		return ""
	}
	return response.Result.Message
}

// hook asks about each Pod that starts and about its containers.
func (t *trial) hook(ctx context.Context) error {
	if len(t.objects.Pods) == 0 {
		return errors.New("a hook needs Pods, and there are none")
	}
	// Nothing comes of the decisions, so they are shown, with what they would need.
	var needs hooks.Grants
	var never []*hooks.GrantError
	engine, err := hooks.NewEngine(ctx, t.rt, hooks.Config{Plugins: []hooks.PluginConfig{{Module: t.cfg}}, Audit: func(_ context.Context, _ *hookpb.Request, _ string, err *hooks.GrantError) {
		if err.Grants == nil {
			never = append(never, err)
			return
		}
		needs.Add(err.Grants)
	}})
	if err != nil {
		return err
	}
	defer engine.Close(context.WithoutCancel(ctx))
	t.fuel.take()
	fmt.Fprintln(t.out, "ABOUT\tVERDICT\tTIME\tFUEL\tDECISION")
	for _, pod := range t.objects.Pods {
		for _, request := range manifest.HookRequests(pod) {
			about := "Pod " + pod.Namespace + "/" + pod.Name
			if request.Container.Name != "" {
				about += " container " + request.Container.Name
			}
			never = nil
			decision, err := engine.Decide(ctx, request)
			for _, refused := range never {
				err = errors.Join(err, refused)
			}
			if err != nil {
				t.refusals++
				fmt.Fprintf(t.out, "%s\tfailed\t%s\t%v\n", about, t.cost(), err)
				continue
			}
			fmt.Fprintf(t.out, "%s\tdecided\t%s\t%s\n", about, t.cost(), decided(decision))
		}
	}
	b, err := json.Marshal(needs)
	if err == nil && string(b) != "{}" {
		fmt.Fprintf(t.out, "\nOn a node these decisions need:\n  grants: %s\n", b)
	}
	return err
}

// decided writes a decision in one line.
func decided(d *hookpb.Decision) string {
	var parts []string
	number := func(name string, n *int64) {
		if n != nil {
			parts = append(parts, fmt.Sprintf("%s=%d", name, *n))
		}
	}
	text := func(name string, s *string) {
		if s != nil {
			parts = append(parts, fmt.Sprintf("%s=%q", name, *s))
		}
	}
	if r := d.Resources; r != nil {
		number("cpu_shares", r.CPUShares)
		number("cfs_quota_us", r.CFSQuotaUS)
		number("cfs_period_us", r.CFSPeriodUS)
		text("cpuset_cpus", r.CPUSetCPUs)
		text("cpuset_mems", r.CPUSetMems)
		number("cpu_bvt", r.CPUBvt)
		number("cpu_idle", r.CPUIdle)
		number("cpu_burst_us", r.CPUBurstUS)
		number("memory_limit_bytes", r.MemoryLimitBytes)
		number("memory_min_bytes", r.MemoryMinBytes)
		number("memory_low_bytes", r.MemoryLowBytes)
		number("memory_high_bytes", r.MemoryHighBytes)
		number("oom_score_adj", r.OOMScoreAdj)
		if len(r.Unified) != 0 {
			parts = append(parts, fmt.Sprint("unified=", r.Unified))
		}
		number("net_cls_classid", r.NetClsClassID)
		text("core_sched_group", r.CoreSchedGroup)
		text("resctrl_group", r.ResctrlGroup)
		text("resctrl_schemata", r.ResctrlSchemata)
	}
	if len(d.ContainerAnnotations) != 0 {
		parts = append(parts, fmt.Sprint("annotations=", d.ContainerAnnotations))
	}
	if len(d.ContainerEnvs) != 0 {
		parts = append(parts, fmt.Sprint("envs=", d.ContainerEnvs))
	}
	for _, m := range d.ContainerMounts {
		parts = append(parts, fmt.Sprintf("mount=%s:%s:%s(%s)", m.Type, m.Source, m.Destination, strings.Join(m.Options, ",")))
	}
	for _, v := range d.ContainerDevices {
		parts = append(parts, fmt.Sprintf("device=%s(%s %d:%d)", v.Path, v.Type, v.Major, v.Minor))
	}
	if len(parts) == 0 {
		return "nothing changes"
	}
	return strings.Join(parts, " ")
}
