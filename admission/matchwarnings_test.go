package admission_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	arv1 "k8s.io/api/admissionregistration/v1"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/testkit/race"
)

// withSection returns a module with a custom section at its end.
func withSection(module []byte, name, contents string) []byte {
	body := append(binary.AppendUvarint(nil, uint64(len(name))), name+contents...)
	return append(binary.AppendUvarint(append(module[:len(module):len(module)], 0), uint64(len(body))), body...)
}

// rule is a rule of a configuration, of operations and resources with commas.
func rule(operations, group, version, resources string) arv1.RuleWithOperations {
	r := arv1.RuleWithOperations{Rule: arv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: strings.Split(resources, ",")}}
	for _, o := range strings.Split(operations, ",") {
		r.Operations = append(r.Operations, arv1.OperationType(o))
	}
	return r
}

func TestMatchThatDiffersFromWhatTheModuleIsFor(t *testing.T) {
	plain, err := os.ReadFile(rulebreaker)
	if err != nil {
		t.Fatal(err)
	}
	matches := func(rules ...arv1.RuleWithOperations) (m []metadata.Rule) {
		for _, r := range rules {
			d := metadata.Rule{APIGroups: r.APIGroups, APIVersions: r.APIVersions, Resources: r.Resources}
			for _, o := range r.Operations {
				d.Operations = append(d.Operations, string(o))
			}
			m = append(m, d)
		}
		return m
	}
	ours := func(rules ...arv1.RuleWithOperations) []byte {
		module, err := metadata.Add(plain, &metadata.Metadata{Matches: matches(rules...), ABI: 1})
		if err != nil {
			t.Fatal(err)
		}
		return module
	}
	pods := rule("CREATE,UPDATE", "", "v1", "pods")
	many := rule("CREATE", "", "v1", "pods")
	for i := range 2000 {
		many.Resources = append(many.Resources, fmt.Sprintf("r%d", i))
	}
	const (
		debug    = "match has UPDATE pods.v1 and not UPDATE pods.v1/ephemeralcontainers, which adds containers to a Pod, as kubectl debug does"
		eviction = "match has DELETE pods.v1 and not CREATE pods.v1/eviction, which deletes a Pod"
	)
	for _, test := range []struct {
		name   string
		module []byte
		match  []arv1.RuleWithOperations
		want   []string
	}{
		{"the same", ours(pods), []arv1.RuleWithOperations{pods}, []string{debug}},
		{"the same, in other words", ours(rule("*", "", "v1", "pods,services")), []arv1.RuleWithOperations{rule("CREATE,CONNECT", "", "v1", "services,pods"), rule("DELETE,UPDATE", "", "v1", "pods"), rule("UPDATE,DELETE", "", "v1", "services")}, []string{debug, eviction}},
		{"a module that says nothing", plain, []arv1.RuleWithOperations{pods}, []string{debug}},
		{"more operations", ours(pods), []arv1.RuleWithOperations{rule("*", "", "v1", "pods")}, []string{"match has what the module is not for: DELETE,CONNECT pods.v1", debug, eviction}},
		{"more resources", ours(pods), []arv1.RuleWithOperations{rule("CREATE,UPDATE", "", "v1", "pods,pods/status"), rule("CREATE", "apps", "*", "deployments")},
			[]string{"match has what the module is not for: CREATE,UPDATE pods.v1/status; CREATE deployments.apps", debug}},
		{"no rules, which is everything", ours(pods), nil, []string{"match has what the module is not for: CREATE,UPDATE,DELETE,CONNECT *.*/*"}},
		{"no rules, and a module for everything", ours(rule("*", "*", "*", "*/*")), nil, nil},
		{"fewer operations", ours(pods), []arv1.RuleWithOperations{rule("CREATE", "", "v1", "pods")}, []string{"match leaves out what the module is for: UPDATE pods.v1"}},
		{"a version where the module leaves it open", ours(rule("CREATE", "stellar.org", "*", "stellarnodes")), []arv1.RuleWithOperations{rule("CREATE", "stellar.org", "v1", "stellarnodes")}, nil},
		{"all versions, and a module for one", ours(rule("CREATE,UPDATE", "autoscaling", "v2", "horizontalpodautoscalers")), []arv1.RuleWithOperations{rule("CREATE,UPDATE", "autoscaling", "*", "horizontalpodautoscalers")},
			[]string{"match has all versions of what the module is for in these only: CREATE,UPDATE horizontalpodautoscalers.v2.autoscaling"}},
		{"all versions, and a module for one and for all", ours(rule("CREATE,UPDATE", "autoscaling", "v2", "horizontalpodautoscalers"), rule("CREATE,UPDATE", "autoscaling", "*", "horizontalpodautoscalers")), []arv1.RuleWithOperations{rule("CREATE,UPDATE", "autoscaling", "*", "horizontalpodautoscalers")}, nil},
		{"the containers of Pods in each way", plain, []arv1.RuleWithOperations{rule("CREATE,UPDATE", "", "v1", "pods,pods/ephemeralcontainers")}, nil},
		{"new Pods alone", plain, []arv1.RuleWithOperations{rule("CREATE", "", "v1", "pods")}, nil},
		{"the deletion of Pods in each way", plain, []arv1.RuleWithOperations{rule("DELETE", "", "*", "*"), rule("CREATE", "*", "*", "*/eviction")}, nil},
		{"all resources, and no subresource", plain, []arv1.RuleWithOperations{rule("*", "*", "*", "*")}, []string{debug, eviction}},
		{"another version", ours(rule("CREATE", "stellar.org", "v1alpha1", "stellarnodes")), []arv1.RuleWithOperations{rule("CREATE", "stellar.org", "v1", "stellarnodes")},
			[]string{"match has what the module is not for: CREATE stellarnodes.v1.stellar.org", "match leaves out what the module is for: CREATE stellarnodes.v1alpha1.stellar.org"}},
		{"others", ours(pods), []arv1.RuleWithOperations{rule("CREATE", "", "v1", "services")},
			[]string{"match has what the module is not for: CREATE services.v1", "match leaves out what the module is for: CREATE,UPDATE pods.v1"}},
		{"subresources by a wildcard", ours(rule("CREATE", "", "v1", "pods/*")), []arv1.RuleWithOperations{rule("CREATE", "", "v1", "pods,pods/exec")}, []string{"match leaves out what the module is for: CREATE pods.v1/*"}},
		{"more than are named", ours(rule("CREATE", "", "v1", "a,b,c,d,e,f,g,h,i,j")), []arv1.RuleWithOperations{rule("CREATE", "", "v1", "a")},
			[]string{"match leaves out what the module is for: CREATE b.v1; CREATE c.v1; CREATE d.v1; CREATE e.v1; CREATE f.v1; CREATE g.v1; CREATE h.v1; CREATE i.v1; and 1 more"}},
		{"more than are compared", ours(pods), []arv1.RuleWithOperations{many}, []string{"match or the module has too many operations and resources to compare them"}},
		{"what is no metadata", withSection(plain, abi.MetadataSection, `{"abi":1,"matches":[{}]}`), []arv1.RuleWithOperations{pods},
			[]string{"the module's declaration of its requests is invalid: metadata: matches: operations is empty\nmatches: apiGroups is empty\nmatches: apiVersions is empty\nmatches: resources is empty", debug}},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := admission.PluginConfig{Config: host.Config{Name: "p", Module: host.ModuleConfig{Bytes: test.module}}}
			cfg.Match.Rules = test.match
			if got := admission.Describe(load(t, cfg)).MatchWarnings; strings.Join(got, "|") != strings.Join(test.want, "|") {
				t.Errorf("warnings are %q\nwant %q", got, test.want)
			}
		})
	}
	t.Run("a group", func(t *testing.T) {
		cfg := admission.GroupConfig{Name: "g", Members: map[string]*admission.Plugin{}, Expression: "b() && a() && c()", Message: "no"}
		cfg.Match.Rules = []arv1.RuleWithOperations{rule("CREATE", "", "v1", "pods")}
		for name, module := range map[string][]byte{"a": plain, "b": ours(pods), "c": ours(rule("CREATE,DELETE", "", "*", "pods"))} {
			cfg.Members[name] = load(t, admission.PluginConfig{Config: host.Config{Name: name, Module: host.ModuleConfig{Bytes: module}}})
		}
		g, err := admission.NewGroup(cfg)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(admission.Describe(g).MatchWarnings, "|")
		if want := "member b: match leaves out what the module is for: UPDATE pods.v1|member c: match leaves out what the module is for: DELETE pods"; got != want {
			t.Errorf("warnings are %s\nwant %s", got, want)
		}
	})
}

