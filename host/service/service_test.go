package service_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/service"
	"github.com/kubewasm/kubewasm/host/service/testdata/testservice"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
	_ "github.com/kubewasm/kubewasm/internal/testkit/guarded"
)

// module returns the guest of testdata with a schema.
func module(t testing.TB, schema []byte) []byte {
	t.Helper()
	wasm, err := os.ReadFile("testdata/test.wasm")
	if err != nil {
		t.Fatal(err)
	}
	if schema == nil {
		return wasm
	}
	if wasm, err = metadata.AddSection(wasm, abi.SchemaSection, schema); err != nil {
		t.Fatal(err)
	}
	return wasm
}

func runtime(t testing.TB) *host.Runtime {
	t.Helper()
	rt, err := host.NewRuntime(compiled.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rt.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return rt
}

// asked answers guests: with the request, or with an error if its text is "error".
type asked struct{}

func (asked) Ask(_ context.Context, req *testservice.Message) (*testservice.Message, error) {
	if req.Text == "error" {
		return nil, errors.New("the host does not know")
	}
	req.Texts = append(req.Texts, "answered")
	return req, nil
}

func config(t testing.TB) service.Config {
	t.Helper()
	return service.Config{Config: host.Config{
		Name: "guest", Module: host.ModuleConfig{Bytes: module(t, testservice.Schema())}, Grants: []string{"ask"},
		Limits: host.Limits{Fuel: 10_000_000, Timeout: time.Minute},
	}}
}

func load(t testing.TB, cfg service.Config) *testservice.Test {
	t.Helper()
	p, err := testservice.LoadTest(t.Context(), runtime(t), cfg, asked{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func everything() *testservice.Message {
	maybe, empty, third := int32(0), "", int64(-3)
	return &testservice.Message{
		Text: "ü", Data: []byte{0, 255}, Flag: true, I32: -1, I64: -1 << 60, U32: 1<<32 - 1, U64: 1<<64 - 1, S32: -7, S64: -8, F32: 9, F64: 10,
		Sf32: -11, Sf64: -12, Single: 1.5, Wide: -2.25, Color: testservice.ColorBlue,
		Inner: &testservice.Message{Inner: &testservice.Message{Text: strings.Repeat("long", 100)}},
		List:  []testservice.Message{{Text: "a"}, {}, {List: []testservice.Message{{I32: 5}}}},
		Texts: []string{"", "b"}, Numbers: []int32{1, -1, 0}, Zigzags: []int64{-1, 1}, Doubles: []float64{0, 0.5}, Colors: []testservice.Color{testservice.ColorRed, 7},
		Flags: []bool{true, false}, Blobs: [][]byte{{1}, {}},
		Labels: map[string]string{"a": "1", "": ""}, Counts: map[string]int64{"n": -1, "zero": 0}, Smalls: map[string]testservice.Small{"s": {Name: "s", N: -4}},
		Maybe: &maybe, MaybeText: &empty, Third: &third, Far: 1 << 40,
		At: &metav1.Time{Time: time.Unix(-5, 7)}, Times: []metav1.Time{{Time: time.Unix(0, 0)}, {}}, Span: &metav1.Duration{Duration: -1500 * time.Millisecond},
		Spans: map[string]metav1.Duration{"a": {}, "b": {Duration: 1}}, Part: &testservice.Part{Name: "p", Inner: &testservice.PartInner{Parts: []testservice.Part{{}}}},
		Shapes:    []testservice.Shape{testservice.ShapeSquare},
		Pod:       &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}},
		Nodes:     []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, nil, {ObjectMeta: metav1.ObjectMeta{Name: "n2"}}},
		ConfigMap: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Data: map[string]string{"k": "v"}},
		Crate:     &unstructured.Unstructured{Object: map[string]any{"kind": "Crate", "metadata": map[string]any{"name": "x"}}},
	}
}

// TestEveryFieldTravelsBothWays has a guest return its request, and the host's answer to it.
func TestEveryFieldTravelsBothWays(t *testing.T) {
	p, want := load(t, config(t)), everything()
	got, err := p.Echo(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("echo (-want +got):\n%s", diff)
	}
	if got.Pod != want.Pod || got.Nodes[2] != want.Nodes[2] || got.Crate != want.Crate {
		t.Error("the objects are not those of the request")
	}
	if got, err = p.AskHost(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	want.Texts = append(want.Texts, "answered")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the host's answer (-want +got):\n%s", diff)
	}
}

