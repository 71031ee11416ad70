package sched

import (
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/abi"
)

// Each part implements one extension point of the framework.
type (
	preFilter struct{ p *plugin }
	filter    struct{ p *plugin }
	score     struct{ p *plugin }
)

var (
	_ fwk.PreFilterPlugin = struct {
		*plugin
		preFilter
	}{}
	_ fwk.FilterPlugin = struct {
		*plugin
		filter
	}{}
	_ fwk.ScorePlugin = struct {
		*plugin
		score
	}{}
	_ fwk.ScoreExtensions = score{}
)

// as returns a value that implements exactly the extension points of mask: the
// framework finds out by type assertion what a plugin does, and Go has no way
// to take a method from a value.
func (p *plugin) as(mask abi.Mask) Plugin {
	pf, f, s := preFilter{p}, filter{p}, score{p}
	has := func(fn abi.Function) bool { return mask.Has(fn) }
	switch {
	case has(abi.PreFilter) && has(abi.Filter) && has(abi.Score):
		return struct {
			*plugin
			preFilter
			filter
			score
		}{p, pf, f, s}
	case has(abi.PreFilter) && has(abi.Filter):
		return struct {
			*plugin
			preFilter
			filter
		}{p, pf, f}
	case has(abi.PreFilter) && has(abi.Score):
		return struct {
			*plugin
			preFilter
			score
		}{p, pf, s}
	case has(abi.Filter) && has(abi.Score):
		return struct {
			*plugin
			filter
			score
		}{p, f, s}
	case has(abi.PreFilter):
		return struct {
			*plugin
			preFilter
		}{p, pf}
	case has(abi.Filter):
		return struct {
			*plugin
			filter
		}{p, f}
	case has(abi.Score):
		return struct {
			*plugin
			score
		}{p, s}
	}
	return p
}
