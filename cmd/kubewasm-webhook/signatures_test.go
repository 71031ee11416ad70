package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/webhook/manage"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/host/oci/sigstore"
	"github.com/kubewasm/kubewasm/internal/clusterplugins"
)

// artifact is a source of a module.
type artifact struct {
	reference string
	module    []byte
}

func (a artifact) String() string                        { return a.reference }
func (a artifact) Fetch(context.Context) ([]byte, error) { return a.module, nil }

// wants waits for the state of the only policy, and a part of its message.
func (o *objects) wants(t *testing.T, step, state, part string) {
	t.Helper()
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		got := "none"
		if all := o.states(); len(all) == 1 {
			got = strings.TrimSpace(all[0].State + " " + all[0].Reference + " " + all[0].Message)
		}
		if strings.HasPrefix(got, state) && strings.Contains(got, part) {
			return
		}
		if time.Since(start) > time.Minute {
			t.Fatalf("%s: the policy is %s, want %s with %q", step, got, state, part)
		}
	}
}

// TestModuleTrustsThatChange holds that a policy whose module no ModuleTrust allows any more, or whose
// signers do not count any more, serves no longer, and that nothing unsigned is loaded.
func TestModuleTrustsThatChange(t *testing.T) {
	t.Parallel()
	// It denies everything.
	module := []byte("\x00asm\x01\x00\x00\x00" +
		"\x01\x0a\x02\x60\x02\x7f\x7f\x00\x60\x00\x01\x7e" +
		"\x02\x1a\x01\x08kubewasm\x0dstatus_reason\x00\x00" +
		"\x03\x03\x02\x01\x01" +
		"\x05\x03\x01\x00\x01" +
		"\x07\x27\x03\x06memory\x02\x00\x0fkubewasm_abi_v1\x00\x01\x08validate\x00\x02" +
		"\x0a\x15\x02\x08\x00\x42\x80\x80\x80\x80\x10\x0b\x0a\x00\x41\x00\x41\x04\x10\x00\x42\x02\x0b" +
		"\x0b\x0a\x01\x00\x41\x00\x0b\x04deny")
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rt.Close(context.WithoutCancel(t.Context())) })
	rt.AddSources(host.Sources{OCI: func(reference string) host.Source {
		if strings.Contains(reference, "broken") {
			return artifact{reference, module[:8]}
		}
		return artifact{reference, module}
	}})
	labels := map[string]string{"kind": "shop"}
	namespaces := func(context.Context, string) (map[string]string, error) { return labels, nil }
	m, err := manage.New(t.Context(), manage.Config{Runtime: rt, Engine: new(admission.Engine), Namespaces: namespaces})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close(context.WithoutCancel(t.Context())) })
	var away atomic.Bool
	o := &objects{manager: m, logger: slog.New(slog.DiscardHandler), namespaces: namespaces}
	o.signatures = newSignatures(t.Context(), nil, func() {
		o.applying.Lock()
		defer o.applying.Unlock()
		o.put(o.newest)
	})
	digest := "sha256:" + strings.Repeat("1", 64)
	// The artifact is signed by good alone, and a broken one by all.
	o.signatures.verify = func(ref oci.Reference, rules []oci.Trust) (string, error) {
		switch {
		case away.Load():
			return "", errors.New("no route to host")
		case strings.HasSuffix(ref.Name(), "broken"):
			return "sha256:" + strings.Repeat("2", 64), nil
		case len(rules) == 1 && rules[0].AnyOf[0].Key == "good":
			return digest, nil
		}
		return "", &oci.TrustError{Repository: ref.Name(), Digest: digest, Reason: errors.New("none of 1 signatures is by it")}
	}
	generation := int64(0)
	name := "zone"
	apply := func(trust string) {
		generation++
		list := []clusterplugins.Object{{Kind: "AdmissionPolicy", Namespace: "shop", Name: "p", UID: "u", Generation: int64(len(name)), Spec: []byte(
			`{"module":{"oci":"ghcr.io/acme/` + name + `:1"},"failurePolicy":"Fail","match":{"rules":[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"]}]}}`)}}
		if trust != "" {
			list = append(list, clusterplugins.Object{Kind: "ModuleTrust", Name: "t", UID: "t", Generation: generation, Spec: []byte(trust)})
		}
		o.apply(list)
	}
	signed := func(key string) string {
		return fmt.Sprintf(`{"namespaceSelector":"kind=shop","repositories":["ghcr.io/acme/*"],"signatures":{"anyOf":[{"key":%q}]}}`, key)
	}
	serves := "Serving ghcr.io/acme/zone:1@" + digest
	for i, step := range []struct {
		name, trust, state, part string
		do                       func()
	}{
		{name: "the first version is not signed", trust: signed("bad"), state: "Unavailable", part: "none of 1 signatures is by it"},
		{name: "a signed one", trust: signed("good"), state: serves},
		{name: "other signers while the registry is away", trust: signed("other"), state: "Stale ghcr.io/acme/zone:1@" + digest, part: "no route to host", do: func() { away.Store(true) }},
		{name: "the signers of before", trust: signed("good"), state: serves, do: func() { away.Store(false) }},
		{name: "another signer", trust: signed("bad"), state: "Unavailable", part: "none of 1 signatures is by it"},
		{name: "the signer again", trust: signed("good"), state: serves},
		{name: "another repository", trust: `{"repositories":["ghcr.io/other/*"]}`, state: "Unavailable", part: "no ModuleTrust allows the namespace"},
		{name: "without signatures", trust: `{"repositories":["ghcr.io/acme/*"]}`, state: "Serving ghcr.io/acme/zone:1"},
		{name: "a namespace that is not selected", trust: `{"namespaceSelector":"kind=none","repositories":["ghcr.io/acme/*"]}`, state: "Unavailable", part: "no ModuleTrust selects the namespace"},
		{name: "no ModuleTrust", state: "Serving ghcr.io/acme/zone:1"},
		{name: "signed again", trust: signed("good"), state: serves},
		{name: "a version that cannot be loaded", trust: signed("good"), state: "Stale ghcr.io/acme/zone:1@" + digest, do: func() { name = "broken" }},
		{name: "signers of that alone", trust: signed("bad"), state: "Unavailable"},
		{name: "the first version again", trust: signed("good"), state: serves, do: func() { name = "zone" }},
		{name: "another that cannot be loaded", trust: signed("good"), state: "Stale ghcr.io/acme/zone:1@" + digest, do: func() { name = "broken" }},
		{name: "the repository of that alone", trust: `{"repositories":["ghcr.io/acme/broken"]}`, state: "Unavailable"},
	} {
		if step.do != nil {
			step.do()
		}
		apply(step.trust)
		o.wants(t, fmt.Sprint(i, " ", step.name), step.state, step.part)
	}
}

