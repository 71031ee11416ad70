package meta_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/api/meta"
)

const manifest = `{"metadata": {
	"name": "web-0", "generateName": "web-", "namespace": "shop", "uid": "8dbc5577", "resourceVersion": "42",
	"labels": {"app": "web", "tier": "front", "app": "shop"}, "annotations": {}
}}`

func TestObjectMeta(t *testing.T) {
	m := core.PodFromJSON([]byte(manifest)).Metadata()
	got := []string{m.Name(), m.GenerateName(), m.Namespace(), m.UID(), m.ResourceVersion()}
	if diff := cmp.Diff([]string{"web-0", "web-", "shop", "8dbc5577", "42"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n := m.Annotations().Len(); n != 0 {
		t.Errorf("%d annotations, want none", n)
	}
}

func TestStringMap(t *testing.T) {
	labels := core.PodFromJSON([]byte(manifest)).Metadata().Labels()
	if got := labels.Get("app"); got != "shop" {
		t.Errorf("app is %q, want the last of both", got)
	}
	if v, ok := labels.Lookup("none"); v != "" || ok {
		t.Errorf("none is %q, %v", v, ok)
	}
	if !labels.Has("tier") || labels.Has("Tier") {
		t.Error("Has is wrong about tier or Tier")
	}
	if diff := cmp.Diff(map[string]string{"app": "shop", "tier": "front"}, maps.Collect(labels.All)); diff != "" {
		t.Errorf("all (-want +got):\n%s", diff)
	}
	n := 0
	for range labels.All {
		n++
		break
	}
	if n != 1 {
		t.Errorf("%d entries after break, want 1", n)
	}
}

func TestZeroValuesAreEmpty(t *testing.T) {
	var m meta.ObjectMeta
	for name, labels := range map[string]meta.StringMap{"zero": {}, "of zero metadata": m.Labels(), "of a zero Pod": core.Pod{}.Metadata().Annotations()} {
		v, ok := labels.Lookup("")
		if v != "" || ok || labels.Has("a") || labels.Len() != 0 || len(maps.Collect(labels.All)) != 0 {
			t.Errorf("%s: not empty", name)
		}
	}
	if got := m.Name() + m.GenerateName() + m.Namespace() + m.UID() + m.ResourceVersion(); got != "" {
		t.Errorf("zero metadata says %q", got)
	}
}

// TestValuesAreSorted holds the SDK's own sorting against that of Go.
func TestValuesAreSorted(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for n := range 100 {
		var values []string
		for range n {
			values = append(values, strconv.Itoa(random.IntN(n)))
		}
		r := meta.Requirement{Key: "k", Operator: meta.LabelSelectorOpNotIn, Values: values}
		got := r.String()
		slices.Sort(values)
		if want := "k notin (" + strings.Join(values, ",") + ")"; n > 1 && got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
