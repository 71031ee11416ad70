package clustercache_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/webhook/clustercache"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/publicerr"
)

var _ admission.Cluster = (*clustercache.Cluster)(nil)

var (
	podKind       = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	namespaceKind = schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}
)

func object(kind, namespace, name, team string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind}}
	u.SetName(name)
	u.SetNamespace(namespace)
	u.SetLabels(map[string]string{"team": team})
	u.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "kubectl"}})
	return u
}

func cluster(ctx context.Context, objects ...runtime.Object) (*clustercache.Cluster, *fake.FakeDynamicClient) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		panic(err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(podKind, meta.RESTScopeNamespace)
	mapper.Add(namespaceKind, meta.RESTScopeRoot)
	client := fake.NewSimpleDynamicClient(scheme, objects...)
	return clustercache.New(ctx, client, mapper, nil), client
}

func TestLookups(t *testing.T) {
	c, client := cluster(t.Context(), object("Namespace", "", "shop", "a"), object("Pod", "shop", "web", "a"), object("Pod", "shop", "db", "b"), object("Pod", "bank", "web", "a"))
	everything := fields.Everything()
	names := func(namespace, selector string, f fields.Selector) string {
		l, err := labels.Parse(selector)
		if err != nil {
			t.Fatal(err)
		}
		list, err := c.List(t.Context(), podKind, namespace, l, f)
		if err != nil {
			return err.Error()
		}
		var names []string
		for _, raw := range list {
			var u unstructured.Unstructured
			if err := u.UnmarshalJSON(raw); err != nil {
				t.Fatal(err)
			}
			names = append(names, u.GetNamespace()+"/"+u.GetName())
		}
		slices.Sort(names)
		return strings.Join(names, " ")
	}
	for _, test := range []struct{ got, want string }{
		{names("", "", everything), "bank/web shop/db shop/web"},
		{names("shop", "", everything), "shop/db shop/web"},
		{names("shop", "team=a", everything), "shop/web"},
		{names("", "", fields.OneTermEqualSelector("metadata.name", "web")), "bank/web shop/web"},
		{names("", "", fields.OneTermEqualSelector("spec.nodeName", "n1")), "list Pod: the cache does not select by the field spec.nodeName"},
	} {
		if test.got != test.want {
			t.Errorf("got %q, want %q", test.got, test.want)
		}
	}
	raw, err := c.Get(t.Context(), namespaceKind, "", "shop", false)
	if err != nil || !strings.Contains(string(raw), `"name":"shop"`) || strings.Contains(string(raw), "managedFields") {
		t.Errorf("got %s, %v", raw, err)
	}
	if raw, err := c.Get(t.Context(), podKind, "shop", "none", false); raw != nil || err != nil {
		t.Errorf("got %s, %v", raw, err)
	}
	if _, err := c.Get(t.Context(), podKind, "", "web", false); err == nil {
		t.Error("a Pod without a namespace")
	}
	if _, err := c.Get(t.Context(), schema.GroupVersionKind{Version: "v1", Kind: "Dragon"}, "", "x", false); !meta.IsNoMatchError(err) {
		t.Errorf("error is %v", err)
	}
	if _, err := c.Review(t.Context(), authorizationv1.SubjectAccessReviewSpec{}); err == nil {
		t.Error("a review without a client")
	}
	// A fresh object is the API server's, with the same bounds.
	before := len(client.Actions())
	if raw, err := c.Get(t.Context(), podKind, "shop", "web", true); err != nil || !strings.Contains(string(raw), `"name":"web"`) || strings.Contains(string(raw), "managedFields") {
		t.Errorf("got %s, %v", raw, err)
	}
	if raw, err := c.Get(t.Context(), podKind, "shop", "none", true); raw != nil || err != nil {
		t.Errorf("got %s, %v", raw, err)
	}
	if _, err := c.Get(t.Context(), podKind, "", "web", true); err == nil {
		t.Error("a Pod without a namespace")
	}
	gets := 0
	for _, action := range client.Actions()[before:] {
		if action.GetVerb() == "get" {
			gets++
		}
	}
	if gets != 2 {
		t.Errorf("the API server was asked %d times, want 2", gets)
	}
	// What changes is seen, and asked for once.
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	if _, err := client.Resource(pods).Namespace("shop").Create(t.Context(), object("Pod", "shop", "new", "a"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); names("shop", "team=a", everything) != "shop/new shop/web"; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the new Pod is not seen")
		}
	}
	lists := 0
	for _, action := range client.Actions() {
		if action.GetVerb() == "list" && action.GetResource() == pods {
			lists++
		}
	}
	if lists > 1 {
		t.Errorf("Pods were listed %d times", lists)
	}
}

