package capabilities

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestScopeReportsEveryMistake(t *testing.T) {
	s := Scope{
		HostCapabilities: []string{"oci/v1/verify", "oci/v1/verify", "oci", "oci*", "oci/v1/v*", "oci/v3/*", "net/v1", "kubernetes/can_i/*", "", "crypto/*"},
		ContextAwareResources: []Kind{
			{Kind: "Pod"}, {APIVersion: "v1", Kind: "Pod", Namespaces: []string{}}, {APIVersion: "v1", Kind: "Pod", Namespaces: []string{"A b"}},
		},
		Repositories: []string{"*", "ghcr.io", "ghcr.io/*", "ghcr.io/acme*", "ghcr.io/Acme/zone", "acme/zone", "localhost:5000/a", "ghcr.io/*/zone", "ghcr.io/*"},
		HostNames:    []string{"*", "*.example.com", "a.*.com", "Example.com", "*example.com", "https://example.com"},
	}
	err := s.Check()
	if err == nil {
		t.Fatal("no error")
	}
	got := strings.Split(err.Error(), "\n")
	want := []string{
		`hostCapabilities: "oci/v1/verify" is there twice`, `hostCapabilities: "oci" is none of`, `hostCapabilities: "oci*" is none of`,
		`hostCapabilities: "oci/v1/v*" is none of`, `hostCapabilities: "oci/v3/*" is none of`, `hostCapabilities: "net/v1" is none of`,
		`hostCapabilities: "kubernetes/can_i/*" is none of`, `hostCapabilities: "" is none of`,
		`contextAwareResources has apiVersion "", kind "Pod"`, "contextAwareResources has no namespaces of v1 Pod: leave them out for all",
		"contextAwareResources has v1 Pod twice", `contextAwareResources has namespace "A b" of v1 Pod`,
		`repositories: "ghcr.io" is no REGISTRY/REPOSITORY`, `repositories: "ghcr.io/acme*"`, `repositories: "ghcr.io/Acme/zone"`, `repositories: "acme/zone"`,
		`repositories: "ghcr.io/*/zone"`, `repositories: "ghcr.io/*" is there twice`,
		`hostNames: "a.*.com" is no lower-case host name`, `hostNames: "Example.com"`, `hostNames: "*example.com"`, `hostNames: "https://example.com"`,
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || !strings.HasPrefix(got[i], want[i]) {
			t.Fatalf("mistake %d differs:\n%s\nwant\n%s", i, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// What is granted in one field alone is a mistake: each call would be refused.
func TestScopesThatFit(t *testing.T) {
	for name, test := range map[string]struct {
		scope Scope
		want  string
	}{
		"nothing":                                  {Scope{}, ""},
		"everything":                               {Scope{HostCapabilities: []string{"*"}, Repositories: []string{"*"}, HostNames: []string{"*"}}, ""},
		"all operations, and nothing to ask":       {Scope{HostCapabilities: []string{"*"}}, ""},
		"kinds, for Rego":                          {Scope{ContextAwareResources: []Kind{{APIVersion: "v1", Kind: "Pod"}}}, ""},
		"repositories without an operation":        {Scope{HostCapabilities: []string{"net/*"}, HostNames: []string{"*"}, Repositories: []string{"*"}}, "repositories need operations of oci"},
		"an operation without repositories":        {Scope{HostCapabilities: []string{"oci/v1/verify"}}, "hostCapabilities of oci need repositories"},
		"host names without an operation":          {Scope{HostNames: []string{"*"}}, "hostNames need operations of net"},
		"an operation without host names":          {Scope{HostCapabilities: []string{"net/v1/dns_lookup_host"}}, "hostCapabilities of net need hostNames"},
		"operations that need nothing beside":      {Scope{HostCapabilities: []string{"crypto/*", "kubernetes/can_i"}}, ""},
		"both that need something, without it":     {Scope{HostCapabilities: []string{"oci/*", "net/*"}}, "repositories that the policy may ask about\nhostCapabilities of net"},
		"a registry on a port, and one repository": {Scope{HostCapabilities: []string{"oci/v1/*"}, Repositories: []string{"localhost:5000/*", "docker.io/library/busybox"}}, ""},
	} {
		err := test.scope.Check()
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error is %v, want %s", name, err, test.want)
		}
	}
}

func TestMayCall(t *testing.T) {
	for _, test := range []struct {
		patterns, operation string
		may                 bool
	}{
		{"*", CanI, true}, {"oci/*", VerifyV2, true}, {"oci/v1/*", VerifyV2, false}, {"oci/v1/*", Verify, true},
		{"oci/v2/verify", VerifyV2, true}, {"oci/v2/verify", Verify, false}, {"kubernetes/get_resource", GetResource, true}, {"", GetResource, false},
	} {
		var s Scope
		if test.patterns != "" {
			s.HostCapabilities = []string{test.patterns}
		}
		err := s.MayCall(test.operation)
		if _, refused := errors.AsType[*GrantError](err); (err == nil) != test.may || refused == test.may {
			t.Errorf("%q, %s: %v", test.patterns, test.operation, err)
		}
	}
}

func TestMaySee(t *testing.T) {
	s := Scope{ContextAwareResources: []Kind{{APIVersion: "v1", Kind: "Pod", Namespaces: []string{"a"}}, {APIVersion: "apps/v1", Kind: "Deployment"}}}
	pod, deployment := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	for _, test := range []struct {
		kind      schema.GroupVersionKind
		namespace string
		want      string
	}{
		{pod, "a", ""}, {deployment, "a", ""}, {deployment, "", ""},
		{pod, "b", `may not see v1 Pod of namespace "b"`}, {pod, "", "may see v1 Pod of some namespaces, not of all"},
		{schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, "a", "may not see v1 Secret"},
		{schema.GroupVersionKind{Group: "apps", Version: "v1beta1", Kind: "Deployment"}, "a", "may not see apps/v1beta1 Deployment"},
	} {
		if err := s.MaySee(test.kind, test.namespace); (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s in %q: %v, want %s", test.kind, test.namespace, err, test.want)
		}
	}
}

const digest = "sha256:0123456789012345678901234567890123456789012345678901234567890123"

func TestParseImage(t *testing.T) {
	for text, want := range map[string]string{
		"busybox":                              "docker.io/library/busybox:latest",
		"busybox:1.36":                         "docker.io/library/busybox:1.36",
		"acme/zone":                            "docker.io/acme/zone:latest",
		"index.docker.io/acme/zone":            "docker.io/acme/zone:latest",
		"docker.io/busybox":                    "docker.io/library/busybox:latest",
		"GHCR.IO.:0443/acme/zone":              "ghcr.io/acme/zone:latest",
		"ghcr.io:/acme/zone":                   "",
		"ｇhcr.io/acme/zone":                    "",
		"localhost/zone":                       "localhost/zone:latest",
		"localhost:5000/zone:1":                "localhost:5000/zone:1",
		"ghcr.io/acme/zone@" + digest:          "ghcr.io/acme/zone@" + digest,
		"ghcr.io/acme/zone:1@" + digest:        "ghcr.io/acme/zone:1@" + digest,
		"":                                     "",
		"ghcr.io":                              "docker.io/library/ghcr.io:latest", // As docker reads it.
		"ghcr.io/":                             "",
		"ghcr.io/Acme/zone":                    "",
		"ghcr.io/acme/zone:":                   "",
		"ghcr.io/acme/zone@":                   "",
		"ghcr.io/acme/zone@sha512:00":          "",
		"oci://ghcr.io/acme/zone":              "",
		"oci-layout:/etc":                      "",
		"ghcr.io/acme/../other":                "",
		"ghcr.io//acme":                        "",
		"user:secret@ghcr.io/acme/zone":        "",
		"ghcr.io/acme/zone?x":                  "",
		"ghcr.io/acme/zone:1 ":                 "",
		"169.254.169.254/latest/meta-data":     "169.254.169.254/latest/meta-data:latest", // For the grants to refuse.
		"ghcr.io/" + strings.Repeat("a", 2000): "",
	} {
		got, err := ParseImage(text)
		if (err == nil) != (want != "") || err == nil && got.String() != want || err != nil && len(err.Error()) > 500 {
			t.Errorf("%.80q: got %s, %v, want %s", text, got, err, want)
		}
	}
}

func TestMayAskAndHostName(t *testing.T) {
	s := Scope{Repositories: []string{"ghcr.io/acme/*", "index.docker.io/busybox", "REGISTRY.example.com.:443/*"}, HostNames: []string{"db.example.com", "*.example.org"}}
	for text, may := range map[string]bool{
		"ghcr.io/acme/zone": true, "ghcr.io/acme/a/b": true, "busybox": true, "busybox:1": true, "busybox2": false,
		"ghcr.io/acme2/zone": false, "ghcr.io/acme": false, "ghcr.io.evil.example/acme/zone": false,
		"GHCR.io/acme/zone": true, "ghcr.io.:0443/acme/zone": true, "ghcr.io:444/acme/zone": false, "registry-1.docker.io/library/busybox": true,
		"registry.example.com/zone": true, "registry.example.com:5000/zone": false,
	} {
		image, err := ParseImage(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.MayAsk(image); (err == nil) != may {
			t.Errorf("%s: %v", text, err)
		}
	}
	for name, want := range map[string]string{
		"db.example.com": "db.example.com", "DB.example.com.": "db.example.com", "a.example.org": "a.example.org", "a.b.example.org": "a.b.example.org",
		"example.org": "", "evilexample.org": "", "db.example.com.evil.example": "", "*.example.org": "", "": "", "a..example.org": "", "a b.example.org": "",
		strings.Repeat("a.", 200) + "example.org": "",
	} {
		if got, err := s.HostName(name); got != want || (err == nil) != (want != "") {
			t.Errorf("%.80q: got %q, %v", name, got, err)
		}
	}
}

func FuzzParseImage(f *testing.F) {
	f.Add("busybox:1")
	f.Add("ghcr.io/acme/zone@" + digest)
	f.Fuzz(func(t *testing.T, text string) {
		image, err := ParseImage(text)
		if err != nil {
			return
		}
		again, err := ParseImage(image.String())
		if err != nil || again != image {
			t.Errorf("%q is %+v, and again %+v, %v", text, image, again, err)
		}
	})
}
