package sched

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/objects"
)

// What a guest is not fit for whose answers may depend on more than a Pod and a node.
var (
	errSigned     = errors.New("signByProjection")
	errRemembered = errors.New("rememberByProjection")
)

// elsewhere are the host functions by which a guest learns about other things than
// its arguments.
var elsewhere = []string{
	abi.ImportNodeByName, abi.ImportGetObject, abi.ImportListObjects, abi.ImportWaitingPods, abi.ImportWaitingPod,
}

// signable reports every reason why the Pods of a version of the guest cannot be
// signed by what it reads of them.
func signable(inst *host.Instance, projection *objects.Projection) error {
	err := ofProjection(inst, projection, errSigned)
	if inst.Implements(abi.SignPod) {
		err = errors.Join(err, fmt.Errorf("%w: the guest signs Pods itself", errSigned))
	}
	return err
}

// ofProjection reports every reason why the answers of a version of the guest may
// depend on more than what it reads of a Pod and a node.
func ofProjection(inst *host.Instance, projection *objects.Projection, what error) error {
	var errs []error
	refuse := func(wrong bool, text string, values ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf("%w: "+text, append([]any{what}, values...)...))
		}
	}
	refuse(inst.Module().Export(abi.Marker) == "", "a guest of the peer's ABI has no projection")
	for _, f := range []abi.Function{abi.AddPod, abi.RemovePod} {
		refuse(inst.Implements(f), "the guest has %s: what it says about a Pod depends on others", f)
	}
	for _, name := range elsewhere {
		imported := inst.Module().Import(abi.ModuleScheduler, name) + inst.Module().Import(abi.ModuleObjects, name)
		refuse(imported != "", "the guest imports %s: what it says about a Pod depends on more than the Pod and the node", name)
	}
	_, named, _ := projection.DeclaredPod(&corev1.Pod{})
	refuse(!named, "the projection names no field of Pods, so no two Pods are alike")
	return errors.Join(errs...)
}

// signByProjection signs a Pod by the fields that the guest reads.
func (p *plugin) signByProjection(pod *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	b, ok, err := p.objects.Projection().DeclaredPod(pod)
	switch {
	case err != nil:
		return nil, fwk.AsStatus(err)
	case !ok:
		return nil, fwk.NewStatus(fwk.Unschedulable, "no fields of Pods are named")
	}
	// In JSON it is base64.
	return []fwk.SignFragment{{Key: string(p.key), Value: b}}, nil
}
