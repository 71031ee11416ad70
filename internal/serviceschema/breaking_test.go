package serviceschema_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/internal/serviceschema"
)

// TestBreaking compares two versions of a file.
func TestBreaking(t *testing.T) {
	const services = `service S { rpc A(M) returns (M); rpc B(M) returns (M); } `
	hosts := func(methods string) string {
		return `import "github.com/kubewasm/kubewasm/abi/options.proto"; ` + services + ` service H { option (kubewasm.host) = true; ` + methods + ` } message M { int32 a = 1; }`
	}
	for name, test := range map[string]struct {
		old, now string
		want     []string
	}{
		"nothing changes":                       {services + `message M { int32 a = 1; }`, services + `message M { int32 a = 1; }`, nil},
		"a field, a method and a value come":    {services + `message M { E e = 1; } enum E { Z = 0; }`, `service S { rpc A(M) returns (M); rpc B(M) returns (M); rpc C(M) returns (M); } message M { E e = 1; string b = 2; } enum E { Z = 0; Y = 1; }`, nil},
		"a field gets another type":             {services + `message M { int32 a = 1; }`, services + `message M { string a = 1; }`, []string{"p.M.a: field 1 of p.M is int32 a in the old file and string a in the new one"}},
		"a field gets another number":           {services + `message M { int32 a = 1; }`, services + `message M { int32 a = 2; }`, []string{"p.M.a: p.M.a is field 1 of the old file and field 2 of the new one"}},
		"a field of a part goes":                {services + `message M { N n = 1; } message N { int32 x = 1; int32 y = 2; }`, services + `message M { N n = 1; } message N { int32 y = 2; }`, []string{"p.N: field 1 of p.N, x, is gone: write reserved 1, so that the number gets no other meaning"}},
		"a field goes, its number is reserved":  {services + `message M { int32 a = 1; }`, services + `message M { reserved 1; }`, nil},
		"a number that was reserved is used":    {services + `message M { reserved 1 to 3; }`, services + `message M { int32 a = 2; }`, []string{"p.M.a: field 2 of p.M is reserved in the old file and a in the new one"}},
		"a value goes":                          {services + `message M { E e = 1; } enum E { Z = 0; Y = 1; }`, services + `message M { E e = 1; } enum E { Z = 0; }`, []string{"p.E: value 1 of p.E, Y, is gone: write reserved 1, so that the number gets no other meaning"}},
		"a value goes, its number is reserved":  {services + `message M { E e = 1; } enum E { Z = 0; Y = 1; }`, services + `message M { E e = 1; } enum E { reserved 1; Z = 0; }`, nil},
		"a value that was reserved is used":     {services + `message M { E e = 1; } enum E { reserved 1; Z = 0; }`, services + `message M { E e = 1; } enum E { Z = 0; Y = 1; }`, []string{"p.Y: value 1 of p.E is reserved in the old file and Y in the new one"}},
		"one of two names of a value goes":      {services + `message M { E e = 1; } enum E { option allow_alias = true; Z = 0; Y = 1; X = 1; }`, services + `message M { E e = 1; } enum E { Z = 0; Y = 1; }`, nil},
		"a method goes":                         {services + `message M {}`, `service S { rpc A(M) returns (M); } message M {}`, []string{"p.S: p.S.B is gone: plugins are not asked any more"}},
		"a service goes":                        {services + `service T { rpc A(M) returns (M); } message M {}`, services + `message M {}`, []string{"p.T: the service p.T is gone"}},
		"a method of the host goes":             {hosts(`rpc A(M) returns (M); rpc B(M) returns (M);`), hosts(`rpc A(M) returns (M);`), []string{"p.H: p.H.B is gone: plugins that call it are not loaded any more"}},
		"a method of the host gets a grant":     {hosts(`rpc A(M) returns (M);`), hosts(`rpc A(M) returns (M) { option (kubewasm.grant) = "g"; }`), []string{`p.H.A: p.H.A needs the grant "g": plugins that call it are not loaded without`}},
		"a method of the host loses its grant":  {hosts(`rpc A(M) returns (M) { option (kubewasm.grant) = "g"; }`), hosts(`rpc A(M) returns (M);`), nil},
		"a service of the host becomes another": {hosts(`rpc A(M) returns (M);`), services + `service H { rpc A(M) returns (M); } message M { int32 a = 1; }`, []string{"p.H: p.H is a service of the host in the old file and an extension point in the new one"}},
		"three changes": {
			services + `message M { int32 a = 1; N n = 2; } message N { int32 x = 1; }`, `service S { rpc A(M) returns (M); } message M { string a = 1; N n = 2; } message N {}`,
			[]string{"p.S: p.S.B is gone: plugins are not asked any more", "p.M.a: field 1 of p.M is int32 a in the old file and string a in the new one", "p.N: field 1 of p.N, x, is gone: write reserved 1, so that the number gets no other meaning"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var parsed []*serviceschema.Schema
			for _, text := range []string{test.old, test.now} {
				s, err := serviceschema.Parse(compile(t, text))
				if err != nil {
					t.Fatal(err)
				}
				parsed = append(parsed, s)
			}
			var got []string
			if err := serviceschema.Breaking(parsed[0], parsed[1]); err != nil {
				for _, err := range err.(interface{ Unwrap() []error }).Unwrap() {
					got = append(got, string(err.(*serviceschema.Disagreement).Of)+": "+err.Error())
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
