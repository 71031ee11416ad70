package hooks_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/record"
	"github.com/kubewasm/kubewasm/internal/testkit/canaries"
	"github.com/kubewasm/kubewasm/internal/testkit/canaries/parrot"
)

// TestRecordingsOfDecisionsTellNoSecrets asks a plugin, which repeats what it sees, about containers
// with canaries in their environment and in manifests, and another version of it. -canaries 100000
// makes many calls.
func TestRecordingsOfDecisionsTellNoSecrets(t *testing.T) {
	t.Parallel()
	for name, odd := range map[string]bool{"values of letters": false, "values with escapes": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := canaries.NewMaker(2)
			m.Odd = odd
			p := plugin(t, "parrot", "./testdata/parrot")
			module, err := p.Module.Source.Fetch(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			r := &canaries.Recording{Dir: t.TempDir(), Module: module, Calls: map[string]canaries.Call{}, Odd: odd}
			p.Record = &record.Config{Path: r.Dir, QueueBytes: 1 << 30, MaxBytes: 8 << 30}
			p.Limits.Timeout = time.Minute
			if odd {
				p.Reset = host.ResetPerCall
			}
			e, err := hooks.NewEngine(t.Context(), runtime, hooks.Config{Plugins: []hooks.PluginConfig{p}})
			if err != nil {
				t.Fatal(err)
			}
			for n := range *canaries.Calls / 2 {
				name := fmt.Sprint("p", n)
				s := m.Script(name, "annotation", "env", "log", "print", "error", "log")
				if m.IntN(50) == 0 {
					s = m.Ends(name, "log", "annotation")
				}
				_, _ = e.Decide(t.Context(), requestWith(m, name, s)) // Guests that fail fail it.
				r.Calls[name] = canaries.Call{Function: "hook", Object: "Pod shop/" + name + ", container web", Apply: parrot.OfHook(s)}
			}
			r.Made = m.Made
			if err := e.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			r.Holds(t, runtime, 1)
		})
	}
}

// requestWith returns a request about a container, most of which have canaries.
func requestWith(m *canaries.Maker, name string, s parrot.Script) *hookmsg.Request {
	req := &hookmsg.Request{
		Stage: abi.PreCreateContainer, Level: abi.LevelContainer, QOSClass: abi.QOSBurstable,
		Pod: hookmsg.PodMeta{Namespace: "shop", Name: name, UID: "uid-of-" + name}, Container: hookmsg.ContainerMeta{Name: "web", ID: "id-of-" + name},
		PodLabels: map[string]string{"app": "web", "script": s.String()}, PodAnnotations: map[string]string{"prometheus.io/scrape": "true"},
		CgroupParent: "kubepods/burstable/" + name,
	}
	if m.IntN(4) == 0 {
		return req
	}
	for _, e := range m.Env() {
		req.ContainerEnvs = append(req.ContainerEnvs, hookmsg.Env{Name: e.Name, Value: e.Value})
	}
	switch m.IntN(6) {
	case 0:
		req.PodAnnotations["kubectl.kubernetes.io/last-applied-configuration"] = m.Manifest()
	case 1:
		req.ContainerAnnotations = map[string]string{"example.com/applied": m.Manifest()}
	case 2:
		req.Node = &hookmsg.Node{Name: "n0", Annotations: map[string]string{"example.com/applied": m.Manifest()}}
	}
	return req
}
