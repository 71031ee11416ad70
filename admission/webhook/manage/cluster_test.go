package manage_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/admission/webhook/manage"
	"github.com/kubewasm/kubewasm/host"
)

// specs returns policies that say their names, with fields of them in YAML.
func specs(t *testing.T, policies ...string) (list []manage.ClusterPolicy) {
	t.Helper()
	f, err := manage.ParseFile([]byte("plugins: [" + strings.Join(policies, ", ") + "]\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range f.Plugins {
		list = append(list, manage.ClusterPolicy{Spec: p})
	}
	return list
}

// origins returns the origins and states of the policies, in their order.
func (r *replica) origins() string {
	var list []string
	for _, i := range r.List() {
		list = append(list, i.Name+" "+i.Origin+" "+string(i.State))
	}
	return strings.Join(list, ", ")
}

func (r *replica) wantOrigins(want string) {
	r.t.Helper()
	until(r.t, want, func() bool { return r.origins() == want })
}

func (r *replica) wantRefused(got map[string]error, want map[string]string) {
	r.t.Helper()
	texts := map[string]string{}
	for name, err := range got {
		texts[name] = err.Error()
	}
	if diff := cmp.Diff(want, texts); diff != "" {
		r.t.Error(diff)
	}
}

// Policies of the cluster's objects serve beside those of a file, which takes precedence.
func TestPoliciesOfTheCluster(t *testing.T) {
	t.Parallel()
	r := newReplica(t, nil)
	r.ExpectCluster()
	if err := r.Ready(); err == nil || !strings.Contains(err.Error(), "policies of the cluster are not known") {
		t.Errorf("before: %v", err)
	}
	if err := r.apply(file(plugin("m", rules))); err != nil {
		t.Fatal(err)
	}
	one := specs(t, plugin("z", rules), plugin("a", rules), plugin("m", rules))
	one[1].Spec.Name = "shop/a"
	r.wantRefused(r.ApplyCluster(one), map[string]string{"m": `policy "m": the configuration file has a policy of this name, which takes precedence`})
	r.wantOrigins("m file Serving, shop/a cluster Serving, z cluster Serving")
	until(t, "ready", func() bool { return r.Ready() == nil })

	// A policy with wrong rules stays as it was, also beside others that change.
	two := specs(t, plugin("z", rules), plugin("a", ""), plugin("m", rules))
	two[0].Spec.Match.Rules[0].Resources, two[1].Spec.Name = []string{"Pods"}, "shop/a"
	refused := r.ApplyCluster(two)
	if len(refused) != 2 || refused["z"] == nil || !strings.Contains(refused["z"].Error(), "Pods") {
		t.Errorf("refused are %v", refused)
	}
	r.wantOrigins("m file Serving, shop/a cluster Serving, z cluster Serving")

	// The API changes no declaration, and may override it.
	var declared manage.PluginSpec
	declared.Name = "z"
	for _, err := range []error{r.Load(t.Context(), declared, says("z")), r.Remove("z")} {
		if !errors.Is(err, manage.ErrDeclared) || !strings.Contains(err.Error(), "by an object of the cluster") {
			t.Error(err)
		}
	}
	if err := r.SetEnabled("shop/a", false); err != nil {
		t.Fatal(err)
	}
	r.wantOrigins("m file Serving, shop/a cluster Disabled, z cluster Serving")

	// The override outlives a restart, whichever is declared first.
	r.restart()
	r.ExpectFile()
	r.ExpectCluster()
	two[0].Spec.Match.Rules[0].Resources = []string{"pods"}
	r.ApplyCluster(two)
	if err := r.apply(file(plugin("m", rules))); err != nil {
		t.Fatal(err)
	}
	r.wantOrigins("m file Serving, shop/a cluster Disabled, z cluster Serving")

	// A policy that the file has no more is the cluster's, without a moment between.
	if err := r.apply("plugins: []\n"); err != nil {
		t.Fatal(err)
	}
	r.wantOrigins("m cluster Serving, shop/a cluster Disabled, z cluster Serving")
	// And the other way round.
	if err := r.apply(file(plugin("z", rules))); err != nil {
		t.Fatal(err)
	}
	r.wantOrigins("z file Serving, m cluster Serving, shop/a cluster Disabled")
	r.wantRefused(r.ApplyCluster(two[:1]), map[string]string{"z": `policy "z": the configuration file has a policy of this name, which takes precedence`})
	r.wantOrigins("z file Serving")
}

// A policy whose settings are wrong is unavailable, and its failure policy decides; an earlier
// version stays.
func TestAPolicyOfTheClusterThatIsWrong(t *testing.T) {
	t.Parallel()
	r := newReplica(t, nil)
	list := specs(t, plugin("a", rules+", failurePolicy: Fail"), plugin("b", rules))
	list[0].Spec.Module.SHA256 = strings.Repeat("0", 64)
	if refused := r.ApplyCluster(list); len(refused) != 0 {
		t.Error(refused)
	}
	r.wantOrigins("a cluster Unavailable, b cluster Serving")
	if answers := r.answers(); !strings.Contains(answers, `policy \"a\"`) && !strings.Contains(answers, `plugin \"a\"`) {
		t.Errorf("the request was not denied by the policy that is unavailable: %s", answers)
	}
	list = slices.Clone(list)
	list[0].Spec.Module.SHA256 = ""
	r.ApplyCluster(list)
	r.wantOrigins("a cluster Serving, b cluster Serving")
	list = slices.Clone(list)
	list[0].Spec.Module.SHA256 = strings.Repeat("1", 64)
	r.ApplyCluster(list)
	r.wantOrigins("a cluster Stale, b cluster Serving")
	// A mistake of the object.
	list = slices.Clone(list)
	list[0].Err, list[1].Err, list[1].Unknown = errors.New("it has a mistake"), errors.New("it cannot be read"), true
	r.wantRefused(r.ApplyCluster(list), map[string]string{"b": "it cannot be read"})
	r.wantOrigins("a cluster Stale, b cluster Serving")
	until(t, "the mistake", func() bool { return r.List()[0].Error == "it has a mistake" })
	// What serves is not allowed any more: the failure policy decides from then on, and no earlier version.
	withdrawn := slices.Clone(list)
	withdrawn[0].Withdrawn, withdrawn[1].Withdrawn = true, true
	r.wantRefused(r.ApplyCluster(withdrawn), map[string]string{"b": "it cannot be read"})
	if answers := r.answers(); !strings.Contains(answers, "it has a mistake") {
		t.Errorf("the request was not denied at once for a policy that was withdrawn: %s", answers)
	}
	r.wantOrigins("a cluster Unavailable")
	r.ApplyCluster(withdrawn)
	r.wantOrigins("a cluster Unavailable")
	withdrawn = slices.Clone(withdrawn)
	withdrawn[0].Spec.Module.SHA256, withdrawn[0].Err = "", nil
	r.ApplyCluster(withdrawn[:1])
	r.wantOrigins("a cluster Serving")
	withdrawn = slices.Clone(withdrawn)
	withdrawn[0].Spec.Module.SHA256 = strings.Repeat("2", 64)
	r.ApplyCluster(withdrawn[:1])
	r.wantOrigins("a cluster Unavailable")
	r.restart()
	r.ApplyCluster(list)
	r.wantOrigins("a cluster Unavailable")
	if answers := r.answers(); !strings.Contains(answers, "it has a mistake") {
		t.Errorf("the request was not denied by the policy with a mistake: %s", answers)
	}
	list[1].Err, list[1].Unknown = nil, false
	r.ApplyCluster(list[1:])
	r.wantOrigins("b cluster Serving")
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.ApplyCluster(list)["a"]; !errors.Is(err, host.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// A policy of the API keeps its name until it is removed.
func TestAPolicyOfTheClusterAndTheAPI(t *testing.T) {
	t.Parallel()
	r := newReplica(t, nil)
	var spec manage.PluginSpec
	spec.Name = "a"
	if err := r.Load(t.Context(), spec, says("a")); err != nil {
		t.Fatal(err)
	}
	r.wantRefused(r.ApplyCluster(specs(t, plugin("a", rules))), map[string]string{"a": `policy "a": was loaded by the management API already, which can remove it`})
	r.wantOrigins("a api Serving")
	if err := r.Remove("a"); err != nil {
		t.Fatal(err)
	}
	r.wantOrigins("a cluster Serving")
}

// A server waits for the policies of the cluster that it has just learned of, and not for those of
// namespaces whose modules are away.
func TestReadyWithPoliciesOfTheCluster(t *testing.T) {
	t.Parallel()
	away := specs(t, plugin("a", rules))[0]
	away.Spec.Module = host.ModuleConfig{File: filepath.Join(t.TempDir(), "away.wasm")}
	ofNamespace := away
	ofNamespace.Spec.Name = "shop/a"
	serving := specs(t, plugin("z", rules))[0]

	r := newReplica(t, nil)
	r.ExpectCluster()
	// It is asked before the policies are known.
	if err := r.Ready(); err == nil {
		t.Error("it is ready without the policies")
	}
	r.ApplyCluster([]manage.ClusterPolicy{away, serving})
	r.wantOrigins("a cluster Unavailable, z cluster Serving")
	if err := r.Ready(); err == nil || !strings.Contains(err.Error(), `policy "a" is not available`) {
		t.Errorf("it is ready without a policy of the cluster: %v", err)
	}

	r = newReplica(t, nil)
	r.ExpectCluster()
	r.ApplyCluster([]manage.ClusterPolicy{ofNamespace, serving})
	r.wantOrigins("shop/a cluster Unavailable, z cluster Serving")
	if err := r.Ready(); err != nil {
		t.Errorf("a policy of a namespace keeps it from being ready: %v", err)
	}
}

// hanging is a source that does not answer.
type hanging struct{}

func (hanging) String() string { return "hanging" }

func (hanging) Fetch(ctx context.Context) ([]byte, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// A policy that an object of the cluster no longer declares leaves, although a module of a namespace
// does not come.
func TestPolicyOfTheClusterLeaves(t *testing.T) {
	t.Parallel()
	r := newReplica(t, nil)
	hangs := specs(t, plugin("a", rules))[0]
	hangs.Spec.Name, hangs.Spec.Module = "shop/a", host.ModuleConfig{Source: hanging{}}
	r.ApplyCluster(append(specs(t, plugin("x", rules), plugin("z", rules)), hangs))
	until(t, "it serves", func() bool { return strings.Contains(r.origins(), "z cluster Serving") })
	r.ApplyCluster(append(specs(t, plugin("x", rules)), hangs))
	until(t, "it leaves", func() bool { return !strings.Contains(r.origins(), "z cluster") })
}
