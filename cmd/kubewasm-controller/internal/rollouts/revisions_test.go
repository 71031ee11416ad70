package rollouts

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/plugin"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/reports"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/status"
)

// kept is an API server that has revisions alone.
type kept struct {
	client.Client
	of map[string]*v1alpha1.PluginRevision
}

func (k *kept) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	k.of[o.GetName()] = o.DeepCopyObject().(*v1alpha1.PluginRevision)
	return nil
}

func (k *kept) Delete(_ context.Context, o client.Object, _ ...client.DeleteOption) error {
	delete(k.of, o.GetName())
	return nil
}

func (k *kept) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	for _, o := range k.of {
		list.(*v1alpha1.PluginRevisionList).Items = append(list.(*v1alpha1.PluginRevisionList).Items, *o)
	}
	return nil
}

func shares(uid types.UID, spec string) plugin.Plugin {
	p, _ := plugin.Of(&v1alpha1.NodeHook{ObjectMeta: metav1.ObjectMeta{Name: "shares", UID: uid, Generation: 1}, Spec: runtime.RawExtension{Raw: []byte(spec)}})
	return p
}

// No number is used twice, with the shortest history, after a roll back, too.
func TestNumbersAreNotUsedTwice(t *testing.T) {
	api := &kept{of: map[string]*v1alpha1.PluginRevision{}}
	r := &Reconciler{Namespace: "kubewasm", Client: api, Reader: api, Processes: &status.Processes{Reports: &reports.Store{}}}
	contents := map[int64]string{}
	var stable *v1alpha1.RevisionRef
	for _, step := range []struct {
		spec   string
		failed bool
	}{{spec: "a"}, {"b", true}, {spec: "a"}, {spec: "c"}, {"d", true}, {spec: "c"}, {spec: "e"}} {
		p := shares("u", fmt.Sprintf(`{"guestConfig":%q}`, step.spec))
		p.Status.Rollout = &v1alpha1.RolloutStatus{Stable: stable}
		all, err := r.history(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		ref, err := r.record(t.Context(), p, "", all)
		if err != nil {
			t.Fatal(err)
		}
		if before, ok := contents[ref.Revision]; ok && before != step.spec {
			t.Errorf("revision %d is %s, and was %s", ref.Revision, step.spec, before)
		}
		contents[ref.Revision] = step.spec
		now := &v1alpha1.RolloutStatus{Wanted: ref.Revision, Stable: stable}
		if !step.failed {
			stable, now.Stable = ref, ref
		}
		if err := r.trim(t.Context(), p, all, 0, now); err != nil {
			t.Fatal(err)
		}
	}
}

// What somebody has changed or written is no revision.
func TestGenuine(t *testing.T) {
	p := shares("u", `{"guestConfig":"a"}`)
	spec, hash, err := content(p, "r@1")
	if err != nil {
		t.Fatal(err)
	}
	genuineOne := v1alpha1.PluginRevision{
		ObjectMeta: metav1.ObjectMeta{Name: "nodehook.shares.3", Labels: map[string]string{uidLabel: "u"}},
		PluginKind: "NodeHook", Plugin: "shares", Revision: 3, Spec: runtime.RawExtension{Raw: spec}, Pin: "r@1", Hash: hash,
	}
	tests := map[string]func(*v1alpha1.PluginRevision){
		"genuine":         func(*v1alpha1.PluginRevision) {},
		"another number":  func(r *v1alpha1.PluginRevision) { r.Revision = 9223372036854775807 },
		"another name":    func(r *v1alpha1.PluginRevision) { r.Name = "zzz" },
		"another plugin":  func(r *v1alpha1.PluginRevision) { r.Plugin = "others" },
		"an earlier one":  func(r *v1alpha1.PluginRevision) { r.Labels = map[string]string{uidLabel: "before"} },
		"another spec":    func(r *v1alpha1.PluginRevision) { r.Spec.Raw = []byte(`{"guestConfig":"b"}`) },
		"another pin":     func(r *v1alpha1.PluginRevision) { r.Pin = "r@2" },
		"a number of 0":   func(r *v1alpha1.PluginRevision) { r.Revision, r.Name = 0, "nodehook.shares.0" },
		"a negative one":  func(r *v1alpha1.PluginRevision) { r.Revision, r.Name = -1, "nodehook.shares.-1" },
		"of another kind": func(r *v1alpha1.PluginRevision) { r.PluginKind = "AdmissionPolicy" },
	}
	var got []string
	for name, change := range tests {
		r := genuineOne.DeepCopy()
		if change(r); genuine(p, r) {
			got = append(got, name)
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff("genuine", strings.Join(got, ", ")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
