package policies_test

import (
	"os"
	"strings"
	"testing"

	arv1 "k8s.io/api/admissionregistration/v1"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/host"
)

// Kubewarden's metadata declare the rules of a policy, as those of package abi do.
func TestMatchThatDiffersFromWhatAPolicyIsFor(t *testing.T) {
	policy, err := os.ReadFile(buildC(t, "testdata/kubewarden/policy.c"))
	if err != nil {
		t.Fatal(err)
	}
	pods := rule("CREATE,UPDATE", "", "v1", "pods")
	const (
		debug    = "match has UPDATE pods.v1 and not UPDATE pods.v1/ephemeralcontainers, which adds containers to a Pod, as kubectl debug does"
		eviction = "match has DELETE pods.v1 and not CREATE pods.v1/eviction, which deletes a Pod"
	)
	const kubewarden = `[{"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"],"operations":["CREATE","UPDATE"]}]`
	for _, test := range []struct {
		name   string
		module []byte
		match  []arv1.RuleWithOperations
		want   []string
	}{
		{"a Kubewarden policy", withSection(policy, "io.kubewarden.metadata", `{"mutating":false,"rules":`+kubewarden+`}`), []arv1.RuleWithOperations{rule("CREATE,DELETE", "", "v1", "pods")},
			[]string{"match has what the module is not for: DELETE pods.v1", "match leaves out what the module is for: UPDATE pods.v1", eviction}},
		{"a Kubewarden policy with rules of another form", withSection(policy, "io.kubewarden.metadata", `{"mutating":false,"rules":"all"}`), []arv1.RuleWithOperations{pods},
			[]string{"the module's declaration of its requests is invalid: rules: json: cannot unmarshal string into Go value of type []metadata.Rule", debug}},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := pluginConfig{Config: host.Config{Name: "p", Module: host.ModuleConfig{Bytes: test.module}}}
			cfg.Match.Rules = test.match
			if got := admission.Describe(load(t, cfg)).MatchWarnings; strings.Join(got, "|") != strings.Join(test.want, "|") {
				t.Errorf("warnings are %q\nwant %q", got, test.want)
			}
		})
	}
}
