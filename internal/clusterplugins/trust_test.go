package clusterplugins_test

import (
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/internal/clusterplugins"
)

// TestMistakesOfModuleTrustsAllowNothing has the only ModuleTrust of a cluster wrong. A namespace must
// get nothing by it, and not all as without one.
func TestMistakesOfModuleTrustsAllowNothing(t *testing.T) {
	for name, tt := range map[string]struct{ spec, want string }{
		"a selector":           {`{"namespaceSelector": "a b", "inline": true}`, "namespaceSelector"},
		"an unknown member":    {`{"namespaceselector": "a", "inline": true, "all": true}`, "all"},
		"no room":              {``, "left out"},
		"negative policies":    {`{"inline": true, "quota": {"policies": -1}}`, "less than 0"},
		"negative instances":   {`{"inline": true, "quota": {"instances": -1}}`, "less than 0"},
		"negative memory":      {`{"inline": true, "quota": {"memoryBytes": "-1Gi"}}`, "less than 0"},
		"negative fuel":        {`{"inline": true, "quota": {"fuelPerSecond": -1}}`, "less than 0"},
		"fuel of no number":    {`{"inline": true, "quota": {"fuelPerSecond": "1Gi"}}`, "fuelPerSecond"},
		"memory of no number":  {`{"inline": true, "quota": {"memoryBytes": "much"}}`, "quantities"},
		"limits of no number":  {`{"inline": true, "limits": {"timeout": "long"}}`, "timeout"},
		"a spec of other type": {`[]`, "a list"},
	} {
		object := clusterplugins.Object{Kind: clusterplugins.ModuleTrusts.Kind, Name: "tenants"}
		if tt.spec != "" {
			object.Spec = []byte(tt.spec)
		}
		trusts, err := clusterplugins.TrustsOf([]clusterplugins.Object{object})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error is %v, want %q in it", name, err, tt.want)
		}
		if _, err := trusts.For("shop", map[string]string{"a": "b"}); err == nil {
			t.Errorf("%s: the namespace is selected", name)
		}
	}
}

// TestSignaturesOfModuleTrusts holds which rules an artifact of a namespace must satisfy.
func TestSignaturesOfModuleTrusts(t *testing.T) {
	trust := func(more string) clusterplugins.Object {
		return clusterplugins.Object{Kind: clusterplugins.ModuleTrusts.Kind, Name: "t", Spec: []byte(`{"repositories":["ghcr.io/acme/*"]` + more + `}`)}
	}
	signed := func(key string) clusterplugins.Object {
		return trust(`,"signatures":{"anyOf":[{"key":"` + key + `"}]}`)
	}
	other := clusterplugins.Object{Kind: clusterplugins.ModuleTrusts.Kind, Name: "o", Spec: []byte(`{"repositories":["example.com/one"]}`)}
	for name, tt := range map[string]struct {
		trusts []clusterplugins.Object
		want   string
	}{
		"none":                                {nil, ""},
		"one":                                 {[]clusterplugins.Object{signed("a")}, "a"},
		"two":                                 {[]clusterplugins.Object{signed("a"), signed("b")}, "a b"},
		"one that needs none":                 {[]clusterplugins.Object{signed("a"), trust("")}, ""},
		"one of another repository":           {[]clusterplugins.Object{signed("a"), other}, "a"},
		"one that allows a file of a process": {[]clusterplugins.Object{trust(`,"signatures":{"allOf":[{"keyFile":"/etc/key"}]}`)}, "keyFile is a file of the process"},
		"one that allows all":                 {[]clusterplugins.Object{trust(`,"signatures":{"unsigned":true}`)}, "want allOf, anyOf and minimum alone"},
		"one without signers":                 {[]clusterplugins.Object{trust(`,"signatures":{}`)}, "allOf and anyOf are empty"},
	} {
		trusts, err := clusterplugins.TrustsOf(tt.trusts)
		if err != nil {
			if tt.want == "" || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: error %v, want %q", name, err, tt.want)
			}
			continue
		}
		allowed, err := trusts.For("shop", nil)
		ref, refErr := oci.ParseReference("ghcr.io/acme/zone:1")
		if err != nil || refErr != nil {
			t.Fatal(err, refErr)
		}
		var keys []string
		for _, rule := range allowed.Signatures(ref) {
			keys = append(keys, rule.AnyOf[0].Key)
		}
		if got := strings.Join(keys, " "); got != tt.want {
			t.Errorf("%s: the rules are %q, want %q", name, got, tt.want)
		}
	}
}

// TestFuelOfModuleTrusts holds that the largest quota of fuel counts, and none bounds nothing.
func TestFuelOfModuleTrusts(t *testing.T) {
	for name, tt := range map[string]struct {
		specs []string
		want  int64
	}{
		"no ModuleTrust":          {nil, 0},
		"one":                     {[]string{`{"quota": {"fuelPerSecond": 100}}`}, 100},
		"two":                     {[]string{`{"quota": {"fuelPerSecond": 100}}`, `{"quota": {"fuelPerSecond": 9000000000}}`}, 9_000_000_000},
		"one without a bound":     {[]string{`{"quota": {"fuelPerSecond": 100}}`, `{"quota": {"policies": 1}}`}, 0},
		"one of other namespaces": {[]string{`{"quota": {"fuelPerSecond": 100}}`, `{"namespaceSelector": "a=c"}`}, 100},
	} {
		var objects []clusterplugins.Object
		for _, spec := range tt.specs {
			objects = append(objects, clusterplugins.Object{Kind: clusterplugins.ModuleTrusts.Kind, Name: "t", Spec: []byte(spec)})
		}
		trusts, err := clusterplugins.TrustsOf(objects)
		if err != nil {
			t.Fatal(err)
		}
		allowed, err := trusts.For("shop", map[string]string{"a": "b"})
		if err != nil {
			t.Fatal(err)
		}
		if got := allowed.FuelPerSecond(); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}
