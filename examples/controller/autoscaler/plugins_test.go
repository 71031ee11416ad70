package autoscaler_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/registry"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewasm/kubewasm/examples/controller/api/v1alpha1"
	"github.com/kubewasm/kubewasm/examples/controller/autoscaler"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/oci"
)

// newPlugins returns Plugins that read modules of a directory.
func newPlugins(t *testing.T, dir string) (*autoscaler.Plugins, *host.Runtime) {
	t.Helper()
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	p := autoscaler.NewPlugins(autoscaler.PluginsConfig{
		Runtime: rt, Sources: autoscaler.Sources{Directory: dir}, FollowInterval: 100 * time.Millisecond,
	})
	t.Cleanup(func() {
		p.Close()
		if n := len(rt.Plugins()); n != 0 {
			t.Errorf("%d plugins are open after Close", n)
		}
		if err := rt.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return p, rt
}

func guest(file, config string) *v1alpha1.Guest {
	return &v1alpha1.Guest{File: file, Config: &apiextensionsv1.JSON{Raw: []byte(config)}, Grants: []string{"metrics"}}
}

// TestPoliciesShareAPlugin holds that policies of a namespace with the same guest share one,
// and that a plugin is closed that no policy uses.
func TestPoliciesShareAPlugin(t *testing.T) {
	dir := t.TempDir()
	writeModule(t, filepath.Join(dir, "moody.wasm"), moody(t, 1))
	p, rt := newPlugins(t, dir)
	policies := map[types.NamespacedName]*v1alpha1.Guest{
		{Namespace: "a", Name: "one"}:     guest("moody.wasm", `{}`),
		{Namespace: "a", Name: "same"}:    guest("moody.wasm", `{}`),
		{Namespace: "a", Name: "another"}: guest("moody.wasm", `{"a": 1}`),
		{Namespace: "b", Name: "one"}:     guest("moody.wasm", `{}`),
	}
	open := func(want int) {
		t.Helper()
		eventually(t, func() error {
			if n := len(rt.Plugins()); n != want {
				return fmt.Errorf("%d plugins are open, want %d", n, want)
			}
			return nil
		})
	}
	for policy, guest := range policies {
		serves(t, p, policy, guest, moody(t, 1), "")
	}
	open(3)
	p.Forget(types.NamespacedName{Namespace: "a", Name: "one"})
	open(3)
	p.Forget(types.NamespacedName{Namespace: "a", Name: "same"})
	open(2)
	p.Forget(types.NamespacedName{Namespace: "a", Name: "same"})
	open(2)
	serves(t, p, types.NamespacedName{Namespace: "a", Name: "another"}, guest("moody.wasm", `{"a": 2}`), moody(t, 1), "")
	open(2)
}

// serves waits until a policy has a module, nil for none, and an error with a text, empty for
// none.
func serves(t *testing.T, p *autoscaler.Plugins, policy types.NamespacedName, guest *v1alpha1.Guest, module []byte, want string) {
	t.Helper()
	eventually(t, func() error {
		s, err := p.Use(policy, guest)
		got := ""
		if s != nil {
			got = s.Digest()
		}
		if module == nil && got != "" || module != nil && got != digest(module) {
			return fmt.Errorf("module %q serves: %w", got, err)
		}
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			return fmt.Errorf("got error %v, want %q", err, want)
		}
		return nil
	})
}

// TestModulesChange holds which module serves while the source, or the policy, names others.
func TestModulesChange(t *testing.T) {
	dir := t.TempDir()
	file, policy := filepath.Join(dir, "moody.wasm"), types.NamespacedName{Namespace: "a", Name: "p"}
	p, rt := newPlugins(t, dir)
	one, two := moody(t, 1), moody(t, 2)
	g := guest("moody.wasm", `{}`)
	pinned := guest("moody.wasm", `{}`)
	pinned.SHA256 = digest(one)
	steps := []struct {
		name    string
		content []byte // Of the file; empty for none.
		guest   *v1alpha1.Guest
		serves  []byte
		err     string
	}{
		{"there is no file yet", nil, g, nil, "no such file"},
		{"it comes", one, g, one, ""},
		{"a broken one does not replace it", []byte("\x00asm"), g, one, "load module"},
		{"it is back", one, g, one, ""},
		{"the file is away", nil, g, one, "no such file"},
		{"and back", one, g, one, ""},
		{"a new version", two, g, two, ""},
		{"the policy names a file that does not exist", two, guest("none.wasm", `{}`), two, "no such file"},
		{"it names a module with a digest that the file does not have", two, pinned, two, "sha256 of the module is"},
		{"the file has it", one, pinned, one, ""},
		{"a pinned module stays", two, pinned, one, ""},
		{"the policy names a file that it may not name", two, guest("../moody.wasm", `{}`), one, "not below the directory"},
		{"without the digest again", two, g, two, ""},
	}
	for _, s := range steps {
		if s.content != nil {
			writeModule(t, file, s.content)
		} else if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		t.Run(s.name, func(t *testing.T) { serves(t, p, policy, s.guest, s.serves, s.err) })
	}
	eventually(t, func() error {
		if n := len(rt.Plugins()); n != 1 {
			return fmt.Errorf("%d plugins are open", n)
		}
		return nil
	})
}

// TestSources holds which modules policies may name.
func TestSources(t *testing.T) {
	trust := []oci.Trust{
		{Repositories: []string{"registry.example.com/shop/queue", "registry.example.com/open/*"}, Unsigned: true},
	}
	registries, err := oci.New(oci.Config{Trust: trust})
	if err != nil {
		t.Fatal(err)
	}
	objects := host.ObjectGetterFunc(func(context.Context, string, string) (map[string][]byte, error) { return nil, nil })
	all := autoscaler.Sources{Directory: "/plugins", ConfigMaps: objects, Registries: registries}
	byDigest := "@sha256:" + strings.Repeat("0", 64)
	tests := []struct {
		name    string
		sources autoscaler.Sources
		guest   v1alpha1.Guest
		want    string
	}{
		{"a ConfigMap of the policy's namespace", all, v1alpha1.Guest{ConfigMap: &v1alpha1.ConfigMapKey{Name: "m", Key: "k"}}, `configmap team/m key "k"`},
		{"a file", all, v1alpha1.Guest{File: "a/b.wasm"}, "/plugins/a/b.wasm"},
		{"a file outside", all, v1alpha1.Guest{File: "../b.wasm"}, `guest.file: "../b.wasm" is not below the directory of modules`},
		{"a file by its whole name", all, v1alpha1.Guest{File: "/plugins/b.wasm"}, `guest.file: "/plugins/b.wasm" is not below the directory of modules`},
		{"a trusted repository", all, v1alpha1.Guest{OCI: "registry.example.com/shop/queue:1"}, "registry.example.com/shop/queue:1"},
		{"a repository below a trusted one", all, v1alpha1.Guest{OCI: "registry.example.com/open/x:1"}, "registry.example.com/open/x:1"},
		{"another repository", all, v1alpha1.Guest{OCI: "registry.example.com/shop/queue2:1"}, "guest.oci: the operator trusts no artifacts of registry.example.com/shop/queue2"},
		{"another repository with a digest", all, v1alpha1.Guest{OCI: "evil.example.com/x" + byDigest}, "guest.oci: the operator trusts no artifacts of evil.example.com/x"},
		{"a layout", all, v1alpha1.Guest{OCI: "oci-layout:/etc:1"}, "guest.oci: a policy cannot name a layout, which is a file of the controller"},
		{"nothing", all, v1alpha1.Guest{}, "guest: one of configMap, file and oci is required"},
		{"no ConfigMaps", autoscaler.Sources{}, v1alpha1.Guest{ConfigMap: &v1alpha1.ConfigMapKey{Name: "m"}}, "guest.configMap: this controller does not read ConfigMaps"},
		{"no files", autoscaler.Sources{}, v1alpha1.Guest{File: "a"}, "guest.file: this controller does not read files"},
		{"no registries", autoscaler.Sources{}, v1alpha1.Guest{OCI: "a.io/b:c"}, "guest.oci: this controller does not use registries"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			source, err := test.sources.Source("team", &test.guest)
			got := fmt.Sprint(err)
			if err == nil {
				got = source.String()
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("source (-want +got):\n%s", diff)
			}
		})
	}
}

