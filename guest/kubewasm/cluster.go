//go:build !wasip1

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/internal/manifest"
)

// cluster is the objects of a file, for policies that look objects up. It implements
// admission.Cluster.
type cluster struct{ *manifest.Objects }

// Get implements admission.Cluster.
func (c cluster) Get(_ context.Context, kind schema.GroupVersionKind, namespace, name string) ([]byte, error) {
	for o := range c.of(kind, namespace) {
		if o.Name == name && o.Namespace == namespace {
			return o.JSON, nil
		}
	}
	return nil, nil
}

// List implements admission.Cluster.
func (c cluster) List(_ context.Context, kind schema.GroupVersionKind, namespace string, byLabels labels.Selector, byFields fields.Selector) (list [][]byte, err error) {
	for o := range c.of(kind, namespace) {
		object := new(unstructured.Unstructured)
		if err := object.UnmarshalJSON(o.JSON); err != nil {
			return nil, fmt.Errorf("%s: %w", describe(o), err)
		}
		object.SetNamespace(o.Namespace)
		if byLabels.Matches(labels.Set(object.GetLabels())) && byFields.Matches(fieldsOf(object.Object)) {
			list = append(list, o.JSON)
		}
	}
	return list, nil
}

// Review implements admission.Cluster.
func (cluster) Review(context.Context, authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, error) {
	return authorizationv1.SubjectAccessReviewStatus{}, errors.New("a file has no roles to ask about")
}

// of yields the objects of a kind, of all namespaces if namespace is empty.
func (c cluster) of(kind schema.GroupVersionKind, namespace string) func(yield func(*manifest.Object) bool) {
	return func(yield func(*manifest.Object) bool) {
		if c.Objects == nil {
			return
		}
		for i := range c.All {
			o := &c.All[i]
			if o.GroupVersionKind() == kind && (namespace == "" || o.Namespace == namespace) && !yield(o) {
				return
			}
		}
	}
}

// fieldsOf are the fields of an object that are texts, by their paths, for selectors:
// an API server has a few of them, which depend on the kind.
type fieldsOf map[string]any

// Get implements fields.Fields.
func (f fieldsOf) Get(path string) string {
	s, _, _ := unstructured.NestedString(f, strings.Split(path, ".")...)
	return s
}

// Has implements fields.Fields.
func (f fieldsOf) Has(path string) bool {
	_, ok, _ := unstructured.NestedString(f, strings.Split(path, ".")...)
	return ok
}
