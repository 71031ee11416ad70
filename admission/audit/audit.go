package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/rest"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/json"
	"github.com/kubewasm/kubewasm/internal/loading"
)

// Auditor audits existing objects by the policies of an engine. It is safe for use by several
// goroutines; runs are serialized.
type Auditor struct {
	cfg    Config
	client *client

	running sync.Mutex
	state   *state
	journal *journal
	runs    uint32
}

// ErrState is the error of [New] if Config.StateFile cannot be used. A run without a state asks
// about every object.
var ErrState = errors.New("the state of audits is unusable")

// Config configures an Auditor.
type Config struct {
	// Engine holds the policies. Required.
	Engine *admission.Engine
	// Client connects to the cluster, for [Auditor.Run]; Run fails if it is nil. A RateLimiter in
	// it replaces QPS and Burst.
	Client *rest.Config
	// QPS and Burst limit the requests to the API server: per second, and at once. The defaults are
	// 10 and 20. Lists are read one at a time.
	QPS   float32
	Burst int
	// Parallel is the number of objects that are reviewed at the same time. The default is
	// GOMAXPROCS. Limits.Instances of a plugin bounds the calls of that plugin.
	Parallel int
	// User is the user of the requests, since the creator of an object is no longer known. The
	// default has the name [DefaultUser] and the group system:authenticated.
	User authenticationv1.UserInfo
	// SkipNamespaces names namespaces that are not audited, neither the namespace itself nor its
	// objects. These are the namespaces excluded by a webhook configuration, such as kube-system.
	SkipNamespaces []string
	// Namespaces receives the labels listed by each run. It is nil if no policy needs labels.
	Namespaces *Namespaces
	// StateFile is the file that keeps the findings of a run for the next one, also across
	// processes. If it is empty, they stay in memory. Only one process may have it open at a time.
	StateFile string
	// Logger receives errors of resources and policies; nil drops them.
	Logger *slog.Logger
}

// DefaultUser is the name of the user in the requests of audits.
const DefaultUser = "kubewasm:audit"

const (
	defaultQPS   = 10
	defaultBurst = 20
)

