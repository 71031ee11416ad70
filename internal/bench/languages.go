package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/sched/kube137/kube137test"
)

// languageTargets are what the guests of a language should keep to: a ratio of their time and
// that of another language.
var languageTargets = map[*guestbuild.Language]struct {
	ratio float64
	of    *guestbuild.Language
}{
	guestbuild.C:              {1, guestbuild.Go},
	guestbuild.Rust:           {1.3, guestbuild.C},
	guestbuild.AssemblyScript: {1, guestbuild.Go},
}

// maxSmallModule is the size in bytes that modules of C and Rust should keep to.
const maxSmallModule = 100_000

// languageGuests are the examples in one language.
type languageGuests struct {
	language *guestbuild.Language
	// Files of the modules.
	zone, labels, batch string
	// What is measured of them.
	first, seen, cycle, verdict, decision func(n int)
}

// benchLanguages measures the examples in each language that they are written in, side by side.
func benchLanguages(b *bench) error {
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		return err
	}
	defer rt.Close(context.WithoutCancel(b.ctx))
	var all []*languageGuests
	byLanguage := map[*guestbuild.Language]*languageGuests{}
	var failed error
	for _, l := range []*guestbuild.Language{guestbuild.Go, guestbuild.C, guestbuild.Rust, guestbuild.AssemblyScript} {
		g := &languageGuests{language: l}
		err := g.build(b)
		if missing := (*guestbuild.MissingToolError)(nil); errors.As(err, &missing) || errors.Is(err, os.ErrNotExist) {
			b.add(l.Title, "not measured", "-", err.Error(), 0, "", false)
			continue
		}
		if err == nil {
			err = g.load(b, rt, &failed)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", l.Title, err)
		}
		all, byLanguage[l] = append(all, g), g
	}
	for _, g := range all {
		if err := g.addSizes(b); err != nil {
			return fmt.Errorf("%s: %w", g.language.Title, err)
		}
	}
	for _, m := range []struct {
		what string
		run  func(g *languageGuests) func(n int)
	}{
		{"Filter, each Node changed", func(g *languageGuests) func(int) { return g.first }},
		{"Filter, Node seen before", func(g *languageGuests) func(int) { return g.seen }},
		{"cycle over 1000 Nodes", func(g *languageGuests) func(int) { return g.cycle }},
		{"verdict on a Pod", func(g *languageGuests) func(int) { return g.verdict }},
		{"decision on a container", func(g *languageGuests) func(int) { return g.decision }},
	} {
		var rows []comparison
		for _, g := range all {
			t, ok := languageTargets[g.language]
			other := byLanguage[t.of]
			if !ok || other == nil {
				other = byLanguage[guestbuild.Go]
			}
			row := comparison{what: m.what + ", guest in " + g.language.Title, ours: m.run(g), against: "guest in " + other.language.Title, theirs: m.run(other)}
			if other != g {
				row.target.ratio = t.ratio
			}
			rows = append(rows, row)
		}
		b.compareAll(rows...)
		if failed != nil {
			return fmt.Errorf("%s: %w", m.what, failed)
		}
	}
	return nil
}

// build builds the modules.
func (g *languageGuests) build(b *bench) error {
	for _, m := range []struct {
		dir  string
		file *string
	}{
		{"../../examples/sched/zone", &g.zone}, {"../../examples/admission/required-labels", &g.labels}, {"../../examples/hooks/batch-resource", &g.batch},
	} {
		dir := source(m.dir)
		if g.language != guestbuild.Go {
			dir = filepath.Join(dir, g.language.Name)
		}
		if _, err := os.Stat(dir); err != nil {
			return err
		}
		var err error
		if *m.file, err = guestbuild.Build(b.ctx, dir); err != nil {
			return err
		}
	}
	return nil
}

