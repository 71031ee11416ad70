package sched_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/framework"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/manifest"
	"github.com/kubewasm/kubewasm/sched"
)

var things = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"}

// applying is the guest named of the conformance suite, whose PreBind waits for the thing of the Pod's
// name, and applies two annotations and a status to it.
type applying struct {
	*sched.Plugin
	handle *framework.Handle
	log    *strings.Builder
	// asked has the requests. Each waits for an answer.
	asked   chan string
	answers chan error
}

func loadApplying(t *testing.T, mode host.Mode, apply ...string) *applying {
	t.Helper()
	rt, err := compiledOnce()
	if err != nil {
		t.Fatal(err)
	}
	file, err := guestbuild.Build(t.Context(), "../abi/conformance/testdata/guests/named")
	if err != nil {
		t.Fatal(err)
	}
	a := &applying{asked: make(chan string), answers: make(chan error), log: &strings.Builder{}}
	a.handle = &framework.Handle{Informers: framework.NewInformers(), AppliesAs: func(manager string, of sched.Applied) error {
		a.asked <- fmt.Sprint(manager, " ", of.Object.(metav1.Object).GetName(), " ", of.Annotations, " ", string(of.Status))
		return <-a.answers
	}}
	a.Plugin, err = sched.Load(t.Context(), rt, sched.PluginConfig{
		Objects: []host.ObjectGrant{{Resource: "example.com/v1/things", Apply: apply}},
		Config: host.Config{
			Name: "named", Module: host.ModuleConfig{File: file}, Grants: []string{sched.GrantActivate, sched.GrantApply},
			Logger: slog.New(slog.NewTextHandler(a.log, nil)),
		}, Mode: mode,
	}, framework.Of(a.handle))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close(context.Background()) })
	return a
}

// set makes the thing of a name.
func (a *applying) set(t *testing.T, name string) metav1.Object {
	t.Helper()
	list, err := manifest.Read(fmt.Appendf(nil, "{apiVersion: example.com/v1, kind: Thing, metadata: {namespace: shop, name: %s, uid: %[1]s}}", name))
	if err != nil {
		t.Fatal(err)
	}
	thing, _, err := framework.Decode(&list.All[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := a.handle.Change(things, nil, thing); err != nil {
		t.Fatal(err)
	}
	return thing
}

func (a *applying) prebind(ctx context.Context, name string) string {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)}}
	s := a.PreBind(ctx, a.Begin(pod), pod, "n1")
	return strings.TrimSuffix(s.Code().String()+": "+s.Message(), ": ")
}

// TestApply holds that changes of objects are made after the call, one at a time, the latest of each
// alone, again after a failure that passes, and not of objects that are gone.
func TestApply(t *testing.T) {
	a := loadApplying(t, host.Enforce, "status", "annotations")
	annotations := func(name string) string {
		return fmt.Sprintf(`kubewasm-named %s map[example.com/a:"ä example.com/by:%[1]s] `, name)
	}
	status := func(name string) string {
		return fmt.Sprintf(`kubewasm-named %s map[] {"phase":"Bound"}`, name)
	}
	for _, name := range []string{"web", "api", "last"} {
		a.set(t, name)
	}
	gone := a.set(t, "gone")
	bind := func(name string) {
		t.Helper()
		if got := a.prebind(t.Context(), name); got != "Success" {
			t.Fatalf("PreBind of %s: %s", name, got)
		}
	}
	var got []string
	next := func(answer error) {
		got = append(got, <-a.asked)
		a.answers <- answer
	}
	bind("web")
	first := <-a.asked // From here on there is no other request until it is answered.
	for range 20 {
		bind("web")
	}
	got = append(got, first)
	a.answers <- nil
	next(nil)
	next(nil)
	bind("api")
	next(apierrors.NewTooManyRequests("slower", 1))
	next(apierrors.NewConflict(things.GroupResource(), "api", fmt.Errorf("the field belongs to kubectl")))
	next(nil)
	bind("gone")
	<-a.asked // The status of it is not applied any more.
	if err := a.handle.Change(things, gone, nil); err != nil {
		t.Fatal(err)
	}
	a.answers <- nil
	bind("last")
	next(nil)
	next(nil)
	if diff := cmp.Diff([]string{annotations("web"), status("web"), annotations("web"), annotations("api"), status("api"), annotations("api"), annotations("last"), status("last")}, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if err := a.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if log := a.log.String(); strings.Count(log, "a change of an object failed") != 1 || !strings.Contains(log, "the field belongs to kubectl") {
		t.Errorf("logged: %s", log)
	}
}

// TestApplyNeedsAGrant holds that a guest changes what the configuration names, and nothing if it is only
// monitored.
func TestApplyNeedsAGrant(t *testing.T) {
	for name, test := range map[string]struct {
		mode  host.Mode
		apply []string
		want  string
	}{
		"nothing":           {host.Enforce, nil, `the plugin's configuration does not let it apply annotations of "example.com/v1/things"`},
		"the status":        {host.Enforce, []string{"status"}, `the plugin's configuration does not let it apply the annotation`},
		"one annotation":    {host.Enforce, []string{"status", "annotations[example.com/a]"}, `the plugin's configuration does not let it apply the annotation "example.com/by" of "example.com/v1/things"`},
		"the annotations":   {host.Enforce, []string{"annotations[example.com/a]", "annotations[example.com/by]"}, `the plugin's configuration does not let it apply status of "example.com/v1/things"`},
		"a monitored guest": {host.Monitor, []string{"status", "annotations"}, "Success"},
	} {
		t.Run(name, func(t *testing.T) {
			a := loadApplying(t, test.mode, test.apply...)
			a.handle.Applies = func(of sched.Applied) { t.Errorf("%s/%s is changed", of.Namespace, of.Name) }
			a.set(t, "web")
			if got := a.prebind(t.Context(), "web"); !strings.Contains(got, test.want) {
				t.Errorf("PreBind: %s, want %s", got, test.want)
			}
		})
	}
}

// TestAwait holds that PreBind is called again when its object changes, as often as it must, and ends
// with its context and with the plugin.
func TestAwait(t *testing.T) {
	a := loadApplying(t, host.Enforce, "status", "annotations")
	a.handle.Applies = func(sched.Applied) {}
	results := make(chan string)
	for _, name := range []string{"a", "b", "c"} {
		go func() { results <- name + " " + a.prebind(t.Context(), name) }()
	}
	for _, name := range []string{"other", "b", "c", "a"} {
		if a.set(t, name); name == "other" {
			continue
		}
		if got := <-results; got != name+" Success" {
			t.Errorf("after the thing %s: %s", name, got)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { results <- a.prebind(ctx, "never") }()
	cancel()
	if got := <-results; got != "Wait: no thing never" {
		t.Errorf("without its context: %s", got)
	}
	go func() { results <- a.prebind(t.Context(), "never") }()
	if err := a.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := <-results; !strings.HasPrefix(got, "Error: ") {
		t.Errorf("of a closed plugin: %s", got)
	}
}
