package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
)

var addGolden = flag.String("golden", "", "make testdata/golden/next the set of the version `vX.Y`, with the resources of now, before the tests")

const (
	golden = "testdata/golden"
	// next is the set of the next release: the objects with fields that no earlier version has. Its files may
	// change until -golden gives it a name. Those of other sets stay as they are: TestGoldenFilesStay of
	// internal/testkit/layout.
	next = "next"
)

// goldenSets returns the names of the sets, the oldest first.
func goldenSets(t *testing.T) (names []string) {
	t.Helper()
	if *addGolden != "" {
		writeGolden(t, filepath.Join(golden, *addGolden))
		*addGolden = ""
	}
	sets, err := os.ReadDir(golden)
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range sets {
		names = append(names, set.Name())
	}
	of := func(name string) *version.Version {
		if name == next {
			name = "v1000.0"
		}
		return version.MustParseGeneric(name)
	}
	slices.SortFunc(names, func(a, b string) int { return must(of(a).Compare(of(b).String())) })
	return names
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// writeGolden writes the CustomResourceDefinitions of now to a set, without descriptions, which decide on
// nothing and are most of their text.
func writeGolden(t *testing.T, dir string) {
	t.Helper()
	if _, err := os.Stat(dir + "/crds"); err == nil {
		t.Fatalf("%s exists, and sets do not change", dir)
	}
	if err := os.Rename(filepath.Join(golden, next), dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	copyCRDs(t, resources, dir+"/crds", func(definition map[string]any) { undescribed(definition) })
}

// copyCRDs writes the CustomResourceDefinitions of a directory to another, changed.
func copyCRDs(t *testing.T, from, to string, change func(definition map[string]any)) {
	t.Helper()
	for name, definition := range definitions(t, from) {
		change(definition)
		err := os.MkdirAll(to, 0o755)
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), must(yaml.Marshal(definition)), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// definitions returns the CustomResourceDefinitions of a directory by their files.
func definitions(t *testing.T, dir string) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	for _, file := range must(filepath.Glob(dir + "/*.yaml")) {
		var definition map[string]any
		if err := yaml.Unmarshal(must(os.ReadFile(file)), &definition); err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(file)] = definition
	}
	if len(all) != 7 {
		t.Fatalf("%s has %d resources, want 7", dir, len(all))
	}
	return all
}

// undescribed removes the descriptions of schemas. A property may have the name.
func undescribed(value any) {
	switch value := value.(type) {
	case map[string]any:
		if _, ok := value["description"].(string); ok {
			delete(value, "description")
		}
		for _, of := range value {
			undescribed(of)
		}
	case []any:
		for _, of := range value {
			undescribed(of)
		}
	}
}

// schemaOf returns the schema of a CustomResourceDefinition, which has one version.
func schemaOf(definition map[string]any) map[string]any {
	versions, _, err := unstructured.NestedSlice(definition, "spec", "versions")
	if err != nil || len(versions) != 1 {
		panic(fmt.Sprintf("%d versions, error %v", len(versions), err))
	}
	s, _, err := unstructured.NestedMap(versions[0].(map[string]any), "schema", "openAPIV3Schema")
	return must(s, err)
}

// goldenObjects returns the objects of sets.
func goldenObjects(t *testing.T, sets []string) (all []*unstructured.Unstructured) {
	t.Helper()
	names := map[string]bool{}
	for _, set := range sets {
		for _, file := range must(filepath.Glob(filepath.Join(golden, set, "objects", "*.yaml"))) {
			for document := range strings.SplitSeq(string(must(os.ReadFile(file))), "\n---\n") {
				o := &unstructured.Unstructured{}
				if err := o.UnmarshalJSON(must(yaml.YAMLToJSONStrict([]byte(document)))); err != nil {
					t.Fatalf("%s: %v", file, err)
				}
				name := o.GetKind() + " " + o.GetName()
				if names[name] {
					t.Errorf("%s: there is another %s", file, name)
				}
				names[name] = true
				all = append(all, o)
			}
		}
	}
	return all
}

// own returns an object without the metadata of the server.
func own(o *unstructured.Unstructured) *unstructured.Unstructured {
	o = o.DeepCopy()
	for _, name := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"} {
		unstructured.RemoveNestedField(o.Object, "metadata", name)
	}
	return o
}

