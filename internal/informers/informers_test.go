package informers_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubewasm/kubewasm/internal/informers"
	"github.com/kubewasm/kubewasm/internal/objects"
)

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

func widget(namespace, name, version string, bytes int) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget", "spec": map[string]any{"text": strings.Repeat("x", bytes)},
	}}
	u.SetNamespace(namespace)
	u.SetName(name)
	u.SetResourceVersion(version)
	u.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "kubectl"}})
	return u
}

// client returns a client of objects. It sends watching a value with each watch, from which on no
// change is lost.
func client(list ...runtime.Object) (c *fake.FakeDynamicClient, watching chan bool) {
	c = fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{widgets: "WidgetList"}, list...)
	watching = make(chan bool, 100)
	c.PrependWatchReactor("*", func(a clienttesting.Action) (bool, watch.Interface, error) {
		w, err := c.Tracker().Watch(a.GetResource(), a.GetNamespace())
		watching <- true
		return true, w, err
	})
	return c, watching
}

func describe(o *objects.Kept) string {
	if o == nil {
		return "-"
	}
	return o.Namespace + "/" + o.Name + "@" + o.ResourceVersion
}

// TestWatchersSeeTheAnswersAfterAChange holds that a change is told once lookups answer with it, with
// the object before and after it.
func TestWatchersSeeTheAnswersAfterAChange(t *testing.T) {
	c, watching := client(widget("shop", "a", "1", 0), widget("bank", "a", "1", 0))
	r, err := informers.New(t.Context(), informers.Config[*objects.Kept]{Client: c, Keep: objects.Keep}).Use(informers.Scope{Resource: widgets, Namespace: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Leave()
	told := make(chan string, 10)
	stop := r.Watch(func(before, after *objects.Kept) {
		of := after
		if of == nil {
			of = before
		}
		now, _, err := r.Get(of.Namespace, of.Name)
		told <- fmt.Sprint(describe(before), " ", describe(after), " ", describe(now), " ", err)
	})
	if err := r.Wait(t.Context(), r.Ordered); err != nil {
		t.Fatal(err)
	}
	<-watching
	of := c.Resource(widgets).Namespace("shop")
	for _, step := range []struct {
		do   func() error
		want string
	}{
		{func() error { return nil }, "- shop/a@1 shop/a@1 <nil>"},
		{func() error {
			_, err := of.Update(context.Background(), widget("shop", "a", "2", 0), metav1.UpdateOptions{})
			return err
		}, "shop/a@1 shop/a@2 shop/a@2 <nil>"},
		{func() error { return of.Delete(context.Background(), "a", metav1.DeleteOptions{}) }, "shop/a@2 - - <nil>"},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if got := <-told; got != step.want {
			t.Errorf("the watcher sees %q, want %q", got, step.want)
		}
	}
	stop()
}

// TestLimit holds that an informer keeps no more bytes than its limit, answers with an error then,
// and answers again once there is room and the objects beyond it have changed.
func TestLimit(t *testing.T) {
	var list []runtime.Object
	for i := range 30 {
		list = append(list, widget("shop", fmt.Sprint(i), "1", 100<<10))
	}
	c, watching := client(list...)
	r, err := informers.New(t.Context(), informers.Config[*objects.Kept]{Client: c, Keep: objects.Keep, Limit: 1 << 20}).Use(informers.Scope{Resource: widgets})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Leave()
	changed := make(chan bool, 100)
	defer r.Watch(func(_, _ *objects.Kept) { changed <- true })()
	if err := r.Wait(t.Context(), r.Ordered); err != nil {
		t.Fatal(err)
	}
	<-watching
	kept := func() (bytes int) {
		if err := r.List("", labels.Everything(), func(o *objects.Kept) { bytes += len(o.JSON) }); err != nil {
			t.Fatal(err)
		}
		return bytes
	}
	if n := kept(); n < 1<<20 || n > 1<<20+110<<10 {
		t.Errorf("%d bytes are kept, want about 1 MiB", n)
	}
	const want = "the objects have more than 1 MiB: name the namespaces that are needed"
	if _, err := r.Snapshot(); err == nil || err.Error() != want {
		t.Errorf("the snapshot is %v, want %q", err, want)
	}
	of := c.Resource(widgets).Namespace("shop")
	for i := range 25 {
		if err := of.Delete(t.Context(), fmt.Sprint(i), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for range 30 + 25 {
		<-changed
	}
	// The objects that are left come again, with their next version.
	for i := 25; i < 30; i++ {
		if _, err := of.Update(t.Context(), widget("shop", fmt.Sprint(i), "2", 0), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		<-changed
	}
	all, err := r.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range all {
		got = append(got, describe(o))
		if strings.Contains(string(o.JSON), "managedFields") {
			t.Errorf("%s has managed fields", o.Name)
		}
	}
	if diff := cmp.Diff([]string{"shop/25@2", "shop/26@2", "shop/27@2", "shop/28@2", "shop/29@2"}, got); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
}

// TestLimitOfObjectsThatAreListedAgain holds that the objects of a resource that is listed again do
// not count twice.
func TestLimitOfObjectsThatAreListedAgain(t *testing.T) {
	var list []runtime.Object
	for i := range 8 {
		o := widget("shop", fmt.Sprint(i), "1", 100<<10)
		o.SetUID(types.UID(fmt.Sprint(i)))
		list = append(list, o)
	}
	c, watching := client(list...)
	broken := watch.NewRaceFreeFake()
	broken.Error(&metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired})
	first := true
	c.PrependWatchReactor("*", func(clienttesting.Action) (bool, watch.Interface, error) {
		handled := first
		first = false
		return handled, broken, nil
	})
	r, err := informers.New(t.Context(), informers.Config[*objects.Kept]{Client: c, Keep: objects.Keep, Limit: 1 << 20}).Use(informers.Scope{Resource: widgets})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Leave()
	changed := make(chan string, 100)
	defer r.Watch(func(_, after *objects.Kept) { changed <- describe(after) })()
	<-watching
	if _, err := c.Resource(widgets).Namespace("shop").Update(t.Context(), widget("shop", "7", "2", 0), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for <-changed != "shop/7@2" {
	}
	if _, err := r.Snapshot(); err != nil {
		t.Error(err)
	}
	if err := r.List("", labels.Everything(), func(o *objects.Kept) {
		if len(o.JSON) == 0 {
			t.Errorf("%s has no JSON", describe(o))
		}
	}); err != nil {
		t.Error(err)
	}
}
