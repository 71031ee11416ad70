package policyserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/admission/kubewarden/capabilities"
	"github.com/kubewasm/kubewasm/internal/strict"
	"github.com/kubewasm/kubewasm/internal/yaml12"
)

// File is the content of a policies.yml.
type File struct {
	// Policies are the policies and groups by their ids, which are the last part of their
	// paths.
	Policies map[string]Policy
	// Warnings names the fields unknown to this server. Like Kubewarden's server it ignores them,
	// since a newer controller may write some.
	Warnings []string
}

// Policy is a policy, or a group if it has Policies.
type Policy struct {
	// NamespacedName is the resource of the policy. The controller writes it for its own use; here,
	// a policy with a namespace is namespaced.
	NamespacedName struct{ Namespace, Name string } `json:"namespacedName"`
	Member         `json:",inline"`
	// PolicyMode is protect or monitor. Empty means protect.
	PolicyMode string `json:"policyMode"`
	// AllowedToMutate allows the policy to change objects.
	AllowedToMutate bool `json:"allowedToMutate"`
	// Message, if set, is the message of a denial to the user. A group needs it.
	Message string `json:"message"`
	// Policies are the members of a group by their names in Expression.
	Policies   map[string]Member `json:"policies"`
	Expression string            `json:"expression"`
}

// Member holds the common fields of policies and members of groups.
type Member struct {
	// Module is the URL of the module.
	Module string `json:"module"`
	// Settings is an object, passed to the policy unchanged.
	Settings json.RawMessage `json:"settings"`
	// Unfit names each value that Settings cannot hold, such as .inf. Such a policy is not loaded;
	// the others in the file are.
	Unfit []string `json:"-"`
	// ContextAwareResources are the kinds of objects that the policy may look up.
	ContextAwareResources []capabilities.Kind `json:"contextAwareResources"`
	// TimeoutEvalSeconds bounds the time of an evaluation; nil means Config.Timeout.
	TimeoutEvalSeconds *int64 `json:"timeoutEvalSeconds"`
	// HostCapabilities are the host capabilities granted to the policy. Older controllers of
	// Kubewarden do not write the field. Without it, the policy has lookups of
	// ContextAwareResources, and Guests.DefaultCapabilities.
	HostCapabilities []string `json:"hostCapabilities"`
}

// The modes of policies.
const (
	protect = "protect"
	monitor = "monitor"
)

// maxFileBytes bounds the size of a file with its aliases expanded. A ConfigMap has 1 MiB.
const maxFileBytes = 64 << 20

// ParseFile reads a policies.yml, in YAML 1.2 or JSON, as Kubewarden's server does: NO is a string.
// The error joins all mistakes in the form of the file. Errors in a module, its settings or an
// expression concern one policy, and occur when it is loaded.
func ParseFile(data []byte) (*File, error) {
	document, unfit, err := yaml12.ToJSON(data, maxFileBytes)
	if err != nil {
		return nil, fmt.Errorf("read policies: %w", err)
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(document, &raw); err != nil || raw == nil {
		return nil, errors.New("read policies: it is no mapping of ids to policies; {} says that there are none")
	}
	f := &File{Policies: make(map[string]Policy, len(raw))}
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(raw)) {
		var p Policy
		unknown, err := strict.Unmarshal(raw[id], &p)
		for _, u := range unknown {
			f.Warnings = append(f.Warnings, fmt.Sprintf("policy %q: %v", id, u))
		}
		mistakes := []error{err}
		if err == nil {
			mistakes = append(p.unfit(id, unfit), p.check(id)...)
		}
		for _, mistake := range mistakes {
			if mistake != nil {
				errs = append(errs, fmt.Errorf("policy %.200q: %w", id, mistake))
			}
		}
		f.Policies[id] = p
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("read policies: %w", err)
	}
	return f, nil
}

// unfit assigns the unfit values in settings to the policy and its members, and returns errors for
// those elsewhere.
func (p *Policy) unfit(id string, all []yaml12.Unfit) (errs []error) {
	for _, u := range all {
		if u.Path[0] != id {
			continue
		}
		u.Path = u.Path[1:]
		switch path := u.Path; {
		case len(path) > 1 && path[0] == "settings":
			p.Unfit = append(p.Unfit, u.Error())
		case len(path) > 3 && path[0] == "policies" && path[2] == "settings":
			m := p.Policies[path[1]]
			u.Path = path[2:]
			m.Unfit = append(m.Unfit, u.Error())
			p.Policies[path[1]] = m
		default:
			errs = append(errs, u)
		}
	}
	return errs
}