// differs returns what differs in an object from the golden one.
func differs(want, got *unstructured.Unstructured) string {
	return cmp.Diff(want.Object, own(got).Object)
}

// hasStatus reports whether the status of an object is written by itself.
func hasStatus(o *unstructured.Unstructured) bool {
	_, ok := o.Object["status"]
	return ok
}

// TestGoldenObjects stores the objects of each set under the resources of their version, and goes on to
// those of today: nothing is lost, added or refused, by the server and by the types.
func TestGoldenObjects(t *testing.T) {
	sets := goldenSets(t)
	for i, set := range sets {
		t.Run(set, func(t *testing.T) {
			crds := filepath.Join(golden, set, "crds")
			if set == next {
				crds = resources
			}
			w := startWorld(t, crds)
			w.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
			objects := goldenObjects(t, sets[:i+1])
			strict := client.WithFieldValidation(w.admin, metav1.FieldValidationStrict)
			for _, want := range objects {
				o := want.DeepCopy()
				if err := strict.Create(t.Context(), o); err != nil {
					t.Fatalf("create %s %s: %v", want.GetKind(), want.GetName(), err)
				}
				if hasStatus(want) {
					o.Object["status"] = want.DeepCopy().Object["status"]
					if err := strict.Status().Update(t.Context(), o); err != nil {
						t.Fatalf("write the status of %s %s: %v", want.GetKind(), want.GetName(), err)
					}
				}
			}
			check := func(when string) {
				for _, want := range objects {
					t.Run(when+"/"+want.GetKind()+"/"+want.GetName(), func(t *testing.T) { w.keeps(t, want) })
				}
				w.lists(t, objects)
			}
			check("its resources")
			w.upgrade(t, objects)
			check("today's resources")
		})
	}
}

// upgrade installs the resources of today, and waits until the server validates by them: by a member that
// they get for that.
func (w *world) upgrade(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	dir := t.TempDir()
	copyCRDs(t, resources, dir, func(definition map[string]any) {
		versions, _, _ := unstructured.NestedSlice(definition, "spec", "versions")
		if err := unstructured.SetNestedField(versions[0].(map[string]any), map[string]any{"type": "string"}, "schema", "openAPIV3Schema", "properties", "marker"); err != nil {
			t.Fatal(err)
		}
		if err := unstructured.SetNestedSlice(definition, versions, "spec", "versions"); err != nil {
			t.Fatal(err)
		}
	})
	w.install(t, dir)
	kinds := map[string]bool{}
	for _, o := range objects {
		if kinds[o.GetKind()] {
			continue
		}
		kinds[o.GetKind()] = true
		o = o.DeepCopy()
		o.SetName("marked")
		o.Object["marker"] = "here"
		eventually(t, "schema of "+o.GetKind(), func() error {
			stored := o.DeepCopy()
			err := w.admin.Create(t.Context(), stored, client.DryRunAll)
			if apierrors.IsInvalid(err) {
				return nil // The schema of its version has taken it.
			}
			if err == nil && stored.Object["marker"] == nil {
				err = errors.New("it is that of the version of the set")
			}
			return err
		})
	}
}

