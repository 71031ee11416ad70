package clusterplugins_test

import (
	"strings"
	"testing"

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
