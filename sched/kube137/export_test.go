package kube137

import "github.com/kubewasm/kubewasm/host"

// Stats returns the state of the guest of p.
func Stats(p Plugin) host.Stats { return p.(interface{ engine() *plugin }).engine().Stats() }