// check returns all mistakes in the form of a policy.
func (p *Policy) check(id string) (errs []error) {
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if id == "" || strings.Contains(id, "/") {
		fail("an id is not empty and has no /: it is a part of a path")
	}
	if p.PolicyMode != "" && p.PolicyMode != protect && p.PolicyMode != monitor {
		fail("policyMode is %.80q, want %s or %s", p.PolicyMode, protect, monitor)
	}
	switch group := len(p.Policies) != 0; {
	case group && p.Module != "":
		fail("it has a module and policies: it is a policy, or a group")
	case group:
		if p.Expression == "" {
			fail("expression is missing")
		}
		if p.Message == "" {
			fail("message is missing, which a group has")
		}
		for _, name := range slices.Sorted(maps.Keys(p.Policies)) {
			m := p.Policies[name]
			if name == "" || strings.Contains(name, "/") {
				fail("member %.80q: a name is not empty and has no /", name)
			}
			if m.Module == "" {
				fail("member %s: module is missing", name)
			}
			for _, err := range m.check() {
				fail("member %s: %w", name, err)
			}
		}
	case p.Module == "":
		fail("it has neither a module nor policies")
	}
	return append(errs, p.Member.check()...)
}

func (m *Member) check() (errs []error) {
	if settings := bytes.TrimSpace(m.Settings); len(settings) != 0 && settings[0] != '{' && string(settings) != "null" {
		errs = append(errs, errors.New("settings are no mapping"))
	}
	if m.TimeoutEvalSeconds != nil && *m.TimeoutEvalSeconds < 1 {
		errs = append(errs, fmt.Errorf("timeoutEvalSeconds is %d, want at least 1", *m.TimeoutEvalSeconds))
	}
	for _, r := range m.ContextAwareResources {
		if _, err := schema.ParseGroupVersion(r.APIVersion); err != nil || r.APIVersion == "" || r.Kind == "" {
			errs = append(errs, fmt.Errorf("contextAwareResources has apiVersion %.80q, kind %.80q", r.APIVersion, r.Kind))
		}
	}
	return errs
}

// mode returns the mode of a policy.
func (p *Policy) mode() string {
	if p.PolicyMode == monitor {
		return monitor
	}
	return protect
}

// namespaced reports whether the policy belongs to users of one namespace: an AdmissionPolicy
// or an AdmissionPolicyGroup.
func (p *Policy) namespaced(id string) bool {
	return p.NamespacedName.Namespace != "" || strings.HasPrefix(id, "namespaced-")
}

// domain returns the trust domain of the policy with an id: its namespace, or all policies of the cluster.
// If only the id tells that there is a namespace, the policy is alone.
func (p *Policy) domain(id string) string {
	switch {
	case p.NamespacedName.Namespace != "":
		return "namespace " + p.NamespacedName.Namespace
	case p.namespaced(id):
		return "policy " + id
	}
	return "cluster"
}

// built returns the part of a policy that requires loading after a change, in JSON. The other
// fields apply to answers, and a change of them loads nothing.
func (p *Policy) built() string {
	part := *p
	part.NamespacedName.Name, part.PolicyMode, part.AllowedToMutate = "", "", false
	if len(part.Policies) == 0 {
		part.Message = ""
	}
	unfit := [][]string{part.Unfit}
	for _, name := range slices.Sorted(maps.Keys(part.Policies)) {
		unfit = append(unfit, part.Policies[name].Unfit)
	}
	text, err := json.Marshal([]any{part, unfit})
	if err != nil {
		panic(err) // Never fails: p came from JSON.
	}
	return string(text)
}

// members returns the members of a group, or a policy as its only member, with an empty name.
func (p *Policy) members() map[string]Member {
	if len(p.Policies) != 0 {
		return p.Policies
	}
	return map[string]Member{"": p.Member}
}

// granted returns the grants of policies.yml. Without any, it returns otherwise and lookups of the
// kinds that the policy may see.
func (m *Member) granted(otherwise []string) []string {
	switch {
	case m.HostCapabilities != nil:
		return m.HostCapabilities
	case len(m.ContextAwareResources) != 0:
		return append([]string{"kubernetes/*"}, otherwise...)
	}
	return otherwise
}

// timeout returns the time limit of an evaluation, otherwise if the policy sets none.
func (m *Member) timeout(otherwise time.Duration) time.Duration {
	if m.TimeoutEvalSeconds != nil {
		return time.Duration(min(*m.TimeoutEvalSeconds, int64(maxEvaluation/time.Second))) * time.Second
	}
	return otherwise
}
