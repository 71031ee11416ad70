package admission_test

import (
	"math"
	"testing"

	"github.com/kubewasm/kubewasm/guest/admission"
	"github.com/kubewasm/kubewasm/guest/admission/field"
	"github.com/kubewasm/kubewasm/internal/json/jsonpatch"
)

func TestPatch(t *testing.T) {
	const object = `{"metadata":{"labels":{"app":"web"},"annotations":null},"spec":{"containers":[{"name":"a"},{"name":"b","args":["x"]}],"replicas":1}}`
	labels, containers := field.NewPath("metadata", "labels"), field.NewPath("spec", "containers")
	tests := []struct {
		name   string
		change func(p *admission.Patch)
		want   string
		counts bool // Each time there is one more change to make.
	}{
		{"no change", func(*admission.Patch) {}, "", false},
		{"a field that has the value already", func(p *admission.Patch) {
			p.Set(labels.Key("app"), "web")
			p.Set(field.NewPath("spec", "replicas"), 1)
		}, "", false},
		{"a field that has another value", func(p *admission.Patch) { p.Set(labels.Key("app"), "x") }, `[{"op":"replace","path":"/metadata/labels/app","value":"x"}]`, false},
		{"a field that is missing", func(p *admission.Patch) { p.Set(labels.Key("a/b~c"), true) }, `[{"op":"add","path":"/metadata/labels/a~1b~0c","value":true}]`, false},
		{"a field whose object is null", func(p *admission.Patch) { p.Set(field.NewPath("metadata", "annotations").Key("k"), "v") }, `[{"op":"replace","path":"/metadata/annotations","value":{"k":"v"}}]`, false},
		{"fields whose objects are missing", func(p *admission.Patch) {
			p.Set(containers.Index(0).Child("resources", "requests").Key("cpu"), "1")
			p.Set(containers.Index(0).Child("resources", "requests").Key("memory"), "2")
		}, `[{"op":"add","path":"/spec/containers/0/resources","value":{"requests":{"cpu":"1"}}},{"op":"add","path":"/spec/containers/0/resources/requests/memory","value":"2"}]`, false},
		{"a default for what is there", func(p *admission.Patch) { p.Default(labels.Key("app"), "x") }, "", false},
		{"a default for what is missing", func(p *admission.Patch) { p.Default(labels.Key("team"), "x") }, `[{"op":"add","path":"/metadata/labels/team","value":"x"}]`, false},
		{"an element", func(p *admission.Patch) { p.Append(containers.Index(1).Child("args"), "y") }, `[{"op":"add","path":"/spec/containers/1/args/-","value":"y"}]`, true},
		{"an element of a list that is missing", func(p *admission.Patch) {
			p.Append(containers.Index(0).Child("args"), "y")
			p.Append(containers.Index(0).Child("args"), "z")
		}, `[{"op":"add","path":"/spec/containers/0/args","value":["y"]},{"op":"add","path":"/spec/containers/0/args/-","value":"z"}]`, true},
		{"elements move up", func(p *admission.Patch) {
			p.Remove(containers.Index(0))
			p.Set(containers.Index(0).Child("name"), "c")
			p.Remove(containers.Index(7))
		}, `[{"op":"remove","path":"/spec/containers/0"},{"op":"replace","path":"/spec/containers/0/name","value":"c"}]`, true},
		{"values of many kinds", func(p *admission.Patch) {
			p.Set(field.NewPath("spec", "v"), []any{1.5, nil, map[string]int{"b": 1, "a": 2}, []byte(`{"x": 1}`), "\n"})
		}, `[{"op":"add","path":"/spec/v","value":[1.5,null,{"a":2,"b":1},{"x": 1},"\n"]}]`, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := admission.NewPatch([]byte(object))
			test.change(p)
			if got := string(p.JSON()); got != test.want || p.Err() != nil {
				t.Errorf("patch is %s, %v\nwant     %s", got, p.Err(), test.want)
			}
			want := []byte(object)
			if test.want != "" {
				var err error
				if want, err = jsonpatch.Apply(want, p.JSON()); err != nil {
					t.Fatal(err)
				}
			}
			if got := p.Object(); !jsonpatch.Equal(got, want) {
				t.Errorf("object is %s\nwant      %s", got, want)
			}
			// What is patched already needs no patch.
			again := admission.NewPatch(p.Object())
			if test.change(again); !test.counts && again.JSON() != nil {
				t.Errorf("the second patch is %s", again.JSON())
			}
		})
	}
}

func TestPatchThatCannotBeMade(t *testing.T) {
	containers := field.NewPath("spec", "containers")
	tests := []struct {
		name, object string
		change       func(p *admission.Patch)
		want         string
	}{
		{"there is no object", ``, func(p *admission.Patch) { p.Set(field.NewPath("a"), 1) }, "patch: the request has no object"},
		{"a field of a string", `{"spec":"x"}`, func(p *admission.Patch) { p.Set(field.NewPath("spec", "a"), 1) }, "patch: spec: is string, want object"},
		{"a field of a list", `{"spec":{"containers":[]}}`, func(p *admission.Patch) { p.Set(containers.Child("a"), 1) }, "patch: spec.containers: is array, want object"},
		{"an element that is missing", `{"spec":{"containers":[]}}`, func(p *admission.Patch) { p.Set(containers.Index(0).Child("a"), 1) }, "patch: spec.containers[0]: there is no such element"},
		{"an element of what is no list", `{"spec":{}}`, func(p *admission.Patch) { p.Append(field.NewPath("spec"), 1) }, "patch: spec: is object, want array"},
		{"a channel", `{"a":1}`, func(p *admission.Patch) { p.Set(field.NewPath("a"), make(chan int)) }, "patch: a: has no form in JSON: chan"},
		{"a struct in a list", `{}`, func(p *admission.Patch) {
			p.Append(field.NewPath("a"), map[string]any{"b": []any{1, struct{ C int }{1}}})
		}, "patch: a: has no form in JSON: struct"},
		{"a number that is none", `{}`, func(p *admission.Patch) { p.Default(field.NewPath("a"), math.NaN()) }, "patch: a: has no form in JSON: NaN"},
		{"the whole object", `{}`, func(p *admission.Patch) { p.Set(nil, 1) }, "patch: : the whole object is set by SetObject"},
		{"an object that is none", `{}`, func(p *admission.Patch) { p.SetObject([]byte(`[]`)) }, "patch: what the object is set to is no JSON object"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := admission.NewPatch([]byte(test.object))
			test.change(p)
			if p.Err() == nil || p.Err().Error() != test.want || p.JSON() != nil {
				t.Errorf("error is %v, want %s; patch %s", p.Err(), test.want, p.JSON())
			}
		})
	}
}