// TestHostileGuests calls a guest that breaks a rule in each method. The error tells which, and
// the plugin serves the next call.
func TestHostileGuests(t *testing.T) {
	p := load(t, config(t))
	tests := []struct {
		name string
		call func(context.Context, *testservice.Message) (*testservice.Message, error)
		want string
	}{
		{"a trap", p.Trap, "kubewasm.test.v1.Test/Trap trapped: wasm error: unreachable"},
		{"an endless loop", p.Loop, "out of fuel"},
		{"an error", p.Fail, "kubewasm.test.v1.Test/Fail returned Error: no such da"},
		{"a response outside of memory", p.OutOfBounds, "call kubewasm/service.response: bytes [2031616, 2162688) are out of bounds"},
		{"a response that is no message", p.Malformed, "call kubewasm.test.v1.Test/Malformed: response: malformed message: read field 1: unexpected EOF"},
		{"a response with an object that it was not given", p.ForeignRef, "response: field Pod: ref 0x500000009: the guest was not given the object"},
		{"a question about an object that it was not given", p.AskForeignRef, "call k8s.io/api.object: ref 0x500000009 names no object of the call"},
		{"a question about a part of one", p.AskPart, "call k8s.io/api.object_part: ref 0x500000009 names no object of the call"},
		{"a question about an entry of none", p.AskEntry, "call k8s.io/api.object_entry: ref 0x0 names no object of the call"},
		{"services that were not asked for", p.ServeLate, "call kubewasm/service.serve: it belongs to services, but the guest runs kubewasm.test.v1.Test/ServeLate"},
		{"a response that is too long", p.TooLong, "1572864 bytes are more than the limit of 1048576"},
		{"a response that swells", p.Swollen, "response: field List: it takes much more memory than bytes: limits.resultBytes bounds that, too"},
		{"a question that is no message", p.AskHostMalformed, "call kubewasm.test.v1.Host.Ask: malformed message: read field 1: unexpected EOF"},
		{"the error of the host", func(ctx context.Context, _ *testservice.Message) (*testservice.Message, error) {
			return p.AskHost(ctx, &testservice.Message{Text: "error"})
		}, "AskHost returned Error: the host does not know"},
		{"a method that the module does not have", p.Missing, "the plugin does not have the method"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := test.call(t.Context(), &testservice.Message{})
			if err == nil || got != nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, %v, want %s", got, err, test.want)
			}
			if got, err := p.Echo(t.Context(), &testservice.Message{Text: "after"}); err != nil || got.Text != "after" {
				t.Errorf("the next call: %v, %v", got, err)
			}
		})
	}
	if got, err := p.Silent(t.Context(), everything()); err != nil || !cmp.Equal(got, &testservice.Message{}) {
		t.Errorf("no response: %v, %v", got, err)
	}
	if _, err := p.Missing(t.Context(), &testservice.Message{}); !errors.Is(err, service.ErrUnimplemented) {
		t.Errorf("got %v, want ErrUnimplemented", err)
	}
	if _, err := p.Fail(t.Context(), &testservice.Message{}); !errors.As(err, new(*host.StatusError)) {
		t.Errorf("got %T, want a StatusError", err)
	}
}

