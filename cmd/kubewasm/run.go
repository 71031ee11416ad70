package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/json/jsonpatch"
	"github.com/kubewasm/kubewasm/internal/manifest"
	"github.com/kubewasm/kubewasm/internal/testkit/framework"
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
	try     trying
	objects *manifest.Objects
	// cluster is what an admission plugin may look up, nil for what it is asked about.
	cluster  *manifest.Cluster
	requests requests
	// matches are the requests that the module says it is for.
	matches []metadata.Rule
	fuel    fuelCounter
	out     *tabwriter.Writer
	// refusals counts what the plugin said no to, failures are what it gave no answer
	// to, and why.
	refusals int
	failures []error
}

func run(ctx context.Context, t *tool, args []string) (err error) {
	flags := t.flags("run")
	file := flags.String("f", "", "")
	config := flags.String("config", "", "")
	lookups := flags.String("objects", "", "")
	logged := flags.Bool("log", false, "")
	var grants names
	flags.Var(&grants, "grant", "")
	var sees names
	flags.Var(&sees, "see", "")
	gatekeeper := flags.Bool("gatekeeper", false, "")
	trial := &trial{out: tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)}
	trial.requests.flags(flags)
	path, err := parse(flags, args, "")
	if err != nil {
		return err
	}
	if *file == "" {
		return errors.New("run: name a file of objects with -f")
	}
	if err := trial.requests.read(flags); err != nil {
		return err
	}
	if trial.objects, err = trial.requests.objects(*file); err != nil {
		return err
	}
	if *lookups != "" {
		there, err := readObjects(*lookups)
		if err != nil {
			return err
		}
		if trial.cluster, err = manifest.NewCluster(there); err != nil {
			return fmt.Errorf("%s: %w", *lookups, err)
		}
	}
	guest, err := readConfig(*config)
	if err != nil {
		return err
	}
	wasm, err := t.module(ctx, path)
	if err != nil {
		return err
	}
	bytes, err := os.ReadFile(wasm)
	if err != nil {
		return err
	}
	trial.try = trying{module: bytes, config: guest, gatekeeper: *gatekeeper}
	for _, kind := range sees {
		gvk, err := parseKind(kind)
		if err != nil {
			return fmt.Errorf("run: -see: %w", err)
		}
		trial.try.sees = append(trial.try.sees, gvk)
	}
	r, err := examine(ctx, trial.try)
	if err != nil {
		return fmt.Errorf("run %s: %w", path, err)
	}
	if r.mask == 0 {
		return fmt.Errorf("run %s: %w", path, r.err)
	}
	if given := trial.requests.given; len(given) != 0 && r.mask.Of(abi.KindAdmission) == 0 {
		return fmt.Errorf("run %s: %s is for admission plugins, and this is one of kind %s", path, strings.Join(given, ", "), strings.Join(r.Kinds, " and "))
	}
	name := strings.TrimSuffix(filepath.Base(wasm), ".wasm")
	if r.Metadata != nil {
		name, trial.matches = cmp.Or(r.Metadata.Name, name), r.Metadata.Matches
	}
	trial.cfg = host.Config{
		Name: name, Source: host.Bytes(bytes), GuestConfig: guest, Grants: grants, Observer: &trial.fuel, Limits: host.Limits{Instances: 1},
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
		// What was printed before an error stands.
		if err := errors.Join(kind.run(ctx), trial.out.Flush()); err != nil {
			return errors.Join(trial.failure(), granting(err))
		}
	}
	switch {
	case len(trial.failures) != 0:
		return fmt.Errorf("run %s: %w", path, trial.failure())
	case trial.refusals > 0:
		return errRefused
	}
	return nil
}

// granting adds to an error of missing grants how to give them here.
func granting(err error) error {
	var flags []string
	for _, missing := range importErrors(err) {
		if flag := "-grant " + missing.Grant; missing.Grant != "" && !slices.Contains(flags, flag) {
			flags = append(flags, flag)
		}
	}
	if len(flags) == 0 {
		return err
	}
	return fmt.Errorf("%w\nrun gives what is missing by %s", err, strings.Join(flags, " "))
}

// parseKind reads a kind with its group and version, as in v1/Namespace or
// apps/v1/Deployment.
func parseKind(text string) (schema.GroupVersionKind, error) {
	i := strings.LastIndexByte(text, '/')
	gv, err := schema.ParseGroupVersion(text[:max(i, 0)])
	if i <= 0 || err != nil || text[i+1:] == "" {
		return schema.GroupVersionKind{}, fmt.Errorf("%q is no kind with its version, such as v1/Namespace or apps/v1/Deployment", text)
	}
	return gv.WithKind(text[i+1:]), nil
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
	return cost(t.fuel.take())
}

func cost(fuel int64, took time.Duration) string {
	return fmt.Sprintf("%s\t%d", took.Round(100*time.Nanosecond), fuel)
}

// schedule does for each Pod without a node what the scheduler does: PreFilter
// once, Filter for each Node, PreScore once, Score for those that are left, NormalizeScore
// once.
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
		t.schedulePod(ctx, p, cluster, pod)
	}
	return nil
}

