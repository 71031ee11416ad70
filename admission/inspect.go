package admission

import (
	"github.com/kubewasm/kubewasm/host"
)

// DialectOf returns the name of the ABI, other than that of package abi, that [Load] would
// take a module for; empty if it is a guest of package abi, or would be refused as one.
func DialectOf(m *host.Module) string {
	if d := dialectOf(dialectsFor(&PluginConfig{}), m); d != nil {
		return d.Host.Name
	}
	return ""
}