// TestModulesOfARegistry has a policy name a tag of a registry, which moves, and goes away.
func TestModulesOfARegistry(t *testing.T) {
	var away atomic.Bool
	store := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if away.Load() {
			w.Header().Set("Retry-After", "3600") // So that it is not asked again and again.
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		store.ServeHTTP(w, r)
	}))
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	trust := []oci.Trust{{Repositories: []string{address + "/shop/*"}, AnyOf: []oci.Signer{{
		Name: "shop", Key: string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})),
	}}}}
	cfg := oci.Config{CacheDir: t.TempDir(), Trust: trust, Registries: []oci.Registry{{Host: address, PlainHTTP: true}}}
	ref, err := oci.ParseReference(address + "/shop/queue:1")
	if err != nil {
		t.Fatal(err)
	}
	publish := func(module []byte, sign bool) {
		t.Helper()
		client, err := oci.New(oci.Config{Registries: cfg.Registries})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Push(t.Context(), ref, module, oci.PushOptions{}); err != nil {
			t.Fatal(err)
		}
		if !sign {
			return
		}
		if _, err := client.Sign(t.Context(), ref, key, oci.SignOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// start returns Plugins as after a start of the controller.
	start := func() *autoscaler.Plugins {
		client, err := oci.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		rt, err := host.NewRuntime(host.RuntimeConfig{})
		if err != nil {
			t.Fatal(err)
		}
		p := autoscaler.NewPlugins(autoscaler.PluginsConfig{
			Runtime: rt, Sources: autoscaler.Sources{Registries: client}, FollowInterval: 50 * time.Millisecond,
		})
		t.Cleanup(func() {
			p.Close()
			if err := rt.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		return p
	}
	policy := types.NamespacedName{Namespace: "a", Name: "p"}
	g := guest("", `{}`)
	g.OCI = ref.String()
	one, two, three := moody(t, 1), moody(t, 2), moody(t, 3)

	p := start()
	publish(one, false)
	serves(t, p, policy, g, nil, "it has no signature")
	publish(one, true)
	serves(t, p, policy, g, one, "")
	publish(two, true)
	serves(t, p, policy, g, two, "")
	publish(three, false)
	serves(t, p, policy, g, two, "it has no signature")
	publish([]byte("\x00asm\x01\x00\x00\x00"), true)
	serves(t, p, policy, g, two, "does not fit the service")
	away.Store(true)
	serves(t, p, policy, g, two, "asked for a pause")
	// After a restart the last module that was loaded serves, from the cache.
	serves(t, start(), policy, g, two, "asked for a pause")
}
