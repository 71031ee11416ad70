package policyserver

import (
	"slices"
	"strings"

	"github.com/kubewasm/kubewasm/admission/kubewarden/capabilities"
)

// scope returns the host capabilities of a policy: those that policies.yml grants and, if the
// policy belongs to a namespace, that Guests grants as well. policies.yml does not limit
// repositories and host names, so Guests does; without a limit there, all are granted.
func (g *Guests) scope(id string, m *Member, namespaced bool) capabilities.Scope {
	s := capabilities.Scope{HostCapabilities: unique(m.granted(g.DefaultCapabilities))}
	if namespaced {
		s.HostCapabilities = both(s.HostCapabilities, g.NamespacedCapabilities)
	}
	for _, kind := range m.ContextAwareResources {
		if !slices.ContainsFunc(s.ContextAwareResources, func(k capabilities.Kind) bool { return k.GroupVersionKind() == kind.GroupVersionKind() }) {
			s.ContextAwareResources = append(s.ContextAwareResources, kind)
		}
	}
	about := func(namespace string, own, all []string) []string {
		if !slices.ContainsFunc(s.HostCapabilities, func(p string) bool { return p == "*" || strings.HasPrefix(p, namespace+"/") }) {
			return nil
		}
		switch {
		case own != nil:
			return own
		case all != nil:
			return all
		}
		return []string{"*"}
	}
	own := g.Policies[id]
	s.Repositories, s.HostNames = about("oci", own.Repositories, g.Repositories), about("net", own.HostNames, g.HostNames)
	return s
}

// unique returns patterns without duplicates. The result is not nil.
func unique(patterns []string) []string {
	list := []string{}
	for _, p := range patterns {
		if !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	return list
}

// within reports whether the pattern by allows every operation that pattern allows.
func within(pattern, by string) bool {
	prefix, wild := strings.CutSuffix(by, "*")
	return pattern == by || wild && strings.HasPrefix(pattern, prefix)
}

// both returns the patterns that allow exactly what both lists allow.
func both(a, b []string) []string {
	var list []string
	for _, p := range a {
		for _, q := range b {
			switch {
			case within(p, q):
				list = append(list, p)
			case within(q, p):
				list = append(list, q)
			}
		}
	}
	return unique(list)
}

// takesAway reports whether next lacks a grant that p has. Without hostCapabilities, a policy has
// the grants in otherwise.
func (p *Policy) takesAway(next *Policy, otherwise []string) bool {
	later := next.members()
	for name, m := range p.members() {
		l := later[name]
		for _, kind := range m.ContextAwareResources {
			if !slices.ContainsFunc(l.ContextAwareResources, func(k capabilities.Kind) bool {
				return k.GroupVersionKind() == kind.GroupVersionKind() && (k.Namespaces == nil || kind.Namespaces != nil && !slices.ContainsFunc(kind.Namespaces, func(n string) bool { return !slices.Contains(k.Namespaces, n) }))
			}) {
				return true
			}
		}
		for _, granted := range m.granted(otherwise) {
			if !slices.ContainsFunc(l.granted(otherwise), func(by string) bool { return within(granted, by) }) {
				return true
			}
		}
	}
	return false
}
