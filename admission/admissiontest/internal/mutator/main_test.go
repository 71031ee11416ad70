package main

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/kubewasm/kubewasm/admission/admissiontest"
)

// failing notes why a test failed.
type failing struct {
	testing.TB
	message string
}

func (f *failing) Helper() {}

func (f *failing) Fatal(args ...any) {
	f.message = fmt.Sprint(args...)
	runtime.Goexit()
}

// A plugin that only mutates is not asked for anything else, and does not pass for one
// that allows.
func TestPlugin(t *testing.T) {
	admissiontest.Each(t, plugin{}, func(t *testing.T, p *admissiontest.Plugin) {
		const pod = `{apiVersion: v1, kind: Pod, metadata: {name: web}}`
		if got := p.Mutate(t, pod); !got.Allowed || got.Object != `{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"team":"none"},"name":"web"}}` {
			t.Errorf("got %+v", got)
		}
		for name, ask := range map[string]func(testing.TB){
			"Create": func(t testing.TB) { p.Create(t, pod) },
			"Review": func(t testing.TB) {
				p.Review(t, `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "1", "operation": "CREATE", "object": {}}}`)
			},
		} {
			fails, done := &failing{TB: t}, make(chan struct{})
			go func() { // Fatal ends the goroutine.
				defer close(done)
				ask(fails)
			}()
			<-done
			if want := "the plugin only mutates: call Mutate"; fails.message != want {
				t.Errorf("%s fails with %q, want %q", name, fails.message, want)
			}
		}
	})
}
