package main

import "github.com/kubewasm/kubewasm/guest/hooks"

//kubewasm:name share
//kubewasm:reads pod_label pod_labels[
//kubewasm:decides cpu_share cpu_shares[a]

type share struct{}

func (share) Decide(req *hooks.Request, d *hooks.Decision) error {
	if req.PodLabels().Get("tier") == "batch" {
		d.SetCPUShares(128)
	}
	return nil
}

func init() { hooks.Register(share{}) }

func main() {}
