package policyserver

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/capabilities"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/confidential"
	"github.com/kubewasm/kubewasm/host/configfile"
)

// Guests says what policies may use of the server: what no policies.yml can say, since its
// author is not the one who runs the server. It is a configuration file in YAML or JSON as
// well. The zero value has the default limits and grants nothing.
type Guests struct {
	// Guest is for all policies.
	Guest `json:",inline"`
	// NamespacedCapabilities are what policies of a namespace may ask the host for, as far as
	// their hostCapabilities have it too. Default nothing.
	NamespacedCapabilities []string `json:"namespacedCapabilities,omitempty"`
	// DefaultCapabilities take the place of hostCapabilities that policies.yml leaves out. Lookups
	// of contextAwareResources are granted beside them. Kubewarden's controllers before 1.35 leave
	// them out, and their servers granted ["*"]. Policies of a namespace need
	// NamespacedCapabilities as well. Default nothing.
	DefaultCapabilities []string `json:"defaultCapabilities,omitempty"`
	// Answers bound what is kept of the answers to policies, and how long it may take to ask.
	// The program gives them to Config.Capabilities.
	Answers capabilities.Bounds `json:"answers,omitzero"`
	// Policies are limits and grants for some policies by their ids, with which the members
	// of a group are loaded, too. A limit that is not given is that for all; grants are added.
	Policies map[string]Guest `json:"policies,omitempty"`
}

// Guest is what a policy may use.
type Guest struct {
	// Limits bound the instances of the policy and each evaluation. Limits.Timeout is
	// ignored: it is that of policies.yml. The default of Limits.Fuel is enough for the
	// whole timeout.
	Limits host.Limits `json:"limits,omitzero"`
	// Grants are those of [host.Config]: clock and random.
	Grants []string `json:"grants,omitempty"`
	// Reset is when an instance is reset. Default [host.ResetPerCall]: no evaluation sees what
	// an earlier one left in memory, as in Kubewarden's server.
	Reset host.ResetPolicy `json:"reset,omitempty"`
	// Confidential names what is confidential beside Secrets, tokens and the environment of
	// containers, as in [host.Config]. That of a policy adds to that for all.
	Confidential confidential.Rule `json:"confidential,omitzero"`
	// Repositories and HostNames are what the policy may ask about if it may ask for artifacts
	// and addresses, as in [capabilities.Scope]; nil is all.
	Repositories []string `json:"repositories,omitempty"`
	HostNames    []string `json:"hostNames,omitempty"`
}

// ReadGuests reads Guests. The error has every unknown field. An empty text is the zero value.
func ReadGuests(text []byte) (Guests, error) {
	var g Guests
	if len(text) == 0 {
		return g, nil
	}
	if err := configfile.YAML(text, &g); err != nil {
		return g, fmt.Errorf("read guests: %w", err)
	}
	return g, g.Check()
}

// Check returns everything that is wrong with the grants and the bounds of answers.
func (g *Guests) Check() error {
	errs := []error{checkGrants("guests", g.NamespacedCapabilities, g.Guest)}
	if len(g.DefaultCapabilities) != 0 {
		errs = append(errs, checkGrants("guests: defaultCapabilities", g.DefaultCapabilities, Guest{}))
	}
	if err := g.Answers.Check(); err != nil {
		errs = append(errs, fmt.Errorf("guests: answers: %w", err))
	}
	for _, id := range slices.Sorted(maps.Keys(g.Policies)) {
		errs = append(errs, checkGrants("guests: policy "+id, nil, g.Policies[id]))
	}
	return errors.Join(errs...)
}

func checkGrants(what string, hostCapabilities []string, guest Guest) error {
	s := capabilities.Scope{HostCapabilities: append([]string{}, hostCapabilities...), Repositories: guest.Repositories, HostNames: guest.HostNames}
	if len(hostCapabilities) == 0 {
		// What they are about is checked alone.
		s.HostCapabilities = []string{"*"}
	} else {
		s.Repositories, s.HostNames = append([]string{"*"}, s.Repositories...), append([]string{"*"}, s.HostNames...)
		if !slices.ContainsFunc(hostCapabilities, func(p string) bool { return p == "*" || strings.HasPrefix(p, "oci/") }) {
			s.Repositories = nil
		}
		if !slices.ContainsFunc(hostCapabilities, func(p string) bool { return p == "*" || strings.HasPrefix(p, "net/") }) {
			s.HostNames = nil
		}
	}
	if err := errors.Join(append(guest.Confidential.Check(), s.Check())...); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// ReadGuestsFile is ReadGuests of a file; none, an empty name, is the zero value.
func ReadGuestsFile(file string) (Guests, error) {
	if file == "" {
		return Guests{}, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return Guests{}, fmt.Errorf("read guests: %w", err)
	}
	return ReadGuests(text)
}

// maxEvaluation is how long an evaluation may take at most: no API server waits longer.
const maxEvaluation = admission.MaxTimeout

// of returns what a policy may use that may take timeout.
func (g *Guests) of(id string, timeout time.Duration) Guest {
	own, all := g.Policies[id], g.Guest
	guest := Guest{Grants: append(append([]string{}, all.Grants...), own.Grants...), Reset: cmp.Or(own.Reset, all.Reset, host.ResetPerCall)}
	guest.Limits = own.Limits.Or(all.Limits)
	guest.Limits.Timeout = timeout
	guest.Confidential = all.Confidential.Plus(own.Confidential)
	if guest.Limits.Fuel == 0 {
		// About a second for each of the default.
		seconds := max(1, math.Ceil(timeout.Seconds()))
		guest.Limits.Fuel = int64(seconds) * host.DefaultLimits().Fuel
	}
	return guest
}

// guestsOf is what Guests says of a policy, in JSON.
type guestsOf struct {
	// grants are what it may do and ask, and what is confidential; limits are the rest.
	grants, limits string
}

// about returns what Guests says of a policy.
func (g *Guests) about(id string, p *Policy) guestsOf {
	own := g.Policies[id]
	guest := g.of(id, 0)
	limits := guest.Limits
	guest.Limits = host.Limits{}
	guest.Repositories, guest.HostNames = g.Repositories, g.HostNames
	if own.Repositories != nil {
		guest.Repositories = own.Repositories
	}
	if own.HostNames != nil {
		guest.HostNames = own.HostNames
	}
	var namespaced []string
	if p.namespaced(id) {
		namespaced = g.NamespacedCapabilities
	}
	var otherwise []string
	for _, m := range p.members() {
		if m.HostCapabilities == nil {
			otherwise = g.DefaultCapabilities
		}
	}
	text := func(of any) string {
		text, err := json.Marshal(of)
		if err != nil {
			panic(err) // It came from JSON, or could be JSON.
		}
		return string(text)
	}
	return guestsOf{grants: text(struct {
		Guest
		Namespaced, Default []string
	}{guest, namespaced, otherwise}), limits: text(limits)}
}
