package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/admission/internal/policy"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/json"
)

// Converter converts custom resources between their versions.
type Converter interface {
	// Convert returns the objects of request in the version Desired, in JSON and in the order of
	// the request. It converts all of them or none. The error names the object that could not be
	// converted, in words that an API server can pass on to its client.
	Convert(ctx context.Context, request *ConversionRequest) ([][]byte, error)
}

// ConversionRequest is the request of a ConversionReview of apiextensions.k8s.io/v1.
type ConversionRequest struct {
	// UID is that of the request, repeated by the answer.
	UID types.UID
	// Desired is the version to convert to: request.desiredAPIVersion.
	Desired schema.GroupVersion
	// Kind is the kind of the objects.
	Kind string
	// Objects are the objects in JSON, as received. They are of the group of Desired.
	Objects [][]byte
}

// GroupKind returns the kind of the objects, with its group.
func (r *ConversionRequest) GroupKind() metav1.GroupKind {
	return metav1.GroupKind{Group: r.Desired.Group, Kind: r.Kind}
}

// converter is a [Policy] that converts objects and does not decide.
type converter interface {
	Policy
	// converts returns the kinds that the policy converts, none if it decides.
	converts() []metav1.GroupKind
	// convert converts the objects of one kind among them.
	convert(ctx context.Context, request *ConversionRequest) ([][]byte, error)
}

// asConverter returns p as a converter, nil if it does not convert.
func asConverter(p Policy) converter {
	if c, ok := p.(converter); ok && len(c.converts()) != 0 {
		return c
	}
	return nil
}

// Convert asks the plugin whose PluginConfig.Converts names the kind of the objects. The plugin
// converts one object after the other. Its results are checked by the rules of an API server and
// more strictly, so that an API server never sees an object that it would refuse or silently
// change:
//
//   - apiVersion is the requested one, and kind is unchanged;
//   - in metadata, only labels and annotations have changed, and those are valid.
//
// A plugin may change everything else, and must be able to change it back, since an object stored
// in one version is read, changed and written in another.
//
// An object that already has the version is returned unchanged. The total length of all objects may
// grow to four times the original, plus 1 MiB.
func (e *Engine) Convert(ctx context.Context, request *ConversionRequest) ([][]byte, error) {
	version := e.current.Acquire()
	defer version.Release()
	s := version.Value
	kind := request.GroupKind()
	var found []converter
	for _, p := range s.all {
		if c := asConverter(p); c != nil && slices.Contains(c.converts(), kind) {
			found = append(found, c)
		}
	}
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("no plugin converts %s", kindName(kind))
	case 1:
		return convert(ctx, found[0], request)
	}
	names := make([]string, len(found))
	for i, c := range found {
		names[i] = c.Name()
	}
	return nil, fmt.Errorf("the plugins %s convert %s: name one in the path of the conversion webhook", strings.Join(names, " and "), kindName(kind))
}

// Convert implements [Converter].
func (o *onePolicy) Convert(ctx context.Context, request *ConversionRequest) ([][]byte, error) {
	version := o.engine.current.Acquire()
	defer version.Release()
	s := version.Value
	known, converts, kind := false, false, request.GroupKind()
	for _, p := range s.all {
		if p.Name() != o.name {
			continue
		}
		known = true
		if c := asConverter(p); c != nil {
			converts = true
			if slices.Contains(c.converts(), kind) {
				return convert(ctx, c, request)
			}
		}
	}
	switch {
	case converts:
		return nil, fmt.Errorf("plugin %q: does not convert %s", o.name, kindName(kind))
	case known:
		return nil, errors.New("policy " + o.name + " does not convert, or is disabled")
	}
	return nil, errors.New("there is no policy " + o.name)
}

// kindName writes a kind as Kubernetes does: "CronTab.stable.example.com".
func kindName(kind metav1.GroupKind) string {
	return schema.GroupKind{Group: kind.Group, Kind: kind.Kind}.String()
}