// New returns an Auditor, with the state in its file. The error joins all mistakes in cfg.
func New(cfg Config) (*Auditor, error) {
	var errs []error
	if cfg.Engine == nil {
		errs = append(errs, errors.New("engine is missing"))
	}
	if cfg.QPS < 0 || cfg.Burst < 0 || cfg.Parallel < 0 {
		errs = append(errs, fmt.Errorf("qps %v, burst %d or parallel %d is below 0", cfg.QPS, cfg.Burst, cfg.Parallel))
	}
	for _, name := range cfg.SkipNamespaces {
		if problems := validation.ValidateNamespaceName(name, false); len(problems) != 0 {
			errs = append(errs, fmt.Errorf("skipped namespace %.80q: %s", name, problems[0]))
		}
	}
	cfg.QPS, cfg.Burst = cmp.Or(cfg.QPS, defaultQPS), cmp.Or(cfg.Burst, defaultBurst)
	cfg.Parallel = cmp.Or(cfg.Parallel, runtime.GOMAXPROCS(0))
	if cfg.User.Username == "" {
		cfg.User = authenticationv1.UserInfo{Username: DefaultUser, Groups: []string{"system:authenticated"}}
	}
	a := &Auditor{cfg: cfg, state: newState()}
	if cfg.Client != nil {
		var err error
		if a.client, err = newClient(cfg.Client, cfg.QPS, cfg.Burst); err != nil {
			errs = append(errs, err)
		}
	}
	if cfg.StateFile != "" && len(errs) == 0 {
		s, j, lost, err := openState(cfg.StateFile)
		if err != nil {
			errs = append(errs, fmt.Errorf("%w: %w", ErrState, err))
		} else if a.state, a.journal = s, j; lost > 0 {
			a.log(slog.LevelWarn, "the end of the last audit's state is lost", "file", cfg.StateFile, "bytes", lost)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("audit: configuration: %w", err)
	}
	return a, nil
}

// Close closes the state file. It waits for a run to end.
func (a *Auditor) Close() error {
	a.running.Lock()
	defer a.running.Unlock()
	err := a.journal.close()
	a.journal = nil
	return err
}

func (a *Auditor) log(level slog.Level, msg string, args ...any) {
	if a.cfg.Logger != nil {
		a.cfg.Logger.Log(context.Background(), level, msg, args...)
	}
}

// asked is a policy in a run.
type asked struct {
	admission.Description
	policy admission.Policy
	// version is the version of its results, and id its number in the state.
	version string
	id      uint32
	// skipped is the reason to ask the policy about nothing, and failure the reason that it cannot
	// be asked.
	skipped, failure error

	// calls, answers and failures count the objects in its calls, those with a verdict, and those
	// without.
	calls, answers, failures atomic.Int64
	// last is the last failure.
	last atomic.Pointer[error]
	// left is the number of kinds of objects about which it is no longer asked.
	left atomic.Int64
}

const (
	// givenUp is the number of failures, without a verdict before them, after which a run stops
	// asking a policy about a kind of objects. It would fail on each of them, and each may take as
	// long as its timeout.
	givenUp = 20
	// givenUpAgain replaces givenUp for a policy that was given up for another kind.
	givenUpAgain = 3
)

// tries counts the calls of a policy on the objects of a target, by result.
type tries struct {
	calls, answers, failures atomic.Int64
	left                     atomic.Bool
}

// out reports whether a policy is no longer asked about the objects of a target.
func (t *target) out(p *asked) bool {
	of, limit := t.tries[p], int64(givenUp)
	if of.left.Load() {
		return true
	}
	if p.left.Load() > 0 {
		limit = givenUpAgain
	}
	if of.failures.Load() < limit || of.answers.Load() != 0 {
		return false
	}
	if of.left.CompareAndSwap(false, true) {
		p.left.Add(1)
	}
	return true
}

// run is a run of an Auditor.
type run struct {
	*Auditor
	number   uint32
	state    *state
	policies []*asked
	start    time.Time
	// namespaces are the namespaces of the cluster, and relabelled the names of those whose labels
	// changed since the last run. Both are nil if no policy selects namespaces.
	namespaces map[string]namespace
	relabelled map[string]bool

	objects, reused, calls atomic.Int64
	// items are reused for each page.
	items []item
}

// findingsVersion changes whenever findings of earlier runs may repeat something they should not.
// The findings before this version repeated confidential values.
const findingsVersion = "2"

// begin returns a run, and a function that ends it.
func (a *Auditor) begin(s *state, rulesRequired bool) (*run, func()) {
	policies, release := a.cfg.Engine.Hold()
	a.runs++
	r := &run{Auditor: a, number: a.runs, state: s, start: time.Now()}
	for _, policy := range policies {
		p := &asked{Description: admission.Describe(policy), policy: policy}
		p.version = digestOf(p.Version, a.cfg.User.Username, a.cfg.User.UID, fmt.Sprint(a.cfg.User.Groups, a.cfg.User.Extra), findingsVersion)
		if p.Unavailable != nil {
			p.failure = p.Unavailable
		} else if p.skipped = p.auditable(rulesRequired); p.skipped == nil {
			k := policyKey{p.Name, p.version}
			id, isNew := s.id(k)
			if p.id = id; isNew {
				a.journal.policy(k)
			}
		}
		r.policies = append(r.policies, p)
	}
	return r, release
}

// Run audits the cluster and returns the result for all of its objects. Findings come from this
// run, and from earlier runs for objects and policies that have not changed. The error is non-nil
// if there is no result at all, or if the state could not be kept; errors of a resource or a policy
// are in the result. When ctx ends, the run ends with its error, and the next run continues.
func (a *Auditor) Run(ctx context.Context) (*Result, error) {
	if a.client == nil {
		return nil, errors.New("audit: no cluster is configured")
	}
	a.running.Lock()
	defer a.running.Unlock()
	r, release := a.begin(a.state, true)
	defer release()
	before := a.client.requests.Load()
	resources, status, partial := a.client.discover()
	if resources == nil {
		return nil, fmt.Errorf("audit: %w", partial)
	}
	if err := r.listNamespaces(ctx); err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	all := targets(resources, status, r.policies)
	result := &Result{Start: r.start}
	if partial != nil {
		result.Errors = append(result.Errors, partial.Error())
	}
	for _, t := range r.changes(ctx, all) {
		if ctx.Err() != nil {
			break
		}
		if err := r.list(ctx, t); err != nil {
			a.log(slog.LevelError, "audit a resource", "resource", t.name(), "err", err)
			result.Errors = append(result.Errors, fmt.Sprintf("%s: %v", t.name(), err))
		}
	}
	r.keepNamespaces(len(result.Errors) == 0 && ctx.Err() == nil)
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("audit: %w", errors.Join(err, a.journal.sync()))
	}
	if partial == nil {
		r.forget(all)
	}
	err := a.journal.sync()
	if err == nil {
		err = a.journal.compact(a.state)
	}
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	r.fill(result, all)
	result.Requests = int(a.client.requests.Load() - before)
	result.Duration.Duration = time.Since(r.start)
	return result, nil
}

