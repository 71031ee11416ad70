package sched

import (
	"maps"
	"slices"
	"strings"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/objects/lookup"
)

// stateImports are the host functions of the state that all instances share. A result that depends on
// it is not shared, and a candidate has none.
func (p *Plugin) stateImports() []host.Import {
	list := host.StateImports()
	for n := range list {
		run := list[n].Func
		list[n].Func = ownAnswer(func(inst *host.Instance, stack []uint64) {
			if h, ok := p.handle.(*frozenHandle); ok {
				h.asked.Store(true)
			}
			run(inst, stack)
		})
	}
	return list
}

// sharesState reports whether the guest may use the shared state: then its calls may be repeated.
func (p *Plugin) sharesState() bool { return slices.Contains(p.args.Grants, host.GrantState) }

// again prepares a call that is repeated since the shared state has changed: its results do not
// count, and its effects are not repeated. The guest's questions are answered anew, as answers that are
// older than the state would contradict it; but no trial is repeated, which may have changed the state.
func again(inst *host.Instance) {
	c := &inst.State().(*instance).call
	c.score, c.wide, c.activated = 0, false, 0
	c.events, c.nodeNames, c.normalized, c.nominated = nil, nil, nil, ""
	c.fragments, c.nominations, c.hinted, c.placements = nil, nil, nil, nil
	c.applies, c.awaited = nil, nil
	c.listed, c.lastList = nil, lookup.Last{}
	maps.DeleteFunc(c.answers, func(key string, _ []byte) bool {
		function, _, _ := strings.Cut(key, "\x00")
		return !strings.HasSuffix(function, tryPodGroupImport)
	})
	c.done, c.effects = append(c.done, c.effects...), nil
	c.unsaid, c.said = append(c.unsaid, c.said...), nil
}

// mayReport reports whether an event was not reported before the call was repeated.
func (c *call) mayReport(inst *host.Instance, event string) bool {
	inst.Keep(len(event))
	c.said = append(c.said, event)
	if n := slices.Index(c.unsaid, event); n >= 0 {
		c.unsaid = slices.Delete(c.unsaid, n, n+1)
		return false
	}
	return true
}