// A policy learns at once that the server may not list a kind, and sees the objects
// as soon as it may.
func TestKindsThatCannotBeListed(t *testing.T) {
	c, client := cluster(t.Context(), object("Pod", "shop", "web", "a"))
	var allowed atomic.Bool
	client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		if allowed.Load() {
			return false, nil, nil
		}
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no rule"))
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := c.Get(ctx, podKind, "shop", "web", false); !apierrors.IsForbidden(err) {
		t.Errorf("error is %v", err)
	}
	allowed.Store(true)
	for {
		raw, err := c.Get(ctx, podKind, "shop", "web", false)
		if err == nil && raw != nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// snapshot returns the names of what is kept, in its order.
func snapshot(t *testing.T, o host.Objects) string {
	t.Helper()
	list, err := o.Snapshot()
	if err != nil {
		return err.Error()
	}
	var names []string
	for _, o := range list {
		names = append(names, o.Namespace+"/"+o.Name+"="+o.Labels["team"])
	}
	return strings.Join(names, " ")
}

// until waits until f returns want.
func until(t *testing.T, want string, f func() string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); f() != want; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it is %q, want %q", f(), want)
		}
	}
}

// Objects that are kept are sorted and follow the cluster. A snapshot does not change after
// it was taken.
func TestKeptObjectsFollowTheCluster(t *testing.T) {
	c, client := cluster(t.Context(), object("Pod", "shop", "web", "a"), object("Pod", "shop", "db", "b"), object("Pod", "bank", "web", "a"), object("Namespace", "", "shop", "a"))
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	all, shop := c.Keep(pods, "", host.ObjectQuery{}), c.Keep(pods, "shop", host.ObjectQuery{})
	defer all.Close()
	defer shop.Close()
	for _, o := range []host.Objects{all, shop} {
		if err := o.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	const before = "bank/web=a shop/db=b shop/web=a"
	if got := snapshot(t, all); got != before {
		t.Errorf("all are %s", got)
	}
	if got := snapshot(t, shop); got != "shop/db=b shop/web=a" {
		t.Errorf("those of a namespace are %s", got)
	}
	held, err := all.Snapshot()
	if err != nil || strings.Contains(string(held[0].JSON), "managedFields") || !strings.Contains(string(held[0].JSON), `"namespace":"bank"`) {
		t.Fatalf("%s, %v", held[0].JSON, err)
	}
	namesOf := func(list []*host.Object) (names string) {
		for _, o := range list {
			names += o.Namespace + "/" + o.Name + "=" + o.Labels["team"] + " "
		}
		return strings.TrimSpace(names)
	}
	if _, err := client.Resource(pods).Namespace("shop").Create(t.Context(), object("Pod", "shop", "a", "c"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "bank/web=a shop/a=c shop/db=b shop/web=a", func() string { return snapshot(t, all) })
	if _, err := client.Resource(pods).Namespace("shop").Update(t.Context(), object("Pod", "shop", "db", "d"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.Resource(pods).Namespace("bank").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "shop/a=c shop/db=d shop/web=a", func() string { return snapshot(t, all) })
	until(t, "shop/a=c shop/db=d shop/web=a", func() string { return snapshot(t, shop) })
	if got := namesOf(held); got != before {
		t.Errorf("a snapshot has become %s", got)
	}
}

// Users that keep the same resource share an informer, also with Kubewarden policies. It ends with
// the last of them.
func TestUsersOfAResourceShareAnInformer(t *testing.T) {
	c, client := cluster(t.Context(), object("Pod", "shop", "web", "a"))
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	lists := func() (n int) {
		for _, action := range client.Actions() {
			if action.GetVerb() == "list" && action.GetResource() == pods {
				n++
			}
		}
		return n
	}
	keep := func() host.Objects {
		o := c.Keep(pods, "", host.ObjectQuery{})
		if err := o.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		return o
	}
	first := keep()
	second := keep()
	first.Close()
	first.Close() // It is closed already.
	third := keep()
	if got := snapshot(t, third); got != "shop/web=a" || lists() > 1 {
		t.Errorf("%d lists, there is %s", lists(), got)
	}
	second.Close()
	third.Close()
	before := lists()
	fourth := keep()
	if lists() == before {
		t.Error("the informer went on when nobody used it")
	}
	fourth.Close()
	if _, err := c.Get(t.Context(), podKind, "shop", "web", false); err != nil {
		t.Fatal(err)
	}
	kubewarden := lists()
	keep().Close()
	if _, err := c.Get(t.Context(), podKind, "shop", "web", false); err != nil || lists() != kubewarden {
		t.Errorf("%v, %d lists more", err, lists()-kubewarden)
	}
}

// What may not be listed is an error that says so, and there as soon as it may be.
func TestKeepWhatCannotBeListed(t *testing.T) {
	c, client := cluster(t.Context(), object("Pod", "shop", "web", "a"))
	var allowed atomic.Bool
	client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		if allowed.Load() {
			return false, nil, nil
		}
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no rule"))
	})
	o := c.Keep(schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "", host.ObjectQuery{})
	defer o.Close()
	if err := o.Wait(t.Context()); !apierrors.IsForbidden(err) {
		t.Errorf("waited for: %v", err)
	}
	_, err := o.Snapshot()
	if !apierrors.IsForbidden(err) {
		t.Errorf("asked for: %v", err)
	}
	// A user reads no more of it than that.
	if got, want := publicerr.Words(err), "list them: the server's RBAC does not allow it"; got != want {
		t.Errorf("a user is told %q, want %q", got, want)
	}
	allowed.Store(true)
	until(t, "shop/web=a", func() string { return snapshot(t, o) })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := o.Wait(ctx); err != nil {
		t.Errorf("what is there is waited for: %v", err)
	}
}

func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	c, _ := cluster(ctx, object("Namespace", "", "shop", "storefront"))
	raw, err := c.Get(ctx, schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, "", "shop", false)
	fmt.Println(string(raw), err)
	// Output:
	// {"apiVersion":"v1","kind":"Namespace","metadata":{"labels":{"team":"storefront"},"name":"shop"}} <nil>
}

