package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/webhook/manage"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/hostmetrics"
	"github.com/kubewasm/kubewasm/host/shadow"
	"github.com/kubewasm/kubewasm/internal/clusterplugins"
	"github.com/kubewasm/kubewasm/internal/loading"
)

// clock is a clock that a test sets.
type clock struct{ nanoseconds atomic.Int64 }

func (c *clock) now() time.Time          { return time.Unix(1_800_000_000, c.nanoseconds.Load()) }
func (c *clock) advance(d time.Duration) { c.nanoseconds.Add(int64(d)) }

// lines counts the lines of a log by their messages.
type lines struct {
	mu sync.Mutex
	of map[string]int
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewJSONHandler(l, nil)) }

func (l *lines) Write(line []byte) (int, error) {
	var of struct {
		Msg       string `json:"msg"`
		Namespace string `json:"namespace"`
	}
	if err := json.Unmarshal(line, &of); err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if strings.Contains(of.Msg, "quota of fuel") || strings.Contains(string(line), loading.ErrQuota.Error()) {
		l.of[of.Namespace+": "+of.Msg]++
	}
	return len(line), nil
}

// take returns the counts since the last take.
func (l *lines) take() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.of
	l.of = map[string]int{}
	return of
}

const (
	usedUp = "the policies of a namespace have used up their quota of fuel; their failure policies decide"
	whole  = "the policies of a namespace have their whole quota of fuel again"
)

// TestFuelBuckets goes through the lives of buckets: in each step time passes, the quotas are set or a
// call is made, and what is left of the debt, and the log, are compared.
func TestFuelBuckets(t *testing.T) {
	type step struct {
		name    string
		passes  time.Duration
		set     map[string]int64
		charge  int64
		refused string
		logged  map[string]int
	}
	none := map[string]int{}
	for name, steps := range map[string][]step{
		"a burst and a debt": {
			{name: "without a quota all is allowed", charge: 1 << 60, logged: none},
			{name: "a bucket is full at first", set: map[string]int64{"shop": 100}, charge: 999, logged: none},
			{name: "a call may overdraw it", charge: 501, logged: none},
			{name: "then none begins", refused: "begin again in 5s", logged: map[string]int{"shop: " + usedUp: 1}},
			{name: "there is one line for all of them", passes: time.Second, refused: "begin again in 4s", logged: none},
			{name: "until the debt is paid", passes: 4 * time.Second, refused: "begin again in 1ms", logged: none},
			{name: "a call begins again", passes: time.Second, charge: 200, logged: none},
			{name: "and the next does not", refused: "begin again in 1s", logged: none},
			{name: "it is full after a while", passes: 11 * time.Second, charge: 0, logged: map[string]int{"shop: " + whole: 1}},
			{name: "and holds no more", passes: time.Hour, charge: 1000, logged: none},
			{name: "then it is empty again", refused: "begin again in 1ms", logged: map[string]int{"shop: " + usedUp: 1}},
		},
		"quotas that change": {
			{name: "a quota", set: map[string]int64{"shop": 100}, charge: 3000, logged: none},
			{name: "is used up", refused: "may use 100 in a second", logged: map[string]int{"shop: " + usedUp: 1}},
			{name: "a larger one keeps the debt", set: map[string]int64{"shop": 1000}, refused: "begin again in 2s", logged: none},
			{name: "an unknown one is that of before", set: map[string]int64{"shop": -1}, refused: "begin again in 2s", logged: none},
			{name: "and so is that of no policy", set: map[string]int64{"other": 1}, passes: time.Second, refused: "begin again in 1s", logged: none},
			{name: "also when there is one again", set: map[string]int64{"shop": 1000}, refused: "begin again in 1s", logged: none},
			{name: "no bound forgives", set: map[string]int64{"shop": 0}, charge: 1 << 60, logged: none},
			{name: "a new quota is full", set: map[string]int64{"shop": 1}, charge: 1 << 62, logged: none},
			{name: "and a debt of centuries has a time", refused: "begin again in 277777h46m40s", logged: map[string]int{"shop: " + usedUp: 1}},
		},
		"a clock that is set back": {
			{name: "a quota", set: map[string]int64{"shop": 100}, charge: 1500, logged: none},
			{name: "pays nothing", passes: -time.Hour, refused: "begin again in 5s", logged: map[string]int{"shop: " + usedUp: 1}},
			{name: "and goes on", passes: 2 * time.Second, refused: "begin again in 3s", logged: none},
		},
	} {
		t.Run(name, func(t *testing.T) {
			log, time := &lines{of: map[string]int{}}, new(clock)
			q := newFuelQuotas(log.logger())
			q.now = time.now
			account := q.AccountOf("shop/a")
			for _, s := range steps {
				time.advance(s.passes)
				if s.set != nil {
					q.set(s.set)
				}
				err := account.Err()
				if (err != nil) != (s.refused != "") || err != nil && (!errors.Is(err, loading.ErrQuota) || !strings.Contains(err.Error(), s.refused) || !strings.Contains(err.Error(), `the namespace "shop"`)) {
					t.Errorf("%s: error %v, want %q", s.name, err, s.refused)
				}
				if err == nil {
					account.Charge(s.charge)
				}
				if err := q.AccountOf("else/a").Err(); err != nil {
					t.Errorf("%s: another namespace: error %v", s.name, err)
				}
				if diff := cmp.Diff(s.logged, log.take()); diff != "" {
					t.Errorf("%s: log (-want +got):\n%s", s.name, diff)
				}
			}
		})
	}
	if a := newFuelQuotas(slog.New(slog.DiscardHandler)).AccountOf("required-labels"); a != nil {
		t.Errorf("a policy of the cluster has the account %v", a)
	}
}

