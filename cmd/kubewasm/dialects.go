package main

import (
	"encoding/json"
	"errors"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/dialect"
	"github.com/kubewasm/kubewasm/admission/kubewarden"
	"github.com/kubewasm/kubewasm/admission/kubewarden/capabilities"
	"github.com/kubewasm/kubewasm/admission/rego"
	"github.com/kubewasm/kubewasm/admission/stellar"
	"github.com/kubewasm/kubewasm/host"
)

// dialects returns the dialects of policies that the command knows. cluster and provider may be nil.
func dialects(cluster admission.Cluster, provider *capabilities.Provider) []*dialect.Dialect {
	return append(kubewarden.New(kubewarden.Options{Cluster: cluster, Capabilities: provider}), rego.New(rego.Options{Cluster: cluster}), stellar.New())
}

// policyDialect returns the dialect of a policy, nil for a guest of package abi.
func policyDialect(about *host.Module) *dialect.Dialect { return dialect.Of(about, dialects(nil, nil)) }

// looksUpByKind reports whether policies of a dialect look objects up by the kinds that
// contextAwareResources name, and not by grants. d may be nil.
func looksUpByKind(d *dialect.Dialect) bool {
	return d != nil && (d.Member == rego.Member || d.Member == kubewarden.Member)
}

// dialectConfig returns the configuration of a policy for its dialect: the kinds of objects that it
// sees, and the operations of its host that it calls if it is of Kubewarden. It is empty if there is
// nothing to configure. Kinds for a policy of another dialect are an error.
func dialectConfig(about *host.Module, gatekeeper bool, kinds []dialect.Kind, operations ...string) (dialect.Config, error) {
	d := policyDialect(about)
	var config any
	switch {
	case len(kinds) != 0 && !looksUpByKind(d):
		return nil, errors.New("contextAwareResources are for policies of Kubewarden and in Rego, and the module is none")
	case d == nil:
		return nil, nil
	case d.Member == rego.Member && (gatekeeper || len(kinds) != 0):
		config = rego.Config{Gatekeeper: gatekeeper, ContextAwareResources: kinds}
	case d.Member == kubewarden.Member && len(kinds)+len(operations) != 0:
		config = capabilities.Scope{HostCapabilities: operations, ContextAwareResources: kinds}
	default:
		return nil, nil
	}
	text, err := json.Marshal(config)
	return dialect.Config{d.Member: text}, err
}
