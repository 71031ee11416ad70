package main

import "github.com/kubewasm/kubewasm/guest/hooks"

//kubewasm:name share
//kubewasm:reads pod_labels[tier] resources
//kubewasm:decides cpu_shares container_envs[GOGC]

type share struct{}

func (share) Decide(req *hooks.Request, d *hooks.Decision) error {
	if req.PodLabels().Get("tier") == "batch" {
		d.SetCPUShares(128)
		d.SetContainerEnv("GOGC", "50")
	}
	return nil
}

func init() { hooks.Register(share{}) }

func main() {}
