// Command policies measures the same admission policy in all the ways in which a
// cluster can have it, from the bytes of an AdmissionReview to the verdict, in one run
// and in turns: natively, as CEL, in OPA's own evaluator, and as guests of package
// admission in Go, C and Rego.
//
//	cd internal/bench/policies && go run .
//
// CEL has two rows. In a webhook it would begin with the bytes, as the others do. In the
// API server it is asked about the object that is there, and nothing is decoded for it:
// that row is what a ValidatingAdmissionPolicy costs, beside what every request costs.
//
// The reviews are of 1,000 different Pods, in turns. What is asked about the same Pod
// again and again finds it in the processor's caches, and a guest its objects where they
// were: the column ONE POD shows how much that flatters each, with a Pod of their usual
// length.
//
// Figures are CPU time of the process, garbage collection included. -rounds=3 is a quick
// look. It is a module of its own, so that nothing else depends on OPA and CEL. It needs
// clang.
package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	celgo "github.com/google/cel-go/cel"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"golang.org/x/sync/errgroup"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	apiserver "k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/kubewarden"
	regodialect "github.com/kubewasm/kubewasm/admission/rego"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/rego/compile"
)

func main() {
	flag.IntVar(&rounds, "rounds", rounds, "how many `turns` each of them has, of which the median counts")
	flag.Parse()
	rounds = max(rounds, 1)
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "policies:", err)
		os.Exit(1)
	}
}

// dialects are those of the modules.
var dialects = append(kubewarden.New(kubewarden.Options{}), regodialect.New(regodialect.Options{}))

// contender is one way to have the policy.
type contender struct {
	name string
	// decide reports whether the review is allowed.
	decide func(r *sample) (bool, error)

	times  []float64 // Nanoseconds of CPU for an operation, one for each round.
	allocs float64
}

// sample is a review, and what the API server has of it when it asks a policy in CEL.
type sample struct {
	body []byte
	pod  *corev1.Pod
}

// samples returns reviews of n different Pods, of 3 to 9 KB, that are all allowed or, if
// they are not to be, lack a label.
func samples(n int, allowed bool) ([]*sample, error) {
	text, err := os.ReadFile("../../../admission/testdata/pod.json")
	if err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(1, 2))
	list := make([]*sample, n)
	for i := range list {
		pod := new(corev1.Pod)
		if err := json.Unmarshal(text, pod); err != nil {
			return nil, err
		}
		pod.Name, pod.UID = fmt.Sprintf("web-%08x-%05d", random.Uint32(), i), types.UID(fmt.Sprintf("0f5d5c1e-2f57-4f4b-9a3c-%012d", i))
		for l := range random.IntN(12) {
			pod.Labels[fmt.Sprintf("example.com/label-%d", l)] = fmt.Sprintf("value-%d", random.IntN(1000))
		}
		for a := range random.IntN(8) {
			pod.Annotations[fmt.Sprintf("example.com/annotation-%d", a)] = strings.Repeat("text ", random.IntN(40))
		}
		if !allowed {
			delete(pod.Labels, "owner")
		}
		first := pod.Spec.Containers[0]
		pod.Spec.Containers = nil
		for c := range 1 + random.IntN(4) {
			container := *first.DeepCopy()
			container.Name, container.Image = fmt.Sprintf("c%d", c), fmt.Sprintf("registry.example.com/shop/%d:%d", random.IntN(50), random.IntN(100))
			container.Env = container.Env[:random.IntN(len(container.Env)+1)]
			pod.Spec.Containers = append(pod.Spec.Containers, container)
		}
		encoded, err := json.Marshal(pod)
		if err != nil {
			return nil, err
		}
		list[i] = &sample{body: review(string(encoded)), pod: pod}
	}
	return list, nil
}

// fromBytes is decide of what begins with the bytes.
func fromBytes(decide func(body []byte) (bool, error)) func(*sample) (bool, error) {
	return func(r *sample) (bool, error) { return decide(r.body) }
}

