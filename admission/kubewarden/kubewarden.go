package kubewarden

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/dialect"
	"github.com/kubewasm/kubewasm/admission/kubewarden/capabilities"
	"github.com/kubewasm/kubewasm/codec/admissionmsg"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/confidential"
	"github.com/kubewasm/kubewasm/internal/cut"
	"github.com/kubewasm/kubewasm/internal/policyjson"
	"github.com/kubewasm/kubewasm/internal/policymeta"
)

// The names of the dialects, and Member their name in the configuration of a plugin.
const (
	Name     = "kubewarden-wapc"
	NameWASI = "kubewarden-wasi"
	Member   = "kubewarden"
)

// checkGrants returns an error if the policy lacks grants for the objects that its metadata name. It
// only logs operations that are not granted, since authors' tools name some that a policy never
// calls.
func (c *hostCapabilities) checkGrants(m *host.Module) error {
	if err := policymeta.CheckKinds(m, c.sees, c.Cluster != nil); err != nil {
		return err
	}
	metadata, err := policymeta.Of(m)
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

// sees reports whether the policy may see objects of a kind, at least in some namespaces.
func (c *hostCapabilities) sees(kind schema.GroupVersionKind) bool {
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
	// asked is the number of the guest's questions that the host has passed on.
	asked int
}

func exchangeOf(inst host.DialectInstance) *exchange {
	c := dialect.CallOf(inst.Instance)
	e, ok := c.Own.(*exchange)
	if !ok {
		e = &exchange{}
		c.Own = e
	}
	return e
}

// Options are the options of the dialects that a program sets.
type Options struct {
	// Cluster answers the look-ups of policies; without it, they cannot look objects up.
	Cluster admission.Cluster
	// Capabilities answers host capabilities that need more than the cluster and the question; nil
	// answers none of them. A server has one for all plugins.
	Capabilities *capabilities.Provider
}

// New returns the dialects: that of waPC policies, and that of policies that are programs. A
// plugin's configuration for them is a [capabilities.Scope].
func New(o Options) []*dialect.Dialect {
	decode := func(raw json.RawMessage) (any, error) { return dialect.Strict[capabilities.Scope](raw) }
	return []*dialect.Dialect{
		{
			Name: Name, Member: Member, Decode: decode, Rules: policymeta.Rules,
			Detect: func(m *host.Module) bool { return m.Export("__guest_call") != "" },
			Bind: func(p dialect.Plugin) (*dialect.Binding, error) {
				c := newCapabilities(o, p)
				return &dialect.Binding{
					Host: host.Dialect{
						Exports: []host.Export{guestCall: {Name: "__guest_call", Params: i32s(2), Results: i32s(1)}},
						Imports: imports(p.Name, c, p.Logger),
						Start:   []string{"_initialize", "_start", "wapc_init"},
					},
					Mutating: true, Raw: true, Volatile: c.volatile(),
					Check: func(ctx context.Context, inst host.DialectInstance) error {
						if err := c.checkGrants(inst.Module()); err != nil {
							return err
						}
						if err := checkProtocol(ctx, inst); err != nil {
							return err
						}
						answer, err := call(ctx, inst, "validate_settings", orEmpty(p.Settings))
						if err != nil {
							return err
						}
						return checkSettings(answer)
					},
					Ask: func(ctx context.Context, inst host.DialectInstance, req *dialect.Request) (dialect.Verdict, error) {
						answer, err := call(ctx, inst, "validate", payload(req, p.Settings))
						if err != nil {
							return dialect.Verdict{}, err
						}
						return parse(inst, answer)
					},
					Close: c.close,
				}, nil
			},
		},
		{
			Name: NameWASI, Member: Member, Decode: decode, Rules: policymeta.Rules,
			Detect: func(m *host.Module) bool {
				return m.Export("_start") != "" && m.Export("__guest_call") == "" && (executionMode(m) == "wasi" || m.Export("validate") == "")
			},
			Bind: func(p dialect.Plugin) (*dialect.Binding, error) {
				c := newCapabilities(o, p)
				// Programs also call the host by a function, and read the answer from standard input.
				run := func(ctx context.Context, inst host.DialectInstance, operation string, input []byte) ([]byte, error) {
					return inst.Run(ctx, []string{"policy.wasm", operation}, input)
				}
				return &dialect.Binding{
					Host:     host.Dialect{Command: true, Imports: programImports(c)},
					Mutating: true, Raw: true, Volatile: c.volatile(),
					Check: func(ctx context.Context, inst host.DialectInstance) error {
						if err := c.checkGrants(inst.Module()); err != nil {
							return err
						}
						answer, err := run(ctx, inst, "validate-settings", orEmpty(p.Settings))
						if err != nil {
							return err
						}
						return checkSettings(answer)
					},
					Ask: func(ctx context.Context, inst host.DialectInstance, req *dialect.Request) (dialect.Verdict, error) {
						answer, err := run(ctx, inst, "validate", payload(req, p.Settings))
						if err != nil {
							return dialect.Verdict{}, err
						}
						return parse(inst, answer)
					},
					Close: c.close,
				}, nil
			},
		},
	}
}

// executionMode returns the mode in the metadata of a module, empty if there is no readable
// metadata.
func executionMode(m *host.Module) string {
	metadata, _ := policymeta.Of(m)
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
func payload(req *dialect.Request, settings []byte) []byte {
	body := req.JSON()
	o := policyjson.NewObject(make([]byte, 0, len(body)+len(settings)+32))
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
		Valid   policyjson.Field[bool] `json:"valid"`
		Message *policyjson.Text       `json:"message"`
	}
	err := policyjson.Decode(answer, &out)
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
	Accepted         policyjson.Field[bool] `json:"accepted"`
	Message          *policyjson.Text       `json:"message"`
	Code             *uint16                `json:"code"`
	MutatedObject    json.RawMessage        `json:"mutated_object"`
	AuditAnnotations policyjson.TextMap     `json:"audit_annotations"`
	Warnings         []policyjson.Text      `json:"warnings"`
}

func parse(inst host.DialectInstance, answer []byte) (dialect.Verdict, error) {
	var r response
	err := policyjson.Decode(answer, &r)
	if err == nil && !r.Accepted.Present {
		err = errors.New("accepted is missing")
	}
	if err != nil {
		return dialect.Verdict{}, fmt.Errorf("plugin %q: read its answer: %w", inst.Plugin().Name(), err)
	}
	v := dialect.Verdict{Allowed: r.Accepted.Value}
	if len(r.Warnings) != 0 || len(r.AuditAnnotations) != 0 {
		v.Result = &admissionmsg.Result{Warnings: policyjson.Texts(r.Warnings), AuditAnnotations: r.AuditAnnotations}
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
