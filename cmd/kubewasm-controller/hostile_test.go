package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-containerregistry/pkg/registry"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/host/oci/sigstore"
)

// TestReportsThatLie writes reports that no process writes.
func TestReportsThatLie(t *testing.T) {
	w := newWorld(t)
	w.run(t, w.options())
	honest := w.pod(t, "webhook", "webhook-0", "n1")
	liar := w.pod(t, "webhook", "webhook-1", "n1")
	agent := w.pod(t, "agent", "agent-1", "n1")
	zone := policy("zone", "")
	w.create(t, zone)
	w.report(t, honest, state(zone, "Serving", ""))
	w.status(t, zone, "1/2", "Ready=False/NotReported", "Sent=True/Sent")

	// Huge messages, with what terminals interpret, of which a condition has 1,024 bytes.
	lie := state(zone, "\x1b[31mServing", strings.Repeat("\x1b]0;é\u202e\n", 20_000))
	lie.Digest = strings.Repeat("f", 100)
	lie.Webhooks = []string{"validate", "../../mutate"}
	w.report(t, liar, lie)
	w.status(t, zone, "1/2", "Ready=False/NotReported")
	lie.Digest, lie.State = "", "No state"
	w.report(t, liar, lie)
	w.status(t, zone, "1/2", "Ready=False/Unknown", "Sent=True/Sent")
	message := meta.FindStatusCondition(zone.Status.Conditions, "Ready").Message
	if len(message) > 1024 || !utf8.ValidString(message) || strings.ContainsAny(message, "\x1b\n\u202e") || !strings.Contains(message, `\u001b]0;`) {
		t.Errorf("the message has %d bytes: %q", len(message), message)
	}
	// 10,000 plugins, most of which there are not; the last is zone.
	var many []v1alpha1.PluginState
	for i := range 9_999 {
		many = append(many, v1alpha1.PluginState{Kind: "ClusterAdmissionPolicy", Name: fmt.Sprintf("p%d", i), Generation: 1, State: "Serving"})
	}
	w.report(t, liar, append(many, state(zone, "Serving", ""))...)
	w.status(t, zone, "1/2", "Ready=False/NotReported")
	// Twice the same plugin, plugins of another component, and of an object that is gone.
	gone := state(zone, "Serving", "")
	gone.UID = "gone"
	w.report(t, liar, gone, state(zone, "Serving", ""))
	w.status(t, zone, "1/2", "Ready=False/NotReported")
	w.report(t, agent, state(zone, "Unavailable", ""))
	w.report(t, liar, state(zone, "Serving", ""))
	w.status(t, zone, "2/2", "Ready=True/Serving")
	w.sent(t, "/validate/zone")
	// A report in the name of another Pod counts for neither, and goes.
	stranger := &v1alpha1.PluginReport{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "webhook-9",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "webhook-9", UID: "none"}},
		},
		Component: "kubewasm-webhook", Plugins: []v1alpha1.PluginState{state(zone, "Unavailable", "")},
	}
	w.create(t, stranger)
	eventually(t, "the report of no Pod", func() error {
		if err := w.admin.Get(t.Context(), client.ObjectKeyFromObject(stranger), stranger); client.IgnoreNotFound(err) != nil || err == nil {
			return fmt.Errorf("it is there: %v", err)
		}
		return nil
	})
	w.status(t, zone, "2/2", "Ready=True/Serving")
}

// TestNodeHooks counts agents on the nodes that a selector selects.
func TestNodeHooks(t *testing.T) {
	w := newWorld(t)
	o := w.options()
	o.namespaces = []string{"team"}
	w.run(t, o)
	nodes := []*corev1.Node{}
	pods := []*corev1.Pod{}
	for i := range 4 {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i), Labels: map[string]string{"pool": []string{"batch", "web"}[i%2]}}}
		w.create(t, node)
		nodes = append(nodes, node)
		pods = append(pods, w.pod(t, "agent", fmt.Sprint("agent-", i), node.Name))
	}
	hook := func(name, selector string) *v1alpha1.NodeHook {
		h := &v1alpha1.NodeHook{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: runtime.RawExtension{Raw: fmt.Appendf(nil, `{"module":{"configMap":{"namespace":"kubewasm","name":"m","key":"k"}},"nodeSelector":%q}`, selector)}}
		w.create(t, h)
		return h
	}
	all, batch, none, wrong := hook("all", ""), hook("batch", "pool=batch"), hook("none", "pool=gpu"), hook("wrong", "pool in batch")
	w.status(t, all, "0/4", "Ready=False/NotReported")
	w.status(t, batch, "0/2", "Ready=False/NotReported")
	w.status(t, none, "0/0", "Ready=True/NoNode")
	w.status(t, wrong, "0/0", "Ready=False/SelectorInvalid")
	for i, pod := range pods {
		states := []v1alpha1.PluginState{state(all, "Serving", "")}
		if i%2 == 0 {
			states = append(states, state(batch, "Serving", ""))
		}
		w.report(t, pod, states...)
	}
	w.status(t, all, "4/4", "Ready=True/Serving")
	w.status(t, batch, "2/2", "Ready=True/Serving")
	// A node changes its pool: its agent is to serve the hook.
	w.change(t, nodes[1], func() { nodes[1].Labels["pool"] = "batch" })
	w.status(t, batch, "2/3", "Ready=False/NotReported")
	// Agents of another namespace report, too, and a webhook there guards nothing: the Service has no
	// Pods of it.
	for _, component := range []string{"agent", "webhook"} {
		other := pods[0].DeepCopy()
		other.Namespace, other.Name, other.ResourceVersion, other.UID = "team", component, "", ""
		other.Labels["app.kubernetes.io/component"] = component
		w.create(t, other)
		pods = append(pods, other)
	}
	zone := policy("zone", "")
	w.create(t, zone)
	w.report(t, pods[4], state(all, "Serving", ""), state(batch, "Serving", ""))
	w.report(t, pods[5], state(zone, "Serving", ""))
	w.status(t, all, "5/5", "Ready=True/Serving")
	w.status(t, zone, "1/1", "Ready=True/Serving", "Sent=False/NotServing")
}