// TestKindsEndWithTheLastHold counts the watches of a kind that policies come and go with.
func TestKindsEndWithTheLastHold(t *testing.T) {
	c, client := cluster(t.Context(), object("Pod", "shop", "web", "a"))
	var watches []*watch.FakeWatcher
	var mu sync.Mutex
	client.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) {
		mu.Lock()
		defer mu.Unlock()
		watches = append(watches, watch.NewFake())
		return true, watches[len(watches)-1], nil
	})
	// open waits until so many watches were begun, and so many have not ended.
	open := func(begun, want int) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			mu.Lock()
			n, got := len(watches), 0
			for _, w := range watches {
				if !w.IsStopped() {
					got++
				}
			}
			mu.Unlock()
			if n == begun && got == want {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d watches were begun and %d are open, want %d and %d", n, got, begun, want)
			}
		}
	}
	get := func() {
		t.Helper()
		if raw, err := c.Get(t.Context(), podKind, "shop", "web", false); err != nil || raw == nil {
			t.Fatalf("got %s, %v", raw, err)
		}
	}
	first := c.Hold(podKind)
	open(0, 0)
	get()
	open(1, 1)
	second := c.Hold(podKind)
	first()
	first() // It counts once.
	get()
	open(1, 1)
	// What a guest of our own ABI keeps of the same resource goes on.
	kept := c.Keep(schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "", host.ObjectQuery{})
	second()
	open(1, 1)
	kept.Close()
	open(1, 0)
	c.Hold(podKind)()
	open(1, 0)
	third := c.Hold(podKind)
	get()
	open(2, 1)
	third()
	open(2, 0)
}
