package policyserver

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/kubewasm/kubewasm/admission/kubewarden/capabilities"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/confidential"
	"github.com/kubewasm/kubewasm/host/configfile"
	"github.com/kubewasm/kubewasm/internal/serving"
)

// Guests limits the resources and grants of policies. policies.yml cannot set these limits, since
// its author does not run the server. Guests is also a configuration file in YAML or JSON. The zero
// value has the default limits and grants nothing.
type Guests struct {
	// Guest applies to all policies.
	Guest `json:",inline"`
	// NamespacedCapabilities are the host capabilities that policies of a namespace may use, if
	// their hostCapabilities have them too. Default none.
	NamespacedCapabilities []string `json:"namespacedCapabilities,omitempty"`
	// DefaultCapabilities replace hostCapabilities that are missing in policies.yml. Lookups of
	// contextAwareResources are granted as well. Kubewarden's controllers before 1.35 omit the
	// field, and their servers granted ["*"]. Policies of a namespace need NamespacedCapabilities
	// as well. Default none.
	DefaultCapabilities []string `json:"defaultCapabilities,omitempty"`
	// Answers bounds the cache of answers to policies, and the time of requests for them. The
	// program passes it to Config.Capabilities.
	Answers capabilities.Bounds `json:"answers,omitzero"`
	// Policies are limits and grants for single policies by their ids. Those of a group apply to
	// its members. A limit that is not set is that of all policies; grants are added.
	Policies map[string]Guest `json:"policies,omitempty"`
	// LogLevel is for the program: the level of the log as long as the file is in service, debug,
	// info, warn or error. Default is that of the program's flag.
	LogLevel *slog.Level `json:"logLevel,omitempty"`
}

// Guest configures the resources and grants of a policy.
type Guest struct {
	// Limits bound the instances of the policy and each evaluation. Limits.Timeout is ignored in
	// favor of policies.yml. The default of Limits.Fuel is enough for the whole timeout.
	Limits host.Limits `json:"limits,omitzero"`
	// Grants are those of [host.Config]: clock and random.
	Grants []string `json:"grants,omitempty"`
	// Reset determines when an instance is reset. Default [host.ResetPerCall]: no evaluation sees
	// memory of an earlier one, as in Kubewarden's server.
	Reset host.ResetPolicy `json:"reset,omitempty"`
	// Isolation is that of [host.Config].
	Isolation host.Isolation `json:"isolation,omitempty"`
	// Confidential names confidential values in addition to Secrets, tokens and the environment of
	// containers, as in [host.Config]. The rule of a policy adds to that of all policies.
	Confidential confidential.Rule `json:"confidential,omitzero"`
	// Repositories and HostNames limit the artifacts and addresses that the policy may ask about,
	// as in [capabilities.Scope]; nil means all.
	Repositories []string `json:"repositories,omitempty"`
	HostNames    []string `json:"hostNames,omitempty"`
}

// ReadGuests reads Guests. The error lists every unknown field. An empty text yields the zero
// value.
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

// Check returns all mistakes in the grants and the bounds of answers.
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
		// Only the subjects of the operations are checked here.
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

// ReadGuestsFile is ReadGuests for a file; an empty name yields the zero value.
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

// maxEvaluation is the maximum time of an evaluation: no API server waits longer.
const maxEvaluation = serving.MaxTimeout

// of returns the resources and grants of a policy with the given timeout.
func (g *Guests) of(id string, timeout time.Duration) Guest {
	own, all := g.Policies[id], g.Guest
	guest := Guest{Grants: append(append([]string{}, all.Grants...), own.Grants...), Reset: cmp.Or(own.Reset, all.Reset, host.ResetPerCall), Isolation: cmp.Or(own.Isolation, all.Isolation)}
	guest.Limits = own.Limits.Or(all.Limits)
	guest.Limits.Timeout = timeout
	guest.Confidential = all.Confidential.Plus(own.Confidential)
	if guest.Limits.Fuel == 0 {
		// The default is enough for about a second.
		seconds := max(1, math.Ceil(timeout.Seconds()))
		guest.Limits.Fuel = int64(seconds) * host.DefaultLimits().Fuel
	}
	return guest
}

// guestsOf is the part of Guests that concerns a policy, in JSON.
type guestsOf struct {
	// grants are the grants and host capabilities, and the rule of confidential values; limits are
	// the limits.
	grants, limits string
}

// about returns the part of Guests that concerns a policy.
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
			panic(err) // Never fails: the value can be encoded in JSON.
		}
		return string(text)
	}
	return guestsOf{grants: text(struct {
		Guest
		Namespaced, Default []string
	}{guest, namespaced, otherwise}), limits: text(limits)}
}
