package sched_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/framework"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/manifest"
	"github.com/kubewasm/kubewasm/sched"
)

var quotas = schema.GroupVersionResource{Group: "quota.example.com", Version: "v1", Resource: "quotas"}

// quotaPlugin is the guest of schedtest/internal/quotas.
type quotaPlugin struct {
	*sched.Plugin
	handle *framework.Handle
	// active has the names of Pods that are tried again.
	active chan string
	// known are the Quotas, and versions counts their changes.
	known    map[string]metav1.Object
	versions int
}

func loadQuotas(t *testing.T, grants []host.ObjectGrant, mode host.Mode) (*quotaPlugin, error) {
	t.Helper()
	rt, err := compiledOnce()
	if err != nil {
		t.Fatal(err)
	}
	file, err := guestbuild.Build(t.Context(), "schedtest/internal/quotas")
	if err != nil {
		t.Fatal(err)
	}
	q := &quotaPlugin{active: make(chan string, 100), known: map[string]metav1.Object{}}
	q.handle = &framework.Handle{Informers: framework.NewInformers(), Activated: func(pods []*corev1.Pod) {
		for _, pod := range pods {
			q.active <- pod.Name
		}
	}}
	q.Plugin, err = sched.Load(t.Context(), rt, sched.PluginConfig{Objects: grants, Config: host.Config{
		Name: "quotas", Module: host.ModuleConfig{File: file}, Grants: []string{host.GrantObjects, sched.GrantActivate},
	}, QueueTimeout: 5e9, Mode: mode}, framework.Of(q.handle))
	if err == nil {
		t.Cleanup(func() { _ = q.Close(context.Background()) })
	}
	return q, err
}

// set makes a Quota, or changes it.
func (q *quotaPlugin) set(t *testing.T, namespace, name string, open bool) {
	t.Helper()
	q.versions++
	list, err := manifest.Read(fmt.Appendf(nil, "{apiVersion: quota.example.com/v1, kind: Quota, metadata: {namespace: %s, name: %s, resourceVersion: %q}, spec: {open: %t}}",
		namespace, name, fmt.Sprint(q.versions), open))
	if err != nil {
		t.Fatal(err)
	}
	now, _, err := framework.Decode(&list.All[0])
	if err != nil {
		t.Fatal(err)
	}
	var before any
	if o, ok := q.known[namespace+"/"+name]; ok {
		before = o
	}
	q.known[namespace+"/"+name] = now
	if err := q.handle.Change(quotas, before, now); err != nil {
		t.Fatal(err)
	}
}

// limited returns a Pod of the namespace shop that waits for a Quota.
func limited(quota string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "of-" + quota, UID: types.UID(quota), Annotations: map[string]string{"quota": quota},
	}}
}

// refuse has a cycle refuse a Pod. within happens before the guest is asked.
func (q *quotaPlugin) refuse(t *testing.T, pod *corev1.Pod, within func(), want string) {
	t.Helper()
	c := q.Begin(pod)
	within()
	if _, status := q.PreFilter(c, nil); status.Message() != want {
		t.Errorf("%s: PreFilter says %q, want %q", pod.Name, status.Message(), want)
	}
}

func TestPodsWaitForEventsOfNamedResources(t *testing.T) {
	q, err := loadQuotas(t, []host.ObjectGrant{{Resource: "quota.example.com/v1/quotas"}}, host.Enforce)
	if err != nil {
		t.Fatal(err)
	}
	nothing := func() {}
	var got []string
	// The world is empty at first.
	q.refuse(t, limited("a"), nothing, "there is no Quota a")
	q.refuse(t, limited("b"), nothing, "there is no Quota b")
	q.set(t, "shop", "a", false)
	q.set(t, "bank", "a", true)
	q.set(t, "shop", "b", true)
	got = append(got, <-q.active)
	q.refuse(t, limited("a"), nothing, "the Quota a is closed")
	q.set(t, "shop", "a", true)
	got = append(got, <-q.active)
	// A Quota was open for a moment, after the cycle had begun.
	q.refuse(t, limited("c"), func() { q.set(t, "shop", "c", true); q.set(t, "shop", "c", false) }, "the Quota c is closed")
	got = append(got, <-q.active)
	// There were more changes than are kept.
	q.refuse(t, limited("d"), func() {
		q.set(t, "shop", "d", false)
		for i := range 1000 {
			q.set(t, "bank", fmt.Sprint("q", i%7), true)
		}
	}, "the Quota d is closed")
	got = append(got, <-q.active)
	if diff := cmp.Diff([]string{"of-b", "of-a", "of-c", "of-d"}, got); diff != "" {
		t.Errorf("Pods that are tried again (-want +got):\n%s", diff)
	}
}

