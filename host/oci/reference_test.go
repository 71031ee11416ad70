package oci_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/host/oci"
)

const someDigest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestParseReference(t *testing.T) {
	for text, want := range map[string]oci.Reference{
		"ghcr.io/acme/zone:1.2":                            {Registry: "ghcr.io", Repository: "acme/zone", Tag: "1.2"},
		"oci://ghcr.io/acme/zone:1.2":                      {Registry: "ghcr.io", Repository: "acme/zone", Tag: "1.2"},
		"registry://localhost:5000/zone:1":                 {Registry: "localhost:5000", Repository: "zone", Tag: "1"},
		"localhost/zone@" + someDigest:                     {Registry: "localhost", Repository: "zone", Digest: someDigest},
		"[::1]:5000/zone:1@" + someDigest:                  {Registry: "[::1]:5000", Repository: "zone", Tag: "1", Digest: someDigest},
		"GHCR.IO.:0443/acme/zone:1.2":                      {Registry: "ghcr.io", Repository: "acme/zone", Tag: "1.2"},
		"index.docker.io/acme/zone:1":                      {Registry: "docker.io", Repository: "acme/zone", Tag: "1"},
		"registry-1.docker.io/zone:1":                      {Registry: "docker.io", Repository: "library/zone", Tag: "1"},
		"oci-layout:/var/lib/plugins":                      {Layout: "/var/lib/plugins"},
		"oci-layout:plugins.tar:1.2":                       {Layout: "plugins.tar", Tag: "1.2"},
		"oci-layout:/a:b/plugins:1@" + someDigest:          {Layout: "/a:b/plugins", Tag: "1", Digest: someDigest},
		"oci-layout:../plugins@" + someDigest:              {Layout: "../plugins", Digest: someDigest},
		"registry.example.com:8443/a/b_c/d-e__f:v1.0_rc.1": {Registry: "registry.example.com:8443", Repository: "a/b_c/d-e__f", Tag: "v1.0_rc.1"},
	} {
		got, err := oci.ParseReference(text)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("ParseReference(%q): %v (-want +got)\n%s", text, err, diff)
		}
		again, err := oci.ParseReference(got.String())
		if diff := cmp.Diff(got, again); diff != "" || err != nil {
			t.Errorf("ParseReference(%q), its String: %v (-want +got)\n%s", got.String(), err, diff)
		}
	}
}

func TestParseReferenceReportsMistakes(t *testing.T) {
	for _, tt := range []struct {
		text string
		want []string
	}{
		{"", []string{"registry is missing", "repository is"}},
		{"zone:1", []string{`repository is ""`}},
		{"acme/zone:1", []string{`registry is missing: "acme" is no host name`}},
		{"ghcr.io/acme/zone", []string{"tag and digest are missing"}},
		{"ghcr.io/acme/zone:", []string{"tag is empty"}},
		{"ghcr.io/Acme:1", []string{`repository is "Acme"`}},
		{"ghcr.io/Acme:!@sha256:12", []string{`repository is "Acme"`, `tag is "!"`, `digest is "sha256:12"`}},
		{"ghcr.io/zone@sha512:" + strings.Repeat("0", 128), []string{"want sha256:"}},
		{"https://ghcr.io/zone:1", []string{`scheme of the reference is "https"`}},
		{"oci-layout:", []string{"path of the layout is missing"}},
		{"oci-layout:/x:", []string{"tag is empty"}},
		{"oci-layout:/x:a b", []string{`tag is "a b"`}},
		{"ghcr.io/a/../b:1", []string{"repository is"}},
		{"ghcr.io:/a:1", []string{`port is ""`}},
		{"ｇhcr.io/a:1", []string{"want a name of ASCII letters"}},
		{"2130706433.0/a:1", []string{"want an IPv4 address"}},
		{"oci-layout:/a:b/", []string{"which needs a tag"}},
		{"ghcr.io/" + strings.Repeat("a", 5000) + ":1", []string{"reference has 5010 bytes"}},
	} {
		_, err := oci.ParseReference(tt.text)
		for _, want := range tt.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("ParseReference(%q): %v, want %q", tt.text, err, want)
			}
		}
	}
	if _, err := oci.ParseReference("user:secret@ghcr.io/zone:1"); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("a reference with a password: %v, want an error without the password", err)
	}
}

// FuzzParseReference holds that a reference has one spelling, and that another spelling of its
// registry does not lead around the rule for it.
func FuzzParseReference(f *testing.F) {
	f.Add("ghcr.io/acme/zone:1.2@" + someDigest)
	f.Add("GHCR.io.:443/acme/zone:1")
	f.Add("registry-1.docker.io/zone:1")
	f.Add("oci-layout:/a:b/plugins:1")
	f.Add("oci-layout:/a:b/")
	f.Add("[::1]:5000/zone:1")
	f.Fuzz(func(t *testing.T, text string) {
		ref, err := oci.ParseReference(text)
		if err != nil {
			return
		}
		again, err := oci.ParseReference(ref.String())
		if err != nil || again != ref {
			t.Fatalf("ParseReference(%q) is %+v, and of its String %+v, %v", text, ref, again, err)
		}
		if ref.Layout != "" {
			return
		}
		for _, registry := range []string{strings.ToUpper(ref.Registry), ref.Registry + ":0443"} {
			if strings.HasSuffix(registry, ":0443") && strings.Contains(ref.Registry, ":") {
				continue // It has a port, or is an address in brackets.
			}
			other := strings.Replace(ref.String(), ref.Registry, registry, 1)
			if same, err := oci.ParseReference(other); err != nil || same != ref {
				t.Fatalf("ParseReference(%q) is %+v, and of %q %+v, %v", text, ref, other, same, err)
			}
		}
		client, err := oci.New(oci.Config{Trust: []oci.Trust{{Repositories: []string{ref.Name()}, Unsigned: true}}})
		if err != nil {
			t.Fatalf("a rule for %s: %v", ref.Name(), err)
		}
		if err := client.Source(text).(interface{ Check(string) error }).Check(""); err != nil {
			t.Fatalf("the rule for %s is none for %q: %v", ref.Name(), text, err)
		}
	})
}