// TestFuelBucketsAreFew holds that namespaces that come, owe fuel and go leave no more than maxDebtors.
func TestFuelBucketsAreFew(t *testing.T) {
	time := new(clock)
	q := newFuelQuotas(slog.New(slog.DiscardHandler))
	q.now = time.now
	for n := range 3 * maxDebtors {
		namespace := fmt.Sprint("n", n)
		q.set(map[string]int64{namespace: 1})
		q.AccountOf(namespace + "/p").Charge(int64(n % 2 * 1000))
	}
	if q.set(nil); len(q.of) != maxDebtors {
		t.Errorf("%d buckets, want %d", len(q.of), maxDebtors)
	}
	time.advance(1000 * fuelBurst)
	if q.set(nil); len(q.of) != 0 {
		t.Errorf("%d buckets after all debts were paid", len(q.of))
	}
}

// TestFuelHammer has goroutines use the accounts of namespaces while their quotas change and the clock
// runs: no namespace may use more than its buckets held, and what ran at the same time.
func TestFuelHammer(t *testing.T) {
	const workers, cost, perSecond, rounds = 8, 50, 1000, 20_000
	time := new(clock)
	q := newFuelQuotas(slog.New(slog.DiscardHandler))
	q.now = time.now
	quotas := map[string]int64{"a": perSecond, "b": perSecond, "free": 0}
	q.set(quotas)
	var used [3]atomic.Int64
	var all sync.WaitGroup
	for worker := range workers {
		all.Go(func() {
			for n := range rounds {
				of := rand.IntN(3)
				account := q.AccountOf([]string{"a/p", "b/p", "free/p"}[of])
				if err := account.Err(); err == nil {
					used[of].Add(cost)
					account.Charge(cost)
				} else if of == 2 {
					t.Errorf("the namespace without a quota: error %v", err)
				}
				if worker == 0 {
					time.advance(1_000_000)
					if n%100 == 0 {
						q.set(quotas)
					}
				}
			}
		})
	}
	all.Wait()
	passed := time.now().Sub(new(clock).now()) + fuelBurst
	for i, name := range []string{"a", "b"} {
		// Each worker may have begun one call when the bucket was nearly empty.
		if got, most := used[i].Load(), int64(passed.Seconds()*perSecond)+workers*cost; got > most || got < most/2 {
			t.Errorf("the namespace %s used %d in %s, want at most %d and about as much", name, got, passed, most)
		}
	}
}

