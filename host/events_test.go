package host_test

import (
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/testkit/logged"
)

// TestChangesAreLogged holds the lines about modules to the table of docs/operating.md.
func TestChangesAreLogged(t *testing.T) {
	host.InProcess(t, "the log names the isolation")
	read := func(name string) string {
		module, err := testdata(name).Fetch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return string(module)
	}
	noop, spins := read("noop"), read("spins")
	type step struct {
		content string
		state   host.State
	}
	for name, tt := range map[string]struct {
		steps []step
		want  map[string]int
	}{
		"a load, a swap and two refusals": {
			[]step{{noop, host.Serving}, {spins, host.Serving}, {"no module", host.Stale}, {"error: away", host.Stale}, {noop, host.Serving}},
			map[string]int{"loaded the module": 1, "swapped the module": 2, "the declared module is not in service, an earlier one is": 2, "the declared module is in service": 1},
		},
		"no version at first": {
			[]step{{"error: away", host.Unavailable}, {"no module", host.Unavailable}, {noop, host.Serving}},
			map[string]int{"loaded the module": 1, "the plugin is not available": 2, "the declared module is in service": 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			rt, err := host.NewRuntime(host.RuntimeConfig{Sources: host.Sources{Interval: time.Millisecond}})
			if err != nil {
				t.Fatal(err)
			}
			log, source := new(logged.Log), new(memory)
			source.set(tt.steps[0].content)
			cfg := config("noop")
			cfg.Module = host.ModuleConfig{Source: source, Follow: true}
			cfg.Logger, cfg.StandIn = log.Logger(), true
			p := loadIn(t, rt, cfg)
			for _, step := range tt.steps {
				source.set(step.content)
				before := source.fetched()
				until(t, string(step.state), func() bool {
					state, _ := p.State()
					return source.fetched() > before+2 && state == step.state && (state != host.Serving || p.Digest() == digest([]byte(step.content)))
				})
			}
			if err := rt.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			log.Check(t, tt.want)
		})
	}
}
