package lookup_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/objects/lookup"
)

// TestParseApply has the questions of hostile guests.
func TestParseApply(t *testing.T) {
	for name, test := range map[string]struct {
		question string
		status   bool
		want     string
	}{
		"annotations":               {"v1/pods\x00shop\x00web\x00a.b/C\x00x\xffy\x00d\x00\x00", false, "v1/pods shop/web map[a.b/C:x\uFFFDy d:] "},
		"no annotations":            {"v1/pods\x00shop\x00web\x00", false, "v1/pods shop/web map[] "},
		"the status":                {"v1/nodes\x00\x00n1\x00{\"a\": [1]}", true, `v1/nodes /n1 map[] {"a": [1]}`},
		"nothing":                   {"", false, `"" is not a resource, a namespace, a name and more`},
		"no name":                   {"v1/pods\x00shop\x00\x00a\x00b\x00", false, "the object has no name"},
		"half of a pair":            {"v1/pods\x00shop\x00web\x00a\x00", false, "the annotations are not pairs of a key and a value with a NUL after each"},
		"no NUL at the end":         {"v1/pods\x00shop\x00web\x00a\x00b", false, "the annotations are not pairs of a key and a value with a NUL after each"},
		"a key twice":               {"v1/pods\x00shop\x00web\x00a\x00b\x00a\x00c\x00", false, `the annotation "a" is there twice`},
		"no key":                    {"v1/pods\x00shop\x00web\x00\x00b\x00", false, `the annotation "": name part must be non-empty`},
		"a list as the status":      {"v1/pods\x00shop\x00web\x00[]", true, `the status "[]" is no JSON object`},
		"null as the status":        {"v1/pods\x00shop\x00web\x00null", true, `the status "null" is no JSON object`},
		"two objects as the status": {"v1/pods\x00shop\x00web\x00{}{}", true, `the status "{}{}" is no JSON object`},
		"too much":                  {"v1/pods\x00shop\x00web\x00a\x00" + strings.Repeat("b", 9000) + "\x00", false, "9020 bytes are more than 8192"},
	} {
		got := ""
		if a, err := lookup.ParseApply(test.question, test.status); err != nil {
			got = err.Error()
		} else {
			got = fmt.Sprint(a.Resource, " ", a.Namespace, "/", a.Name, " ", a.Annotations, " ", string(a.Status))
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestCheckApply holds that a configuration names parts that there are.
func TestCheckApply(t *testing.T) {
	for apply, want := range map[string]string{
		"status": "", "annotations": "", "annotations[example.com/Key]": "",
		"spec":          `objects: apply of "v1/pods" has "spec", want status, annotations or annotations[KEY]`,
		"annotations[]": `objects: apply of "v1/pods" has "annotations[]", want status, annotations or annotations[KEY]`,
		"annotations[a": `objects: apply of "v1/pods" has "annotations[a", want status, annotations or annotations[KEY]`,
	} {
		got := ""
		if err := errors.Join(lookup.CheckGrants([]host.ObjectGrant{{Resource: "v1/pods", Apply: []string{apply}}})...); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %s, want %s", apply, got, want)
		}
	}
	a := &lookup.Apply{Resource: "v1/pods", Namespace: "bank", Name: "web", Status: []byte("{}")}
	err := a.Allowed([]host.ObjectGrant{{Resource: "v1/pods", Namespaces: []string{"shop"}, Apply: []string{"status"}}})
	if want := `the plugin's configuration does not name the objects "v1/pods" of the namespace "bank"`; err == nil || err.Error() != want {
		t.Errorf("another namespace: %v, want %s", err, want)
	}
}
