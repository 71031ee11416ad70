package manage_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/admission/webhook/manage"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/oci"
)

// artifacts returns a client that takes the artifacts of a new layout without signatures,
// and a function that moves its tag.
func artifacts(t *testing.T) (client *oci.Client, ref oci.Reference, publish func(module []byte)) {
	t.Helper()
	ref = oci.Reference{Layout: filepath.Join(t.TempDir(), "policies"), Tag: "1"}
	client, err := oci.New(oci.Config{Trust: []oci.Trust{{Repositories: []string{ref.Name()}, Unsigned: true}}})
	if err != nil {
		t.Fatal(err)
	}
	return client, ref, func(module []byte) {
		t.Helper()
		if _, err := client.Push(t.Context(), ref, module, oci.PushOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// inRegistry is a reference of an artifact in a registry, which opening serves from a layout:
// clients of the API name no layouts.
const inRegistry = "registry.example.com/policies:1"

// opening returns the source of references by a client, and of inRegistry as of ref.
func opening(client *oci.Client, ref oci.Reference) func(string) host.Source {
	return func(reference string) host.Source {
		return client.Source(strings.Replace(reference, "registry.example.com/policies", ref.Name(), 1))
	}
}

const podRules = `match: {rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}]}`

func TestPoliciesFollowTags(t *testing.T) {
	t.Parallel()
	client, ref, publish := artifacts(t)
	publish(says("one"))
	f := start(t, func(c *manage.Config) { c.Runtime.AddSources(host.Sources{OCI: client.Source}) })
	file := f.write(t, "policies.yaml", "plugins:\n- name: p\n  module: {oci: '"+ref.String()+"', follow: true}\n  "+podRules+"\n")
	go func() { _ = f.FollowFile(t.Context(), file) }()
	f.until(t, "Pod", "one")
	publish(says("two"))
	f.until(t, "Pod", "two")
	publish([]byte("\x00asm\x01\x00\x00\x00")) // No guest.
	publish(says("three"))
	f.until(t, "Pod", "three")
}

func TestMistakesOfReferences(t *testing.T) {
	client, ref, _ := artifacts(t)
	text := "plugins:\n- name: a\n  module: {oci: 'ghcr.io/Acme:', follow: true}\n  " + podRules +
		"\n- name: b\n  module: {oci: 'ghcr.io/acme/zone:1', follow: true}\n  " + podRules +
		"\n- name: c\n  module: {oci: '" + ref.String() + "', follow: true}\n  " + podRules + "\n"
	for name, tt := range map[string]struct {
		change func(*manage.Config)
		want   []string
	}{
		"a client": {func(c *manage.Config) { c.Runtime.AddSources(host.Sources{OCI: client.Source}) }, []string{
			`plugin "a": module: source oci: reference "ghcr.io/Acme:": tag is empty`, `plugin "b": module: source ghcr.io/acme/zone:1: nothing vouches for`,
		}},
		"no client": {nil, []string{`plugin "a": module.oci: this program has no access to registries`, `plugin "b": module.oci: this program`}},
	} {
		f := start(t, tt.change)
		parsed, err := manage.ParseFile([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		err = f.Apply(t.Context(), parsed)
		for _, want := range tt.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: the error lacks %s:\n%v", name, want, err)
			}
		}
	}
}

func TestAPILoadsFromARegistry(t *testing.T) {
	registry, ref, publish := artifacts(t)
	publish(says("one"))
	f := start(t, func(c *manage.Config) { c.Runtime.AddSources(host.Sources{OCI: opening(registry, ref)}) })
	server := httptest.NewServer(f.API(manage.Auth{Token: func() (string, error) { return "secret", nil }}))
	defer server.Close()
	api := &client{t, server.URL, "secret", server.Client()}
	api.want("POST", "/plugins", `{"metadata": {"name": "p"}, "oci": "`+inRegistry+`", "operations": ["CREATE"]}`, 201, map[string]any{"status": "created"})
	if got := f.ask("Pod"); got != "one" || f.List()[0].Digest != digest(says("one")) {
		t.Errorf("message is %q, %+v", got, f.List())
	}
	for body, want := range map[string]string{
		`{"metadata": {"name": "p"}, "oci": "` + inRegistry + `", "wasm_binary": "AGFzbQ==", "operations": ["CREATE"]}`:                   "oci and wasm_binary are both there",
		`{"metadata": {"name": "p"}, "oci": "registry.example.com/policies:2", "operations": ["CREATE"]}`:                                 "not found",
		`{"metadata": {"name": "p"}, "oci": "ghcr.io/acme/zone:1", "operations": ["CREATE"]}`:                                             "nothing vouches for",
		`{"metadata": {"name": "p", "sha256": "` + strings.Repeat("0", 64) + `"}, "oci": "` + inRegistry + `", "operations": ["CREATE"]}`: "sha256 of the module is",
	} {
		code, answer := api.do("POST", "/plugins", body)
		if text, _ := answer["error"].(string); code != 400 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %v, want 400 %s", body, code, answer, want)
		}
	}
	// What an image layout at any path of the server holds is not the client's to know.
	for _, path := range []string{ref.String(), "oci-layout:/etc", "OCI-Layout:/etc:1", " oci-layout:/nowhere:1"} {
		for at, body := range map[string]string{
			"/plugins":          `{"metadata": {"name": "p"}, "oci": "` + path + `", "operations": ["CREATE"]}`,
			"/plugins/p/shadow": `{"module": {"oci": "` + path + `"}}`,
		} {
			code, answer := api.do("POST", at, body)
			if text, _ := answer["error"].(string); code != 400 || !strings.HasSuffix(text, "oci names an image layout, want an artifact in a registry") {
				t.Errorf("%s: %d %v", body, code, answer)
			}
		}
	}
	if got := f.ask("Pod"); got != "one" {
		t.Errorf("after refusals, message is %q", got)
	}
}

// kept are the digests that sources were told to keep.
type kept struct {
	mu      sync.Mutex
	digests []string
}

func (k *kept) has(module []byte) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Contains(k.digests, digest(module))
}

func (k *kept) until(t *testing.T, module []byte) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !k.has(module) {
		if time.Now().After(deadline) {
			t.Fatal("what was loaded was not kept")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// keeper is a source whose kept is told.
type keeper struct {
	layout
	*kept
}

type layout interface {
	host.ConditionalSource
	Watch(ctx context.Context, changed func()) error
}

// Keep implements loading.Keeper.
func (k keeper) Keep(sha256 string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.digests = append(k.digests, sha256)
}

// Kept implements loading.Keeper.
func (k keeper) Kept(context.Context) ([]byte, error) {
	return nil, errors.New("nothing is kept")
}

// TestSourcesAreToldWhatWasLoaded loads good and bad modules in all ways. Only the good ones
// are to be kept for the time when the registry is away.
func TestSourcesAreToldWhatWasLoaded(t *testing.T) {
	t.Parallel()
	bad := []byte("\x00asm\x01\x00\x00\x00")
	registry, a, publishA := artifacts(t)
	other, b, publishB := artifacts(t)
	k := &kept{}
	f := start(t, func(c *manage.Config) {
		c.Runtime.AddSources(host.Sources{OCI: func(reference string) host.Source {
			if reference == a.String() {
				return keeper{registry.Source(reference).(layout), k}
			}
			return keeper{opening(other, b)(reference).(layout), k}
		}})
	})
	publishA(bad)
	publishB(says("b"))
	file := f.write(t, "policies.yaml", "plugins:\n- name: p\n  module: {oci: '"+a.String()+"', follow: true}\n  "+podRules+
		"\ngroups:\n- name: g\n  expression: a() && b()\n  message: 'no'\n  members: {a: {name: g.a, module: {oci: '"+a.String()+"', follow: true}}, b: {name: g.b, module: {oci: '"+b.String()+"', follow: true}}}\n  "+podRules+"\n")
	if err := f.FollowFile(t.Context(), file); err == nil || strings.Count(err.Error(), "kubewasm_abi_v1") != 2 {
		t.Fatalf("the bad module is no error of both policies: %v", err)
	}
	if k.has(bad) {
		t.Error("the bad module was kept")
	}
	publishA(says("good"))
	k.until(t, says("good"))
	k.until(t, says("b"))
	publishA(bad)
	publishA(says("better"))
	k.until(t, says("better"))
	if k.has(bad) {
		t.Error("the bad module was kept")
	}

	server := httptest.NewServer(f.API(manage.Auth{Token: func() (string, error) { return "secret", nil }}))
	defer server.Close()
	publishB(says("by the API"))
	(&client{t, server.URL, "secret", server.Client()}).want("POST", "/plugins", `{"metadata": {"name": "api"}, "oci": "`+inRegistry+`", "operations": ["CREATE"]}`, 201, map[string]any{"status": "created"})
	if !k.has(says("by the API")) {
		t.Error("what the API loaded was not kept")
	}
}