// TestIdentities holds that a policy serves with the signature of the workflow that a ModuleTrust names,
// by the trusted root that the program has now, and not without one.
func TestIdentities(t *testing.T) {
	t.Parallel()
	const fixtures = "../../host/oci/sigstore/testdata/workflow/"
	address := workflowRegistry(t, fixtures)
	read := func(name string) string {
		t.Helper()
		text, err := os.ReadFile(fixtures + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	identity := func(issuer, repository string) string {
		return fmt.Sprintf(`{"repositories":[%q],"signatures":{"anyOf":[{"name":"ci","identity":{"issuer":%q,"sourceRepository":%q}}]}}`, address+"/acme/*", issuer, repository)
	}
	const issuer, repository = "https://token.actions.githubusercontent.com", "https://github.com/acme/policies"
	ours, theirs := read("trusted-root.json"), read("other-root.json")
	signed, unsigned := address+"/acme/zone:1", address+"/acme/zone:unsigned"
	type step struct {
		name, module, trust, root, state, part string
	}
	good := identity(issuer, repository)
	for name, steps := range map[string][]step{
		"with a trusted root": {
			{name: "the identity of others", module: signed, root: ours, trust: identity(issuer, repository+"x"), state: "Unavailable", part: `is by "ci"`},
			{name: "the identity", module: signed, root: ours, trust: good, state: "Serving"},
			{name: "another issuer", module: signed, root: ours, trust: identity(issuer+"/x", repository), state: "Unavailable", part: `is by "ci"`},
			{name: "the identity again", module: signed, root: ours, trust: good, state: "Serving"},
			{name: "another repository", module: signed, root: ours, trust: identity(issuer, repository+"x"), state: "Unavailable", part: `is by "ci"`},
			{name: "the repository again", module: signed, root: ours, trust: good, state: "Serving"},
			{name: "no signature", module: unsigned, root: ours, trust: good, state: "Stale", part: "it has no signature"},
			{name: "the signature again", module: signed, root: ours, trust: good, state: "Serving"},
			{name: "a root that cannot be read", module: signed, root: "{", trust: good, state: "Serving"},
			{name: "the root of others", module: signed, root: theirs, trust: good, state: "Unavailable", part: `is by "ci"`},
			{name: "the root again", module: signed, root: ours, trust: good, state: "Serving"},
		},
		"without a trusted root": {
			{name: "the identity", module: signed, trust: good, state: "Unavailable", part: "set -sigstore-trust-config"},
			{name: "no signatures", module: signed, trust: fmt.Sprintf(`{"repositories":[%q]}`, address+"/acme/*"), state: "Serving"},
			{name: "the identity for what serves", module: signed, trust: good, state: "Unavailable", part: "set -sigstore-trust-config"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := ""
			cfg := oci.Config{Registries: []oci.Registry{{Host: address, PlainHTTP: true}}, Trust: []oci.Trust{{Repositories: []string{"*"}, Unsigned: true}}}
			if steps[0].root != "" {
				file = filepath.Join(t.TempDir(), "root.json")
				if err := os.WriteFile(file, []byte(steps[0].root), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := sigstore.Follow(&cfg, file); err != nil {
				t.Fatal(err)
			}
			client, err := oci.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			rt, err := host.NewRuntime(host.RuntimeConfig{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = rt.Close(context.WithoutCancel(t.Context())) })
			rt.AddSources(host.Sources{OCI: client.Source})
			namespaces := func(context.Context, string) (map[string]string, error) { return nil, nil }
			m, err := manage.New(t.Context(), manage.Config{Runtime: rt, Engine: new(admission.Engine), Namespaces: namespaces})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = m.Close(context.WithoutCancel(t.Context())) })
			o := &objects{manager: m, logger: slog.New(slog.DiscardHandler), namespaces: namespaces}
			verified := make(chan struct{}, 100)
			o.signatures = newSignatures(t.Context(), client, func() {
				o.applying.Lock()
				defer o.applying.Unlock()
				o.put(o.newest)
			})
			verify := o.signatures.verify
			o.signatures.verify = func(ref oci.Reference, rules []oci.Trust) (string, error) {
				defer func() { verified <- struct{}{} }()
				return verify(ref, rules)
			}
			generations := map[string]int64{}
			generation := func(text string) int64 {
				if generations[text] == 0 {
					generations[text] = int64(len(generations) + 1)
				}
				return generations[text]
			}
			for i, step := range steps {
				if file != "" {
					if err := os.WriteFile(file, []byte(step.root), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				o.apply([]clusterplugins.Object{
					{Kind: "AdmissionPolicy", Namespace: "shop", Name: "p", UID: "u", Generation: generation(step.module), Spec: fmt.Appendf(nil,
						`{"module":{"oci":%q},"failurePolicy":"Fail","match":{"rules":[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"]}]}}`, step.module)},
					{Kind: "ModuleTrust", Name: "t", UID: "t", Generation: int64(i + 1), Spec: []byte(step.trust)},
				})
				if i > 0 && steps[i-1].root != step.root {
					for len(verified) > 0 {
						<-verified
					}
					o.signatures.sweep(time.Now().Add(time.Hour), false)
					<-verified
				}
				o.wants(t, step.name, step.state, step.part)
			}
		})
	}
}

// workflowRegistry starts a registry with the artifacts that a workflow has signed, and returns its
// address.
func workflowRegistry(t *testing.T, fixtures string) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithReferrersSupport(true)))
	t.Cleanup(server.Close)
	address := strings.TrimPrefix(server.URL, "http://")
	client, err := oci.New(oci.Config{Registries: []oci.Registry{{Host: address, PlainHTTP: true}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tag := range []string{"1", "unsigned"} {
		if _, err := client.Copy(t.Context(), oci.Reference{Layout: fixtures + "layout.tar", Tag: tag}, oci.Reference{Registry: address, Repository: "acme/zone", Tag: tag}); err != nil {
			t.Fatal(err)
		}
	}
	return address
}
