// Package methodcall calls methods of services with messages in YAML or JSON, in which
// objects of Kubernetes are manifests.
package methodcall

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host/service"
	"github.com/kubewasm/kubewasm/internal/serviceschema"
)

// Call has the objects and the answers of a call.
type Call struct {
	Plugin *service.Plugin
	// Answers are the responses of host services, in JSON, by their methods.
	Answers map[string]json.RawMessage

	refs map[abi.Ref]runtime.Object
}

// Ref implements serviceschema.Objects.
func (c *Call) Ref(of protoreflect.FullName, object []byte) (abi.Ref, error) {
	var o runtime.Object = &unstructured.Unstructured{}
	if of != "" {
		var err error
		if o, err = newObject(of); err != nil {
			return 0, err
		}
	}
	if err := serviceschema.ReadObject(object, o); err != nil {
		return 0, err
	}
	ref, err := c.Plugin.Ref(o)
	if c.refs == nil {
		c.refs = map[abi.Ref]runtime.Object{}
	}
	c.refs[ref] = o
	return ref, err
}

// Object implements serviceschema.Objects.
func (c *Call) Object(ref abi.Ref) (any, error) {
	o, ok := c.refs[ref]
	if !ok && ref != 0 {
		return nil, fmt.Errorf("ref %#x names no object of the request", uint64(ref))
	}
	return o, nil
}

// Value implements serviceschema.Objects.
func (c *Call) Value(of protoreflect.FullName, value []byte) ([]byte, error) {
	v, ok := values[of]
	if !ok {
		return nil, fmt.Errorf("a %s cannot be read", of)
	}
	made := v()
	if err := serviceschema.ReadObject(value, made); err != nil {
		return nil, err
	}
	return made.Marshal()
}

// DecodeValue implements serviceschema.Objects.
func (c *Call) DecodeValue(of protoreflect.FullName, b []byte) (any, error) {
	v, ok := values[of]
	if !ok {
		return b, nil // In base64.
	}
	made := v()
	return made, made.Unmarshal(b)
}

// marshaler is what the generated code of Kubernetes gives its messages.
type marshaler interface {
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// values are the messages of Kubernetes that are no objects.
var values = map[protoreflect.FullName]func() marshaler{
	"k8s.io.apimachinery.pkg.api.resource.Quantity":      func() marshaler { return new(resource.Quantity) },
	"k8s.io.apimachinery.pkg.util.intstr.IntOrString":    func() marshaler { return new(intstr.IntOrString) },
	"k8s.io.apimachinery.pkg.apis.meta.v1.Time":          func() marshaler { return new(metav1.Time) },
	"k8s.io.apimachinery.pkg.apis.meta.v1.MicroTime":     func() marshaler { return new(metav1.MicroTime) },
	"k8s.io.apimachinery.pkg.apis.meta.v1.Duration":      func() marshaler { return new(metav1.Duration) },
	"k8s.io.apimachinery.pkg.runtime.RawExtension":       func() marshaler { return new(runtime.RawExtension) },
	"k8s.io.apimachinery.pkg.apis.meta.v1.LabelSelector": func() marshaler { return new(metav1.LabelSelector) },
}

// newObject returns an empty object by the full name of its message: of the version of the API
// that k8s.io.api.core.v1.Pod names.
func newObject(of protoreflect.FullName) (runtime.Object, error) {
	pkg := strings.ReplaceAll(strings.TrimPrefix(string(of.Parent()), "k8s.io."), ".", "/")
	for gvk, t := range scheme.Scheme.AllKnownTypes() {
		if t.Name() == string(of.Name()) && t.PkgPath() == "k8s.io/"+pkg && gvk.Kind == t.Name() {
			return reflect.New(t).Interface().(runtime.Object), nil
		}
	}
	if _, ok := values[of]; ok {
		return nil, serviceschema.ErrNoObject
	}
	return nil, fmt.Errorf("there is no message %s", of)
}

// HostServices returns the host services of a schema, answered by answer.
func HostServices(schema *serviceschema.Schema, answer func(m protoreflect.MethodDescriptor, request []byte) ([]byte, error)) (all []service.HostService) {
	for _, s := range schema.Services {
		if !s.Host {
			continue
		}
		h := service.HostService{Name: string(s.FullName())}
		for i := range s.Methods().Len() {
			m := s.Methods().Get(i)
			h.Methods = append(h.Methods, service.NewRawMethod(string(m.Name()), serviceschema.Grant(m), func(_ context.Context, request []byte) ([]byte, error) {
				return answer(m, request)
			}))
		}
		all = append(all, h)
	}
	return all
}

// Answer answers the plugin for a host service.
func (c *Call) Answer(m protoreflect.MethodDescriptor, _ []byte) ([]byte, error) {
	text, ok := c.Answers[serviceschema.Method(m)]
	if !ok {
		text, ok = c.Answers[string(m.Parent().Name())+"/"+string(m.Name())]
	}
	if !ok {
		return nil, fmt.Errorf("there is no answer of %s", serviceschema.Method(m))
	}
	return serviceschema.Encode(m.Output(), text, c)
}