// convert calls a converter and reports to its Observer. A panic counts as a failure of the plugin.
func convert(ctx context.Context, c converter, request *ConversionRequest) (converted [][]byte, err error) {
	start := time.Now()
	defer func() {
		if r := recover(); r != nil {
			converted, err = nil, panicked(c, r).failure
		}
		if observer := c.rules().Observer; observer != nil {
			d := Decision{Policy: c.Name(), Converting: true, Mode: host.Enforce, Verdict: Allowed, Duration: time.Since(start), Err: err}
			if err != nil {
				d.Verdict = Failed
			}
			observer.Decided(ctx, d)
		}
	}()
	return c.convert(ctx, request)
}

func (p *Plugin) converts() []metav1.GroupKind { return p.cfg.Converts }

// growth and growthBytes bound the total length of converted objects, since all of them are held
// until the last is converted.
const (
	growth      = 4
	growthBytes = 1 << 20
)

func (p *Plugin) convert(ctx context.Context, request *ConversionRequest) ([][]byte, error) {
	room := growthBytes
	for _, object := range request.Objects {
		room += growth * len(object)
	}
	desired := request.Desired.String()
	converted := make([][]byte, len(request.Objects))
	for i, object := range request.Objects {
		about := subjectOfObject(object)
		if about.apiVersion == desired {
			converted[i] = object
			continue
		}
		c, err := p.convertSampled(ctx, object, desired)
		if room -= len(c); err == nil && room < 0 {
			err = fmt.Errorf("the converted objects are more than %d times as long as the originals", growth)
		}
		if err != nil {
			return nil, fmt.Errorf("plugin %q: convert objects[%d], %s, to %s: %w", p.Name(), i, about, desired, err)
		}
		converted[i] = c
	}
	return converted, nil
}

// convertChecked converts one object by the guest, and checks the result.
func (p *Plugin) convertChecked(ctx context.Context, object []byte, desired string) ([]byte, error) {
	converted, err := p.convertOne(ctx, object, desired)
	if err == nil {
		err = checkConverted(ctx, object, converted, desired)
	}
	return converted, err
}

// convertOne converts one object by the guest, without a check of the result.
func (p *Plugin) convertOne(ctx context.Context, object []byte, desired string) ([]byte, error) {
	inst, err := p.guest.Acquire(ctx)
	if err != nil {
		return nil, p.unnamed(err)
	}
	defer inst.Release()
	c := policy.CallOf(inst)
	request := policy.About(new(admissionv1.AdmissionRequest))
	request.Object.Raw = object
	c.Begin(request)
	c.Desired = desired
	defer c.Reset()
	packed, err := inst.Call(ctx, abi.Convert)
	if err != nil {
		return nil, p.unnamed(err)
	}
	switch _, number := abi.Unpack[abi.Verdict](packed); number {
	case abi.VerdictAllow:
	case abi.VerdictError, abi.VerdictDeny:
		if reason := inst.Reason(); reason != "" {
			return nil, errors.New(reason)
		}
		return nil, errors.New("no reason given")
	default:
		return nil, fmt.Errorf("%s returned verdict %d, want %d or %d", abi.Convert, number, abi.VerdictAllow, abi.VerdictError)
	}
	switch {
	case c.Mutant != nil:
		return c.Mutant, nil
	case c.Patch != nil:
		converted, err := until(ctx).Apply(object, c.Patch)
		if err != nil {
			return nil, fmt.Errorf("patch: %w", err)
		}
		return converted, nil
	}
	return object, nil
}

// unnamed returns err without the name of the plugin, which begins the errors of calls, since the
// caller prefixes it to a longer message.
func (p *Plugin) unnamed(err error) error {
	if text, ok := strings.CutPrefix(err.Error(), fmt.Sprintf("plugin %q: ", p.Name())); ok {
		return &unnamedError{text, err}
	}
	return err
}

type unnamedError struct {
	text string
	err  error
}

func (e *unnamedError) Error() string { return e.text }
func (e *unnamedError) Unwrap() error { return e.err }

// newUnavailableConverter implements policy.StandIns.UnavailableConverter.
func newUnavailableConverter(name string, kinds []metav1.GroupKind, rules PolicyRules, reason error) Policy {
	return &unavailableConverter{unavailable{name: name, policyRules: rules, reason: reason}, kinds}
}

