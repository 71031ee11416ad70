// The guest panics is a hook whose decision ends in a panic.
package main

import "github.com/kubewasm/kubewasm/guest/hooks"

//kubewasm:name panics
//kubewasm:version 1.2.3
//kubewasm:source https://example.com/panics
//kubewasm:licenses Apache-2.0 OR MIT
//kubewasm:reads pod_labels[tier] pod_annotations
//kubewasm:decides cpu_shares cfs_quota_us

type plugin struct{}

// dividedBy is small enough to be inlined where that is not prevented.
//
//go:noinline
func dividedBy(tier string) int64 {
	if tier == "" {
		panic("the tier is empty")
	}
	return 100 / int64(len(tier))
}

func (*plugin) Decide(req *hooks.Request, d *hooks.Decision) error {
	d.SetCPUShares(dividedBy(req.PodLabels().Get("tier")))
	return nil
}

func init() { hooks.Register(&plugin{}) }

func main() {}
