package bindgen_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/cmd/kubewasm/internal/bindgen"
)

// generatedFrom returns the files that are written for a CRD, by name.
func generatedFrom(t *testing.T, properties string) map[string]string {
	t.Helper()
	text := "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nspec: {group: g, names: {kind: Tab}, versions: [{name: v1, storage: true, schema: {openAPIV3Schema: {type: object, properties: " + properties + "}}}]}\n"
	p, err := bindgen.CRD(bindgen.CRDConfig{Source: "tab.yaml", Text: []byte(text), Package: "views"})
	if err != nil {
		t.Fatal(err)
	}
	written, err := bindgen.Write(p)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, f := range written {
		files[f.Name] = string(f.Text)
	}
	return files
}

// TestAccessorNamesAreUnique holds the names of accessors that would otherwise be the same.
func TestAccessorNamesAreUnique(t *testing.T) {
	text := generatedFrom(t, `{jwksUri: {type: string}, jwks_uri: {type: string}, jwks-uri: {type: string}, a: {type: string}, has_a: {type: string}, HasA: {type: string}, 2nd: {type: string}, "_": {type: string}, "$ref": {type: string}}`)["types.gen.go"]
	want := map[string]string{
		"jwksUri": "JwksUri", "jwks-uri": "Jwks_uri", "jwks_uri": "Jwks_uri2", "a": "A2", "HasA": "HasA", "has_a": "Has_a",
		"2nd": "X2nd", "_": "X", "$ref": "Ref",
	}
	got := map[string]string{}
	for _, m := range regexp.MustCompile(`(?s)// (\w+) returns the field ([^\n]+)\.\nfunc`).FindAllStringSubmatch(text, -1) {
		got[m[2]] = m[1]
	}
	for _, common := range []string{"apiVersion", "kind", "metadata"} {
		delete(got, common)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("accessors (-want +got):\n%s", diff)
	}
}

// TestObjectsOfOneShapeShareAType holds that objects of a resource which differ only in their
// descriptions have one type.
func TestObjectsOfOneShapeShareAType(t *testing.T) {
	container := func(description, more string) string {
		return `{type: array, items: {type: object, description: ` + description + `, required: [name], properties: {name: {type: string, description: ` + description + `}, env: {type: array, items: {type: object, properties: {value: {type: string}}}}` + more + `}}}`
	}
	text := generatedFrom(t, `{spec: {type: object, properties: {containers: `+container("one", "")+`, initContainers: `+container("other", "")+`, sidecars: `+container("one", ", port: {type: integer}")+`}}}`)["types.gen.go"]
	for _, want := range []string{
		"Containers() []TabSpecContainers {", "InitContainers() []TabSpecContainers {", "Sidecars() []TabSpecSidecars {",
		"(t TabSpecContainers) Env() []TabSpecContainersEnv {", "(t TabSpecSidecars) Env() []TabSpecContainersEnv {",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in\n%s", want, text)
		}
	}
}

// TestLargeResourcesHaveSeveralFiles holds that a resource of any size is generated.
func TestLargeResourcesHaveSeveralFiles(t *testing.T) {
	var b strings.Builder
	for i := range 1200 {
		fmt.Fprintf(&b, "f%d: {type: object, properties: {a%[1]d: {type: string}, b%[1]d: {type: integer}}}, ", i)
	}
	files := generatedFrom(t, "{"+strings.TrimSuffix(b.String(), ", ")+"}")
	types := 0
	for name, text := range files {
		types += strings.Count(text, "// TypeOf")
		if len(text) > 400_000 {
			t.Errorf("%s has %d bytes", name, len(text))
		}
	}
	if len(files) < 2 || types != 1201 {
		t.Errorf("%d files with %d types", len(files), types)
	}
	for _, name := range []string{"types.gen.go", "types2.gen.go"} {
		if _, ok := files[name]; !ok {
			t.Errorf("there is no %s", name)
		}
	}
}