// admits is a module that allows all requests, and spins one that works on each until it is stopped.
var admits, spins = guest("\x42\x00"), guest("\x03\x40\x0c\x00\x0b\x42\x00")

// guest returns a module whose function validate has a body.
func guest(body string) []byte {
	body = "\x00" + body + "\x0b"
	code := "\x02\x08\x00\x42\x80\x80\x80\x80\x10\x0b" + string(rune(len(body))) + body
	return []byte("\x00asm\x01\x00\x00\x00" +
		"\x01\x05\x01\x60\x00\x01\x7e" +
		"\x03\x03\x02\x00\x00" +
		"\x05\x03\x01\x00\x01" +
		"\x07\x27\x03\x06memory\x02\x00\x0fkubewasm_abi_v1\x00\x00\x08validate\x00\x01" +
		"\x0a" + string(rune(len(code))) + code)
}

// tenancy is a webhook with policies of namespaces that have a quota of fuel.
type tenancy struct {
	*objects
	url      string
	time     *clock
	log      *lines
	registry *prometheus.Registry
}

// newTenancy returns one in which the policies of each namespace may use some fuel per second.
func newTenancy(t *testing.T, perSecond int64, policies ...clusterplugins.Object) *tenancy {
	t.Helper()
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rt.Close(context.WithoutCancel(t.Context())) })
	f := &tenancy{time: new(clock), log: &lines{of: map[string]int{}}, registry: prometheus.NewRegistry()}
	guests := hostmetrics.New(rt)
	f.registry.MustRegister(guests)
	fuel := newFuelQuotas(f.log.logger())
	fuel.now = f.time.now
	namespaces := func(_ context.Context, name string) (map[string]string, error) {
		return map[string]string{corev1.LabelMetadataName: name}, nil
	}
	engine := admission.NewEngine()
	m, err := manage.New(t.Context(), manage.Config{Runtime: rt, Engine: engine, Namespaces: namespaces, HostObserver: host.Observers(guests, fuel), Logger: f.log.logger()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close(context.WithoutCancel(t.Context())) })
	f.objects = &objects{manager: m, logger: f.log.logger(), namespaces: namespaces, fuel: fuel}
	server := httptest.NewServer(&admission.Handler{Validator: engine})
	t.Cleanup(server.Close)
	f.url = server.URL
	f.serve(t, perSecond, policies...)
	return f
}

// serve applies policies, and waits until they serve.
func (f *tenancy) serve(t *testing.T, perSecond int64, policies ...clusterplugins.Object) {
	t.Helper()
	f.apply(append(policies, clusterplugins.Object{Kind: "ModuleTrust", Name: "t", Spec: fmt.Appendf(nil, `{"inline":true,"quota":{"fuelPerSecond":%d}}`, perSecond)}))
	for deadline := time.Now().Add(time.Minute); ; runtime.Gosched() {
		serving := 0
		for _, s := range f.states() {
			if s.State == string(host.Serving) {
				serving++
			}
		}
		if infos := f.manager.List(); serving == len(policies) && len(infos) == serving {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the policies do not serve: %+v", f.states())
		}
	}
}

// policyFor returns the object of a policy, in no namespace if that is empty, for a resource.
func policyFor(namespace, name, resource, failurePolicy string, module []byte) clusterplugins.Object {
	o := clusterplugins.Object{Kind: "AdmissionPolicy", Namespace: namespace, Name: name, UID: namespace + name, Generation: 1}
	if namespace == "" {
		o.Kind = "ClusterAdmissionPolicy"
	}
	o.Spec = fmt.Appendf(nil, `{"module":{"bytes":%q},"limits":{"fuel":%d,"instances":2},"failurePolicy":%q,"match":{"rules":[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":[%q]}]}}`,
		base64.StdEncoding.EncodeToString(module), spinFuel, failurePolicy, resource)
	return o
}

// spinFuel is the fuel that a call of spins uses, and spinMost what it takes at most.
const spinFuel, spinMost = 10_000_000, spinFuel + 2_000_000

