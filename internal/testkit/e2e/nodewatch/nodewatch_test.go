package nodewatch_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks/nodewatch"
	"github.com/kubewasm/kubewasm/internal/testkit/e2e/cluster"
)

const (
	name     = "node-1"
	csiNodes = "storage.k8s.io/v1/csinodes"
	soon     = time.Minute
)

// account applies the account of the manifest of the node agent with its rights, and returns a
// configuration with its token.
func account(t *testing.T, c *cluster.Cluster) nodewatch.Config {
	t.Helper()
	manifest, err := os.ReadFile("../../../../charts/manifests/agent/agent.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var of corev1.ServiceAccount
	var role rbacv1.ClusterRole
	var binding rbacv1.ClusterRoleBinding
	for document := range strings.SplitSeq(string(manifest), "\n---\n") {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
			t.Fatal(err)
		}
		switch kind.Kind {
		case "ServiceAccount":
			err = yaml.UnmarshalStrict([]byte(document), &of)
		case "ClusterRole":
			err = yaml.UnmarshalStrict([]byte(document), &role)
		case "ClusterRoleBinding":
			err = yaml.UnmarshalStrict([]byte(document), &binding)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// As its comment has it for objects of the node.
	role.Rules = append(role.Rules,
		rbacv1.PolicyRule{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"csinodes"}, Verbs: []string{"list", "watch"}},
		rbacv1.PolicyRule{APIGroups: []string{"slo.koordinator.sh"}, Resources: []string{"nodeslos"}, Verbs: []string{"list", "watch"}})
	_, errAccount := c.Client.CoreV1().ServiceAccounts(of.Namespace).Create(t.Context(), &of, metav1.CreateOptions{})
	_, errRole := c.Client.RbacV1().ClusterRoles().Create(t.Context(), &role, metav1.CreateOptions{})
	_, errBinding := c.Client.RbacV1().ClusterRoleBindings().Create(t.Context(), &binding, metav1.CreateOptions{})
	if err := errors.Join(errAccount, errRole, errBinding); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cfg := nodewatch.Config{Name: name, URL: c.Config.Host, CAFile: filepath.Join(dir, "ca.crt"), TokenFile: filepath.Join(dir, "token"), Objects: []string{csiNodes}}
	token, err := c.Client.CoreV1().ServiceAccounts(of.Namespace).CreateToken(t.Context(), of.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err == nil {
		err = errors.Join(os.WriteFile(cfg.TokenFile, []byte(token.Status.Token), 0o600), os.WriteFile(cfg.CAFile, c.Config.CAData, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestANodeOfAnAPIServer(t *testing.T) {
	c := cluster.Start(t, nil)
	cfg := account(t, c)
	nodes, told := make(chan *hookmsg.Node, 10), make(chan string, 10)
	cfg.Set = func(_ context.Context, n *hookmsg.Node) { nodes <- n }
	cfg.SetObject = func(_, _ string, object []byte) error {
		if object == nil {
			told <- "none"
			return nil
		}
		var of storagev1.CSINode
		if err := json.Unmarshal(object, &of); err != nil {
			return err
		}
		told <- of.Name + " " + of.Labels["slo"]
		return nil
	}
	w, err := nodewatch.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	// Rights are in force a moment after they were given.
	for start := time.Now(); ; <-time.After(10 * time.Millisecond) {
		if err = w.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "403") || time.Since(start) > soon {
			break
		}
	}
	if err == nil || !strings.Contains(err.Error(), `there is no Node "node-1"`) {
		t.Fatalf("before there is a Node: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- w.Run(ctx) }()
	is := func(what string, want *hookmsg.Node) {
		t.Helper()
		select {
		case got := <-nodes:
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("%s (-want +got):\n%s", what, diff)
			}
		case <-time.After(soon):
			t.Fatalf("%s: the API server does not tell: %v", what, w.Ready())
		}
	}
	object := func(want string) {
		t.Helper()
		select {
		case got := <-told:
			if got != want {
				t.Fatalf("the object is %s, want %s", got, want)
			}
		case <-time.After(soon):
			t.Fatalf("nothing is told of an object, want %s", want)
		}
	}
	object("none")
	api := c.Client.CoreV1().Nodes()
	make := func() {
		t.Helper()
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": "fast"}}}
		n.Status.Capacity = corev1.ResourceList{"cpu": resource.MustParse("8")}
		if _, err := api.Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	patch := func(text string, of ...string) {
		t.Helper()
		if _, err := api.Patch(t.Context(), name, types.MergePatchType, []byte(text), metav1.PatchOptions{}, of...); err != nil {
			t.Fatal(err)
		}
	}
	// Another one comes before it, and concerns nobody.
	if _, err := api.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-2"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	make()
	// The API server gives a Node without allocatable resources those of its capacity.
	eight := map[string]string{"cpu": "8"}
	want := hookmsg.Node{Name: name, Labels: map[string]string{"pool": "fast"}, Capacity: eight, Allocatable: eight}
	is("made", &want)
	if err := errors.Join(w.Ready(), w.Wait(t.Context()), w.Check(t.Context())); err != nil {
		t.Error(err)
	}
	if got, err := w.Get(t.Context()); err != nil || !cmp.Equal(&want, got) {
		t.Errorf("asked for once: %v, error %v", got, err)
	}

	// A heartbeat is no change, and what comes after it is told.
	patch(`{"status": {"conditions": [{"type": "Ready", "status": "True"}]}}`, "status")
	patch(`{"metadata": {"annotations": {"ratio": "1.2"}}}`)
	want.Annotations = map[string]string{"ratio": "1.2"}
	is("annotated", &want)
	patch(`{"status": {"allocatable": {"cpu": "7900m"}}}`, "status")
	want.Allocatable = map[string]string{"cpu": "7900m"}
	is("with allocatable resources", &want)

	// One that is deleted stands until it is made again.
	if err := api.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	make()
	is("made again", &hookmsg.Node{Name: name, Labels: want.Labels, Capacity: eight, Allocatable: eight})

	csi := c.Client.StorageV1().CSINodes()
	if _, err := csi.Create(t.Context(), &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"slo": "low"}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	object("node-1 low")
	if _, err := csi.Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata": {"labels": {"slo": "high"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	object("node-1 high")
	if err := csi.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	object("none")
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}

	// A resource that is not installed has no object, and is no mistake; a right that is missing is.
	for resource, want := range map[string]string{"slo.koordinator.sh/v1alpha1/nodeslos": "", "storage.k8s.io/v1/storageclasses": "403"} {
		other := cfg
		other.Objects = []string{resource}
		w, err := nodewatch.New(other)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Check(t.Context()); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want one with %q", resource, err, want)
		}
	}
}
