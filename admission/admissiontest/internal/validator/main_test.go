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

// A plugin that only validates is not asked for anything else, and does not pass for one
// that allows.
func TestPlugin(t *testing.T) {
	admissiontest.Each(t, plugin{}, func(t *testing.T, p *admissiontest.Plugin) {
		const pod = `{apiVersion: v1, kind: Pod, metadata: {name: web}}`
		if got := p.Create(t, pod); got.Allowed || got.Message != "no" {
			t.Errorf("got %+v", got)
		}
		for name, ask := range map[string]func(testing.TB){
			"Mutate": func(t testing.TB) { p.Mutate(t, pod) },
		} {
			fails, done := &failing{TB: t}, make(chan struct{})
			go func() { // Fatal ends the goroutine.
				defer close(done)
				ask(fails)
			}()
			<-done
			if want := "the plugin only validates: call Create or Review"; fails.message != want {
				t.Errorf("%s fails with %q, want %q", name, fails.message, want)
			}
		}
	})
}
