// Package kubewarden serves unmodified policies of Kubewarden: waPC policies and WASI programs.
//
// A waPC policy exports __guest_call. The host calls it with the name of an operation and a
// payload, and the policy calls host capabilities in the same way. A WASI policy is run with the
// operation as its argument and the payload on standard input. If it uses host capabilities, it
// imports the function call from the module host.
package kubewarden

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/admission/capabilities"
	"github.com/kubewasm/kubewasm/admission/internal/policy"
	"github.com/kubewasm/kubewasm/codec/admissionmsg"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/confidential"
	"github.com/kubewasm/kubewasm/internal/cut"
)

// The names of the dialects.
const (
	Name     = "kubewarden-wapc"
	NameWASI = "kubewarden-wasi"
)

// MetadataSection is the custom section with the metadata of a policy.
const MetadataSection = "io.kubewarden.metadata"

// Metadata is the metadata of a policy.
type Metadata struct {
	ExecutionMode string `json:"executionMode"`
	Mutating      bool   `json:"mutating"`
	// Rules are the operations and resources that the policy is made for, as in a webhook
	// configuration.
	Rules json.RawMessage `json:"rules"`
	// ContextAwareResources are the kinds of the cluster's objects that the policy
	// looks up.
	ContextAwareResources []ContextAwareResource `json:"contextAwareResources"`
	// HostCapabilities are the operations called by the policy, as far as the author's tools detect
	// them.
	HostCapabilities []string `json:"hostCapabilities"`
}

// ContextAwareResource is a kind of objects.
type ContextAwareResource struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

// MetadataOf returns the metadata of a module, empty if it has none.
func MetadataOf(m *host.Module) (Metadata, error) {
	var metadata Metadata
	section := m.Custom(MetadataSection)
	if section == nil {
		return metadata, nil
	}
	if err := policy.Decode(section, &metadata); err != nil {
		return Metadata{}, fmt.Errorf("read the custom section %s: %w", MetadataSection, err)
	}
	return metadata, nil
}

// CheckKinds returns an error if the policy lacks grants for the objects that its metadata name. It
// would get an error or find nothing, and decide on that.
func (c *Capabilities) CheckKinds(m *host.Module) error {
	metadata, err := MetadataOf(m)
	if err != nil {
		return err
	}
	var missing []string
	for _, r := range metadata.ContextAwareResources {
		gv, err := schema.ParseGroupVersion(r.APIVersion)
		if err != nil {
			return fmt.Errorf("read the custom section %s: contextAwareResources: %w", MetadataSection, err)
		}
		if !c.Sees(gv.WithKind(r.Kind)) {
			missing = append(missing, r.APIVersion+" "+r.Kind)
		}
	}
	switch {
	case len(missing) != 0:
		return fmt.Errorf("the policy looks up objects that contextAwareResources of its configuration does not grant: %.1000s", strings.Join(missing, ", "))
	case len(metadata.ContextAwareResources) != 0 && c.Cluster == nil:
		return errors.New("the policy looks up objects of its contextAwareResources, and the host has no cluster to look at")
	}
	return nil
}

// CheckGrants is CheckKinds for a policy that calls its host. It only logs operations that are not
// granted, since authors' tools name some that a policy never calls.
func (c *Capabilities) CheckGrants(m *host.Module) error {
	if err := c.CheckKinds(m); err != nil {
		return err
	}
	metadata, err := MetadataOf(m)
	if err != nil {
		return err
	}
	scope := c.Caller.Scope()
	refused := func(operation string) bool { return scope.MayCall(operation) != nil }
	if looks := []string{capabilities.GetResource, capabilities.ListAll, capabilities.ListByNamespace}; len(scope.ContextAwareResources) != 0 && !slices.ContainsFunc(looks, func(o string) bool { return !refused(o) }) {
		return fmt.Errorf("contextAwareResources need one of %s in hostCapabilities", strings.Join(looks, ", "))
	}
	if missing := slices.DeleteFunc(metadata.HostCapabilities, func(o string) bool { return !refused(o) }); len(missing) != 0 && c.Logger != nil {
		c.Logger.Warn("hostCapabilities do not grant what the policy's metadata name", "plugin", c.Plugin, "missing", strings.Join(missing[:min(len(missing), 16)], ", "))
	}
	return nil
}