func TestRequestsThatDoNotTravel(t *testing.T) {
	p := load(t, config(t))
	first, third := "a", int64(3)
	for want, req := range map[string]*testservice.Message{
		"request: field Text: text is not UTF-8":                         {Text: "\xff"},
		"request: field Labels: text is not UTF-8":                       {Labels: map[string]string{"\xff": ""}},
		"request: field Third: First of the same oneof is also set":      {First: &first, Third: &third},
		"request: field Crate: encode *unstructured.Unstructured \"x\":": {Crate: &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "x"}, "f": func() {}}}},
	} {
		if _, err := p.Echo(t.Context(), req); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestFailurePolicies(t *testing.T) {
	cfg := config(t)
	cfg.FailurePolicy = host.Ignore
	p := load(t, cfg)
	got, err := p.Trap(t.Context(), everything())
	if !errors.Is(err, service.ErrIgnored) || !errors.As(err, new(*host.TrapError)) || !cmp.Equal(got, &testservice.Message{}) {
		t.Errorf("got %v, %v, want an empty response and that the failure is to be ignored", got, err)
	}
	if got, err = p.Missing(t.Context(), everything()); !errors.Is(err, service.ErrIgnored) || !errors.Is(err, service.ErrUnimplemented) || !cmp.Equal(got, &testservice.Message{}) {
		t.Errorf("got %v, %v, want an empty response and that the failure is to be ignored", got, err)
	}
	// What is no failure of the plugin is not to be ignored.
	for name, req := range map[string]*testservice.Message{"nil": nil, "no UTF-8": {Text: "\xff"}} {
		if got, err := p.Echo(t.Context(), req); err == nil || errors.Is(err, service.ErrIgnored) || got != nil {
			t.Errorf("a request that is %s: got %v, %v", name, got, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := p.Echo(ctx, everything()); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, %v, want that the context ended", got, err)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := p.Echo(t.Context(), everything()); !errors.Is(err, host.ErrClosed) || errors.Is(err, service.ErrIgnored) || got != nil {
		t.Errorf("after Close: got %v, %v", got, err)
	}
	cfg.FailurePolicy = host.KeepLast
	if _, err := testservice.LoadTest(t.Context(), runtime(t), cfg, asked{}); err == nil || !strings.Contains(err.Error(), `failurePolicy is "KeepLast", want Fail or Ignore`) {
		t.Errorf("got %v", err)
	}
}

// TestGuestsThatDoNotFit loads modules that no host of the service can use.
func TestGuestsThatDoNotFit(t *testing.T) {
	tests := []struct {
		name   string
		change func(cfg *service.Config)
		asked  testservice.Host
		want   []string
	}{
		{"no schema", func(cfg *service.Config) { cfg.Module.Source = host.Bytes(module(t, nil)) }, asked{}, []string{
			"the module does not fit the service kubewasm.test.v1.Test of this host: it has no custom section kubewasm_schema, which kubewasm build adds",
		}},
		{"a schema that is none", func(cfg *service.Config) { cfg.Module.Source = host.Bytes(module(t, []byte{0xff})) }, asked{}, []string{"does not fit", "schema: unexpected EOF"}},
		{"another service", func(cfg *service.Config) {
			cfg.Module.Source = host.Bytes(module(t, []byte(strings.ReplaceAll(string(testservice.Schema()), "kubewasm.test.v1", "kubewasm.test.v2"))))
		}, asked{}, []string{"does not fit the service kubewasm.test.v1.Test", "it has the extension points kubewasm.test.v2.Test, kubewasm.test.v2.Values"}},
		{"a field of another type", func(cfg *service.Config) {
			// The name of field 5, i64, and that of field 4, i32, change places.
			swapped := strings.NewReplacer("\x03i32", "\x03i64", "\x03i64", "\x03i32").Replace(string(testservice.Schema()))
			cfg.Module.Source = host.Bytes(module(t, []byte(swapped)))
		}, asked{}, []string{
			"kubewasm.test.v1.Message.i32 is field 5 of the guest and field 4 of the host",
			"kubewasm.test.v1.Message.i64 is field 4 of the guest and field 5 of the host",
		}},
		{"no grant", func(cfg *service.Config) { cfg.Grants = nil }, asked{}, []string{`import kubewasm.test.v1.Host.Ask needs the grant "ask"`}},
		{"no host service", func(cfg *service.Config) { cfg.Grants = nil }, nil, []string{"import kubewasm.test.v1.Host.Ask is not provided by this host"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cfg := config(t)
			test.change(&cfg)
			_, err := testservice.LoadTest(t.Context(), runtime(t), cfg, test.asked)
			if err == nil {
				t.Fatal("it was loaded")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %s", err, want)
				}
			}
		})
	}
	_, err := testservice.LoadValues(t.Context(), runtime(t), config(t), asked{})
	if want := "does not fit the service kubewasm.test.v1.Values of this host: it implements kubewasm.test.v1.Test"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	if !errors.As(err, new(*service.SchemaError)) {
		t.Errorf("got %T, want a SchemaError", err)
	}
}

// TestObjectsAreKnownByTheirPointers reads the name of a Pod: another pointer with the same
// name is the same to the guest, one with another name is not.
func TestObjectsAreKnownByTheirPointers(t *testing.T) {
	p := load(t, config(t))
	for _, want := range []string{"web", "web", "db", "web"} {
		got, err := p.Name_(t.Context(), &testservice.Message{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: want}}})
		if err != nil || got.Text != want {
			t.Errorf("got %v, %v, want %s", got, err, want)
		}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	refs := map[abi.Ref]string{}
	for what, o := range map[string]*corev1.Pod{"the Pod": pod, "an equal one": pod.DeepCopy()} {
		ref, err := p.Ref(o)
		if err != nil {
			t.Fatal(err)
		}
		refs[ref] = what
	}
	if len(refs) != 1 {
		t.Errorf("equal Pods have the refs %v", refs)
	}
	if _, err := p.Ref(&corev1.PodList{}); err == nil {
		t.Error("a list has a ref")
	}
}

// TestObjectsReadAgainIntoOneVariable calls as a controller does with RetryOnConflict: each Get reads
// into the same variable, and each answer must be about what was read.
func TestObjectsReadAgainIntoOneVariable(t *testing.T) {
	p := load(t, config(t))
	var pod corev1.Pod
	for i, want := range []string{"web", "db", "web", "db"} {
		pod = corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: want, UID: "u", ResourceVersion: fmt.Sprint(i)}}
		for range 2 {
			got, err := p.Name_(t.Context(), &testservice.Message{Pod: &pod})
			if err != nil || got.Text != want {
				t.Errorf("got %v, %v, want %s", got, err, want)
			}
		}
	}
	cfg := config(t)
	cfg.DetectChanges = true
	p = load(t, cfg)
	ask := func() (panicked any) {
		defer func() { panicked = recover() }()
		if _, err := p.Name_(t.Context(), &testservice.Message{Pod: &pod}); err != nil {
			t.Error(err)
		}
		return nil
	}
	if r := ask(); r != nil {
		t.Errorf("the first call panics: %v", r)
	}
	pod.Labels = map[string]string{"changed": ""}
	if r := ask(); r == nil {
		t.Error("a change under the resource version is not detected")
	}
}

