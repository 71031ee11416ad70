package sched

import (
	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/sched/internal/wasmextension"
)

// DialectOf returns the name of the ABI, other than that of package abi, in which [Load] would run
// a module; empty if it is a guest of package abi, or would be refused as one.
func DialectOf(m *host.Module) string {
	if m.Export(abi.Marker) != "" {
		return ""
	}
	for _, d := range wasmextension.Dialects(peerScheduler{}, wasmextension.Grants{}) {
		if d.Detect(m) {
			return d.Name
		}
	}
	return ""
}
