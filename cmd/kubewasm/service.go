package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"reflect"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/service"
	"github.com/kubewasm/kubewasm/internal/manifest"
	"github.com/kubewasm/kubewasm/internal/serviceschema"
)

// serviceInfo is a service of a module's schema.
type serviceInfo struct {
	Name string `json:"name"`
	// Host is set for a service that the plugin may call.
	Host bool `json:"host,omitempty"`
	// Methods have the form "Pick(PickRequest) PickResponse".
	Methods []string `json:"methods"`
}

// servicesOf returns the services of a schema.
func servicesOf(section []byte) ([]serviceInfo, error) {
	schema, err := serviceschema.Parse(section)
	if err != nil {
		return nil, err
	}
	var all []serviceInfo
	for _, s := range schema.Services {
		info := serviceInfo{Name: string(s.FullName()), Host: s.Host}
		for i := range s.Methods().Len() {
			m := s.Methods().Get(i)
			info.Methods = append(info.Methods, fmt.Sprintf("%s(%s) %s", m.Name(), m.Input().Name(), m.Output().Name()))
		}
		all = append(all, info)
	}
	return all, nil
}

// methods returns the methods of the extension points of a module.
func (r *examination) methods() (all []string) {
	for _, s := range r.Services {
		for _, m := range s.Methods {
			if name, _, _ := strings.Cut(m, "("); !s.Host {
				all = append(all, s.Name+"/"+name)
			}
		}
	}
	return all
}

// loadedServices are the plugins of a module, one for each extension point that it implements.
type loadedServices struct{ plugins []*service.Plugin }

func (l *loadedServices) Close(ctx context.Context) error {
	var errs []error
	for _, p := range l.plugins {
		errs = append(errs, p.Close(ctx))
	}
	return errors.Join(errs...)
}

// loadServices loads a module into a host that has the services of the module's own schema.
// The extension points that it does not implement do not count, if it implements one.
func loadServices(ctx context.Context, rt *host.Runtime, try trying, cfg host.Config) (*loadedServices, error) {
	about, err := host.Inspect(try.module)
	if err != nil {
		return nil, err
	}
	section := about.Custom(abi.SchemaSection)
	schema, err := serviceschema.Parse(section)
	if section == nil {
		err = fmt.Errorf("there is no custom section %s, which kubewasm build adds", abi.SchemaSection)
	}
	if err != nil {
		return nil, err
	}
	l := &loadedServices{}
	var errs []error
	for _, name := range schema.Names() {
		d, err := service.Describe(section, name)
		if err != nil {
			return nil, err
		}
		p, err := service.Load(ctx, rt, service.Config{Config: cfg}, d, hostServices(schema, nil)...)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		l.plugins = append(l.plugins, p)
	}
	if len(l.plugins) == 0 {
		return nil, errors.Join(errs...)
	}
	return l, nil
}