// TestEventsHoldToTheGrants holds that a guest is woken by nothing that it may not look up.
func TestEventsHoldToTheGrants(t *testing.T) {
	_, err := loadQuotas(t, nil, host.Enforce)
	const want = `the guest registers for events of "quota.example.com/v1/quotas", which the objects of the plugin's configuration do not name`
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the error is %v, want %s", err, want)
	}
	q, err := loadQuotas(t, []host.ObjectGrant{{Resource: "quota.example.com/v1/quotas", Namespaces: []string{"shop"}}}, host.Enforce)
	if err != nil {
		t.Fatal(err)
	}
	q.refuse(t, limited("a"), func() {
		// They would wake the Pod by their number.
		for i := range 1000 {
			q.set(t, "bank", fmt.Sprint("q", i%7), true)
		}
	}, "there is no Quota a")
	q.refuse(t, limited("b"), func() {}, "there is no Quota b")
	q.set(t, "shop", "b", true)
	q.set(t, "shop", "a", true)
	if diff := cmp.Diff(map[string]bool{"of-a": true, "of-b": true}, map[string]bool{<-q.active: true, <-q.active: true}); diff != "" {
		t.Errorf("Pods that are tried again (-want +got):\n%s", diff)
	}
}

// TestActivate holds that a guest has the queue try other Pods again: each once a second at most, as
// many as a call may, and none if the guest is only monitored.
func TestActivate(t *testing.T) {
	grants := []host.ObjectGrant{{Resource: "quota.example.com/v1/quotas"}}
	permit := func(q *quotaPlugin, siblings ...string) string {
		pod := limited("")
		pod.Annotations["siblings"] = strings.Join(siblings, ",")
		c := q.Begin(pod)
		if _, status := q.PreFilter(c, nil); status != nil {
			t.Fatal(status.Message())
		}
		status, _ := q.Permit(c, pod, "n1")
		return status.Message()
	}
	q, err := loadQuotas(t, grants, host.Enforce)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, siblings := range [][]string{{"a", "b"}, {"a", "a"}, {"c"}} {
		if got := permit(q, siblings...); got != "" {
			t.Fatal(got)
		}
		if siblings[0] != siblings[len(siblings)-1] || len(siblings) == 1 {
			for range siblings {
				got = append(got, <-q.active)
			}
		}
	}
	got = append(got, <-q.active)
	slices.Sort(got)
	if diff := cmp.Diff([]string{"a", "a", "b", "c"}, got); diff != "" {
		t.Errorf("Pods that are tried again (-want +got):\n%s", diff)
	}
	var many []string
	for i := range 10_000 {
		many = append(many, fmt.Sprint("p", i))
	}
	if got, want := permit(q, many...), "more than 1000"; !strings.Contains(got, want) {
		t.Errorf("10,000 names: %q, want %q", got, want)
	}
	monitored, err := loadQuotas(t, grants, host.Monitor)
	if err != nil {
		t.Fatal(err)
	}
	if permit(monitored, "a"); len(monitored.active) != 0 {
		t.Error("a monitored guest activates a Pod")
	}
}

// TestARepetitionActivatesNothing has Permit repeat Reserve, which activates a Pod.
func TestARepetitionActivatesNothing(t *testing.T) {
	rt, err := compiledOnce()
	if err != nil {
		t.Fatal(err)
	}
	file, err := guestbuild.Build(t.Context(), "schedtest/internal/quotas")
	if err != nil {
		t.Fatal(err)
	}
	var activated []string
	handle := &framework.Handle{Informers: framework.NewInformers(), Activates: func(pods []types.NamespacedName) {
		for _, pod := range pods {
			activated = append(activated, pod.Name)
		}
	}}
	made := new(calls)
	made.reset()
	cfg := host.Config{Name: "quotas", Module: host.ModuleConfig{File: file}, Grants: []string{sched.GrantActivate}, Observer: made}
	everyCall(&cfg)
	p, err := sched.Load(t.Context(), rt, sched.PluginConfig{Objects: []host.ObjectGrant{{Resource: "quota.example.com/v1/quotas"}}, Config: cfg}, framework.Of(handle))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(context.WithoutCancel(t.Context()))
	pod := annotated("p", "with", "a", "siblings", "b")
	c := p.Begin(pod)
	if _, status := p.PreFilter(c, nil); status != nil {
		t.Fatal(status.Message())
	}
	if status := p.Reserve(c, pod, "n1"); status != nil {
		t.Fatal(status.Message())
	}
	if status, _ := p.Permit(c, pod, "n1"); status != nil {
		t.Fatal(status.Message())
	}
	if diff := cmp.Diff([]string{"a", "b"}, activated); diff != "" {
		t.Errorf("activated (-want +got):\n%s", diff)
	}
	if made.made["reserve"] < 2 {
		t.Errorf("Reserve was called %d times, want a repetition", made.made["reserve"])
	}
}