type unavailableConverter struct {
	unavailable
	kinds []metav1.GroupKind
}

func (u *unavailableConverter) validates() bool              { return false }
func (u *unavailableConverter) mutates() bool                { return false }
func (u *unavailableConverter) converts() []metav1.GroupKind { return u.kinds }

func (u *unavailableConverter) convert(context.Context, *ConversionRequest) ([][]byte, error) {
	return nil, fmt.Errorf("plugin %q is not available: %w", u.name, u.reason)
}

// checkConverts returns all mistakes in the kinds that cfg converts, and in the settings combined
// with them; nil if there are none.
func checkConverts(cfg *PluginConfig) error {
	var errs []error
	if len(cfg.Converts) == 0 {
		return nil
	}
	seen := map[metav1.GroupKind]bool{}
	for i, kind := range cfg.Converts {
		if kind.Group == "" || kind.Kind == "" {
			errs = append(errs, fmt.Errorf("converts[%d]: group is %q and kind %q, want both, of a custom resource", i, kind.Group, kind.Kind))
		} else if seen[kind] {
			errs = append(errs, fmt.Errorf("converts[%d]: %s is there twice", i, kindName(kind)))
		}
		seen[kind] = true
	}
	refuse := func(name, why string) {
		errs = append(errs, fmt.Errorf("%s is set beside converts: %s", name, why))
	}
	if m := &cfg.Match; len(m.Rules) != 0 || m.MatchPolicy != "" || m.NamespaceSelector != nil || m.ObjectSelector != nil {
		refuse("match", "converts selects the kinds of a conversion")
	}
	if cfg.Mode == host.Monitor {
		refuse("mode Monitor", "a conversion without effect leaves no object")
	}
	if cfg.FailurePolicy == host.Ignore {
		refuse("failurePolicy Ignore", "an object that could not be converted cannot be served")
	}
	if cfg.AllowedToMutate {
		refuse("allowedToMutate", "use another plugin for mutation, of the same module if desired")
	}
	if len(cfg.Objects) != 0 {
		refuse("objects", "a conversion depends on nothing but the object")
	}
	return errors.Join(errs...)
}

// checkFunctions returns an error if the guest lacks a function that the configuration needs.
func (p *Plugin) checkFunctions() error {
	converts := p.dialect == nil && p.functions.Has(abi.Convert)
	switch {
	case len(p.cfg.Converts) != 0 && p.dialect != nil:
		return fmt.Errorf("plugin %q: configuration: converts is for guests of package abi, and the module is of %s", p.Name(), p.guest.Dialect())
	case len(p.cfg.Converts) != 0 && !converts:
		return fmt.Errorf("plugin %q: configuration: converts is set, but the module has no function %s", p.Name(), abi.Convert)
	case len(p.cfg.Converts) == 0 && converts && !p.functions.Has(abi.Validate) && !p.functions.Has(abi.Mutate):
		return fmt.Errorf("plugin %q: configuration: the module only converts: name the kinds in converts", p.Name())
	}
	return nil
}

// conversionSubject identifies an object of a conversion in messages.
type conversionSubject struct{ apiVersion, kind, namespace, name string }

// subjectOfObject reads the identity of an object, which must be valid JSON.
func subjectOfObject(object []byte) (s conversionSubject) {
	for m := json.Object(object); m.Next(); {
		switch m.Key() {
		case "apiVersion":
			s.apiVersion = m.Value().String()
		case "kind":
			s.kind = m.Value().String()
		case "metadata":
			for m := json.Object(m.Value()); m.Next(); {
				switch m.Key() {
				case "namespace":
					s.namespace = m.Value().String()
				case "name":
					s.name = m.Value().String()
				}
			}
		}
	}
	return s
}

// String returns the subject in the words of users: "CronTab shop/backup of example.com/v1".
func (s conversionSubject) String() string {
	name := subject{kind: s.kind, namespace: s.namespace, name: s.name}
	return oneLine(fmt.Sprintf("%.500s of %.300s", name.String(), s.apiVersion))
}