func run(ctx context.Context, out io.Writer) error {
	dir, err := os.MkdirTemp("", "policies")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		return err
	}
	defer rt.Close(ctx)
	many, err := samples(1000, true)
	if err != nil {
		return err
	}
	denied, err := samples(100, false)
	if err != nil {
		return err
	}
	// The usual one is of the median length.
	byLength := slices.SortedFunc(slices.Values(many), func(a, b *sample) int { return cmp.Compare(len(a.body), len(b.body)) })
	usual := byLength[len(byLength)/2]

	opa, err := opaPolicy(ctx)
	if err != nil {
		return err
	}
	celOfBytes, celOfObject, err := celPolicy()
	if err != nil {
		return err
	}
	contenders := []*contender{
		{name: "native Go", decide: fromBytes(native)}, {name: "CEL, from the bytes", decide: celOfBytes},
		{name: "CEL in the API server, no bytes", decide: celOfObject}, {name: "Rego, OPA's evaluator", decide: fromBytes(opa)},
	}
	var engines []*admission.Engine
	for _, g := range []struct {
		name  string
		build func(ctx context.Context, dir string) (string, error)
		guest string
	}{
		{"Go guest", goGuest, `{"labels":["app","owner"],"registries":["registry.example.com/"]}`},
		{"C guest", cGuest, ``},
		{"Rego module", regoGuest, `{"labels":["app","owner"]}`},
	} {
		file, err := g.build(ctx, dir)
		if err != nil {
			return err
		}
		plugin, err := admission.Load(ctx, rt, admission.PluginConfig{Dialects: dialects, Config: host.Config{Name: "policy", Module: host.ModuleConfig{File: file}, GuestConfig: []byte(g.guest)}})
		if err != nil {
			return err
		}
		engine := admission.NewEngine(plugin)
		engines = append(engines, engine)
		contenders = append(contenders, &contender{name: g.name, decide: func(r *sample) (bool, error) {
			request, err := admission.DecodeReview(r.body)
			if err != nil {
				return false, err
			}
			return engine.Validate(ctx, request).Allowed, nil
		}})
	}
	// What is measured on one Pod, beside what is measured on all.
	ofOne := make([]*contender, len(contenders))
	for i, c := range contenders {
		ofOne[i] = &contender{name: c.name, decide: c.decide}
		for want, list := range map[bool][]*sample{true: many, false: denied} {
			for _, r := range list {
				if got, err := c.decide(r); err != nil || got != want {
					return fmt.Errorf("%s: allowed is %t, want %t: %w", c.name, got, want, errors.Join(err))
				}
			}
		}
	}
	if err := measure(contenders, many, 1); err != nil {
		return err
	}
	if err := measure(ofOne, []*sample{usual}, 1); err != nil {
		return err
	}
	total := 0
	for _, r := range many {
		total += len(r.body)
	}
	kb := func(n int) float64 { return float64(n) / 1e3 }
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "POLICY, %d REVIEWS OF %.1f TO %.1f KB, %.1f ON AVERAGE\tCPU\tALLOCS\tOF NATIVE\tTARGET\tONE POD, %.1f KB\tOF NATIVE\n",
		len(many), kb(len(byLength[0].body)), kb(len(byLength[len(byLength)-1].body)), kb(total/len(many)), kb(len(usual.body)))
	of := func(i int) float64 { return median(contenders[i].times) }
	one := func(i int) float64 { return median(ofOne[i].times) }
	targets := []string{"", "", "", "", short(of(4) <= of(0), "<= native"), short(of(5) <= 60e3, "<= 60us"), short(of(6) <= of(3)/2, "<= half of OPA's")}
	for i, c := range contenders {
		fmt.Fprintf(t, "%s\t%s\t%.3g\t%.2fx\t%s\t%s\t%.2fx\n", c.name, round(of(i)), c.allocs, of(i)/of(0), targets[i], round(one(i)), one(i)/one(0))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return overTLS(ctx, out, many, engines[0], engines[1])
}

func short(ok bool, target string) string {
	if ok {
		return target + ": ok"
	}
	return target + ": short"
}

func round(ns float64) time.Duration { return time.Duration(ns).Round(100 * time.Nanosecond) }

