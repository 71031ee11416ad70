package admission

import (
	"context"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/admissionpb"
	"github.com/kubewasm/kubewasm/host"
)

// Plugin is a guest that validates requests. It is safe for use by several
// goroutines.
type Plugin struct {
	guest  *host.Plugin
	policy FailurePolicy
}

// PluginConfig says which module a plugin is and what its failures mean.
type PluginConfig struct {
	// Module is the plugin's module, name, configuration and limits. Its Kind,
	// Imports and NewState belong to this package and must be empty. The
	// default of Limits.ResultBytes is [DefaultResultBytes].
	Module host.Config
	// FailurePolicy says what becomes of a request on which the plugin fails.
	FailurePolicy FailurePolicy
}

// DefaultResultBytes is how long the messages of a guest about one verdict may
// be, unless its limits say otherwise: what Kubernetes allows the annotations of
// an object.
const DefaultResultBytes = 256 << 10

// FailurePolicy says what becomes of a request on which a plugin fails: it
// trapped, was not done in time, answered by no rule of the ABI, or said itself
// that it could not decide. A denial is not a failure.
type FailurePolicy uint8

const (
	// Fail denies the request with 500 and the reason.
	Fail FailurePolicy = iota
	// Ignore goes on as if the plugin had allowed the request, with a warning.
	Ignore
)

// String returns the name that the policy has in Kubernetes.
func (p FailurePolicy) String() string {
	switch p {
	case Fail:
		return "Fail"
	case Ignore:
		return "Ignore"
	}
	return fmt.Sprintf("FailurePolicy(%d)", uint8(p))
}

// Load makes a plugin of a module.
//
// Errors are those of [host.Runtime.Load].
func Load(ctx context.Context, rt *host.Runtime, cfg PluginConfig) (*Plugin, error) {
	var errs []error
	if m := &cfg.Module; m.Kind != 0 || m.Imports != nil || m.NewState != nil {
		errs = append(errs, errors.New("module.kind, module.imports and module.newState must be empty"))
	}
	if cfg.FailurePolicy > Ignore {
		errs = append(errs, fmt.Errorf("failurePolicy is %s, want Fail or Ignore", cfg.FailurePolicy))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("plugin %q: configuration: %w", cfg.Module.Name, err)
	}
	module := cfg.Module
	module.Kind = abi.KindAdmission
	module.Imports = imports
	module.NewState = func() any { return new(call) }
	if module.Limits.ResultBytes == 0 {
		module.Limits.ResultBytes = DefaultResultBytes
	}
	guest, err := rt.Load(ctx, module)
	if err != nil {
		return nil, err
	}
	return &Plugin{guest: guest, policy: cfg.FailurePolicy}, nil
}

// Name returns the name under which the plugin was loaded.
func (p *Plugin) Name() string { return p.guest.Name() }

// Close waits until ctx ends for the calls that run, and frees the guest.
func (p *Plugin) Close(ctx context.Context) error { return p.guest.Close(ctx) }

// call is what an instance of a guest is asked about, and what it said about its
// verdict.
type call struct {
	request *admissionv1.AdmissionRequest
	// envelope is the encoded request.
	envelope []byte
	result   *admissionpb.Result
}

func callOf(inst *host.Instance) *call { return inst.State().(*call) }

// imports are the host functions of an admission plugin. Between calls there is
// no request, which a guest reads as nothing.
var imports = []host.Import{
	host.GuestReads(abi.ModuleAdmission, abi.ImportRequest, func(inst *host.Instance) []byte {
		return callOf(inst).envelope
	}),
	host.GuestReads(abi.ModuleAdmission, abi.ImportAdmissionObject, func(inst *host.Instance) []byte {
		if r := callOf(inst).request; r != nil {
			return r.Object.Raw
		}
		return nil
	}),
	host.GuestReads(abi.ModuleAdmission, abi.ImportOldObject, func(inst *host.Instance) []byte {
		if r := callOf(inst).request; r != nil {
			return r.OldObject.Raw
		}
		return nil
	}),
	host.GuestReads(abi.ModuleAdmission, abi.ImportOptions, func(inst *host.Instance) []byte {
		if r := callOf(inst).request; r != nil {
			return r.Options.Raw
		}
		return nil
	}),
	host.GuestWrites(abi.ModuleAdmission, abi.ImportResult, func(inst *host.Instance, data []byte) {
		result, err := admissionpb.ParseResult(data)
		if err != nil {
			inst.Violate(err)
		}
		callOf(inst).result = result // The last one counts.
	}),
}

// verdict is what one plugin said about a request.
type verdict struct {
	allowed bool
	code    uint32
	message string
	// result is nil if the plugin had nothing more to say.
	result *admissionpb.Result
	// failure says why there is no verdict.
	failure error
}

// ask asks the guest. envelope is the encoding of request.
//
// 0 allocs when the guest allows the request: TestAllowAllocatesTheAnswerOnly.
func (p *Plugin) ask(ctx context.Context, request *admissionv1.AdmissionRequest, envelope []byte) (v verdict) {
	// A fault of ours in one plugin's call must not take the server down, and
	// here it is known whose call it was.
	defer func() {
		if r := recover(); r != nil {
			v = verdict{failure: fmt.Errorf("plugin %q: host panicked: %v", p.Name(), r)}
		}
	}()
	inst, err := p.guest.Acquire(ctx)
	if err != nil {
		return verdict{failure: err}
	}
	defer inst.Release()
	c := callOf(inst)
	*c = call{request: request, envelope: envelope}
	defer func() { *c = call{} }()
	packed, err := inst.Call(ctx, abi.Validate)
	if err != nil {
		return verdict{failure: err}
	}
	switch code, number := abi.UnpackVerdict(packed); number {
	case abi.VerdictAllow:
		return verdict{allowed: true, result: c.result}
	case abi.VerdictDeny:
		return verdict{code: code, message: inst.Reason(), result: c.result}
	case abi.VerdictError:
		reason := inst.Reason()
		if reason == "" {
			reason = "no reason given"
		}
		return verdict{failure: fmt.Errorf("plugin %q: could not decide: %s", p.Name(), reason)}
	default:
		return verdict{failure: fmt.Errorf("plugin %q: %s returned verdict %d, want %d, %d or %d", p.Name(), abi.Validate, number, abi.VerdictAllow, abi.VerdictError, abi.VerdictDeny)}
	}
}
