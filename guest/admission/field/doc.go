// Package field describes mistakes in fields of an object.
//
// Its names and their meanings are those of
// k8s.io/apimachinery/pkg/util/validation/field, so that validation written for
// one reads the same with the other:
//
//	var errs field.ErrorList
//	path := field.NewPath("spec", "containers").Index(0).Child("image")
//	errs = append(errs, field.Invalid(path, image, "must come from registry.example.com"))
package field