var rounds = 61

// measure runs the contenders in turns, each by a number of clients at a time. Each round
// goes on with the reviews where the one before ended.
func measure(contenders []*contender, reviews []*sample, clients int) error {
	for round := range rounds {
		for _, c := range contenders {
			const n = 320 // For each of the clients the same.
			runtime.GC()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := cpuTime()
			var group errgroup.Group
			for client := range clients {
				group.Go(func() error {
					for i := range n / clients {
						r := reviews[(round*n+i*clients+client)%len(reviews)]
						if allowed, err := c.decide(r); err != nil || !allowed {
							return fmt.Errorf("%s: allowed is %t: %w", c.name, allowed, err)
						}
					}
					return nil
				})
			}
			if err := group.Wait(); err != nil {
				return err
			}
			c.times = append(c.times, float64(cpuTime()-start)/n)
			runtime.ReadMemStats(&after)
			c.allocs = float64(after.Mallocs-before.Mallocs) / n
		}
	}
	return nil
}

// cpuTime returns the processor time that the process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // The arguments are constants.
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func median(values []float64) float64 {
	values = slices.Sorted(slices.Values(values))
	return values[len(values)/2]
}

// review is the body that an API server sends.
func review(object string) []byte {
	return []byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"705ab4f5-6393-11e8-b7cc-42010a800002",` +
		`"kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},` +
		`"requestKind":{"group":"","version":"v1","kind":"Pod"},"requestResource":{"group":"","version":"v1","resource":"pods"},` +
		`"name":"web-7d4b9c6f5d-x2x9z","namespace":"shop","operation":"CREATE","userInfo":{"username":"system:serviceaccount:kube-system:replicaset-controller",` +
		`"uid":"2a4d7c1e-9f57-4f4b-9a3c-0d2f6a1b7c11","groups":["system:serviceaccounts","system:serviceaccounts:kube-system","system:authenticated"]},` +
		`"object":` + object + `,"oldObject":null,"dryRun":false,"options":{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}}}`)
}

// native does the work of a webhook in Go.
func native(body []byte) (bool, error) {
	var r admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &r); err != nil {
		return false, err
	}
	return nativePod(r.Request.Object.Raw)
}

func nativePod(raw []byte) (bool, error) {
	var pod corev1.Pod
	if err := json.Unmarshal(raw, &pod); err != nil {
		return false, err
	}
	for _, key := range []string{"app", "owner"} {
		if _, ok := pod.Labels[key]; !ok {
			return false, nil
		}
	}
	for _, c := range pod.Spec.Containers {
		if !strings.HasPrefix(c.Image, "registry.example.com/") {
			return false, nil
		}
	}
	return true, nil
}

func opaPolicy(ctx context.Context) (func([]byte) (bool, error), error) {
	source, err := os.ReadFile("guest/policy.rego")
	if err != nil {
		return nil, err
	}
	query, err := rego.New(rego.Query("data.policy.main"), rego.Module("policy.rego", string(source)),
		rego.Store(inmem.NewFromObject(map[string]any{"labels": []any{"app", "owner"}}))).PrepareForEval(ctx)
	if err != nil {
		return nil, err
	}
	return func(body []byte) (bool, error) {
		var input any
		if err := json.Unmarshal(body, &input); err != nil {
			return false, err
		}
		results, err := query.Eval(ctx, rego.EvalInput(input))
		if err != nil || len(results) != 1 {
			return false, errors.Join(err, fmt.Errorf("%d results", len(results)))
		}
		return results[0].Expressions[0].Value.(map[string]any)["response"].(map[string]any)["allowed"].(bool), nil
	}, nil
}

// condition is an expression of a ValidatingAdmissionPolicy.
type condition string

func (c condition) GetExpression() string      { return string(c) }
func (c condition) ReturnTypes() []*celgo.Type { return []*celgo.Type{celgo.BoolType} }

