package guestbuild

import (
	"encoding/json"
	"go/token"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/abi/metadata"
)

func TestRulesOfMatches(t *testing.T) {
	for text, want := range map[string]string{
		"CREATE pods": `[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["*"],"resources":["pods"]}]`,
		"CREATE,UPDATE pods pods/ephemeralcontainers pods.v1":  `[{"operations":["CREATE","UPDATE"],"apiGroups":[""],"apiVersions":["*"],"resources":["pods","pods/ephemeralcontainers"]},{"operations":["CREATE","UPDATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"]}]`,
		"* deployments.apps stellarnodes.v1alpha1.stellar.org": `[{"operations":["*"],"apiGroups":["apps"],"apiVersions":["*"],"resources":["deployments"]},{"operations":["*"],"apiGroups":["stellar.org"],"apiVersions":["v1alpha1"],"resources":["stellarnodes"]}]`,
		"DELETE *.*/* ingresses.networking.k8s.io/status":      `[{"operations":["DELETE"],"apiGroups":["*"],"apiVersions":["*"],"resources":["*/*"]},{"operations":["DELETE"],"apiGroups":["networking.k8s.io"],"apiVersions":["*"],"resources":["ingresses/status"]}]`,
		"create Pods":  "metadata: matches: operations has \"create\", want CREATE, UPDATE, DELETE, CONNECT or *\nmatches: resources has \"Pods\", want a resource in lower case and the plural, such as pods or pods/status, or *",
		"CREATE, pods": `metadata: matches: operations has "", want CREATE, UPDATE, DELETE, CONNECT or *`,
		"CREATE pods/": "",
		"CREATE .apps": `metadata: matches: resources has "", want a resource in lower case and the plural, such as pods or pods/status, or *`,
	} {
		rules := rulesOf(strings.Fields(text))
		got, err := json.Marshal(rules)
		if err != nil {
			t.Fatal(err)
		}
		if err := (&metadata.Metadata{Matches: rules, ABI: 1}).Validate(); err != nil {
			got = []byte(err.Error())
		}
		if want == "" {
			want = `metadata: matches: resources has "pods/", want a resource in lower case and the plural, such as pods or pods/status, or *`
		}
		if string(got) != want {
			t.Errorf("%s: got %s\nwant %s", text, got, want)
		}
	}
}

func TestLicensesAreAnExpression(t *testing.T) {
	s, seen := &source{}, map[string]bool{}
	for text, want := range map[string]string{
		"source https://example.com/zone": "", "licenses Apache-2.0 OR MIT": "", "source": "says nothing", "name a b": "is one word",
	} {
		err := s.add(token.Position{}, text, seen)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if err := s.add(token.Position{}, "licenses MIT", seen); err == nil || !strings.Contains(err.Error(), "is there twice") {
		t.Errorf("licenses again: %v", err)
	}
	if s.source != "https://example.com/zone" || s.licenses != "Apache-2.0 OR MIT" {
		t.Errorf("got %q and %q", s.source, s.licenses)
	}
}