// keeps checks that an object is as it was written, and stays so when it is written again.
func (w *world) keeps(t *testing.T, want *unstructured.Unstructured) {
	key := client.ObjectKeyFromObject(want)
	read := func() *unstructured.Unstructured {
		t.Helper()
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(want.GroupVersionKind())
		if err := w.admin.Get(t.Context(), key, o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	got := read()
	if diff := differs(want, got); diff != "" {
		t.Errorf("it is stored (-want +got):\n%s", diff)
	}
	// The types.
	typed := must(scheme().New(want.GroupVersionKind())).(client.Object)
	if err := json.Unmarshal(must(got.MarshalJSON()), typed); err != nil {
		t.Fatal(err)
	}
	again := &unstructured.Unstructured{}
	if err := again.UnmarshalJSON(must(json.Marshal(typed))); err != nil {
		t.Fatal(err)
	}
	if diff := differs(want, again); diff != "" {
		t.Errorf("the types write (-want +got):\n%s", diff)
	}
	// A write that changes nothing leaves the version.
	if err := w.admin.Get(t.Context(), key, typed); err != nil {
		t.Fatal(err)
	}
	if err := w.admin.Update(t.Context(), typed); err != nil {
		t.Errorf("an update is refused: %v", err)
	}
	if hasStatus(want) {
		if err := w.admin.Status().Update(t.Context(), typed); err != nil {
			t.Errorf("an update of the status is refused: %v", err)
		}
	}
	if now := read(); now.GetResourceVersion() != got.GetResourceVersion() {
		t.Errorf("an update without a change has changed it (-want +got):\n%s", differs(want, now))
	}
	// One that changes something else.
	for _, value := range []string{"program", want.GetAnnotations()["example.com/by"]} {
		typed.SetAnnotations(map[string]string{"example.com/by": value})
		if err := w.admin.Update(t.Context(), typed); err != nil {
			t.Errorf("an update of the metadata is refused: %v", err)
		}
	}
	if diff := differs(want, read()); diff != "" {
		t.Errorf("it is after updates (-want +got):\n%s", diff)
	}
	// Whoever has it in a repository creates it anew.
	anew := want.DeepCopy()
	anew.SetName("anew")
	if err := client.WithFieldValidation(w.admin, metav1.FieldValidationStrict).Create(t.Context(), anew, client.DryRunAll); err != nil {
		t.Errorf("it is refused: %v", err)
	}
}

// lists checks that the server lists objects.
func (w *world) lists(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	want := map[string]int{}
	for _, o := range objects {
		want[o.GetKind()]++
	}
	got := map[string]int{}
	for kind := range want {
		list := must(scheme().New(v1alpha1.GroupVersion.WithKind(kind + "List"))).(client.ObjectList)
		if err := w.admin.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		items := struct {
			Items []json.RawMessage `json:"items"`
		}{}
		if err := json.Unmarshal(must(json.Marshal(list)), &items); err != nil {
			t.Fatal(err)
		}
		got[kind] = len(items.Items)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lists have (-want +got):\n%s", diff)
	}
}

// properties calls each with every property of a schema below path.
func properties(schema map[string]any, path string, each func(path string)) {
	members, _ := schema["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(members)) {
		each(path + "." + name)
		properties(members[name].(map[string]any), path+"."+name, each)
	}
	if items, ok := schema["items"].(map[string]any); ok {
		properties(items, path+"[]", each)
	}
	if entries, ok := schema["additionalProperties"].(map[string]any); ok {
		properties(entries, path+"{}", each)
	}
}

// used calls each with every property of a schema that a value has.
func used(schema map[string]any, value any, path string, each func(path string)) {
	switch value := value.(type) {
	case []any:
		items, _ := schema["items"].(map[string]any)
		for _, item := range value {
			used(items, item, path+"[]", each)
		}
	case map[string]any:
		members, _ := schema["properties"].(map[string]any)
		entries, _ := schema["additionalProperties"].(map[string]any)
		for name, item := range value {
			if of, ok := members[name].(map[string]any); ok {
				each(path + "." + name)
				used(of, item, path+"."+name, each)
			} else if entries != nil {
				used(entries, item, path+"{}", each)
			}
		}
	}
}

// TestGoldenObjectsHaveAllFields finds fields of the resources that no golden object has. The resources are
// generated from the Go types.
func TestGoldenObjectsHaveAllFields(t *testing.T) {
	missing := map[string]bool{}
	schemas := map[string]map[string]any{}
	for _, definition := range definitions(t, resources) {
		kind := must(first(unstructured.NestedString(definition, "spec", "names", "kind")))
		schemas[kind] = schemaOf(definition)
		delete(schemas[kind]["properties"].(map[string]any), "metadata")
		properties(schemas[kind], kind, func(path string) { missing[path] = true })
	}
	if len(missing) < 500 {
		t.Errorf("there are %d fields", len(missing))
	}
	for _, o := range goldenObjects(t, goldenSets(t)) {
		used(schemas[o.GetKind()], o.Object, o.GetKind(), func(path string) { delete(missing, path) })
	}
	for _, path := range slices.Sorted(maps.Keys(missing)) {
		t.Errorf("no golden object has %s: add one to %s/%s/objects", path, golden, next)
	}
}

func first(s string, ok bool, err error) (string, error) {
	if err == nil && !ok {
		err = errors.New("it has no kind")
	}
	return s, err
}