// celPolicy returns the policy as a ValidatingAdmissionPolicy is evaluated: from bytes,
// which become an unstructured object, and on the typed object that the API server has.
func celPolicy() (ofBytes, ofObject func(*sample) (bool, error), err error) {
	compiler := plugincel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	evaluator := compiler.CompileCondition([]plugincel.ExpressionAccessor{
		condition(`has(object.metadata.labels) && ['app', 'owner'].all(l, l in object.metadata.labels)`),
		condition(`object.spec.containers.all(c, c.image.startsWith('registry.example.com/'))`),
	}, plugincel.OptionalVariableDeclarations{HasAuthorizer: false}, environment.StoredExpressions)
	if errs := evaluator.CompilationErrors(); len(errs) != 0 {
		return nil, nil, errors.Join(errs...)
	}
	gvk := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	gvr := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	evaluate := func(object k8sruntime.Object, namespace, name string) (bool, error) {
		attributes := apiserver.NewAttributesRecord(object, nil, gvk, namespace, name, gvr, "", apiserver.Create, nil, false, nil)
		versioned := &apiserver.VersionedAttributes{Attributes: attributes, VersionedKind: gvk}
		versioned.VersionedObject.Set(object)
		request := plugincel.CreateAdmissionRequest(attributes, metav1.GroupVersionResource(gvr), metav1.GroupVersionKind(gvk))
		results, _, err := evaluator.ForInput(context.Background(), versioned, request, plugincel.OptionalVariableBindings{}, nil, apiservercel.RuntimeCELCostBudget)
		if err != nil {
			return false, err
		}
		for _, result := range results {
			if result.Error != nil {
				return false, result.Error
			}
			if result.EvalResult.Value() != true {
				return false, nil
			}
		}
		return true, nil
	}
	ofBytes = func(r *sample) (bool, error) {
		var review admissionv1.AdmissionReview
		if err := utiljson.Unmarshal(r.body, &review); err != nil {
			return false, err
		}
		object := &unstructured.Unstructured{}
		if err := utiljson.Unmarshal(review.Request.Object.Raw, &object.Object); err != nil {
			return false, err
		}
		return evaluate(object, review.Request.Namespace, review.Request.Name)
	}
	ofObject = func(r *sample) (bool, error) { return evaluate(r.pod, r.pod.Namespace, r.pod.Name) }
	return ofBytes, ofObject, nil
}

func goGuest(ctx context.Context, _ string) (string, error) {
	return guestbuild.Build(ctx, "../../../examples/admission/required-labels")
}

func cGuest(ctx context.Context, dir string) (string, error) {
	file := filepath.Join(dir, "c.wasm")
	out, err := exec.CommandContext(ctx, "clang", "--target=wasm32", "-O3", "-nostdlib", "-Wl,--no-entry", "-o", file, "guest/policy.c").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("clang: %w\n%s", err, out)
	}
	return file, nil
}

func regoGuest(ctx context.Context, dir string) (string, error) {
	module, err := compile.File(ctx, "policy/main", "guest/policy.rego")
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "rego.wasm")
	return file, os.WriteFile(file, module, 0o600)
}

// nativeValidator is native in the handler: a webhook that computes about as
// long as the guest does, without one.
type nativeValidator struct{}

func (nativeValidator) Validate(_ context.Context, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	allowed, err := nativePod(r.Object.Raw)
	return &admissionv1.AdmissionResponse{UID: r.UID, Allowed: allowed && err == nil}
}

