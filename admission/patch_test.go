package admission_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/internal/json"
	"github.com/kubewasm/kubewasm/internal/json/jsonpatch"
)

// says returns a guest that says the same about every object: "p" and a patch, or "m"
// and the mutated object.
func says(t *testing.T, name, answer string) *admission.Plugin {
	t.Helper()
	cfg := config(t, name, "testdata/hostile/says.wasm")
	cfg.AllowedToMutate, cfg.GuestConfig = true, []byte(answer)
	return load(t, cfg)
}

// ordinary is an object of an ordinary root, with spec.
func ordinary(spec string) string {
	return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"},"spec":` + spec + `}`
}

// numbers is a list of n times the same digit.
func numbers(n int, digit string) string { return "[" + strings.Repeat(digit+",", n-1) + digit + "]" }

// repeated returns a patch of one operation n times.
func repeated(n int, operation string) string {
	return "p[" + strings.Repeat(operation+",", n-1) + operation + "]"
}

// What guests make of an object costs the host memory, and the API server a patch, in
// proportion to the object.
func TestHostileMutations(t *testing.T) {
	key := strings.Repeat("k", 250_000)
	deep := func(bottom string) string {
		return strings.Repeat(`{"a":`, 5000) + bottom + strings.Repeat("}", 5000)
	}
	tests := []struct {
		name, object string
		answers      []string // Of the policies, one after the other.
		want         string   // Of the denial; empty if the request is allowed.
	}{
		{"a long key on the way to many values", ordinary(`{"` + key + `":` + numbers(10_000, "0") + `}`), []string{"m" + ordinary(`{"`+key+`":`+numbers(10_000, "1")+`}`)}, ""},
		{"a deep object with much at the bottom", ordinary(deep(numbers(1<<15, "0"))), []string{"m" + ordinary(deep(numbers(1<<15, "1")))}, ""},
		{"a root of many members", ordinary("{}"), []string{"m{" + strings.TrimSuffix(strings.Repeat(`"`+key[:10]+`":0,`, 50_000), ",") + "}"}, ""},
		{"brackets without end", ordinary("{}"), []string{"m" + strings.Repeat(`{"a":`, 1<<20)}, "the mutated object is not a JSON object"},
		{"a patch of brackets without end", ordinary("{}"), []string{"p" + strings.Repeat(`[`, 7<<20)}, "patch is not valid JSON"},
		{"copies that double the object", ordinary(`["` + key + `"]`), []string{repeated(40, `{"op":"copy","from":"/spec","path":"/spec/-"}`)}, "copies more than 3145728 bytes"},
		{"elements at the head of a long list", ordinary(numbers(300_000, "0")), []string{repeated(10_000, `{"op":"add","path":"/spec/0","value":1}`)}, "too much work"},
		{"more operations than an API server takes", ordinary("{}"), []string{repeated(10_001, `{"op":"add","path":"/a","value":1}`)}, "more than 10000 operations"},
		{"a long patch that comes to little", ordinary("{}"), []string{repeated(9_000, `{"op":"add","path":"/spec/a","value":"`+strings.Repeat("x", 200)+`"}`)}, ""},
		{"a long patch that comes to nothing, with another", ordinary("{}"), []string{
			repeated(2, `{"op":"add","path":"/spec/a","value":"`+strings.Repeat("x", 1<<20)+`"},{"op":"remove","path":"/spec/a"},{"op":"add","path":"/spec/b","value":0}`), `p[{"op":"remove","path":"/spec/b"}]`,
		}, ""},
		{"a long patch that the next one undoes", ordinary("{}"), []string{`p[{"op":"add","path":"/spec/a","value":"` + strings.Repeat("x", 1<<20) + `"}]`, `p[{"op":"remove","path":"/spec/a"},{"op":"add","path":"/spec/b","value":0}]`}, ""},
		{"a patch that tests what another one has written in its own way", ordinary("{}"), []string{`p[{"op":"add","path":"/spec/a","value":null}]`, `p[{"op":"test","path":"/spec","value":{"a":null}},{"op":"add","path":"/spec/b","value":1}]`}, ""},
		{"a patch below a null that another one has copied", ordinary(`{"a":null}`), []string{`p[{"op":"add","path":"/spec/b","value":null}]`, `p[{"op":"test","path":"/spec","value":{"a":null,"b":null}},{"op":"copy","from":"/spec/b","path":"/spec/c"},{"op":"add","path":"/spec/d","value":1}]`}, ""},
		{"several patches of many operations", ordinary("[]"), []string{
			repeated(8_000, `{"op":"add","path":"/spec/-","value":1}`), repeated(8_000, `{"op":"add","path":"/spec/-","value":2}`), repeated(8_000, `{"op":"remove","path":"/spec/0"}`),
		}, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var policies []admission.Policy
			for i, answer := range test.answers {
				policies = append(policies, says(t, fmt.Sprintf("p%d", i), answer))
			}
			e := admission.NewEngine(policies...)
			e.Mutate(t.Context(), requestOf(`{}`)) // The instances are made.
			r := requestOf(test.object)
			var got *admissionv1.AdmissionResponse
			size, work := len(test.object)+len(strings.Join(test.answers, "")), allocated(func() { got = e.Mutate(t.Context(), r) })
			if limit := 64*size + 600<<20; work > limit {
				t.Errorf("%d bytes were allocated for %d", work, size)
			}
			if test.want != "" {
				if got.Allowed || !strings.Contains(got.Result.Message, test.want) || len(got.Result.Message) > 1000 {
					t.Errorf("answer is %t: %.300s\nwant a denial with %s", got.Allowed, got.Result.Message, test.want)
				}
				return
			}
			if !got.Allowed {
				t.Fatalf("answer is %+v", got.Result)
			}
			want := []byte(test.object)
			for _, answer := range test.answers {
				if want = []byte(answer[1:]); answer[0] == 'p' {
					want = applied(t, test.object, test.answers...)
				}
			}
			checkPatch(t, test.object, want, got.Patch)
		})
	}
}

