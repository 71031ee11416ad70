package main

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/program"
	"github.com/kubewasm/kubewasm/internal/program/statusz"
)

// page returns the page of the agent.
func (a *agent) page(cfg *config) http.Handler {
	return &statusz.Config{
		Program: "kubewasm-agent", Version: program.ThisBuild().Short(), Runtime: a.runtime, Collector: a.status, Ready: a.ready, Paths: []string{"/healthz", "/readyz", "/metrics", "/state"},
		Caches: map[string]string{"compiled": cfg.CacheDir, "registries": cfg.Registries.CacheDir}, Declared: a.listed,
		ConfigErr: a.configErr,
	}
}

// listed returns the declared plugins for a page.
func (a *agent) listed() []statusz.Plugin {
	var list []statusz.Plugin
	selects := slices.ContainsFunc(a.everywhere, func(c pluginConfig) bool { return c.someNodes() })
	for i := range a.everywhere {
		c := &a.everywhere[i]
		p := statusz.Plugin{Name: c.Name, Mode: cmp.Or(c.Mode, host.Enforce), FailurePolicy: cmp.Or(c.FailurePolicy, host.Fail), Reference: statusz.Reference(a.runtime, c.Module)}
		if len(c.selectors) != 0 && !slices.Contains(a.places, i) {
			continue // The step of a rollout has another version for this node.
		}
		if selects && !slices.Contains(a.places, i) {
			p.State, p.Elsewhere, p.Reason = host.Disabled, true, "its nodeSelector does not select this node: "+c.NodeSelector
		}
		p.Background(a.engine.Shadow(c.Name), a.engine.Profile(c.Name))
		list = append(list, p)
	}
	return list
}
