package oci_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/host/oci"
)

func TestNewReportsEveryMistake(t *testing.T) {
	noCertificate := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(noCertificate, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	key := publicPEM(t, newKey())
	_, err := oci.New(oci.Config{
		CacheBytes: -1, Timeout: -time.Second, MaxBytes: 1 << 40, DockerConfig: "/does/not/exist",
		Registries: []oci.Registry{
			{Host: "https://ghcr.io/"},
			{Host: "a.example.com", Mirrors: []string{"https://mirror", "ok.example.com/x"}, CAFile: noCertificate, CertFile: "x"},
			{Host: "A.example.com.:443", PlainHTTP: true, CAFile: "/does/not/exist"},
		},
		Trust: []oci.Trust{
			{},
			{Repositories: []string{"a*", "*/b", "*"}, Unsigned: true, AnyOf: []oci.Signer{{Key: key}}, Minimum: 2},
			{Repositories: []string{"*"}, AllOf: []oci.Signer{
				{}, {Key: "key"}, {Key: key, KeyFile: "/does/not/exist"},
				{Identity: &oci.Identity{Issuer: "a", IssuerRegexp: "b", SubjectRegexp: "("}},
			}},
		},
	})
	if err == nil {
		t.Fatal("New took it")
	}
	for _, want := range []string{
		"cacheBytes is -1", "timeout is -1s", "maxBytes is 1099511627776", "dockerConfig: stat /does/not/exist",
		`registry "https://ghcr.io/": host is a name`, `mirror "https://mirror" is not HOST`, "ca.pem has no certificate",
		"certFile and keyFile need one another", `registry "a.example.com" occurs twice`, "plainHTTP excludes",
		"caFile: open /does/not/exist", "trust[0]: allOf and anyOf are empty", "trust[0]: repositories are missing",
		"trust[1]: unsigned excludes", "trust[1]: minimum is 2", `repository "a*"`, `repository "*/b"`,
		`trust[2]: repository "*" has two rules`, "allOf[0]: it sets 0 of key, keyFile, identity and certificate", "allOf[1]: key is not PEM",
		"allOf[2]: it sets 2 of", "keyFile: open /does/not/exist", "has no trusted root of Sigstore",
		"want one of issuer and issuerRegexp", "missing closing )",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q", want)
		}
	}
	if t.Failed() {
		t.Log(err)
	}
}

// FuzzReadConfig holds that no file of registries breaks its reader and New, and that what was read
// is read again as the same.
func FuzzReadConfig(f *testing.F) {
	f.Add([]byte("registries: [{host: GHCR.io, mirrors: [mirror.example.com/x], plainHTTP: true}]\ntimeout: 5s\n"))
	f.Add([]byte("trust: [{repositories: ['ghcr.io/acme/*'], anyOf: [{key: x}], minimum: 1, refuseDowngrades: true}]"))
	f.Add([]byte("trust: [{repositories: ['*'], unsigned: true}]\nregistry: []\n"))
	f.Add([]byte("a: &a [x]\nb: [*a, *a]\n"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		file := filepath.Join(dir, "registries.yaml")
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := oci.ReadConfig(file)
		if err != nil {
			return
		}
		again, err := cfg.Reload()
		cfg.Reload = nil
		if diff := cmp.Diff(cfg, again); diff != "" || err != nil {
			t.Fatalf("the file is another one when it is read again: %v (-first +again)\n%s", err, diff)
		}
		cfg.CacheDir = "" // A file decides where it is, which a test does not let it.
		client, err := oci.New(cfg)
		if err != nil {
			return
		}
		if _, err := client.HasRule(oci.Reference{Registry: "ghcr.io", Repository: "acme/zone", Tag: "1"}); err != nil {
			t.Fatalf("a configuration that New takes: %v", err)
		}
	})
}
