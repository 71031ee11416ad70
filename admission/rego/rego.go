package rego

import (
	"encoding/json"
	"errors"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/dialect"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/policymeta"
)

// Name is the name of the dialect, and Member its name in the configuration of a plugin.
const (
	Name   = "opa"
	Member = "rego"
)

// Config is the configuration of a plugin for the dialect.
type Config struct {
	// Gatekeeper marks a policy that is written for Gatekeeper. It is not needed if the module has
	// the entrypoint violation, or if Kubewarden's metadata in the module declare it.
	Gatekeeper bool `json:"gatekeeper,omitempty"`
	// ContextAwareResources are the kinds of objects that the policy finds in data: in
	// data.inventory if it is written for Gatekeeper, and otherwise in data.kubernetes. They must
	// include the kinds named by the metadata of its module.
	ContextAwareResources []dialect.Kind `json:"contextAwareResources,omitempty"`
}

// Check returns all mistakes in c, joined; nil if there are none.
func (c *Config) Check() error { return errors.Join(dialect.CheckKinds(c.ContextAwareResources)...) }

// Options are the options of the dialect that a program sets.
type Options struct {
	// Cluster has the objects that policies look up; without it, they cannot look objects up.
	Cluster admission.Cluster
}

// New returns the dialect.
func New(o Options) *dialect.Dialect {
	return &dialect.Dialect{
		Name:   Name,
		Member: Member,
		Detect: func(m *host.Module) bool { return m.Export("opa_eval") != "" || m.Export("opa_eval_ctx_new") != "" },
		Decode: func(raw json.RawMessage) (any, error) { return dialect.Strict[Config](raw) },
		Rules:  policymeta.Rules,
		Bind: func(p dialect.Plugin) (*dialect.Binding, error) {
			cfg := &config{plugin: p.Name, logger: p.Logger, settings: p.Settings, grants: p.Grants, cluster: o.Cluster != nil}
			if own, ok := p.Config.(*Config); ok {
				cfg.Config = *own
			}
			if len(cfg.ContextAwareResources) != 0 && o.Cluster == nil {
				return nil, errors.New("contextAwareResources need a cluster to look at, which the server does not have")
			}
			b := cfg.bind()
			if objects := newInventory(o.Cluster, cfg.ContextAwareResources); objects != nil {
				cfg.inventory = objects
				b.Wait, b.Close = objects.wait, objects.close
			}
			for _, k := range cfg.ContextAwareResources {
				b.Sealed = b.Sealed || p.Confidential.Seals(k.GroupVersionKind().Group, k.Kind)
			}
			return b, nil
		},
	}
}
