package admission

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/admission/internal/kubewarden"
)

// matchWarnings returns the MatchWarnings of the Description of p.
func matchWarnings(p Policy) []string {
	switch p := p.(type) {
	case *Plugin:
		return p.matchWarnings(p.cfg.Match.Rules)
	case *Group:
		var all []string
		for i, name := range p.expression.Names() {
			for _, warning := range p.members[i].matchWarnings(p.cfg.Match.Rules) {
				all = append(all, "member "+name+": "+warning)
			}
		}
		return all
	}
	return nil
}

// matchWarnings compares rules with those that the module declares.
func (p *Plugin) matchWarnings(rules []admissionregistrationv1.RuleWithOperations) []string {
	declared, err := p.declared()
	if err != nil {
		return []string{fmt.Sprintf("the module says what it is for, wrongly: %v", err)}
	}
	if len(declared) == 0 {
		return nil
	}
	asked := []metadata.Rule{anything}
	if len(rules) != 0 {
		asked = asked[:0]
		for _, r := range rules {
			rule := metadata.Rule{APIGroups: r.APIGroups, APIVersions: r.APIVersions, Resources: r.Resources}
			for _, operation := range r.Operations {
				rule.Operations = append(rule.Operations, string(operation))
			}
			asked = append(asked, rule)
		}
	}
	want, wanted := askingsOf(declared)
	got, known := askingsOf(asked)
	if !wanted || !known {
		return []string{"match or the module has too many operations and resources to compare them"}
	}
	var warnings []string
	if more := uncovered(got, want); more != "" {
		warnings = append(warnings, "match has what the module is not for: "+more)
	}
	if less := uncovered(want, got); less != "" {
		warnings = append(warnings, "match leaves out what the module is for: "+less)
	}
	return warnings
}

// declared returns the rules that the module declares, none if it declares none.
func (p *Plugin) declared() ([]metadata.Rule, error) {
	m := p.guest.Module()
	if section := m.Custom(abi.MetadataSection); section != nil {
		said, err := metadata.Parse(section)
		if err != nil {
			return nil, err
		}
		return said.Matches, nil
	}
	said := metadata.Metadata{ABI: 1}
	theirs, err := kubewarden.MetadataOf(m)
	if err != nil || len(theirs.Rules) == 0 {
		return nil, err
	}
	if err := json.Unmarshal(theirs.Rules, &said.Matches); err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	return said.Matches, said.Validate()
}

// anything is what a policy without rules is asked about.
var anything = metadata.Rule{Operations: []string{"*"}, APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}}

// asking is one operation on one resource: "*" is any.
type asking struct{ operation, group, version, resource, sub string }

// maxAskings is how many there may be on a side of a comparison, which takes their
// product.
const maxAskings = 1 << 10

// askingsOf returns what rules match, one by one; ok is false if it is too much.
func askingsOf(rules []metadata.Rule) (all []asking, ok bool) {
	for _, r := range rules {
		operations := r.Operations
		if slices.Contains(operations, "*") {
			operations = []string{"CREATE", "UPDATE", "DELETE", "CONNECT"}
		}
		for _, operation := range operations {
			for _, group := range r.APIGroups {
				for _, version := range r.APIVersions {
					for _, name := range r.Resources {
						if len(all) == maxAskings {
							return nil, false
						}
						resource, sub, _ := strings.Cut(name, "/")
						all = append(all, asking{operation, group, version, resource, sub})
					}
				}
			}
		}
	}
	return all, true
}

// covers reports whether every request that b stands for is one that a stands for. A
// side that leaves the version open means the one that the other has.
func (a asking) covers(b asking) bool {
	within := func(a, b string) bool { return a == "*" || a == b }
	return a.operation == b.operation && within(a.group, b.group) && (b.version == "*" || within(a.version, b.version)) && within(a.resource, b.resource) && within(a.sub, b.sub)
}

// shownAskings is how many resources a warning names.
const shownAskings = 8

// uncovered returns which of the askings none of others covers, as a text: resources as
// kubectl names them, with their operations.
func uncovered(askings, others []asking) string {
	operations := map[string][]string{}
	var names []string
	for _, a := range askings {
		if slices.ContainsFunc(others, func(o asking) bool { return o.covers(a) }) {
			continue
		}
		name := a.name()
		if len(operations[name]) == 0 {
			names = append(names, name)
		}
		if !slices.Contains(operations[name], a.operation) {
			operations[name] = append(operations[name], a.operation)
		}
	}
	var parts []string
	for i, name := range names {
		if i == shownAskings {
			parts = append(parts, fmt.Sprintf("and %d more", len(names)-i))
			break
		}
		parts = append(parts, strings.Join(operations[name], ",")+" "+name)
	}
	return strings.Join(parts, "; ")
}

// name returns the resource as in //kubewasm:matches.
func (a asking) name() string {
	name := a.resource
	if a.version != "*" {
		name += "." + a.version
	}
	if a.group != "" {
		name += "." + a.group
	}
	if a.sub != "" {
		name += "/" + a.sub
	}
	return name
}