// ask has the webhook asked about an object, and returns the message of a denial.
func (f *tenancy) ask(t *testing.T, namespace, kind, resource string) (denied string) {
	review := fmt.Sprintf(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","kind":{"group":"","version":"v1","kind":%q},"resource":{"group":"","version":"v1","resource":%q},
		"name":"a","namespace":%q,"operation":"CREATE","userInfo":{"username":"u"},"object":{"apiVersion":"v1","kind":%[1]q,"metadata":{"name":"a","namespace":%[3]q}}}}`, kind, resource, namespace)
	resp, err := http.Post(f.url+"?timeout=30s", "application/json", strings.NewReader(review))
	if err != nil {
		t.Error(err)
		return ""
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	var got admissionv1.AdmissionReview
	if err := json.Unmarshal(bytes.TrimSpace(body), &got); err != nil || got.Response == nil {
		t.Errorf("%s: %s: %v", resp.Status, body, err)
		return ""
	}
	if got.Response.Allowed {
		return ""
	}
	return got.Response.Result.Message
}

// left returns the fuel of a namespace.
func (f *tenancy) left(namespace string) float64 {
	f.fuel.mu.Lock()
	defer f.fuel.mu.Unlock()
	return f.fuel.of[namespace].fuel
}

// TestQuotaOfFuel has the owner of a namespace make requests without end that its policy works on for as
// long as it may. The policies of others answer meanwhile; its own fail by their failure policies, and
// answer again as time passes.
func TestQuotaOfFuel(t *testing.T) {
	const perSecond, calls = 5 * spinFuel, 50
	all := []clusterplugins.Object{
		policyFor("", "cluster", "pods", "Fail", admits), policyFor("shop", "spins", "pods", "Fail", spins),
		policyFor("shop", "lax", "configmaps", "Ignore", admits), policyFor("shop", "strict", "services", "Fail", admits), policyFor("other", "works", "pods", "Fail", admits),
	}
	f := newTenancy(t, perSecond, all...)
	const stopped, refused = "out of fuel", `the quota of fuel is used up: the policies of the namespace "shop" may use 50000000 in a second together, by quota.fuelPerSecond of a ModuleTrust; calls begin again in `
	if got := f.ask(t, "shop", "Service", "services"); got != "" {
		t.Errorf("before: %s", got)
	}
	attack := func() (stops, refusals int64) {
		var counts [2]atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 20 {
					switch got := f.ask(t, "shop", "Pod", "pods"); {
					case strings.Contains(got, stopped):
						counts[0].Add(1)
					case strings.Contains(got, refused):
						counts[1].Add(1)
					default:
						t.Errorf("a request of the namespace shop: %q", got)
					}
					for _, namespace := range []string{"other", "without"} {
						if got := f.ask(t, namespace, "Pod", "pods"); got != "" {
							t.Errorf("a request of the namespace %s: %q", namespace, got)
						}
					}
				}
			})
		}
		wg.Wait()
		return counts[0].Load(), counts[1].Load()
	}
	// A burst of ten seconds, and the second instance.
	if stops, refusals := attack(); stops < calls*spinFuel/spinMost || stops > calls+1 || stops+refusals != 160 {
		t.Errorf("%d calls, and %d refused, want about %d calls of 160", stops, refusals, calls)
	}
	if got := f.left("shop"); got > 0 || got < -2*spinMost {
		t.Errorf("the bucket has %g, want a debt of at most two calls", got)
	}
	answers := map[string]string{}
	for kind, resource := range map[string]string{"Service": "services", "ConfigMap": "configmaps"} {
		for _, namespace := range []string{"shop", "other"} {
			answers[namespace+" "+kind], _, _ = strings.Cut(f.ask(t, namespace, kind, resource), " in a second")
		}
	}
	if diff := cmp.Diff(map[string]string{
		"shop Service":   `plugin "shop/strict": the quota of fuel is used up: the policies of the namespace "shop" may use 50000000`,
		"shop ConfigMap": "", "other Service": "", "other ConfigMap": "",
	}, answers); diff != "" {
		t.Errorf("the answers of an empty bucket (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{"shop: " + usedUp: 1}, f.log.take()); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	if n := refusals(t, f.registry, "shop/lax"); n != 1 {
		t.Errorf("the metric has %g refused calls of shop/lax, want 1", n)
	}

	// Deleting and creating the policies gives no other bucket.
	f.serve(t, perSecond, all[0], all[4])
	f.serve(t, perSecond, all...)
	if got := f.ask(t, "shop", "Service", "services"); !strings.Contains(got, refused) {
		t.Errorf("after the policies were deleted and created: %q", got)
	}

	// A second is for five calls, less the debt.
	f.time.advance(time.Second)
	if stops, refusals := attack(); stops < 1 || stops > 6 || stops+refusals != 160 {
		t.Errorf("after a second: %d calls, and %d refused, want about 5 calls of 160", stops, refusals)
	}
	f.time.advance(2 * fuelBurst)
	if got := f.ask(t, "shop", "Service", "services"); got != "" {
		t.Errorf("after a rest: %s", got)
	}
	if diff := cmp.Diff(map[string]int{"shop: " + whole: 1}, f.log.take()); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}

	// A change of the quota counts for policies that serve.
	f.serve(t, 1, all...)
	f.ask(t, "shop", "Pod", "pods")
	if got := f.ask(t, "shop", "Service", "services"); !strings.Contains(got, "may use 1 in a second") {
		t.Errorf("with a smaller quota: %q", got)
	}
	f.serve(t, 0, all...)
	if got := f.ask(t, "shop", "Service", "services"); got != "" {
		t.Errorf("without a quota: %s", got)
	}
}

// refusals returns the metric of the calls of a policy that its quota refused.
func refusals(t *testing.T, registry *prometheus.Registry, policy string) (n float64) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.Metric {
			labels := map[string]string{}
			for _, l := range m.Label {
				labels[l.GetName()] = l.GetValue()
			}
			if family.GetName() == "kubewasm_acquire_failures_total" && labels["plugin"] == policy && labels["reason"] == "quota" {
				n += m.Counter.GetValue()
			}
		}
	}
	return n
}

// TestShadowsPayFuel holds that the namespace of a policy pays for the calls of its shadow, and that its
// empty bucket is no difference of the candidate.
func TestShadowsPayFuel(t *testing.T) {
	const perSecond = spinFuel / 2
	f := newTenancy(t, perSecond, policyFor("shop", "p", "pods", "Fail", admits))
	if err := f.manager.BeginShadow(t.Context(), "shop/p", shadow.Config{Module: host.ModuleConfig{Bytes: spins}, Rate: 1, CPU: 1, Failures: 1000}); err != nil {
		t.Fatal(err)
	}
	s, err := f.manager.Shadow("shop/p")
	if err != nil {
		t.Fatal(err)
	}
	until := func(what string, is func(shadow.Status) bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !is(s.Status()); runtime.Gosched() {
			if time.Now().After(deadline) {
				t.Fatalf("%s: the shadow is %+v", what, s.Status())
			}
		}
	}
	until("start", func(s shadow.Status) bool { return s.State == shadow.Running })
	before := f.left("shop")
	for n := 1; f.left("shop") > 0; n++ {
		if got := f.ask(t, "shop", "Pod", "pods"); got != "" {
			t.Fatalf("call %d: %s", n, got)
		}
		until("call", func(s shadow.Status) bool { return s.Failed == uint64(n) })
		if paid := before - f.left("shop"); paid < spinFuel {
			t.Fatalf("the call of the candidate cost %g, want at least %d", paid, spinFuel)
		}
		before = f.left("shop")
	}
	failed := s.Status().Failed
	if got := f.ask(t, "shop", "Pod", "pods"); !strings.Contains(got, `the policies of the namespace "shop" may use 5000000 in a second together`) {
		t.Errorf("with an empty bucket: %q", got)
	}
	until("refused call", func(s shadow.Status) bool { return s.Uncompared == 1 })
	if got := s.Status(); got.Failed != failed || got.Compared != 0 {
		t.Errorf("the shadow has %+v, want no failure more than %d", got, failed)
	}
}