// loadScheduler loads the plugin into a scheduler.
func (t *trial) loadScheduler(ctx context.Context, cluster *framework.Cluster) (sched.Plugin, error) {
	cfg := sched.PluginConfig{Config: t.cfg, Handle: cluster.Handle}
	if slices.Contains(cfg.Grants, sched.GrantObjects) {
		cfg.Objects = cluster.Resources
	}
	return sched.Load(ctx, t.rt, cfg)
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
	name   string
	status *fwk.Status
	score  string
	fuel   int64
	took   time.Duration
}

// pays adds what the calls since the last take took.
func (c *candidate) pays(counter *fuelCounter) {
	fuel, took := counter.take()
	c.fuel, c.took = c.fuel+fuel, c.took+took
}

func (t *trial) schedulePod(ctx context.Context, p sched.Plugin, cluster *framework.Cluster, pod *corev1.Pod) {
	podName := pod.Namespace + "/" + pod.Name
	state := framework.NewCycleState()
	infos := make([]fwk.NodeInfo, len(cluster.Nodes))
	for i, n := range cluster.Nodes {
		infos[i] = n
	}
	var only *fwk.PreFilterResult
	skip := false
	if plugin, ok := p.(fwk.PreFilterPlugin); ok && p.Functions()&abi.MaskOf(abi.PreFilter, abi.AddPod, abi.RemovePod) != 0 {
		result, status := plugin.PreFilter(ctx, state, pod, infos)
		if !t.forPod(podName, "PreFilter", status) {
			return
		}
		only, skip = result, status.IsSkip()
	}
	var candidates, passed []*candidate
	var nodes []fwk.NodeInfo
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
			t.failed(c.status.AsError(), "Filter of the Pod %s for the Node %s", podName, c.name)
		}
		if c.status.IsSuccess() {
			passed, nodes = append(passed, c), append(nodes, info)
		}
		c.pays(&t.fuel)
	}
	if scorer, ok := p.(fwk.ScorePlugin); ok && len(passed) > 0 {
		t.score(ctx, scorer, state, pod, passed, nodes)
	}
	for _, c := range candidates {
		reason := c.status.Message()
		if c.status.Code() == fwk.Error {
			reason = c.status.AsError().Error() // Where it was is told at the end.
		}
		fmt.Fprintf(t.out, "%s\t%s\t%s\t%s\t%s\t%s\n", podName, c.name, c.status.Code(), c.score, cost(c.fuel, c.took), reason)
	}
	if !slices.ContainsFunc(candidates, func(c *candidate) bool { return c.status.IsSuccess() }) {
		t.refusals++
	}
}

// forPod prints the status of an extension point that is asked once about a Pod, and
// reports whether the Pod goes on.
func (t *trial) forPod(pod, point string, status *fwk.Status) bool {
	reason := status.Message()
	if status.Code() == fwk.Error {
		reason = status.AsError().Error()
		t.failed(status.AsError(), "%s of the Pod %s", point, pod)
	} else if !status.IsSuccess() && !status.IsSkip() {
		t.refusals++
	}
	fmt.Fprintf(t.out, "%s\t(%s)\t%s\t\t%s\t%s\n", pod, point, status.Code(), t.cost(), reason)
	return status.IsSuccess() || status.IsSkip()
}

// score gives the nodes that passed their scores: PreScore once, Score for each, and
// NormalizeScore once.
func (t *trial) score(ctx context.Context, scorer fwk.ScorePlugin, state fwk.CycleState, pod *corev1.Pod, passed []*candidate, nodes []fwk.NodeInfo) {
	podName := pod.Namespace + "/" + pod.Name
	if plugin, ok := scorer.(fwk.PreScorePlugin); ok && scorer.(sched.Plugin).Functions().Has(abi.PreScore) {
		status := plugin.PreScore(ctx, state, pod, nodes)
		if !t.forPod(podName, "PreScore", status) || status.IsSkip() {
			return
		}
	}
	var scored []*candidate
	var scores fwk.NodeScoreList
	for i, c := range passed {
		score, status := scorer.Score(ctx, state, pod, nodes[i])
		if status.IsSuccess() {
			scored, scores = append(scored, c), append(scores, fwk.NodeScore{Name: c.name, Score: score})
		} else {
			c.status = status
			t.failed(status.AsError(), "Score of the Pod %s for the Node %s", podName, c.name)
		}
		c.pays(&t.fuel)
	}
	if extensions := scorer.ScoreExtensions(); extensions != nil && len(scores) > 0 {
		if status := extensions.NormalizeScore(ctx, state, pod, scores); !status.IsSuccess() {
			t.failed(status.AsError(), "NormalizeScore of the Pod %s", podName)
		}
		t.fuel.take()
	}
	for i, c := range scored {
		c.score = fmt.Sprint(scores[i].Score)
	}
}

// maxFailures is how many failures are told one by one.
const maxFailures = 20

