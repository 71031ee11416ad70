package admission

import (
	"cmp"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/admission/internal/policy"
	"github.com/kubewasm/kubewasm/codec/admissionmsg"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/objects/lookup"
)

// maxResultBytes bounds the messages of a guest about one verdict: the size that Kubernetes allows
// for the annotations of an object. Limits.ResultBytes bounds patches and objects instead.
const maxResultBytes = 256 << 10

// hostFunctions returns the host functions of a plugin.
func (p *Plugin) hostFunctions() []host.Import {
	return slices.Concat(ofRequest, lookup.Imports(abi.ModuleObjects, lookup.Snapshots{Kept: &p.kept, Looked: looked}))
}

// ofRequest are the host functions about a request. Between calls there is no request, and guests
// read empty values.
var ofRequest = []host.Import{
	host.ToGuest(abi.KindAdmission.Module(), "request", func(inst *host.Instance) []byte { return asked(inst).Envelope }),
	host.ToGuest(abi.KindAdmission.Module(), "object", func(inst *host.Instance) []byte {
		confide(inst)
		return asked(inst).Object.Raw
	}),
	host.ToGuest(abi.KindAdmission.Module(), "old_object", func(inst *host.Instance) []byte {
		confide(inst)
		return asked(inst).OldObject.Raw
	}),
	host.ToGuest(abi.KindAdmission.Module(), "options", func(inst *host.Instance) []byte { return asked(inst).Options.Raw }),
	host.ToGuest(abi.KindAdmission.Module(), "object_proto", func(inst *host.Instance) []byte {
		object, _ := protoOf(inst)
		confide(inst)
		return object
	}),
	host.ToGuest(abi.KindAdmission.Module(), "old_object_proto", func(inst *host.Instance) []byte {
		_, old := protoOf(inst)
		confide(inst)
		return old
	}),
	host.FromGuest(abi.KindAdmission.Module(), "result", func(inst *host.Instance, data []byte) {
		if len(data) > maxResultBytes {
			inst.Abort(fmt.Errorf("result has %d bytes, more than %d", len(data), maxResultBytes))
		}
		if policy.CallOf(inst).Desired != "" {
			inst.Abort(fmt.Errorf("%s has only a reason as its result", abi.Convert))
		}
		result, err := admissionmsg.ParseResult(data)
		if err != nil {
			inst.Abort(err)
		}
		policy.CallOf(inst).Result = result // The last one counts.
	}),
	host.FromGuest(abi.KindAdmission.Module(), "patch", func(inst *host.Instance, data []byte) {
		c := mutation(inst)
		inst.Keep(len(data) - len(c.Patch) - len(c.Mutant))
		c.Patch, c.Mutant = append([]byte{}, data...), nil
	}),
	host.FromGuest(abi.KindAdmission.Module(), "mutated_object", func(inst *host.Instance, data []byte) {
		c := mutation(inst)
		inst.Keep(len(data) - len(c.Patch) - len(c.Mutant))
		c.Patch, c.Mutant = nil, append([]byte{}, data...)
	}),
	host.ToGuest(abi.KindAdmission.Module(), "desired_api_version", func(inst *host.Instance) []byte {
		return []byte(policy.CallOf(inst).Desired)
	}),
}

// none is the request between calls.
var none = policy.About(new(admissionv1.AdmissionRequest))

// asked returns the request of the current call.
func asked(inst *host.Instance) *policy.Request { return cmp.Or(policy.CallOf(inst).Request, none) }

// confide declares the confidential values in the objects of the request, one of which the guest
// gets next.
func confide(inst *host.Instance) {
	if r := asked(inst); r != none {
		inst.Confidential(inst.Rule().ShapeOf(r.Kind.Group, r.Kind.Kind), 0, false)
	}
}

// protoOf returns the objects as protobuf.
func protoOf(inst *host.Instance) (object, old []byte) {
	c := policy.CallOf(inst)
	if !c.Fetched && c.Request != nil {
		var err error
		if c.Object, c.OldObject, err = c.Request.Proto(); err != nil {
			inst.Abort(err)
		}
		c.Fetched = true
	}
	return c.Object, c.OldObject
}

// mutation returns the call that may change the object.
func mutation(inst *host.Instance) *policy.Call {
	c := policy.CallOf(inst)
	if !c.Mutating && c.Desired == "" {
		inst.Abort(fmt.Errorf("only %s and %s change the object", abi.Mutate, abi.Convert))
	}
	return c
}
