package objects_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewasm/kubewasm/internal/objects"
)

// tenant is a custom resource of a Go type.
type tenant struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              tenantSpec `json:"spec"`
}

type tenantSpec struct {
	shared  `json:",inline"`
	Members []member              `json:"members,omitempty"`
	Quotas  map[string]int        `json:"quotas,omitempty"`
	Raw     *runtime.RawExtension `json:"raw,omitempty"`
	Any     any                   `json:"any,omitempty"`
	Since   *metav1.Time          `json:"since,omitempty"`
	Next    *tenantSpec           `json:"next,omitempty"`
	Hidden  string                `json:"-"`
	Bare    string
	Maps    map[string]map[string]int `json:"maps,omitempty"`
}

type shared struct {
	Plan   string `json:"plan,omitempty"`
	Secret string `json:"secret,omitempty"`
}

type member struct {
	Name  string `json:"name,omitempty"`
	Token string `json:"token,omitempty"`
}

// A Cut leaves of a custom resource what its paths name and what identifies it.
func TestCutsOfCustomResources(t *testing.T) {
	const object = `{"apiVersion":"example.com/v1","kind":"Tenant","metadata":{"name":"a","namespace":"b","uid":"c","resourceVersion":"7","labels":{"example.com/team":"x","other":"y"},` +
		`"annotations":{"k":"v"}},"spec":{"plan":"gold","secret":"s3cr3t","members":[{"name":"m","token":"t"},{"token":"t"},5,null,[{"name":"n","token":"t"}]],` +
		`"quotas":{"cpu":1,"memory":2},"raw":{"a":{"b":1,"c":2}},"odd\"\u00fc\n":1,"empty":{},"null":null},"status":{"phase":"Ready"}}`
	const identity = `"apiVersion":"example.com/v1","kind":"Tenant","metadata":{"name":"a","namespace":"b","uid":"c"}`
	for _, test := range []struct {
		name  string
		paths []string
		want  string
	}{
		{"a field", []string{"tenant.spec.plan"}, `{` + identity + `,"spec":{"plan":"gold"}}`},
		{"everything below a field", []string{"tenant.spec.raw"}, `{` + identity + `,"spec":{"raw":{"a":{"b":1,"c":2}}}}`},
		{"a field in JSON of any form", []string{"tenant.spec.raw.a.b"}, `{` + identity + `,"spec":{"raw":{"a":{"b":1}}}}`},
		{"an entry with dots in its key", []string{"tenant.metadata.labels[example.com/team]"}, `{"apiVersion":"example.com/v1","kind":"Tenant","metadata":{"name":"a","namespace":"b","uid":"c","labels":{"example.com/team":"x"}}}`},
		{"an entry that is not there", []string{"tenant.spec.quotas[gpu]"}, `{` + identity + `,"spec":{"quotas":{}}}`},
		{"a field of the elements of lists", []string{"tenant.spec.members.name"}, `{` + identity + `,"spec":{"members":[{"name":"m"},{},[{"name":"n"}]]}}`},
		{"several", []string{"tenant.spec.quotas[cpu]", "tenant.status", "tenant.spec.plan"}, `{` + identity + `,"spec":{"plan":"gold","quotas":{"cpu":1}},"status":{"phase":"Ready"}}`},
		{"a field and one below it", []string{"tenant.spec.raw.a.b", "tenant.spec.raw"}, `{` + identity + `,"spec":{"raw":{"a":{"b":1,"c":2}}}}`},
		{"one below it and the field", []string{"tenant.spec.raw", "tenant.spec.raw.a.b"}, `{` + identity + `,"spec":{"raw":{"a":{"b":1,"c":2}}}}`},
		{"one below a text", []string{"tenant.spec.plan.more"}, `{` + identity + `,"spec":{}}`},
		{"one below null", []string{"tenant.spec.null.more"}, `{` + identity + `,"spec":{}}`},
		{"a name with characters that JSON escapes", []string{"tenant.spec.odd\"ü\n"}, `{` + identity + `,"spec":{"odd\"ü\n":1}}`},
		{"a field that no object has", []string{"tenant.spec.Secret"}, `{` + identity + `,"spec":{}}`},
		{"all of it", []string{"tenant"}, object},
		{"another kind, too", []string{"tenant.spec.plan", "crate.spec.secret"}, `{` + identity + `,"spec":{"plan":"gold"}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, err := objects.CutOf(reflect.TypeFor[unstructured.Unstructured](), "tenant", test.paths)
			if err != nil {
				t.Fatal(err)
			}
			got := string(c.Append([]byte("before "), []byte(object+"\n")))
			if want := "before " + test.want; got != want || !json.Valid([]byte(got[len("before "):])) {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
	if c, err := objects.CutOf(reflect.TypeFor[unstructured.Unstructured](), "tenant", []string{"crate.spec"}); c != nil || err != nil {
		t.Errorf("no path of the kind: got %v, %v", c, err)
	}
	if got := string(objects.Identity().Append(nil, []byte(object))); got != `{`+identity+`}` {
		t.Errorf("the identity is %s", got)
	}
}

// Paths of a Go type lead to its fields by their names in JSON.
func TestPathsOfGoTypes(t *testing.T) {
	deep := "tenant.spec" + strings.Repeat(".next", 40) + ".plan"
	for _, path := range []string{
		"tenant.spec.plan", "tenant.spec.secret", "tenant.spec.members", "tenant.spec.members.name", "tenant.spec.quotas[cpu]", "tenant.spec.raw", "tenant.spec.any",
		"tenant.spec.since", "tenant.spec.Bare", "tenant.metadata.labels[a.b/c]", "tenant.metadata.name", "tenant.spec.maps[a]", deep, "tenant",
	} {
		if _, err := objects.CutOf(reflect.TypeFor[tenant](), "tenant", []string{path}); err != nil {
			t.Error(err)
		}
	}
	for path, want := range map[string]string{
		"tenant.spec.plans":             `field path "tenant.spec.plans": tenantSpec has no field "plans"; did you mean "plan"?`,
		"tenant.spec.shared.plan":       `tenantSpec has no field "shared"`,
		"tenant.spec.hidden":            `tenantSpec has no field "hidden"`,
		"tenant.spec.quotas.cpu":        `a map has no fields; its entries stand in brackets, as in "[cpu]"`,
		"tenant.spec.plan[a]":           `a string has no entries, so "[a]" must be left out`,
		"tenant.spec.raw.a":             `RawExtension has no fields that can be told apart, so "a" must be left out`,
		"tenant.spec.any.a":             `a interface has no fields that can be told apart, so "a" must be left out`,
		"tenant.spec.since.sec":         `Time has no fields that can be told apart`,
		"tenant.metadata.managedFields": `managedFields never travel`,
		"tenant.spec..plan":             `a name is empty`,
		"tenant.":                       `a name is empty`,
		"tenant.spec.quotas[cpu":        `the key of an entry stands between two brackets, at the end`,
		"tenant.spec.quotas[]":          `the key of an entry stands between two brackets, at the end`,
	} {
		if _, err := objects.CutOf(reflect.TypeFor[tenant](), "tenant", []string{path}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", path, err, want)
		}
	}
}

// The paths of a configuration are bounded before anything is made of them.
func TestPathsAreBounded(t *testing.T) {
	var many []string
	for i := range 1000 {
		many = append(many, fmt.Sprintf("tenant.spec.f%d", i))
	}
	if err := objects.CheckPaths(many); err != nil {
		t.Error(err)
	}
	for want, paths := range map[string][]string{
		"1001 field paths are more than 1000": append(many, "tenant.spec"),
		"1030 bytes are more than 1024":       {"tenant.spec.quotas[" + strings.Repeat("x", 1010) + "]"},
		"65 names are more than 64":           {"tenant" + strings.Repeat(".a", 64)},
	} {
		if err := objects.CheckPaths(paths); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// Objects of k8s.io/api that have no parts are narrowed, too.
func TestPicks(t *testing.T) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "b", UID: "c", Labels: map[string]string{"k": "v"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}},
		Data:       map[string][]byte{"user": []byte("u"), "password": []byte("p")}, Type: corev1.SecretTypeOpaque,
	}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "e"}, Endpoints: []discoveryv1.Endpoint{
		{Addresses: []string{"10.0.0.1"}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "web"}}, {Addresses: []string{"10.0.0.2"}},
	}}
	identity := metav1.ObjectMeta{Name: "a", Namespace: "b", UID: "c"}
	for _, test := range []struct {
		path   string
		object interface {
			metav1.Object
			Unmarshal([]byte) error
		}
		got, want interface{ Unmarshal([]byte) error }
	}{
		{"secret.data[user]", secret, &corev1.Secret{}, &corev1.Secret{ObjectMeta: identity, Data: map[string][]byte{"user": []byte("u")}}},
		{"secret.data[none]", secret, &corev1.Secret{}, &corev1.Secret{ObjectMeta: identity}},
		{"secret.type", secret, &corev1.Secret{}, &corev1.Secret{ObjectMeta: identity, Type: corev1.SecretTypeOpaque}},
		{"secret.metadata.labels", secret, &corev1.Secret{}, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "b", UID: "c", Labels: map[string]string{"k": "v"}}}},
		{"endpointslice.endpoints.targetRef.name", slice, &discoveryv1.EndpointSlice{}, &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "e"}, Endpoints: []discoveryv1.Endpoint{
			{TargetRef: &corev1.ObjectReference{Name: "web"}}, {},
		}}},
	} {
		before := fmt.Sprint(test.object)
		p, err := objects.PickOf(reflect.TypeOf(test.object).Elem(), []string{test.path})
		if err != nil {
			t.Fatal(err)
		}
		b, err := p.Encode(test.object)
		if err != nil {
			t.Fatal(err)
		}
		if err := test.got.Unmarshal(b); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, test.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.path, diff)
		}
		if fmt.Sprint(test.object) != before {
			t.Errorf("%s: the object was changed", test.path)
		}
	}
	if _, err := objects.PickOf(reflect.TypeFor[corev1.Secret](), []string{"secret.dat"}); err == nil || !strings.Contains(err.Error(), `did you mean "data"`) {
		t.Errorf("got %v", err)
	}
}