// load loads the modules and sets what is measured of them.
func (g *languageGuests) load(b *bench, rt *host.Runtime, failed *error) error {
	const nodes = 1000
	plugin, err := loadPlugin(b, rt, "zone in "+g.language.Title, g.zone, eachNode)
	if err != nil {
		return err
	}
	p := plugin.(cyclePlugin)
	pod := pod()
	delete(pod.Annotations, "kubewasm.dev/zones") // It fits every zone.
	state := kube137test.NewCycleState()
	if _, status := p.PreFilter(b.ctx, state, pod, nil); !status.IsSuccess() {
		return status.AsError()
	}
	filter := func(state fwk.CycleState, n fwk.NodeInfo) {
		if status := p.Filter(b.ctx, state, pod, n); !status.IsSuccess() {
			*failed = fmt.Errorf("filter: %s", status.Message())
		}
	}
	versions := nodeVersions(nodes, taint)
	turn := 0
	g.first = func(n int) {
		for range n {
			turn = (turn + 1) % (nodes * len(versions))
			filter(state, versions[turn/nodes][turn%nodes])
		}
	}
	same := nodeVersions(nodes, renew)[0]
	g.seen = func(n int) {
		for i := range n {
			filter(state, same[i%nodes])
		}
	}
	g.seen(nodes)
	g.cycle = func(n int) {
		for range n {
			state := kube137test.NewCycleState()
			if _, status := p.PreFilter(b.ctx, state, pod, nil); !status.IsSuccess() {
				*failed = status.AsError()
			}
			for _, n := range same {
				filter(state, n)
			}
		}
	}
	policy, err := admission.Load(b.ctx, rt, admission.PluginConfig{Config: host.Config{
		Name: "required-labels", Module: host.ModuleConfig{File: g.labels},
		GuestConfig: []byte(`{"labels": ["app", "team"], "registries": ["registry.example.com/"]}`),
	}})
	if err != nil {
		return err
	}
	engine := admission.NewEngine(policy)
	body, err := review(pod)
	if err != nil {
		return err
	}
	g.verdict = func(n int) {
		for range n {
			request, err := admission.DecodeReview(body)
			if err != nil {
				*failed = err
				return
			}
			if response := engine.Validate(b.ctx, request); !response.Allowed {
				*failed = errors.New(response.Result.Message)
			}
		}
	}
	agent, err := hooks.NewEngine(b.ctx, rt, hooks.Config{Plugins: []hooks.PluginConfig{{Config: host.Config{Name: "batch-resource", Module: host.ModuleConfig{File: g.batch}}}}})
	if err != nil {
		return err
	}
	request := hookRequest()
	request.Level, request.Container = abi.LevelContainer, hookmsg.ContainerMeta{Name: "worker"}
	request.PodLabels["koordinator.sh/qosClass"] = "BE"
	request.PodAnnotations["node.koordinator.sh/extended-resource-spec"] = `{"containers": {"worker": {
		"requests": {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "1Gi"},
		"limits": {"kubernetes.io/batch-cpu": "1500", "kubernetes.io/batch-memory": "1Gi"}}}}`
	g.decision = func(n int) {
		for range n {
			d, err := agent.Decide(b.ctx, request)
			if err == nil && (d == nil || d.Resources == nil || *d.Resources.CPUShares != 512) {
				err = fmt.Errorf("unexpected decision %+v", d)
			}
			if err != nil {
				*failed = err
			}
		}
	}
	return nil
}

// addSizes adds the sizes of the modules, the time of a cold load, and the memory of an instance.
func (g *languageGuests) addSizes(b *bench) error {
	small := g.language == guestbuild.C || g.language == guestbuild.Rust
	for _, m := range []struct{ name, file string }{{"zone", g.zone}, {"required-labels", g.labels}, {"batch-resource", g.batch}} {
		info, err := os.Stat(m.file)
		if err != nil {
			return err
		}
		limit := ""
		if small {
			limit = fmt.Sprintf("<= %d KB", maxSmallModule/1000)
		}
		b.add(fmt.Sprintf("size of %s in %s", m.name, g.language.Title), fmt.Sprintf("%.1f KB", float64(info.Size())/1e3), "-", "-", 0, limit, info.Size() <= maxSmallModule)
	}
	var times []float64
	var memory uint64
	for range 3 {
		rt, err := host.NewRuntime(host.RuntimeConfig{})
		if err != nil {
			return err
		}
		start := time.Now()
		p, err := rt.Load(b.ctx, host.Config{Name: "cold", Module: host.ModuleConfig{File: g.zone}}, host.Adapter{Kind: abi.KindScheduler, Imports: schedulerImports(nil)})
		times = append(times, float64(time.Since(start)))
		if err == nil {
			memory = p.Stats().MemoryBytes
		}
		if err := errors.Join(err, rt.Close(b.ctx)); err != nil {
			return err
		}
	}
	b.add("load zone in "+g.language.Title+" from a cold cache", short(time.Duration(median(times))), "-", "-", 0, "", false)
	b.add("memory of an instance of zone in "+g.language.Title, fmt.Sprintf("%.0f KiB", float64(memory)/1024), "-", "-", 0, "", false)
	return nil
}
