package serviceschema

import (
	"errors"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"

	"github.com/kubewasm/kubewasm/internal/quantities"
)

// ReadObject reads an object of Kubernetes in JSON, or another of its messages. An unknown field is
// an error. An Unstructured may be any JSON object.
func ReadObject(text []byte, to any) error {
	if u, ok := to.(*unstructured.Unstructured); ok {
		return kjson.UnmarshalCaseSensitivePreserveInts(text, &u.Object)
	}
	if err := quantities.Check(text, to); err != nil {
		return err
	}
	mistakes, err := kjson.UnmarshalStrict(text, to)
	return errors.Join(append(mistakes, err)...)
}