// overTLS compares the whole webhook over TLS with one that always allows plus what
// the verdict costs on its own, by as many at a time: with one processor, and with
// all, where client and server wait for each other, or where there is always a
// request to be answered. All are measured in turns, and ratios are of one turn.
//
// On its own, a verdict finds its memory and its code in the processor's caches,
// between two requests it does not. So the sum is taken once more "in turns": each
// verdict, on its own, after a request that is always allowed. And with several
// processors, one that has nothing to do looks for work for a while, then its thread
// sleeps and has to be woken: all that is counted. So native code and a guest in C
// stand beside the guest in Go.
func overTLS(ctx context.Context, out io.Writer, reviews []*sample, goGuest, cGuest *admission.Engine) error {
	serve := func(v admission.Validator) (*contender, func()) {
		server := httptest.NewTLSServer(&admission.Handler{Validator: v})
		client := server.Client()
		transport := client.Transport.(*http.Transport)
		transport.TLSClientConfig.MinVersion, transport.MaxIdleConnsPerHost = tls.VersionTLS13, clients
		return &contender{decide: func(r *sample) (bool, error) {
			resp, err := client.Post(server.URL+"/validate?timeout=10s", "application/json", bytes.NewReader(r.body))
			if err != nil {
				return false, err
			}
			defer resp.Body.Close()
			answer, err := io.ReadAll(resp.Body)
			return bytes.Contains(answer, []byte(`"allowed":true`)), err
		}}, server.Close
	}
	bare := func(v admission.Validator) *contender {
		return &contender{decide: func(r *sample) (bool, error) {
			request, err := admission.DecodeReview(r.body)
			if err != nil {
				return false, err
			}
			return v.Validate(ctx, request).Allowed, nil
		}}
	}
	// policy is a policy in the webhook, on its own, and on its own in turns with
	// requests that are always allowed.
	type policy struct{ whole, bare, turns *contender }
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\nOVER TLS, CLIENT AND SERVER\tALWAYS ALLOWS\tGO GUEST\tOF THE SUM\tIN TURNS\tTARGET\tOF WHAT NATIVE ADDS\tTARGET\tC GUEST\tOF THE SUM\tIN TURNS\tNATIVE\tOF THE SUM\tIN TURNS\n")
	for _, load := range []struct {
		name           string
		procs, clients int
		ofNative       float64 // Of what a native handler adds, the most that the Go guest may add.
	}{
		{"one processor, one client", 1, 1, 0.6},
		{"all processors, one client", runtime.NumCPU(), 1, 0.6},
		{fmt.Sprintf("all processors, %d clients", clients), runtime.NumCPU(), clients, 0.35},
	} {
		always, stop := serve(admission.NewEngine())
		inTurns := func(bare *contender) *contender {
			return &contender{decide: func(r *sample) (bool, error) {
				allowed, err := always.decide(r)
				if err != nil || !allowed {
					return allowed, err
				}
				return bare.decide(r)
			}}
		}
		// The review is decoded in both, and counted once.
		empty := bare(admission.NewEngine())
		emptyTurns := inTurns(empty)
		stops := []func(){stop}
		contenders := []*contender{always, empty, emptyTurns}
		var policies []policy
		for _, v := range []admission.Validator{goGuest, cGuest, nativeValidator{}} {
			var p policy
			p.whole, stop = serve(v)
			p.bare = bare(v)
			p.turns = inTurns(p.bare)
			stops = append(stops, stop)
			policies = append(policies, p)
			contenders = append(contenders, p.whole, p.bare, p.turns)
		}
		procs := runtime.GOMAXPROCS(load.procs)
		err := measure(contenders, reviews, load.clients)
		runtime.GOMAXPROCS(procs)
		for _, stop := range stops {
			stop()
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(t, "%s\t%s", load.name, round(median(always.times)))
		for i, p := range policies {
			var sum, turns []float64
			for r, whole := range p.whole.times {
				sum = append(sum, whole/(always.times[r]+p.bare.times[r]-empty.times[r]))
				turns = append(turns, whole/(always.times[r]+p.turns.times[r]-emptyTurns.times[r]))
			}
			fmt.Fprintf(t, "\t%s\t%.2fx\t%.2fx", round(median(p.whole.times)), median(sum), median(turns))
			if i == 0 {
				fmt.Fprintf(t, "\t%s", short(median(sum) <= 1.1, "<= 1.1x"))
				native := policies[len(policies)-1].whole.times
				var added []float64
				for r, whole := range p.whole.times {
					added = append(added, (whole-always.times[r])/(native[r]-always.times[r]))
				}
				fmt.Fprintf(t, "\t%.2fx\t%s", median(added), short(median(added) <= load.ofNative, fmt.Sprintf("<= %.2fx", load.ofNative)))
			}
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

// clients are those that ask at the same time.
const clients = 16