// hostServices returns the host services of a schema, answered by answer.
func hostServices(schema *serviceschema.Schema, answer func(m protoreflect.MethodDescriptor, request []byte) ([]byte, error)) (all []service.HostService) {
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

// runMethod calls a method of a service and prints the response.
func (t *tool) runMethod(ctx context.Context, path string, from *pullFlags, method, file, config, answers string, grants names, logged bool) (err error) {
	defer func() {
		if err != nil && !errors.As(err, new(*usageError)) {
			err = fmt.Errorf("run %s %s: %w", path, method, err)
		}
	}()
	guest, err := readConfig(config)
	if err != nil {
		return err
	}
	_, module, err := t.module(ctx, path, from)
	if err != nil {
		return err
	}
	about, err := host.Inspect(module)
	if err != nil {
		return err
	}
	section := about.Custom(abi.SchemaSection)
	if section == nil {
		return errors.New("the module has no services")
	}
	schema, err := serviceschema.Parse(section)
	if err != nil {
		return err
	}
	m, err := schema.FindMethod(method)
	if err != nil {
		return err
	}
	d, err := service.Describe(section, string(m.Parent().FullName()))
	if err != nil {
		return err
	}
	rt, err := newRuntime()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rt.Close(context.WithoutCancel(ctx))) }()
	c := &methodCall{}
	if answers != "" {
		if err := c.readAnswers(schema, answers); err != nil {
			return err
		}
	}
	fuel := &fuelCounter{}
	cfg := host.Config{Name: pluginName, Source: host.Bytes(module), GuestConfig: guest, Grants: grants, Observer: fuel, Limits: host.Limits{Instances: 1}}
	if logged {
		cfg.Logger = slog.New(slog.NewTextHandler(t.err, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	if c.plugin, err = service.Load(ctx, rt, service.Config{Config: cfg}, d, hostServices(schema, c.answer)...); err != nil {
		return granting(err)
	}
	fuel.take()
	text, err := readDocument(file)
	if err != nil {
		return err
	}
	request, err := serviceschema.Encode(m.Input(), text, c)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	response, err := c.plugin.CallBytes(ctx, string(m.Name()), request)
	if err != nil {
		return err
	}
	decoded, err := serviceschema.Decode(m.Output(), response, c)
	if err != nil {
		return fmt.Errorf("response: %w", err)
	}
	out, err := yaml.Marshal(decoded)
	if err != nil {
		return err
	}
	used, took := fuel.take()
	fmt.Fprintf(t.out, "%s# %s, %d instructions\n", out, took, used)
	return nil
}

// readDocument returns the only document of a file, or of the standard input, in JSON.
func readDocument(file string) ([]byte, error) {
	var data []byte
	var err error
	if file == "-" {
		data, err = io.ReadAll(os.Stdin)
	} else {
		data, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, err
	}
	text, err := manifest.JSON(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if string(text) == "null" {
		text = []byte("{}")
	}
	return text, nil
}

// methodCall has the objects and the answers of a call.
type methodCall struct {
	plugin *service.Plugin
	refs   map[abi.Ref]runtime.Object
	// answers are the responses of host services, in JSON, by their methods.
	answers map[string]json.RawMessage
}

// Ref implements serviceschema.Objects.
func (c *methodCall) Ref(of protoreflect.FullName, object []byte) (abi.Ref, error) {
	var o runtime.Object = &unstructured.Unstructured{}
	if of != "" {
		var err error
		if o, err = newObject(of); err != nil {
			return 0, err
		}
	}
	if u, ok := o.(*unstructured.Unstructured); ok {
		if err := json.Unmarshal(object, &u.Object); err != nil {
			return 0, err
		}
	} else if err := yaml.UnmarshalStrict(object, o); err != nil {
		return 0, err
	}
	ref, err := c.plugin.Ref(o)
	if c.refs == nil {
		c.refs = map[abi.Ref]runtime.Object{}
	}
	c.refs[ref] = o
	return ref, err
}

// Object implements serviceschema.Objects.
func (c *methodCall) Object(ref abi.Ref) (any, error) {
	o, ok := c.refs[ref]
	if !ok && ref != 0 {
		return nil, fmt.Errorf("ref %#x names no object of the request", uint64(ref))
	}
	return o, nil
}

// Value implements serviceschema.Objects.
func (c *methodCall) Value(of protoreflect.FullName, value []byte) ([]byte, error) {
	v, ok := values[of]
	if !ok {
		return nil, fmt.Errorf("run cannot read a %s", of)
	}
	made := v()
	if err := json.Unmarshal(value, made); err != nil {
		return nil, err
	}
	return made.Marshal()
}

// DecodeValue implements serviceschema.Objects.
func (c *methodCall) DecodeValue(of protoreflect.FullName, b []byte) (any, error) {
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
	return nil, fmt.Errorf("run knows no message %s", of)
}

// readAnswers reads the responses of host services.
func (c *methodCall) readAnswers(schema *serviceschema.Schema, file string) error {
	text, err := readDocument(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &c.answers); err != nil {
		return fmt.Errorf("%s: want a message for each SERVICE/METHOD: %w", file, err)
	}
	known := map[string]bool{}
	for _, s := range schema.Services {
		for i := range s.Methods().Len() {
			m := s.Methods().Get(i)
			known[serviceschema.Method(m)], known[string(s.Name())+"/"+string(m.Name())] = s.Host, s.Host
		}
	}
	for name := range c.answers {
		if !known[name] {
			return fmt.Errorf("%s: the schema has no host service with the method %s", file, name)
		}
	}
	return nil
}

// answer answers the plugin for a host service.
func (c *methodCall) answer(m protoreflect.MethodDescriptor, _ []byte) ([]byte, error) {
	text, ok := c.answers[serviceschema.Method(m)]
	if !ok {
		text, ok = c.answers[string(m.Parent().Name())+"/"+string(m.Name())]
	}
	if !ok {
		return nil, fmt.Errorf("run has no answer of %s: give one by -answers", serviceschema.Method(m))
	}
	return serviceschema.Encode(m.Output(), text, c)
}
