package hooks_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/host"
)

// A plugin decides by the object of its node that the configuration names, and is asked anew when
// that has changed.
func TestObjectsOfTheNode(t *testing.T) {
	const slos = "slo.koordinator.sh/v1alpha1/nodeslos"
	source, err := guest("./testdata/slo")
	if err != nil {
		t.Fatal(err)
	}
	granted := []host.ObjectGrant{{Resource: slos}, {Resource: "example.com/v1/others"}}
	slo := func(identity int) []byte {
		return fmt.Appendf(nil, `{"metadata":{"name":"node-1","labels":{"a":"b"}},"spec":{"groupIdentity":%d}}`, identity)
	}
	e := engine(t, hooks.Config{Plugins: []hooks.PluginConfig{{Config: host.Config{Name: "p", Module: host.ModuleConfig{Source: source}}, Objects: granted}}})
	decide := func(ask string) (string, error) {
		d, err := e.Decide(t.Context(), &hookmsg.Request{
			Stage: abi.Reconcile, Level: abi.LevelPod, Pod: hookmsg.PodMeta{Namespace: "shop", Name: "web", UID: "u1"}, PodAnnotations: map[string]string{"get": ask},
		})
		if err != nil || d.Fields() == 0 {
			return "nothing", err
		}
		return fmt.Sprint(*d.Resources.CPUBvt), nil
	}
	for _, step := range []struct {
		name string
		set  func() error // nil for nothing.
		ask  string
		want string // The identity that is decided, or "nothing".
		err  string
		told bool // Of a change.
	}{
		{name: "not known yet", ask: slos + " node-1", err: `the objects "` + slos + `" are not listed yet`},
		{name: "known", set: func() error { return e.SetObject(slos, "node-1", slo(2)) }, ask: slos + " node-1", want: "2", told: true},
		{name: "the same again", set: func() error { return e.SetObject(slos, "node-1", slo(2)) }, ask: slos + " node-1", want: "2"},
		{name: "changed", set: func() error { return e.SetObject(slos, "node-1", slo(-1)) }, ask: slos + " node-1", want: "-1", told: true},
		{name: "of another node", ask: slos + " node-2", err: "a hook sees only the object of"},
		{name: "not granted", ask: "v1/secrets node-1", err: `the plugin's configuration does not name the objects "v1/secrets"`},
		{name: "something that no plugin sees", set: func() error { return e.SetObject("v1/nodes", "node-1", slo(1)) }, ask: slos + " node-1", want: "-1"},
		{name: "no JSON", set: func() error {
			if err := e.SetObject(slos, "node-1", []byte("{")); err == nil {
				return fmt.Errorf("it is taken")
			}
			return nil
		}, ask: slos + " node-1", want: "-1"},
		{name: "gone", set: func() error { return e.SetObject(slos, "node-1", nil) }, ask: slos + " node-1", want: "nothing", told: true},
	} {
		changed := e.Changed()
		if step.set != nil {
			if err := step.set(); err != nil {
				t.Fatalf("%s: %v", step.name, err)
			}
		}
		select {
		case <-changed:
			if !step.told {
				t.Errorf("%s: a change is told", step.name)
			}
		default:
			if step.told {
				t.Errorf("%s: no change is told", step.name)
			}
		}
		got, err := decide(step.ask)
		if step.err != "" {
			if err == nil || !strings.Contains(err.Error(), step.err) {
				t.Errorf("%s: got error %v, want one with %q", step.name, err, step.err)
			}
		} else if err != nil || got != step.want {
			t.Errorf("%s: got %s, error %v, want %s", step.name, got, err, step.want)
		}
	}
	// Without a grant the import is refused, and mistakes are reported.
	for want, objects := range map[string][]host.ObjectGrant{
		"get_object needs the grant \"objects\"": nil,
		"is there twice":                         {{Resource: slos}, {Resource: slos}},
		"is not version/resource":                {{Resource: "NodeSLO"}},
	} {
		_, err := hooks.NewEngine(t.Context(), runtime, hooks.Config{Plugins: []hooks.PluginConfig{{Config: host.Config{Name: "p", Module: host.ModuleConfig{Source: source}}, Objects: objects}}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("with %v: got error %v, want one with %q", objects, err, want)
		}
	}
}