// TestServiceHammer calls, swaps and fails at the same time. Each call gets the answer to its
// own request. Run it with -race.
func TestServiceHammer(t *testing.T) {
	cfg := config(t)
	cfg.Limits.Instances = 3
	p := load(t, cfg)
	other, err := metadata.AddSection(module(t, testservice.Schema()), "other", []byte{1})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 150 {
				name := fmt.Sprint("pod-", g, "-", i%7)
				got, err := p.Name_(t.Context(), &testservice.Message{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}})
				if err != nil || got.Text != name {
					t.Errorf("got %v, %v, want %s", got, err, name)
				}
				if _, err := p.Trap(t.Context(), &testservice.Message{}); !errors.As(err, new(*host.TrapError)) {
					t.Errorf("got %v, want a trap", err)
				}
				want := everything()
				if got, err := p.AskHost(t.Context(), want); err != nil || got.Pod != want.Pod || got.Far != want.Far {
					t.Errorf("got %v, %v", got, err)
				}
			}
		})
	}
	wg.Go(func() {
		for i := range 6 {
			source := host.Bytes(other)
			if i%2 == 1 {
				source = p.Source()
			}
			if err := p.Swap(t.Context(), source, ""); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
}

func TestCallAllocations(t *testing.T) {
	if os.Getenv("KUBEWASM_DEBUG") == "memory" {
		t.Setenv("KUBEWASM_DEBUG", "")
	}
	p := load(t, config(t))
	req := &testservice.Message{I32: 1, I64: 2, Flag: true, Wide: 3, U32: 4, Pod: &corev1.Pod{}}
	ctx := t.Context()
	allocs := testing.AllocsPerRun(200, func() {
		if _, err := p.Echo(ctx, req); err != nil {
			t.Fatal(err)
		}
	})
	if allocs > 0 {
		t.Errorf("%v allocations, want 0", allocs)
	}
	many := &testservice.Message{}
	for n := range 200 {
		many.List = append(many.List, testservice.Message{
			Text: fmt.Sprint("server-", n), I64: int64(n), Wide: 0.5,
			Labels: map[string]string{"pool": "batch", "rack": "r12"}, Counts: map[string]int64{"waiting": 7, "running": int64(n)},
		})
	}
	allocs = testing.AllocsPerRun(50, func() {
		if _, err := p.Silent(ctx, many); err != nil {
			t.Fatal(err)
		}
	})
	if allocs > 0 {
		t.Errorf("a request of 200 messages with two maps: %v allocations, want 0", allocs)
	}
}

// TestResponsesOnTheStack reads responses of every field on new stacks, which grow and are moved
// while they are read.
func TestResponsesOnTheStack(t *testing.T) {
	p := load(t, config(t))
	var group sync.WaitGroup
	for range 200 {
		group.Go(func() {
			req := everything()
			resp, err := p.Echo(t.Context(), req)
			if err != nil {
				t.Error(err)
				return
			}
			debug.FreeOSMemory() // Collects, too.
			got := *resp
			if diff := cmp.Diff(*req, got); diff != "" {
				t.Errorf("response (-want +got)\n%s", diff)
			}
		})
	}
	group.Wait()
}

func BenchmarkCall(b *testing.B) {
	p := load(b, config(b))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{"a": strings.Repeat("x", 10_000)}}}
	for name, req := range map[string]*testservice.Message{
		"5 numbers":           {I32: 1, I64: 2, Flag: true, Wide: 3, U32: 4},
		"5 numbers and a Pod": {I32: 1, I64: 2, Flag: true, Wide: 3, U32: 4, Pod: pod},
		"everything":          everything(),
	} {
		b.Run(name, func(b *testing.B) {
			ctx := b.Context()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := p.Echo(ctx, req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