// A description costs little once it is known, and changes with the module and with the rules of a group.
func TestDescribeFollowsTheModule(t *testing.T) {
	plain, err := os.ReadFile(rulebreaker)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "p.wasm")
	put := func(operations ...string) {
		t.Helper()
		module, err := metadata.Add(plain, &metadata.Metadata{ABI: 1, Matches: []metadata.Rule{{Operations: operations, APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"secrets"}}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, module, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("CREATE")
	p := load(t, admission.PluginConfig{Config: host.Config{Name: "p", Module: host.ModuleConfig{Source: host.File(file)}}})
	first := admission.Describe(p)
	if n := testing.AllocsPerRun(100, func() { admission.Describe(p) }); n > 1 && !race.Enabled {
		t.Errorf("%v allocations of a description that is known, want 1 at most", n)
	}
	put("CREATE", "DELETE")
	if err := p.Guest().Swap(t.Context(), host.File(file), ""); err != nil {
		t.Fatal(err)
	}
	second := admission.Describe(p)
	if len(second.Rules) != 1 || len(second.Rules[0].Operations) != 2 || second.Version == first.Version {
		t.Errorf("after another module: rules %v, version %s, was %s", second.Rules, second.Version, first.Version)
	}
	for _, test := range []struct{ operations, want string }{
		{"CREATE", "member p: match leaves out what the module is for: DELETE secrets.v1"},
		{"CREATE,DELETE", ""},
		{"DELETE", "member p: match leaves out what the module is for: CREATE secrets.v1"},
	} {
		cfg := admission.GroupConfig{Name: "g", Members: map[string]*admission.Plugin{"p": p}, Expression: "p()", Message: "no"}
		cfg.Match.Rules = []arv1.RuleWithOperations{rule(test.operations, "", "v1", "secrets")}
		g, err := admission.NewGroup(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(admission.Describe(g).MatchWarnings, "|"); got != test.want {
			t.Errorf("group for %s: warnings are %q\nwant %q", test.operations, got, test.want)
		}
	}
}