// applied returns an object after patches.
func applied(t *testing.T, object string, patches ...string) []byte {
	t.Helper()
	out := []byte(object)
	for _, patch := range patches {
		var err error
		if out, err = jsonpatch.Apply(out, []byte(patch[1:])); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// checkPatch checks that a patch makes the object that is wanted, and is not much
// longer.
func checkPatch(t *testing.T, object string, want, patch []byte) {
	t.Helper()
	if limit := len(want) + jsonpatch.MaxExcess; len(patch) > limit {
		t.Errorf("the patch has %d bytes for an object of %d", len(patch), len(want))
	}
	n := 0
	for e := json.Array(patch); e.Next(); n++ {
	}
	if n > jsonpatch.MaxOperations {
		t.Errorf("the patch has %d operations", n)
	}
	got := []byte(object)
	if patch != nil {
		got = applied(t, object, "p"+string(patch))
	}
	if !jsonpatch.Equal(got, want) {
		t.Errorf("patch %.300s makes\n%.300s\nwant\n%.300s", patch, got, want)
	}
}

// allocated returns how many bytes f allocates, in all.
func allocated(f func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}

// A request whose time is over gets no patch, and is not admitted without it.
func TestMutationsEndWithTheRequest(t *testing.T) {
	deep := func(bottom string) string {
		return strings.Repeat(`{"a":`, 500) + bottom + strings.Repeat("}", 500)
	}
	cfg := config(t, "p", "testdata/hostile/says.wasm")
	cfg.AllowedToMutate, cfg.GuestConfig = true, []byte("m"+ordinary(deep(numbers(1<<16, "1"))))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cfg.PolicyRules.Observer = endsRequest(cancel) // After the guest, and before the comparison.
	got := admission.NewEngine(load(t, cfg)).Mutate(ctx, requestOf(ordinary(deep(numbers(1<<16, "0")))))
	if got.Allowed || got.Patch != nil || !strings.Contains(got.Result.Message, "compare the mutated object: context canceled") {
		t.Errorf("answer is %t, %d bytes of patch, %+v", got.Allowed, len(got.Patch), got.Result)
	}
}

// endsRequest is an observer that ends the request when a policy has decided.
type endsRequest context.CancelFunc

func (f endsRequest) Decided(context.Context, admission.Decision) { f() }
