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
		all := p.matchWarnings(p.cfg.Match.Rules)
		if p.validates() {
			all = append(all, passedBy(p.cfg.Match.Rules)...)
		}
		return all
	case *Group:
		var all []string
		for i, name := range p.expression.Names() {
			for _, warning := range p.members[i].matchWarnings(p.cfg.Match.Rules) {
				all = append(all, "member "+name+": "+warning)
			}
		}
		return append(all, passedBy(p.cfg.Match.Rules)...)
	}
	return nil
}

// detours are operations on subresources that do what a policy about the resource itself would
// see, and is not asked about.
var detours = []struct {
	of, by asking
	does   string
}{
	{asking{"UPDATE", "", "v1", "pods", ""}, asking{"UPDATE", "", "v1", "pods", "ephemeralcontainers"}, "adds containers to a Pod, as kubectl debug does"},
	{asking{"DELETE", "", "v1", "pods", ""}, asking{"CREATE", "", "v1", "pods", "eviction"}, "deletes a Pod"},
}

// passedBy returns a warning for each subresource by which a request gets past rules.
func passedBy(rules []admissionregistrationv1.RuleWithOperations) (warnings []string) {
	if len(rules) == 0 {
		return nil // Every subresource is asked about.
	}
	got, known := askingsOf(askedOf(rules))
	if !known {
		return nil
	}
	covered := func(a asking) bool {
		return slices.ContainsFunc(got, func(g asking) bool { return g.covers(a) })
	}
	for _, d := range detours {
		if covered(d.of) && !covered(d.by) {
			warnings = append(warnings, fmt.Sprintf("match has %s %s and not %s %s, which %s", d.of.operation, d.of.name(), d.by.operation, d.by.name(), d.does))
		}
	}
	return warnings
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
	want, wanted := askingsOf(declared)
	got, known := askingsOf(askedOf(rules))
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
	if some := narrower(want, got); len(rules) != 0 && some != "" {
		warnings = append(warnings, "match has all versions of what the module is for in these only: "+some)
	}
	return warnings
}

// Unsent returns what the policy is asked about by its Rules and the rules of webhook
// configurations do not send, as in "UPDATE pods"; empty if they send all of it. Versions are left
// aside, between which API servers convert, and so are selectors, scopes and match conditions. A
// policy without Rules is asked about what comes.
func (d *Description) Unsent(sent []admissionregistrationv1.RuleWithOperations) string {
	want, wanted := askingsOf(askedOf(d.Rules))
	got := []asking{}
	known := true
	if len(sent) != 0 {
		got, known = askingsOf(askedOf(sent))
	}
	if len(d.Rules) == 0 || !wanted || !known {
		return ""
	}
	for _, list := range [][]asking{want, got} {
		for i := range list {
			list[i].version = "*"
		}
	}
	return uncovered(want, got)
}

// askedOf returns rules in the form of those that a module declares.
func askedOf(rules []admissionregistrationv1.RuleWithOperations) []metadata.Rule {
	if len(rules) == 0 {
		return []metadata.Rule{anything}
	}
	var asked []metadata.Rule
	for _, r := range rules {
		rule := metadata.Rule{APIGroups: r.APIGroups, APIVersions: r.APIVersions, Resources: r.Resources}
		for _, operation := range r.Operations {
			rule.Operations = append(rule.Operations, string(operation))
		}
		asked = append(asked, rule)
	}
	return asked
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

// uncovered returns which of the askings none of others covers.
func uncovered(askings, others []asking) string {
	return list(askings, func(a asking) bool {
		return !slices.ContainsFunc(others, func(o asking) bool { return o.covers(a) })
	})
}

// narrower returns which of the askings name versions of what others have in all versions, and
// are not among askings in all versions as well.
func narrower(askings, others []asking) string {
	return list(askings, func(a asking) bool {
		all := func(o asking) bool { return o.version == "*" && o.covers(a) }
		return a.version != "*" && slices.ContainsFunc(others, all) && !slices.ContainsFunc(askings, all)
	})
}

// list returns the askings that are chosen as a text: resources as kubectl names them, with
// their operations.
func list(askings []asking, chosen func(asking) bool) string {
	operations := map[string][]string{}
	var names []string
	for _, a := range askings {
		if !chosen(a) {
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
