package host_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/host"
)

// TestModulesOfConfigurations opens the source of each form, with a runtime that knows it and with
// one that does not.
func TestModulesOfConfigurations(t *testing.T) {
	key := &host.ObjectKey{Namespace: "shop", Name: "zone", Key: "zone.wasm"}
	getter := host.ObjectGetterFunc(func(context.Context, string, string) (map[string][]byte, error) { return nil, nil })
	digest := strings.Repeat("ab", 32)
	knows, err := host.NewRuntime(host.RuntimeConfig{Sources: host.Sources{ConfigMaps: getter}})
	if err != nil {
		t.Fatal(err)
	}
	defer knows.Close(context.WithoutCancel(t.Context()))
	knows.AddSources(host.Sources{OCI: func(reference string) host.Source { return host.File("oci " + reference) }})
	knows.AddSources(host.Sources{Secrets: getter})
	other, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(context.WithoutCancel(t.Context()))
	for name, test := range map[string]struct {
		module host.ModuleConfig
		// source is its name, or err the mistakes. without are those of the other runtime.
		source       string
		err, without []string
	}{
		"file":                               {host.ModuleConfig{File: "a.wasm", Follow: true}, "a.wasm", nil, nil},
		"https":                              {host.ModuleConfig{HTTPS: "https://example.com/a.wasm", SHA256: digest}, "https://example.com/a.wasm", nil, nil},
		"oci":                                {host.ModuleConfig{OCI: "ghcr.io/acme/zone:1"}, "oci ghcr.io/acme/zone:1", nil, []string{"module.oci: this program has no access to registries"}},
		"configMap":                          {host.ModuleConfig{ConfigMap: key, Follow: true}, `configmap shop/zone key "zone.wasm"`, nil, []string{"module.configMap: this program does not read ConfigMaps"}},
		"secret":                             {host.ModuleConfig{Secret: key}, `secret shop/zone key "zone.wasm"`, nil, []string{"module.secret: this program does not read Secrets"}},
		"bytes":                              {host.ModuleConfig{Bytes: []byte("\x00asm")}, "4 bytes", nil, nil},
		"the program's, with a file as well": {host.ModuleConfig{Source: host.File("own"), File: "a.wasm"}, "own", nil, nil},
		"nothing":                            {host.ModuleConfig{}, "", []string{"module is missing: set one of file, https, oci, configMap, secret and bytes"}, nil},
		"many mistakes": {host.ModuleConfig{File: "a", HTTPS: "http://b", SHA256: "12", Compiled: []string{digest, "x"}, Follow: true, Secret: &host.ObjectKey{Name: "n"}}, "", []string{
			"module has file and https and secret, want one of them",
			"module.secret.namespace is empty",
			"module.secret.key is empty",
			`module.sha256 "12" is not 64 hexadecimal digits`,
			`module.compiled[1] "x" is not 64 hexadecimal digits`,
			"module.follow and sha256 exclude each other",
			"module.follow needs a file, oci, configMap or secret: the module of a URL is fixed by its sha256",
		}, nil},
		"a URL without a digest": {host.ModuleConfig{HTTPS: "https://example.com/a.wasm"}, "", []string{"module.https needs sha256"}, nil},
		"a URL of another scheme": {host.ModuleConfig{HTTPS: "http://example.com/a.wasm", SHA256: digest}, "", []string{
			`module: source http://example.com/a.wasm: scheme is "http", want https`,
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			check := func(rt *host.Runtime, mistakes []string) {
				t.Helper()
				source, err := rt.Source(test.module, "module")
				if mistakes == nil {
					if err != nil || source.String() != test.source {
						t.Errorf("got %v, %v", source, err)
					}
					return
				}
				if err == nil {
					t.Fatalf("got %v", source)
				}
				if diff := cmp.Diff(mistakes, strings.Split(err.Error(), "\n")); diff != "" {
					t.Errorf("mistakes (-want +got):\n%s", diff)
				}
			}
			check(knows, test.err)
			if test.without == nil {
				test.without = test.err
			}
			check(other, test.without)
		})
	}
}
