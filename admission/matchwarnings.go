package admission

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/metadata"
)

// matchWarnings returns the MatchWarnings of the Description of p.
func matchWarnings(p Policy) []string {
	switch p := inner(p).(type) {
	case *Plugin:
		all := slices.Clip(p.describe(p.cfg.Match.Rules).warnings)
		if p.validates() {
			all = append(all, passedBy(p.cfg.Match.Rules)...)
		}
		return all
	case *Group:
		var all []string
		for i, name := range p.expression.Names() {
			for _, warning := range p.members[i].describe(p.cfg.Match.Rules).warnings {
				all = append(all, "member "+name+": "+warning)
			}
		}
		return append(all, passedBy(p.cfg.Match.Rules)...)
	}
	return nil
}

// detours are operations on subresources that bypass a policy about the resource itself, with the
// same effect.
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
		return nil // The rules match every subresource.
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

// mismatches compares rules with those that a module declares.
func mismatches(declared []metadata.Rule, rules []admissionregistrationv1.RuleWithOperations) []string {
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

// Unsent returns the operations that Rules match and the rules of webhook configurations do not
// send, as in "UPDATE pods". It is empty if they send everything. Versions are ignored, since API
// servers convert between them, and so are selectors, scopes and match conditions. A policy without
// Rules misses nothing.
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

// askedOf returns rules in the form of a module's declarations.
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
	if p.dialect == nil || p.dialect.Rules == nil {
		return nil, nil
	}
	return p.dialect.Rules(m)
}

// anything is the rule of a policy without rules.
var anything = metadata.Rule{Operations: []string{"*"}, APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}}

// asking is one operation on one resource; "*" matches any.
type asking struct{ operation, group, version, resource, sub string }

// maxAskings bounds the askings on each side of a comparison, whose cost is their product.
const maxAskings = 1 << 10

// askingsOf expands rules into askings. ok is false if there are too many.
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

// covers reports whether every request matched by b is matched by a. A side without a version has
// the version of the other.
func (a asking) covers(b asking) bool {
	within := func(a, b string) bool { return a == "*" || a == b }
	return a.operation == b.operation && within(a.group, b.group) && (b.version == "*" || within(a.version, b.version)) && within(a.resource, b.resource) && within(a.sub, b.sub)
}

// shownAskings is the maximum number of resources in a warning.
const shownAskings = 8

// uncovered returns the askings not covered by others.
func uncovered(askings, others []asking) string {
	return list(askings, func(a asking) bool {
		return !slices.ContainsFunc(others, func(o asking) bool { return o.covers(a) })
	})
}

// narrower returns the askings that name versions of resources that others match in all versions,
// unless askings also has them in all versions.
func narrower(askings, others []asking) string {
	return list(askings, func(a asking) bool {
		all := func(o asking) bool { return o.version == "*" && o.covers(a) }
		return a.version != "*" && slices.ContainsFunc(others, all) && !slices.ContainsFunc(askings, all)
	})
}

// list returns the chosen askings as a text: resources as in kubectl, with their operations.
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

// name returns the resource as written in //kubewasm:matches.
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