// Sees reports whether the policy may see objects of a kind, at least in some namespaces.
func (c *Capabilities) Sees(kind schema.GroupVersionKind) bool {
	return slices.ContainsFunc(c.Caller.Scope().ContextAwareResources, func(k capabilities.Kind) bool { return k.GroupVersionKind() == kind })
}

const (
	module                     = "wapc"
	guestCall host.ExportIndex = 0 // The index of the export.
)

// exchange holds the data that an instance and the host exchange in a call. Data of the guest is
// copied from its memory.
type exchange struct {
	operation, payload []byte
	response           []byte
	failure            []byte
	// hostResponse and hostError are the answer to the last call of the host.
	hostResponse, hostError []byte
	// shape is the shape of the objects in the answer, nil if it has none.
	shape *confidential.Shape
}

func exchangeOf(inst host.DialectInstance) *exchange {
	c := policy.CallOf(inst.Instance)
	e, ok := c.Own.(*exchange)
	if !ok {
		e = &exchange{}
		c.Own = e
	}
	return e
}

// New returns the dialect of waPC policies. c implements the host capabilities; logger receives the
// policy's messages.
func New(plugin string, c *Capabilities, logger *slog.Logger) *policy.Dialect {
	return &policy.Dialect{
		Host: host.Dialect{
			Name:    Name,
			Detect:  func(m *host.Module) bool { return m.Export("__guest_call") != "" },
			Exports: []host.Export{guestCall: {Name: "__guest_call", Params: i32s(2), Results: i32s(1)}},
			Imports: imports(plugin, c, logger),
			Start:   []string{"_initialize", "_start", "wapc_init"},
		},
		Mutating: true,
		Raw:      true,
		Check: func(ctx context.Context, inst host.DialectInstance, settings []byte) error {
			if err := c.CheckGrants(inst.Module()); err != nil {
				return err
			}
			defer policy.CallOf(inst.Instance).Reset()
			if err := checkProtocol(ctx, inst); err != nil {
				return err
			}
			answer, err := call(ctx, inst, "validate_settings", orEmpty(settings))
			if err != nil {
				return err
			}
			return checkSettings(answer)
		},
		Ask: func(ctx context.Context, inst host.DialectInstance, settings []byte, req *policy.Request) (policy.Verdict, error) {
			answer, err := call(ctx, inst, "validate", payload(req, settings))
			if err != nil {
				return policy.Verdict{}, err
			}
			return parse(inst, answer)
		},
	}
}

// NewWASI returns the dialect of policies that are programs. They also call the host by a function,
// and read the answer from standard input.
func NewWASI(c *Capabilities) *policy.Dialect {
	run := func(ctx context.Context, inst host.DialectInstance, operation string, input []byte) ([]byte, error) {
		return inst.Run(ctx, []string{"policy.wasm", operation}, input)
	}
	return &policy.Dialect{
		Host: host.Dialect{
			Name: NameWASI,
			Detect: func(m *host.Module) bool {
				return m.Export("_start") != "" && m.Export("__guest_call") == "" && (executionMode(m) == "wasi" || m.Export("validate") == "")
			},
			Command: true,
			Imports: programImports(c),
		},
		Mutating: true,
		Raw:      true,
		Check: func(ctx context.Context, inst host.DialectInstance, settings []byte) error {
			if err := c.CheckGrants(inst.Module()); err != nil {
				return err
			}
			defer policy.CallOf(inst.Instance).Reset()
			answer, err := run(ctx, inst, "validate-settings", orEmpty(settings))
			if err != nil {
				return err
			}
			return checkSettings(answer)
		},
		Ask: func(ctx context.Context, inst host.DialectInstance, settings []byte, req *policy.Request) (policy.Verdict, error) {
			answer, err := run(ctx, inst, "validate", payload(req, settings))
			if err != nil {
				return policy.Verdict{}, err
			}
			return parse(inst, answer)
		},
	}
}

