package main

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/webhook/manage"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/clusterplugins"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// TestConfine holds what keeps a policy of a namespace from harm to others: the error, and whether the
// policy is refused as a whole.
func TestConfine(t *testing.T) {
	rules := func(groups, resource string) string {
		return fmt.Sprintf(`"match":{"rules":[{"operations":["*"],"apiGroups":[%s],"apiVersions":["*"],"resources":[%q]}]}`, groups, resource)
	}
	pods := rules(`""`, "pods")
	for _, c := range []struct {
		name, spec, want string
		unknown          bool
	}{
		{"a policy", `{"module":{"oci":"a:1"},` + pods + `}`, "", false},
		{"a shadow", `{"module":{"oci":"a:1"},"shadow":{"module":{"oci":"a:2"},"memoryBytes":"1Ti"},` + pods + `}`, "shadow is not for an AdmissionPolicy", false},
		{"policies of the namespace", `{"module":{"oci":"a:1"},` + rules(`"kubewasm.dev"`, "admissionpolicies") + `}`, "keep itself from being changed and deleted", true},
		{"their status", `{"module":{"oci":"a:1"},` + rules(`"apps","kubewasm.dev"`, "admissionpolicies/status") + `}`, "keep itself from being changed and deleted", true},
		{"policies of all groups", `{"module":{"oci":"a:1"},` + rules(`"*"`, "admissionpolicies/*") + `}`, "keep itself from being changed and deleted", true},
		{"those of another group", `{"module":{"oci":"a:1"},` + rules(`"example.com"`, "admissionpolicies") + `}`, "", false},
		{"a configuration that was not read", `{"module":{"oci":"a:1"},"guestConfigFrom":[{"secret":{"name":"s","key":"k"}}],` + pods + `}`, "the API server has not sent the texts", false},
		{"no room for the spec", "", "the spec is left out", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			object := &clusterplugins.Object{Kind: "AdmissionPolicy", Namespace: "shop", Name: "a"}
			if c.spec != "" {
				object.Spec = []byte(c.spec)
			}
			p := policyOf(object, nil)
			text := ""
			if p.Err != nil {
				text = p.Err.Error()
			}
			if p.Unknown != c.unknown || (c.want == "") != (p.Err == nil) || !strings.Contains(text, c.want) {
				t.Errorf("the error is %q, and unknown %v; want %q and %v", text, p.Unknown, c.want, c.unknown)
			}
		})
	}
}

// TestReportsHaveRoom holds that thousands of policies of a namespace keep no other from a report.
func TestReportsHaveRoom(t *testing.T) {
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rt.Close(t.Context()) })
	m, err := manage.New(t.Context(), manage.Config{Runtime: rt, Engine: new(admission.Engine)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close(t.Context()) })
	o := &objects{manager: m, logger: slog.New(slog.DiscardHandler)}
	var list []clusterplugins.Object
	for i := range 5000 {
		list = append(list, clusterplugins.Object{Kind: "AdmissionPolicy", Namespace: "hostile", Name: fmt.Sprintf("p-%04d", i), Spec: []byte("{}")})
	}
	o.apply(append(list, clusterplugins.Object{Kind: "AdmissionPolicy", Namespace: "team", Name: "a", Spec: []byte("{}")}))
	n := map[string]int{}
	for _, s := range o.states() {
		n[s.Namespace]++
	}
	if n["team"] != 1 || n["hostile"] != maxReported {
		t.Errorf("the report has policies %v, want 1 of team and %d of hostile", n, maxReported)
	}
}

// builds is an observer of builds that end when they may.
type builds struct{ begun, end chan struct{} }

func (b *builds) Built(context.Context, host.BuildEvent) {
	b.begun <- struct{}{}
	<-b.end
}
func (*builds) Called(context.Context, host.CallEvent) {}
func (*builds) Refused(context.Context, string, error) {}
func (*builds) Restarted(string, bool)                 {}
func (*builds) CacheHits(string, string, uint64)       {}

// TestAReportIsOfWhatServes holds that no report has a version that is being loaded: a step of a
// rollout would end before it serves.
func TestAReportIsOfWhatServes(t *testing.T) {
	guest, err := guestbuild.Build(t.Context(), "../../examples/admission/required-labels")
	if err != nil {
		t.Fatal(err)
	}
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rt.Close(t.Context()) })
	b := &builds{make(chan struct{}), make(chan struct{})}
	m, err := manage.New(t.Context(), manage.Config{Runtime: rt, Engine: new(admission.Engine), HostObserver: b})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close(t.Context()) })
	o := &objects{manager: m, logger: slog.New(slog.DiscardHandler)}
	apply := func(revision int64, mode string) {
		spec := fmt.Sprintf(`{"module":{"file":%q},"guestConfig":{"labels":["a"]},"mode":%q,"match":{"rules":[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"]}]}}`, guest, mode)
		o.apply([]clusterplugins.Object{{
			Kind: "ClusterAdmissionPolicy", Name: "p", UID: "u", Generation: 10 * revision, Revision: revision, Spec: []byte(spec),
			Bounds: clusterplugins.Bounds{Trial: 10 * revision, Revision: revision, Failures: 1},
		}})
		<-b.begun
	}
	state := func() string {
		all := o.states()
		if len(all) != 1 {
			t.Fatalf("%d states, want 1", len(all))
		}
		return fmt.Sprintf("%s revision %d of generation %d, trial %d", all[0].State, all[0].Revision, all[0].Generation, all[0].Trial)
	}
	loaded := func() {
		b.end <- struct{}{}
		for i := m.List()[0]; i.Loading || i.State == host.Loading; i = m.List()[0] {
			runtime.Gosched()
		}
	}
	var got []string
	apply(1, "Enforce")
	got = append(got, state())
	loaded()
	got = append(got, state())
	apply(2, "Monitor")
	got = append(got, state())
	loaded()
	got = append(got, state())
	want := []string{
		"Loading revision 0 of generation 10, trial 0", "Serving revision 1 of generation 10, trial 10",
		"Serving revision 1 of generation 10, trial 10", "Serving revision 2 of generation 20, trial 20",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
