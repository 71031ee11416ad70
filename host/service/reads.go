package service

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewasm/kubewasm/host/service/internal/message"
	"github.com/kubewasm/kubewasm/internal/objects"
	"github.com/kubewasm/kubewasm/internal/serviceschema"
)

// reads are the fields that a plugin gets of objects.
type reads struct {
	paths []string
	// untyped are the first words of the paths of custom resources without a Go type, sorted.
	untyped []string
}

func newReads(paths []string, schema *serviceschema.Schema) reads {
	r := reads{paths: paths}
	for _, name := range schema.Untyped() {
		r.untyped = append(r.untyped, strings.ToLower(name))
	}
	return r
}

// untyped is the type of custom resources without a Go type.
var untyped = reflect.TypeFor[unstructured.Unstructured]()

// kindsOf returns the first words of the paths of objects of a type.
func (r reads) kindsOf(t reflect.Type) []string {
	if t == untyped {
		return r.untyped
	}
	return []string{objects.KindOf(t)}
}

// check reports every path that leads to no field of the objects in the messages of services.
func (r reads) check(d *Definition, hosts []HostService) error {
	if err := objects.CheckPaths(r.paths); err != nil || len(r.paths) == 0 {
		return err
	}
	types := map[reflect.Type]bool{}
	add := func(messages ...*message.Type) {
		for _, m := range messages {
			m.Objects(types)
		}
	}
	for _, m := range d.Methods {
		add(m.request, m.response)
	}
	for _, h := range hosts {
		for _, m := range h.Methods {
			add(m.request, m.response)
		}
	}
	var errs []error
	var kinds []string
	for t := range types {
		kinds = append(kinds, r.kindsOf(t)...)
		if _, _, err := r.of(t); err != nil {
			errs = append(errs, err)
		}
	}
	slices.Sort(kinds)
	for _, path := range r.paths {
		if kind, _, _ := strings.Cut(path, "."); !slices.Contains(kinds, kind) {
			errs = append(errs, fmt.Errorf("field path %q: the service has no objects of the kind %q, only %s", path, kind, strings.Join(kinds, ", ")))
		}
	}
	return errors.Join(errs...)
}

// encoding encodes an object that is read whole.
type encoding func(metav1.Object) ([]byte, error)

// of returns the fields that the plugin gets of the objects of a type: by parts if fields is not nil,
// else by whole, which is nil if no path names them. The error names every path that leads to no
// field.
func (r reads) of(t reflect.Type) (fields *objects.Encoder[objects.Any], whole encoding, err error) {
	if t == untyped {
		whole, err = r.ofUntyped()
		return nil, whole, err
	}
	if !objects.IsMessage(t) {
		cut, err := objects.CutOf(t, objects.KindOf(t), r.paths)
		if cut == nil {
			return nil, nil, err
		}
		return nil, func(o metav1.Object) ([]byte, error) { return narrowed(o, cut) }, nil
	}
	if fields, err = objects.FieldsOf(t, r.paths); fields != nil || err != nil {
		return fields, nil, err
	}
	pick, err := objects.PickOf(t, r.paths)
	if pick == nil {
		return nil, nil, err
	}
	return nil, pick.Encode, nil
}

// ofUntyped narrows custom resources without a Go type by their kinds. If a path names one of them,
// all others are reduced to their identity: of an object of an unexpected kind, nothing else leaves
// the host.
func (r reads) ofUntyped() (encoding, error) {
	cuts, errs := map[string]*objects.Cut{}, []error(nil)
	for _, kind := range r.untyped {
		cut, err := objects.CutOf(untyped, kind, r.paths)
		if errs = append(errs, err); cut != nil {
			cuts[kind] = cut
		}
	}
	if err := errors.Join(errs...); err != nil || len(cuts) == 0 {
		return nil, err
	}
	others := objects.Identity()
	return func(o metav1.Object) ([]byte, error) {
		cut := cuts[strings.ToLower(o.(runtime.Object).GetObjectKind().GroupVersionKind().Kind)]
		if cut == nil {
			cut = others
		}
		return narrowed(o, cut)
	}, nil
}

func narrowed(o metav1.Object, cut *objects.Cut) ([]byte, error) {
	encoded, err := objects.EncodeWhole(o)
	if err != nil {
		return nil, err
	}
	return cut.Append(nil, encoded), nil
}