// executionMode returns the mode in the metadata of a module, empty if there is no readable
// metadata.
func executionMode(m *host.Module) string {
	metadata, _ := MetadataOf(m)
	return metadata.ExecutionMode
}

func i32s(n int) []abi.ValueType {
	types := make([]abi.ValueType, n)
	for i := range types {
		types[i] = abi.I32
	}
	return types
}

func orEmpty(settings []byte) []byte {
	if len(settings) == 0 {
		return []byte("{}")
	}
	return settings
}

// payload encodes the input of a policy's validation.
func payload(req *policy.Request, settings []byte) []byte {
	body := req.JSON()
	o := policy.NewObject(make([]byte, 0, len(body)+len(settings)+32))
	o.Raw("request", body)
	o.Raw("settings", orEmpty(settings))
	return o.End()
}

// call calls a waPC guest. The caller owns the answer.
func call(ctx context.Context, inst host.DialectInstance, operation string, payload []byte) ([]byte, error) {
	e := exchangeOf(inst)
	*e = exchange{operation: []byte(operation), payload: payload}
	ok, err := inst.CallExport(ctx, guestCall, uint64(len(operation)), uint64(len(payload)))
	if err != nil {
		return nil, err
	}
	answer, failure := e.response, e.failure
	*e = exchange{}
	if ok != 1 {
		reason := cut.Text(failure, inst.Limits().OutputBytes)
		if reason == "" {
			reason = "no reason given"
		}
		return nil, fmt.Errorf("plugin %q: %s: guest call failed: %s", inst.Plugin().Name(), operation, reason)
	}
	return answer, nil
}

func checkProtocol(ctx context.Context, inst host.DialectInstance) error {
	answer, err := call(ctx, inst, "protocol_version", []byte("{}"))
	if err != nil {
		return err
	}
	var version string
	if err := json.Unmarshal(answer, &version); err != nil || version != "v1" {
		return fmt.Errorf("the policy speaks protocol %.50q, want \"v1\"", answer)
	}
	return nil
}

// maxMessageBytes bounds the kept part of a message about invalid settings.
const maxMessageBytes = 16 << 10

func checkSettings(answer []byte) error {
	var out struct {
		Valid   policy.Field[bool] `json:"valid"`
		Message *policy.Text       `json:"message"`
	}
	err := policy.Decode(answer, &out)
	if err == nil && !out.Valid.Present {
		err = errors.New("valid is missing")
	}
	switch {
	case err != nil:
		return fmt.Errorf("read the answer about settings: %w", err)
	case out.Valid.Value:
		return nil
	case out.Message == nil:
		return errors.New("settings are not valid")
	}
	return fmt.Errorf("settings are not valid: %s", cut.Text(*out.Message, maxMessageBytes))
}

// response is the verdict of a policy.
type response struct {
	Accepted         policy.Field[bool] `json:"accepted"`
	Message          *policy.Text       `json:"message"`
	Code             *uint16            `json:"code"`
	MutatedObject    json.RawMessage    `json:"mutated_object"`
	AuditAnnotations policy.TextMap     `json:"audit_annotations"`
	Warnings         []policy.Text      `json:"warnings"`
}

func parse(inst host.DialectInstance, answer []byte) (policy.Verdict, error) {
	var r response
	err := policy.Decode(answer, &r)
	if err == nil && !r.Accepted.Present {
		err = errors.New("accepted is missing")
	}
	if err != nil {
		return policy.Verdict{}, fmt.Errorf("plugin %q: read its answer: %w", inst.Plugin().Name(), err)
	}
	v := policy.Verdict{Allowed: r.Accepted.Value}
	if len(r.Warnings) != 0 || len(r.AuditAnnotations) != 0 {
		v.Result = &admissionmsg.Result{Warnings: policy.Texts(r.Warnings), AuditAnnotations: r.AuditAnnotations}
	}
	if !v.Allowed {
		if r.Message != nil {
			v.Message = string(*r.Message)
		}
		if r.Code != nil {
			v.Code = uint32(*r.Code)
		}
		return v, nil
	}
	if len(r.MutatedObject) != 0 && string(r.MutatedObject) != "null" {
		v.Object = r.MutatedObject
	}
	return v, nil
}
