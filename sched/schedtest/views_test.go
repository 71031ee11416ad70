package schedtest_test

import (
	"runtime"
	"testing"

	"github.com/kubewasm/kubewasm/admission/admissiontest"
	"github.com/kubewasm/kubewasm/sched/schedtest"
)

func TestPod(t *testing.T) {
	pod := schedtest.Pod(t, `
metadata: {name: web, namespace: shop}
spec: {containers: [{name: web, image: "web:1"}]}
`)
	if got := pod.Metadata().Namespace() + "/" + pod.Metadata().Name() + " " + pod.Spec().Containers()[0].Image(); got != "shop/web web:1" {
		t.Errorf("got %s", got)
	}
}

func TestRequest(t *testing.T) {
	request := admissiontest.Request(t, `
apiVersion: stellar.org/v1
kind: StellarNode
metadata: {name: core, namespace: prod}
spec: {replicas: 3}
`)
	if got := request.Kind().Group + " " + request.Kind().Kind + " " + request.Namespace() + "/" + request.Name(); got != "stellar.org StellarNode prod/core" {
		t.Errorf("got %s", got)
	}
	if got := string(request.Object()); got != `{"apiVersion":"stellar.org/v1","kind":"StellarNode","metadata":{"name":"core","namespace":"prod"},"spec":{"replicas":3}}` {
		t.Errorf("got %s", got)
	}
}

// TestBadManifests holds that a mistake in a test's manifest fails the test.
func TestBadManifests(t *testing.T) {
	for name, read := range map[string]func(testing.TB){
		"typing error in a Pod":                func(t testing.TB) { schedtest.Pod(t, `spec: {container: []}`) },
		"wrong type in a Node":                 func(t testing.TB) { schedtest.Node(t, `spec: {taints: {}}`) },
		"object without a kind":                func(t testing.TB) { admissiontest.Request(t, `metadata: {name: x}`) },
		"object without a name in a scheduler": func(t testing.TB) { (&schedtest.Plugin{}).In(t, `{apiVersion: v1, kind: Node}`) },
		"Pod on a node that is not there": func(t testing.TB) {
			(&schedtest.Plugin{}).In(t, `{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {nodeName: n}}`)
		},
		"kind that a scheduler does not know": func(t testing.TB) { (&schedtest.Plugin{}).In(t, `{apiVersion: x/v1, kind: Y, metadata: {name: y}}`) },
		"no YAML":                             func(t testing.TB) { admissiontest.Request(t, "\t: {") },
		"a key twice in an object":            func(t testing.TB) { admissiontest.Request(t, "apiVersion: v1\nkind: Pod\nkind: Node") },
		"a key twice in a Pod":                func(t testing.TB) { schedtest.Pod(t, "kind: Pod\nkind: Node") },
		"an object after an object": func(t testing.TB) {
			admissiontest.Request(t, `{"apiVersion":"v1","kind":"Pod"}{"apiVersion":"v1","kind":"Node"}`)
		},
		"a Pod after a Pod":               func(t testing.TB) { schedtest.Pod(t, "{kind: Pod}\n---\n{kind: Pod}") },
		"something after a Node":          func(t testing.TB) { schedtest.Node(t, `{"kind":"Node"} x`) },
		"something after a configuration": func(t testing.TB) { new(admissiontest.Plugin).Configure(t, `{"a":1}{"b":2}`) },
		"a Pod that is a list of it":      func(t testing.TB) { schedtest.Pod(t, "[]") },
	} {
		t.Run(name, func(t *testing.T) {
			fails := &failing{TB: t}
			done := make(chan struct{})
			go func() { // Fatalf ends the goroutine.
				defer close(done)
				read(fails)
			}()
			<-done
			if !fails.failed {
				t.Error("the test did not fail")
			}
		})
	}
}

// failing notes that a test failed.
type failing struct {
	testing.TB
	failed bool
}

func (f *failing) Helper() {}

func (f *failing) Fatal(...any) {
	f.failed = true
	runtime.Goexit()
}

func (f *failing) Fatalf(string, ...any) { f.Fatal() }
