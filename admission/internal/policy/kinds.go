package policy

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/admission/dialect"
)

// CheckKinds returns all mistakes in a list of kinds, the member contextAwareResources.
func CheckKinds(kinds []dialect.Kind) (errs []error) {
	fail := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("contextAwareResources "+format, args...))
	}
	seen := map[string]bool{}
	for _, k := range kinds {
		if _, err := schema.ParseGroupVersion(k.APIVersion); err != nil || k.Kind == "" || k.APIVersion == "" {
			fail("has apiVersion %q, kind %q", k.APIVersion, k.Kind)
		}
		name := k.APIVersion + " " + k.Kind
		if seen[name] {
			fail("has %.200s twice", name)
		}
		seen[name] = true
		if k.Namespaces != nil && len(k.Namespaces) == 0 {
			fail("has no namespaces of %.200s: leave them out for all", name)
		}
		for _, namespace := range k.Namespaces {
			if problems := validation.ValidateNamespaceName(namespace, false); len(problems) != 0 {
				fail("has namespace %.80q of %.200s: %s", namespace, name, problems[0])
			}
		}
	}
	return errs
}