// TestPins resolves tags, once for all processes.
func TestPins(t *testing.T) {
	w := newWorld(t)
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")
	// A registry that does not answer.
	answers := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-answers:
		case <-r.Context().Done():
		}
	}))
	defer silent.Close()
	defer silent.CloseClientConnections()
	nowhere := strings.TrimPrefix(silent.URL, "http://")
	w.registries = oci.Config{
		Registries: []oci.Registry{{Host: address, PlainHTTP: true}, {Host: nowhere, PlainHTTP: true}},
		Trust:      []oci.Trust{{Repositories: []string{address + "/acme/*"}, Unsigned: true}},
	}
	const workflow = "../../host/oci/sigstore/testdata/workflow/"
	withoutRoot, root := w.registries, filepath.Join(t.TempDir(), "root.json")
	trustedRoot := func(name string) {
		t.Helper()
		text, err := os.ReadFile(workflow + name)
		if err == nil {
			err = os.WriteFile(root, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	trustedRoot("trusted-root.json")
	if err := sigstore.Follow(&w.registries, root); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		waits := spec(`{"module":{"oci":"` + nowhere + `/a@sha256:` + strings.Repeat("0", 64) + `"}}`)
		w.create(t, &v1alpha1.AdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: fmt.Sprint("waits-", i)}, Spec: waits})
	}
	stop := w.run(t, w.options())
	registries, err := oci.New(w.registries)
	if err != nil {
		t.Fatal(err)
	}
	push := func(module string) (pinned string) {
		ref, err := oci.ParseReference(address + "/acme/zone:1")
		if err != nil {
			t.Fatal(err)
		}
		digest, err := registries.Push(t.Context(), ref, []byte(module), oci.PushOptions{})
		if err != nil {
			t.Fatal(err)
		}
		ref.Digest = digest
		return ref.String()
	}
	pin := func(o client.Object, status *v1alpha1.PluginStatus, want string) {
		t.Helper()
		eventually(t, "pin of "+o.GetName(), func() error {
			if err := w.admin.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
				return err
			}
			c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionResolved)
			got := "none"
			if c != nil {
				got = string(c.Status)
			}
			if status.Pin != nil {
				got = fmt.Sprintf("%s %s %d", got, status.Pin.Reference, status.Pin.Generation)
			}
			if got != want {
				return fmt.Errorf("the pin is %q, want %q: %v", got, want, c)
			}
			return nil
		})
	}
	first := push("\x00asm\x01\x00\x00\x00")
	zone := policy("zone", `{"module":{"oci":"`+address+`/acme/zone:1"}}`)
	follows := policy("follows", `{"module":{"oci":"`+address+`/acme/zone:1","follow":true}}`)
	missing := policy("missing", `{"module":{"oci":"`+address+`/acme/zone:2"}}`)
	strange := policy("strange", `{"module":{"oci":"`+address+`/stranger/zone:1"}}`)
	local := policy("local", "")
	for _, p := range []client.Object{zone, follows, missing, strange, local} {
		w.create(t, p)
	}
	pin(zone, &zone.Status, "True "+first+" 1")
	pin(follows, &follows.Status, "True "+first+" 1")
	pin(missing, &missing.Status, "False")
	pin(strange, &strange.Status, "False")
	pin(local, &local.Status, "none")
	if c := meta.FindStatusCondition(strange.Status.Conditions, "Resolved"); !strings.Contains(c.Message, "nothing vouches") {
		t.Errorf("the message is %q", c.Message)
	}
	second := push("\x00asm\x01\x00\x00\x00\x00\x01\x00")
	pin(follows, &follows.Status, "True "+second+" 1")
	pin(zone, &zone.Status, "True "+first+" 1")
	w.change(t, zone, func() { zone.Spec = spec(`{"version":"2","module":{"oci":"` + address + `/acme/zone:1"}}`) })
	pin(zone, &zone.Status, "True "+second+" 2")
	// A pin that someone writes is replaced.
	patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"pin":{"generation":1,"reference":"example.com/other@sha256:`+strings.Repeat("0", 64)+`"}}}`))
	if err := w.admin.Status().Patch(t.Context(), zone, patch); err != nil {
		t.Fatal(err)
	}
	pin(zone, &zone.Status, "True "+second+" 2")
	// The module comes from elsewhere.
	w.change(t, zone, func() { zone.Spec = spec("") })
	pin(zone, &zone.Status, "none")

	// A ModuleTrust wants the artifacts of a namespace to be signed, and its signers change.
	keys := map[string]ed25519.PrivateKey{}
	trust := &v1alpha1.ModuleTrust{ObjectMeta: metav1.ObjectMeta{Name: "signed"}}
	signers := func(name string) {
		if keys[name] == nil {
			_, key, err := ed25519.GenerateKey(rand.Reader)
			if err != nil {
				t.Fatal(err)
			}
			keys[name] = key
		}
		der, err := x509.MarshalPKIXPublicKey(keys[name].Public())
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(map[string][]oci.Signer{"allOf": {{Name: name, Key: string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))}}})
		if err != nil {
			t.Fatal(err)
		}
		trust.Spec = v1alpha1.ModuleTrustSpec{Repositories: []string{address + "/acme/*"}, Signatures: &runtime.RawExtension{Raw: text}}
	}
	signers("one")
	w.create(t, trust)
	close(answers)
	says := func(o *v1alpha1.AdmissionPolicy, reason, part string) {
		t.Helper()
		eventually(t, reason+" of "+o.Name, func() error {
			if err := w.admin.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
				return err
			}
			c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionResolved)
			if c == nil || c.Reason != reason || !strings.Contains(c.Message, part) {
				return fmt.Errorf("the condition is %v, want %s and %q", c, reason, part)
			}
			return nil
		})
	}
	own := &v1alpha1.AdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "own"}, Spec: spec(`{"module":{"oci":"` + address + `/acme/zone:1"}}`)}
	w.create(t, own)
	says(own, "Untrusted", "it has no signature")
	ref, err := oci.ParseReference(second)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := registries.Sign(t.Context(), ref, keys["one"], oci.SignOptions{}); err != nil {
		t.Fatal(err)
	}
	w.change(t, own, func() { own.Spec = spec(`{"version":"2","module":{"oci":"` + address + `/acme/zone:1"}}`) })
	says(own, "Resolved", "")
	if own.Status.Pin == nil || own.Status.Pin.Reference != second {
		t.Errorf("the pin is %v, want %s", own.Status.Pin, second)
	}
	w.change(t, trust, func() { signers("two") })
	says(own, "Untrusted", `signatures is by "two"`)
	w.change(t, trust, func() { signers("one") })
	says(own, "Resolved", "")

	// It wants them to be signed by a workflow.
	for _, tag := range []string{"1", "unsigned"} {
		if _, err := registries.Copy(t.Context(), oci.Reference{Layout: workflow + "layout.tar", Tag: tag}, oci.Reference{Registry: address, Repository: "acme/policies", Tag: tag}); err != nil {
			t.Fatal(err)
		}
	}
	identity := func(issuer, repository string) {
		w.change(t, trust, func() {
			trust.Spec.Signatures = &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"anyOf":[{"name":"ci","identity":{"issuer":%q,"sourceRepository":%q}}]}`, issuer, repository)}
		})
	}
	const issuer, repository = "https://token.actions.githubusercontent.com", "https://github.com/acme/policies"
	identity(issuer, repository)
	says(own, "Untrusted", `is by "ci"`)
	signed := &v1alpha1.AdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "signed"}, Spec: spec(`{"module":{"oci":"` + address + `/acme/policies:1"}}`)}
	unsigned := &v1alpha1.AdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "unsigned"}, Spec: spec(`{"module":{"oci":"` + address + `/acme/policies:unsigned"}}`)}
	w.create(t, signed)
	w.create(t, unsigned)
	says(signed, "Resolved", "")
	says(unsigned, "Untrusted", "it has no signature")
	for _, step := range []struct {
		name               string
		root               string
		issuer, repository string
		part               string
	}{
		{"another issuer", "trusted-root.json", issuer + "/x", repository, `is by "ci"`},
		{"the identity", "trusted-root.json", issuer, repository, ""},
		{"another repository", "trusted-root.json", issuer, repository + "x", `is by "ci"`},
		{"the identity again", "trusted-root.json", issuer, repository, ""},
		{"the root of others", "other-root.json", issuer, repository, `is by "ci"`},
		{"the root again", "trusted-root.json", issuer, repository, ""},
	} {
		trustedRoot(step.root)
		identity(step.issuer, step.repository)
		t.Log(step.name)
		if step.part == "" {
			says(signed, "Resolved", "")
		} else {
			says(signed, "Untrusted", step.part)
		}
	}
	// A controller without a trusted root.
	stop()
	w.registries = withoutRoot
	w.run(t, w.options())
	says(signed, "Untrusted", "set -sigstore-trust-config")
}
