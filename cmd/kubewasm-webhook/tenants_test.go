package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/internal/clusterplugins"
)

// TestWhatAnOwnerOfANamespaceCannotDo has the attempts of somebody who may write the AdmissionPolicies
// of a namespace to see more, to have more rights, to be exempt, and to take from others. Each is
// refused with a sentence.
func TestWhatAnOwnerOfANamespaceCannotDo(t *testing.T) {
	trusts := []clusterplugins.Object{
		{Kind: "ModuleTrust", Name: "shops", Spec: []byte(`{"namespaceSelector":"kind=shop","repositories":["ghcr.io/acme/*","example.com/one"],"grants":["clock"],"limits":{"timeout":"10s"},"quota":{"policies":3,"instances":8,"memoryBytes":"1Gi"}}`)},
		{Kind: "ModuleTrust", Name: "bytes", Spec: []byte(`{"namespaceSelector":"inline=yes","inline":true,"quota":{"policies":1}}`)},
	}
	namespaces := map[string]map[string]string{"shop": {"kind": "shop"}, "own": {"inline": "yes"}, "both": {"kind": "shop", "inline": "yes"}, "none": {}}
	rules := func(groups, resource, more string) string {
		return fmt.Sprintf(`"match":{"rules":[{"operations":["*"],"apiGroups":[%s],"apiVersions":["*"],"resources":[%q]%s}]}`, groups, resource, more)
	}
	pods := rules(`""`, "pods", "")
	const small = `"limits":{"instances":1,"memoryBytes":"1Mi"}`
	of := func(module, more string) string {
		return fmt.Sprintf(`{"module":{%s},%s%s,%s}`, module, more, small, pods)
	}
	ours := `"oci":"ghcr.io/acme/zone:1"`
	tests := []struct {
		name, namespace, spec, want string
	}{
		{"a policy", "shop", of(ours, ""), ""},
		{"a repository by its name", "shop", of(`"oci":"example.com/one:2"`, ""), ""},
		{"a grant that is allowed", "shop", of(ours, `"grants":["clock"],`), ""},
		{"a limit that is allowed", "shop", `{"module":{` + ours + `},"limits":{"instances":1,"memoryBytes":"1Mi","timeout":"10s"},` + pods + `}`, ""},
		{"bytes of a namespace that may", "own", of(`"bytes":"AGFzbQEAAAA="`, ""), ""},
		{"two ModuleTrusts add up", "both", of(`"bytes":"AGFzbQEAAAA="`, `"grants":["clock"],`), ""},
		// Modules: the server's files, addresses and credentials.
		{"a file of the server", "shop", of(`"file":"/var/run/secrets/token"`, ""), "it is a file of the server"},
		{"an address of the server's network", "shop", of(`"https":"https://169.254.169.254/m.wasm"`, ""), "the server would ask any address"},
		{"a directory of the server", "shop", of(`"oci":"oci-layout:/etc"`, ""), "a directory of the server"},
		{"machine code", "shop", of(ours+`,"compiled":{"linux/amd64":{"file":"/x"}}`, ""), "compiled"},
		{"a registry of one's own", "shop", of(`"oci":"evil.example.com/zone:1"`, ""), `no ModuleTrust allows the namespace "shop" modules of evil.example.com/zone`},
		{"a registry on loopback", "shop", of(`"oci":"127.0.0.1:5000/zone:1"`, ""), "modules of 127.0.0.1:5000/zone"},
		{"private repositories of the server's account", "shop", of(`"oci":"ghcr.io/platform/secret:1"`, ""), "modules of ghcr.io/platform/secret"},
		{"a name that begins alike", "shop", of(`"oci":"ghcr.io/acme-evil/zone:1"`, ""), "modules of ghcr.io/acme-evil/zone"},
		{"below a repository", "shop", of(`"oci":"example.com/one/other:1"`, ""), "modules of example.com/one/other"},
		{"by a digest", "shop", of(`"oci":"evil.example.com/zone@sha256:`+strings.Repeat("0", 64)+`"`, ""), "modules of evil.example.com/zone"},
		{"bytes that nobody signs", "shop", of(`"bytes":"AGFzbQEAAAA="`, ""), "modules that come from no registry"},
		{"a ConfigMap of the namespace", "shop", of(`"configMap":{"name":"m","key":"m"}`, ""), "modules that come from no registry"},
		{"a ConfigMap of another namespace", "own", of(`"configMap":{"namespace":"kube-system","name":"m","key":"m"}`, ""), `module.configMap.namespace is "kube-system"`},
		{"a Secret of another namespace", "own", of(`"secret":{"namespace":"kube-system","name":"m","key":"m"}`, ""), `module.secret.namespace is "kube-system"`},
		{"a shadow of another module", "shop", of(ours, `"shadow":{"module":{"oci":"evil.example.com/a:1"}},`), "shadow is not for an AdmissionPolicy"},
		// Rights.
		{"a grant", "shop", of(ours, `"grants":["random"],`), `grants has "random"`},
		{"the grants of others", "own", of(`"bytes":"AGFzbQEAAAA="`, `"grants":["clock"],`), `grants has "clock"`},
		{"objects of others", "shop", of(ours, `"objects":[{"resource":"v1/pods","namespaces":["kube-system"]}],`), "objects[0].namespaces has another namespace"},
		{"Secrets", "shop", of(ours, `"objects":[{"resource":"v1/secrets"}],`), "objects[0].resource is v1/secrets"},
		{"conversions of a kind for all", "shop", of(ours, `"converts":[{"group":"example.com","kind":"A"}],`), "converts"},
		{"a recording on the server", "shop", of(ours, `"record":{"path":"/tmp/r"},`), "record is for the file of policies"},
		{"permissions of a dialect", "shop", of(ours, `"dialect":{"kubewarden":{"hosts":["*"]}},`), "they are permissions"},
		// Requests of others.
		{"all requests", "shop", `{"module":{` + ours + `},` + small + `}`, "match.rules is missing"},
		{"all resources", "shop", `{"module":{` + ours + `},` + small + `,` + rules(`"*"`, "*", "") + `}`, `match.rules[0].resources has "*"`},
		{"requests for Secrets", "shop", `{"module":{` + ours + `},` + small + `,` + rules(`""`, "secrets", "") + `}`, `match.rules[0].resources has "secrets"`},
		{"objects of the cluster", "shop", `{"module":{` + ours + `},` + small + `,` + rules(`""`, "nodes", `,"scope":"Cluster"`) + `}`, "match.rules[0].scope is not Namespaced"},
		{"requests for itself", "shop", `{"module":{` + ours + `},` + small + `,` + rules(`"kubewasm.dev"`, "admissionpolicies", "") + `}`, "could keep itself from being changed and deleted"},
		// The name of a policy of the cluster.
		{"another name", "shop", of(ours, `"name":"required-labels",`), "name is that of the object"},
		// The processors and the memory of others.
		{"time", "shop", `{"module":{` + ours + `},"limits":{"instances":1,"memoryBytes":"1Mi","timeout":"11s"},` + pods + `}`, "limits.timeout is more than the default"},
		{"fuel of a call", "shop", `{"module":{` + ours + `},"limits":{"instances":1,"memoryBytes":"1Mi","fuel":3000000000},` + pods + `}`, "limits.fuel is more than the default"},
		{"a quota of one's own", "shop", of(ours, `"quota":{"fuelPerSecond":1000000000000},`), "quota"},
		{"memory of a guest", "shop", `{"module":{` + ours + `},"limits":{"instances":1,"memoryBytes":"300Mi"},` + pods + `}`, "limits.memoryBytes is more than the default"},
		{"memory of all guests", "shop", `{"module":{` + ours + `},"limits":{"instances":8,"memoryBytes":"200Mi"},` + pods + `}`, "may have 1073741824 bytes of memory together, and with this one have"},
		{"processors", "shop", `{"module":{` + ours + `},"limits":{"instances":9,"memoryBytes":"1Mi"},` + pods + `}`, "may have 8 instances together, and with this one have 9"},
		{"a spec without room", "shop", "", "the spec is left out"},
		// Namespaces.
		{"a namespace without trust", "none", of(ours, ""), `no ModuleTrust selects the namespace "none"`},
		{"a namespace that is unknown", "gone", of(ours, ""), `the labels of the namespace "gone" are unknown`},
	}
	attempts := 0
	for _, tt := range tests {
		if tt.want != "" {
			attempts++
		}
		t.Run(tt.name, func(t *testing.T) {
			o := &objects{namespaces: func(_ context.Context, name string) (map[string]string, error) {
				if of, ok := namespaces[name]; ok {
					return of, nil
				}
				return nil, fmt.Errorf("namespaces %q not found", name)
			}}
			of, err := clusterplugins.TrustsOf(trusts)
			if err != nil {
				t.Fatal(err)
			}
			object := clusterplugins.Object{Kind: "AdmissionPolicy", Namespace: tt.namespace, Name: "a"}
			if tt.spec != "" {
				object.Spec = []byte(tt.spec)
			}
			p := o.tenants(of, []clusterplugins.Object{object})[tt.namespace].policy(&object)
			if text := fmt.Sprint(p.Err); (p.Err == nil) != (tt.want == "") || !strings.Contains(text, tt.want) && tt.want != "" {
				t.Errorf("the error is %s, want %q", text, tt.want)
			}
			if !p.Unknown && p.Err == nil && p.Spec.Match.NamespaceSelector == nil {
				t.Error("the policy is asked about all namespaces")
			}
		})
	}
	if attempts < 30 {
		t.Errorf("%d attempts", attempts)
	}
	// One more than the quota.
	of4, err := clusterplugins.TrustsOf(trusts)
	if err != nil {
		t.Fatal(err)
	}
	var list []clusterplugins.Object
	for _, name := range []string{"a", "b", "c", "d"} {
		list = append(list, clusterplugins.Object{Kind: "AdmissionPolicy", Namespace: "shop", Name: name, Spec: []byte(of(ours, ""))})
	}
	o := &objects{namespaces: func(_ context.Context, name string) (map[string]string, error) { return namespaces[name], nil }}
	tenants := o.tenants(of4, list)
	for i := range list {
		p := tenants["shop"].policy(&list[i])
		if want := list[i].Name == "d"; want != (p.Err != nil) || want && !strings.Contains(p.Err.Error(), "may have 3 policies together, and with this one have 4") {
			t.Errorf("%s: error %v", list[i].Name, p.Err)
		}
	}
	// A ModuleTrust with a mistake lifts nothing.
	broken, err := clusterplugins.TrustsOf([]clusterplugins.Object{{Kind: "ModuleTrust", Name: "b", Spec: []byte(`{"namespaceSelector":"a in"}`)}})
	if err == nil {
		t.Error("no error")
	}
	if p := o.tenants(broken, list)["shop"].policy(&list[0]); p.Err == nil || !strings.Contains(p.Err.Error(), "no ModuleTrust selects") {
		t.Errorf("error %v", p.Err)
	}
}
