package hookmsg

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestValuesAreInTheOrderOfTheirFields(t *testing.T) {
	for i := range numberFields {
		var r Resources
		*numberFields[i].in(&r) = new(int64(7))
		for j, v := range r.numbers() {
			if (v != nil) != (i == j) {
				t.Errorf("with %s set, number %d is %v", numberFields[i].name, j, v)
			}
		}
	}
	for i := range textFields {
		var r Resources
		*textFields[i].in(&r) = new("x")
		for j, v := range r.texts() {
			if (v != nil) != (i == j) {
				t.Errorf("with %s set, text %d is %v", textFields[i].name, j, v)
			}
		}
	}
}

// full returns a decision that sets every field, and the fields one by one by name.
func full() *Decision {
	d := &Decision{
		Resources:            &Resources{Unified: map[string]string{"io.weight": "50"}},
		ContainerAnnotations: map[string]string{"a": "1"}, ContainerEnvs: map[string]string{"A": "1"},
		ContainerMounts: []Mount{{Destination: "/a"}}, ContainerDevices: []Device{{Path: "/dev/a"}},
	}
	for field := range AllFields.Numbers().All() {
		*d.Resources.Number(field) = new(int64(field))
	}
	for field := range AllFields.Texts().All() {
		*d.Resources.Text(field) = new(field.String())
	}
	return d
}

func TestFieldsAreNamedSelectedAndCompared(t *testing.T) {
	d := full()
	if got := d.Fields(); got != AllFields {
		t.Errorf("of the full decision %s are set", got)
	}
	if got := d.Resources.Fields(); got != AllFields.OfResources() {
		t.Errorf("of the full resources %s are set", got)
	}
	for field := range AllFields.All() {
		one := d.Select(field)
		if got := one.Fields(); got != field {
			t.Errorf("of %s, %s is selected", field, got)
		}
		got, key, err := ParseField(field.String())
		if got != field || key != "" || err != nil {
			t.Errorf("%s is parsed as %s, key %q, error %v", field, got, key, err)
		}
		if one.Resources.Equal(d.Resources) || !one.Resources.Equal(d.Select(field).Resources) {
			t.Errorf("the resources with %s alone are equal to all, or not to themselves", field)
		}
		rest := d.Resources.Select(AllFields.OfResources() &^ field)
		if diff := cmp.Diff(d.Resources, rest.Overlay(one.Resources)); diff != "" {
			t.Errorf("%s over the others: %s", field, diff)
		}
	}
	for _, none := range []*Resources{nil, {}, {Unified: map[string]string{}}} {
		if !none.Equal(nil) || none.Equal(d.Resources) || none.Select(AllFields) != nil || none.Fields() != 0 {
			t.Errorf("%v counts as set", none)
		}
	}
}

func TestResourcesThatDifferInAValue(t *testing.T) {
	for field := range AllFields.OfResources().All() {
		a, b := full().Resources, full().Resources
		switch {
		case field.Numbers() != 0:
			*b.Number(field) = new(int64(-7))
		case field.Texts() != 0:
			*b.Text(field) = new("other")
		default:
			b.Unified = map[string]string{"io.weight": "51"}
		}
		if a.Equal(b) {
			t.Errorf("resources that differ in %s are equal", field)
		}
		if diff := cmp.Diff(b, a.Overlay(b)); diff != "" {
			t.Errorf("%s is not replaced: %s", field, diff)
		}
		if !a.Equal(full().Resources) {
			t.Errorf("to replace %s changes what it was laid over", field)
		}
	}
}

func TestParseFieldRefuses(t *testing.T) {
	for _, name := range []string{"", "cpu", "cpu_shares[1]", "unified[", "unified[]", "unified[a"} {
		if f, key, err := ParseField(name); err == nil {
			t.Errorf("%q is parsed as %s, key %q", name, f, key)
		}
	}
	if f, key, err := ParseField("unified[io.weight]"); f != FieldUnified || key != "io.weight" || err != nil {
		t.Errorf("got %s, key %q, error %v", f, key, err)
	}
}