// failed notes that the plugin gave no answer, and what it was asked, if err does not say
// so.
func (t *trial) failed(err error, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if text != "" {
		err = fmt.Errorf("%s: %w", text, err)
	}
	t.failures = append(t.failures, err)
}

// failure returns what failed, nil if nothing did.
func (t *trial) failure() error {
	if len(t.failures) == 0 {
		return nil
	}
	told, before := t.failures[:min(len(t.failures), maxFailures)], ""
	errs := make([]error, len(told))
	for i, err := range told {
		where := strings.Join(frames(err), "\n")
		if errs[i] = err; where != "" && where != before {
			errs[i] = fmt.Errorf("%w\n%s", err, where)
		}
		before = where
	}
	if more := len(t.failures) - len(told); more > 0 {
		errs = append(errs, fmt.Errorf("and %d more", more))
	}
	return &failure{errors.Join(errs...)}
}

// failure is an error that says where it was.
type failure struct{ error }

func (f *failure) Unwrap() error { return f.error }

// admit asks about the creation of each object.
func (t *trial) admit(ctx context.Context) error {
	p, err := t.try.policy(ctx, t.rt, t.cfg, t.objects, t.cluster)
	if err != nil {
		return err
	}
	engine := admission.NewEngine(p)
	defer engine.Close(context.WithoutCancel(ctx))
	t.fuel.take()
	fmt.Fprintln(t.out, "OBJECT\tVERDICT\tTIME\tFUEL\tMESSAGE")
	for i := range t.objects.All {
		request, err := t.requests.of(&t.objects.All[i])
		if err != nil {
			return err
		}
		if !covered(t.matches, request) {
			fmt.Fprintf(t.out, "%s\tnot asked\t\t\tthe module is for other requests\n", about(request))
			continue
		}
		if p.Mutates() {
			response := engine.Mutate(ctx, request)
			word := "mutated"
			if p.Dialect() != "" && len(response.Patch) == 0 {
				word = "allowed" // It may be a policy that changes nothing ever.
			}
			if !t.admitted(request, response, word) {
				continue
			}
			if len(response.Patch) != 0 {
				changed, err := jsonpatch.Apply(request.Object.Raw, response.Patch)
				if err != nil {
					return fmt.Errorf("patch %s: %w", about(request), err)
				}
				request.Object.Raw = changed
			}
		}
		if p.Validates() {
			t.admitted(request, engine.Validate(ctx, request), "allowed")
		}
	}
	return nil
}

// admitted prints the answer to a request, which is word if the plugin allows it,
// and returns whether it does.
func (t *trial) admitted(request *admissionv1.AdmissionRequest, response *admissionv1.AdmissionResponse, word string) bool {
	text := message(response)
	switch {
	case !response.Allowed && response.Result.Reason == metav1.StatusReasonInternalError:
		word = "failed"
		err := t.fuel.failed()
		if err == nil {
			err = errors.New(text)
		}
		t.failed(err, "%s of %s", request.Operation, about(request))
	case !response.Allowed:
		word = fmt.Sprintf("denied %d", response.Result.Code)
		t.refusals++
	case len(response.Patch) != 0:
		text = string(response.Patch)
	case word == "mutated":
		text = "nothing changes"
	}
	fmt.Fprintf(t.out, "%s\t%s\t%s\t%s\n", about(request), word, t.cost(), text)
	for _, warning := range response.Warnings {
		fmt.Fprintf(t.out, "\t\t\t\tWarning: %s\n", warning)
	}
	return response.Allowed
}

// covered reports whether a module that says which requests it is for is for this one.
func covered(rules []metadata.Rule, r *admissionv1.AdmissionRequest) bool {
	has := func(list []string, value string) bool {
		return slices.Contains(list, value) || slices.Contains(list, "*")
	}
	resource := r.Resource.Resource
	if r.SubResource != "" {
		resource += "/" + r.SubResource
	}
	return len(rules) == 0 || slices.ContainsFunc(rules, func(rule metadata.Rule) bool {
		return has(rule.Operations, string(r.Operation)) && has(rule.APIGroups, r.Resource.Group) && has(rule.APIVersions, r.Resource.Version) &&
			(slices.Contains(rule.Resources, resource) || slices.Contains(rule.Resources, "*/*") ||
				r.SubResource == "" && slices.Contains(rule.Resources, "*") ||
				r.SubResource != "" && (slices.Contains(rule.Resources, "*/"+r.SubResource) || slices.Contains(rule.Resources, r.Resource.Resource+"/*")))
	})
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
	engine, err := hooks.NewEngine(ctx, t.rt, hooks.Config{Plugins: []hooks.PluginConfig{{Config: t.cfg}}, Audit: func(_ context.Context, _ *hookmsg.Request, _ string, err *hooks.GrantError) {
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
			if trap := (*host.TrapError)(nil); errors.As(err, &trap) {
				t.failed(err, "")
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
		fmt.Fprintf(t.out, "\nOn a node these decisions need:\n  decisionGrants: %s\n", b)
	}
	return err
}

// decided writes a decision in one line.
func decided(d *hookmsg.Decision) string {
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