// Object is an object that is not in a cluster, such as one of a file.
type Object struct {
	Resource schema.GroupVersionResource
	Kind     string
	// Namespaced reports whether objects of the kind are in namespaces.
	Namespaced bool
	// Namespace is the namespace of a namespaced object whose metadata has none.
	Namespace string
	// JSON is the object. Policies see it with its status, and without the metadata that only an
	// API server writes.
	JSON []byte
}

// Review audits objects that are not in a cluster. A policy without rules is asked about all of
// them. No result is kept. An error yielded by objects ends the review.
func (a *Auditor) Review(ctx context.Context, objects iter.Seq2[Object, error]) (*Result, error) {
	a.running.Lock()
	defer a.running.Unlock()
	j := a.journal
	a.journal = nil // It is for the cluster.
	defer func() { a.journal = j }()
	r, release := a.begin(newState(), false)
	defer release()
	byResource := map[schema.GroupVersionResource]*target{}
	var all []*target
	matched := map[*asked]bool{}
	for o, err := range objects {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil && !json.Valid(o.JSON) {
			err = fmt.Errorf("an object of kind %s is not JSON", o.Kind)
		}
		if err != nil {
			return nil, fmt.Errorf("audit: %w", err)
		}
		t := byResource[o.Resource]
		if t == nil {
			t = &target{resource: o.Resource, kind: o.Kind, namespaced: o.Namespaced}
			for _, p := range r.policies {
				if p.skipped != nil || p.failure != nil {
					continue
				}
				if matches, err := p.Matches("CREATE", o.Resource, o.Namespaced); matches {
					matched[p] = true
					t.add(p, err)
				}
			}
			byResource[o.Resource] = t
			all = append(all, t)
		}
		r.add(t, o.JSON)
		for i := range r.items {
			if r.items[i].namespace == "" && o.Namespaced {
				r.items[i].namespace, r.items[i].key.namespace = o.Namespace, o.Namespace
			}
			// Objects of a file may have no name, or equal names.
			for n, k := 2, r.items[i].key; r.state.resource(o.Resource).objects[r.items[i].key] != nil; n++ {
				r.items[i].key.name = fmt.Sprintf("%s #%d", k.name, n)
			}
		}
		r.review(ctx, t)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	var names []string
	for r := range byResource {
		names = append(names, r.Resource)
	}
	slices.Sort(names)
	for _, p := range r.policies {
		if p.skipped == nil && p.failure == nil && !matched[p] {
			hint := p.mistaken(names)
			if p.skipped = errNoObject; hint != "" || len(matched) == 0 {
				p.skipped = &unmatchedError{errNoObject.Error(), hint}
			}
		}
	}
	result := &Result{Start: r.start}
	r.fill(result, all)
	result.Duration.Duration = time.Since(r.start)
	return result, nil
}

// maxPageObjects, minPageObjects and pageBytes bound a page of a list. A page has at most
// maxPageObjects objects. It has fewer, but at least minPageObjects, if objects as long as the
// previous ones would exceed pageBytes.
const (
	maxPageObjects = 500
	minPageObjects = 10
	pageBytes      = 4 << 20
)

// list audits all objects of a resource, page by page.
func (r *run) list(ctx context.Context, t *target) error {
	k := r.state.resource(t.resource)
	path := pathOf(t.resource, "")
	position, next, limit := "", "", 100
	for restarts := 0; ; {
		p, err := r.client.list(ctx, path, "", "", limit, next)
		if expired(err) && next != "" && restarts < 3 {
			// The list took longer than the API server keeps versions. It continues with the
			// current objects, or restarts.
			next = goOn(err)
			restarts++
			continue
		}
		if err != nil {
			return fmt.Errorf("list: %w", err)
		}
		if position == "" {
			// The next run asks for the changes after this version.
			position = p.version
		}
		for _, item := range p.items {
			r.add(t, item)
		}
		r.review(ctx, t)
		if err := ctx.Err(); err != nil {
			return err
		}
		if n := len(p.items); n != 0 {
			limit = min(max(pageBytes*n/p.bytes, minPageObjects), maxPageObjects)
		}
		if next = p.next; next == "" {
			break
		}
	}
	for key, o := range k.objects {
		if o.run != r.number {
			k.remove(key)
			r.journal.gone(t.resource, key)
		}
	}
	k.position, k.plan = position, r.plan(t)
	if !r.complete(t) {
		k.position = "" // Some objects are still unasked.
	}
	r.journal.position(t.resource, k)
	return r.journal.sync()
}

func (r *run) plan(t *target) string { return t.plan(r.cfg.SkipNamespaces) }

// complete reports whether all policies were asked about all objects of a resource that the run has
// read.
func (r *run) complete(t *target) bool {
	return !slices.ContainsFunc(t.policies, func(p *asked) bool { return p.failure != nil || t.out(p) || t.unasked(p) })
}

// unasked reports whether a policy was out of service for some objects.
func (t *target) unasked(p *asked) bool {
	of := t.tries[p]
	return of.calls.Load() != of.answers.Load()+of.failures.Load()
}

// item is an object of a page with the answers of policies.
type item struct {
	object
	// key is the key of its record.
	key     objectKey
	answers []answer
}

// answer is the answer of a policy about an object.
type answer struct {
	kind answerKind
	finding
}

type answerKind uint8

const (
	passes     answerKind = iota
	unmatched             // The rules do not match.
	passesOnce            // It is to be asked again.
	finds
	unasked
	already // The result is in the record.
)

// add adds an object to the page.
func (r *run) add(t *target, raw json.Value) {
	if len(r.items) < cap(r.items) {
		r.items = r.items[:len(r.items)+1]
	} else {
		r.items = append(r.items, item{})
	}
	o := &r.items[len(r.items)-1]
	o.read(raw, t.gvk(), t.dropStatus)
	o.key = objectKey{o.namespace, o.name}
	if r.skips(t, &o.object) {
		r.items = r.items[:len(r.items)-1]
	}
}

func (r *run) skips(t *target, o *object) bool {
	namespace := o.namespace
	if t.resource.Group == "" && t.resource.Resource == "namespaces" {
		namespace = o.name
	}
	return namespace != "" && slices.Contains(r.cfg.SkipNamespaces, namespace)
}

// review asks the policies about the objects of the page, several at a time, records their answers,
// and empties the page.
func (r *run) review(ctx context.Context, t *target) {
	k := r.state.resource(t.resource)
	var at atomic.Int64
	work := func() {
		for {
			i := int(at.Add(1)) - 1
			if i >= len(r.items) || ctx.Err() != nil {
				return
			}
			o := &r.items[i]
			r.ask(ctx, t, k.objects[o.key], o)
		}
	}
	var wg sync.WaitGroup
	for range min(r.cfg.Parallel, len(r.items)) - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
	if ctx.Err() == nil {
		for i := range r.items {
			r.note(t, k, &r.items[i])
		}
		r.journal.flush()
	}
	r.items = r.items[:0]
}

// ask asks the policies about an object without a known result. of holds the known results; it may
// be nil, and is not changed.
func (r *run) ask(ctx context.Context, t *target, of *record, o *item) {
	same := of != nil && of.version == o.version && o.version != ""
	if same {
		o.sum = of.sum
	} else {
		o.digest()
		same = of != nil && of.sum == o.sum
	}
	o.answers = o.answers[:0]
	for _, p := range t.policies {
		if same && of.has(p.id) && !(p.SelectsNamespaces && r.relabelled[o.namespace]) {
			o.answers = append(o.answers, answer{kind: already})
			continue
		}
		o.answers = append(o.answers, r.askPolicy(ctx, t, p, &o.object))
	}
}

// has reports whether the record has a result of a policy that holds until the object changes.
func (r *record) has(policy uint32) bool {
	return r.passed.has(policy) || r.unmatched.has(policy) ||
		slices.ContainsFunc(r.findings, func(f finding) bool { return f.policy == policy && !f.again })
}

func (r *run) askPolicy(ctx context.Context, t *target, p *asked, o *object) answer {
	of := t.tries[p]
	p.calls.Add(1)
	of.calls.Add(1)
	if t.out(p) {
		return answer{kind: unasked}
	}
	request := o.request(t, r.cfg.User)
	r.calls.Add(1)
	e := admission.Evaluation{Allowed: true}
	volatile := false
	if p.Validates {
		e = admission.Evaluate(ctx, p.policy, request, false)
		volatile = e.Volatile
	}
	if p.Mutates && e.Err == nil && e.Allowed && !e.Unmatched {
		e = admission.Evaluate(ctx, p.policy, request, true)
		volatile = volatile || e.Volatile
	}
	if err := t.refused[p]; err != nil && e.Err == nil && !e.Unmatched {
		// Evaluate applies the rules of the configuration, not those declared by a module.
		e.Err = fmt.Errorf("policy %q: %w", p.Name, err)
	}
	text := func(text string) string { return e.Stain(p.policy, request).Text(text) }
	f := finding{policy: p.id, uid: o.uid, since: r.start.Unix(), again: volatile}
	switch {
	case e.Err != nil && ctx.Err() != nil:
		return answer{kind: unasked}
	case errors.Is(e.Err, host.ErrDisabled), errors.Is(e.Err, loading.ErrQuota), errors.As(e.Err, new(*host.UnavailableError)):
		p.last.Store(&e.Err)
		return answer{kind: unasked}
	case e.Err != nil:
		p.failures.Add(1)
		of.failures.Add(1)
		err := errors.New(text(e.Err.Error()))
		p.last.Store(&err)
		f.outcome, f.again, f.message = Failed, true, shorten(err.Error())
		return answer{finds, f}
	}
	p.answers.Add(1)
	of.answers.Add(1)
	switch {
	case e.Unmatched:
		return answer{kind: unmatched}
	case !e.Allowed:
		f.outcome, f.code, f.message = Denied, e.Code, shorten(text(cmp.Or(e.Message, causes(&e), "no reason given")))
	case e.Patch != nil:
		f.outcome, f.message = Patched, shorten("the policy would "+text(summaryOf(e.Patch)))
		if err := undecodable(request, e.Patch); err != nil {
			f.outcome, f.message = Failed, shorten(f.message+": "+text(err.Error()))
		}
	case volatile:
		return answer{kind: passesOnce}
	default:
		return answer{kind: passes}
	}
	return answer{finds, f}
}

// note records the answers about an object.
func (r *run) note(t *target, k *known, o *item) {
	key := o.key
	old := k.objects[key]
	r.objects.Add(1)
	fresh := false
	for i := range o.answers {
		if o.answers[i].kind == already {
			r.reused.Add(1)
		} else {
			fresh = true
		}
	}
	if !fresh && old != nil && old.size() == len(o.answers) {
		if old.run = r.number; old.version != o.version {
			old.version = o.version
			r.journal.object(t.resource, key, old)
		}
		return
	}
	n := &record{version: o.version, sum: o.sum, run: r.number}
	var few [3][16]uint32
	passed, notMatched, volatile := few[0][:0], few[1][:0], few[2][:0]
	for i, p := range t.policies {
		kind := o.answers[i].kind
		f := o.answers[i].finding
		if kind == already {
			switch {
			case old.passed.has(p.id):
				kind = passes
			case old.unmatched.has(p.id):
				kind = unmatched
			default:
				kind = finds
				f = old.findings[slices.IndexFunc(old.findings, func(f finding) bool { return f.policy == p.id })]
			}
		}
		switch kind {
		case passes:
			passed = append(passed, p.id)
		case unmatched:
			notMatched = append(notMatched, p.id)
		case passesOnce:
			volatile = append(volatile, p.id)
		case finds:
			if old != nil {
				for _, before := range old.findings {
					if before.policy == f.policy && before.outcome == f.outcome && before.message == f.message {
						f.since = before.since
					}
				}
			}
			n.findings = append(n.findings, f)
		}
	}
	n.passed, n.unmatched, n.volatile = r.state.intern(passed), r.state.intern(notMatched), r.state.intern(volatile)
	k.put(key, n)
	r.journal.object(t.resource, key, n)
}

// size returns the number of results in the record.
func (r *record) size() int {
	n := len(r.findings)
	for _, s := range []*set{r.passed, r.unmatched, r.volatile} {
		if s != nil {
			n += len(*s)
		}
	}
	return n
}

// compareVersions compares two resource versions; ok is false if they are not comparable.
func compareVersions(a, b string) (order int, ok bool) {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return order, err == nil
}
