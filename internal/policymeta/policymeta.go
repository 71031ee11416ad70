// Package policymeta reads the metadata that Kubewarden's tools write into the modules of policies.
package policymeta

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/policyjson"
)

// Section is the custom section with the metadata of a policy.
const Section = "io.kubewarden.metadata"

// Metadata is the metadata of a policy.
type Metadata struct {
	ExecutionMode string `json:"executionMode"`
	Mutating      bool   `json:"mutating"`
	// Rules are the operations and resources that the policy is made for, as in a webhook
	// configuration.
	Rules json.RawMessage `json:"rules"`
	// ContextAwareResources are the kinds of the cluster's objects that the policy looks up.
	ContextAwareResources []ContextAwareResource `json:"contextAwareResources"`
	// HostCapabilities are the operations called by the policy, as far as the author's tools detect
	// them.
	HostCapabilities []string `json:"hostCapabilities"`
}

// ContextAwareResource is a kind of objects.
type ContextAwareResource struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

// Of returns the metadata of a module, empty if it has none.
func Of(m *host.Module) (Metadata, error) {
	var metadata Metadata
	section := m.Custom(Section)
	if section == nil {
		return metadata, nil
	}
	if err := policyjson.Decode(section, &metadata); err != nil {
		return Metadata{}, fmt.Errorf("read the custom section %s: %w", Section, err)
	}
	return metadata, nil
}

// Rules returns the rules in the metadata of a module, none if it has none.
func Rules(m *host.Module) ([]metadata.Rule, error) {
	theirs, err := Of(m)
	if err != nil || len(theirs.Rules) == 0 {
		return nil, err
	}
	said := metadata.Metadata{ABI: 1}
	if err := json.Unmarshal(theirs.Rules, &said.Matches); err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	return said.Matches, said.Validate()
}

// CheckKinds returns an error if the policy lacks grants for the objects that its metadata name. It
// would get an error or find nothing, and decide on that. sees reports whether the policy may see
// objects of a kind, at least in some namespaces; cluster whether there is a cluster to look at.
func CheckKinds(m *host.Module, sees func(kind schema.GroupVersionKind) bool, cluster bool) error {
	metadata, err := Of(m)
	if err != nil {
		return err
	}
	var missing []string
	for _, r := range metadata.ContextAwareResources {
		gv, err := schema.ParseGroupVersion(r.APIVersion)
		if err != nil {
			return fmt.Errorf("read the custom section %s: contextAwareResources: %w", Section, err)
		}
		if !sees(gv.WithKind(r.Kind)) {
			missing = append(missing, r.APIVersion+" "+r.Kind)
		}
	}
	switch {
	case len(missing) != 0:
		return fmt.Errorf("the policy looks up objects that contextAwareResources of its configuration does not grant: %.1000s", strings.Join(missing, ", "))
	case len(metadata.ContextAwareResources) != 0 && !cluster:
		return errors.New("the policy looks up objects of its contextAwareResources, and the host has no cluster to look at")
	}
	return nil
}
