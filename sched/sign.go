package sched

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/objects"
)

// signature signs Pods for a guest without that function, so that the scheduler may batch them: two
// Pods have the same signature if they are equal in all data of a Pod that crosses to the guest.
//
// A scheduler signs a Pod when the Pod enters the queue, before any call of the cycle, and uses the
// result of a cycle for the next Pod of the same signature. So the signature covers the fields that
// the guest declares, which the host enforces, and not those that it was seen reading. The results
// for a node must depend only on the Pod and the node: see [Plugin.unsignable].
type signature struct {
	key    string
	fields *objects.Encoder[corev1.Pod]
	// paths are those of the fields.
	paths []string
}

// of returns the signature of a Pod.
func (s *signature) of(pod *corev1.Pod) []SignFragment {
	sum := sha256.Sum256(s.fields.Append(nil, pod))
	return []SignFragment{{Key: s.key, Value: json.RawMessage(`"` + base64.RawStdEncoding.EncodeToString(sum[:]) + `"`)}}
}

// podKind begins the paths of fields of Pods.
const podKind = "pod"

// Functions and imports of a guest for which the host signs Pods.
var (
	// signable are the functions that learn neither the nodes of other Pods nor anything that runs
	// elsewhere.
	signable = abi.MaskOf(abi.Configure, abi.PreEnqueue, abi.QueueSort, abi.EventsToRegister, abi.QueueingHint, abi.PreQueueingHint,
		abi.PreFilter, abi.Filter, abi.PreScore, abi.Score, abi.NormalizeScore, abi.CloneCycle)
	// normalizing are those of signable on which the choice of a node depends.
	normalizing = signable & (choosing | abi.MaskOf(abi.NormalizeScore))
	// aboutArguments are the host functions of the scheduler that answer about the arguments of a call,
	// or belong to functions that are not signable.
	aboutArguments = []string{
		"object", "object_part", "object_entry", "node_info", "node_info_version", "node_images", "node_scores", nodeNamesImport,
		"node_name", "node_statuses", "pod_group", "placement", "result_score", "result_scores", "result_node_names",
		"result_cluster_events", "result_nominated_node_name", "result_sign_fragments", "result_pods", "result_nominations", "result_placements",
	}
)

// nodeNamesImport is the host function that in PreScore returns the nodes that have room.
const nodeNamesImport = "node_names"

// signs decides for the first version of the guest whether the host signs Pods.
func (p *Plugin) signs(inst *host.Instance, declared *objects.FieldSet) {
	if !anonymous(declared) {
		return // Its Pods are all different.
	}
	if err := p.unsignable(inst, declared); err != nil {
		p.logger.Warn("the scheduler batches no Pods of a profile with the plugin", "plugin", inst.Plugin().Name(), "err", err)
		return
	}
	p.signature = &signature{"kubewasm/" + inst.Plugin().Name(), declared.Pod(), declared.OfKind(podKind)}
}

// signedFor returns an error if the results of another version depend on more than the signatures of
// the Pods that are in the queue: the scheduler does not ask for them again.
func (p *Plugin) signedFor(inst *host.Instance, declared *objects.FieldSet) error {
	if p.signature == nil {
		return nil
	}
	err := p.unsignable(inst, declared)
	for _, path := range declared.OfKind(podKind) {
		if err == nil && !slices.Contains(p.signature.paths, path) {
			err = fmt.Errorf("it reads %s", path)
		}
	}
	if err != nil {
		return fmt.Errorf("the version reads more of Pods than the version that signed the queued ones: restart the scheduler: %w", err)
	}
	return nil
}

// anonymous reports whether a guest cannot find out the identity of a Pod.
func anonymous(declared *objects.FieldSet) bool {
	return declared.Without("pod.metadata.name") && declared.Without("pod.metadata.uid")
}

// unsignable returns an error unless the results of a version for a Pod and a node depend only on
// these: not on other nodes and Pods, objects, waiting Pods, time or random numbers. Guest memory
// beyond a cycle is covered by [PluginConfig].DisableResultSharing, as for results that nodes
// share.
func (p *Plugin) unsignable(inst *host.Instance, declared *objects.FieldSet) error {
	m := inst.Module()
	var functions abi.Mask
	for _, f := range (^abi.Mask(0)).Functions() {
		if inst.Implements(f) {
			functions |= abi.MaskOf(f)
		}
	}
	switch more := functions &^ (signable | abi.MaskOf(abi.SignPod)); {
	case m.Export(abi.Marker) == "":
		return errors.New("the guest is one of kube-scheduler-wasm-extension")
	case !anonymous(declared):
		return errors.New("it reads the name or the UID of a Pod")
	case p.cache.disabled.Load():
		return errors.New("results are not shared, or the plugin has the grant clock or random")
	case p.policy == host.Ignore:
		return errors.New("with failurePolicy Ignore a result may come from a failure")
	case more != 0:
		return fmt.Errorf("the guest has %s", more)
	}
	for _, im := range p.imports() {
		if m.Import(im.Module, im.Name) == "" {
			continue
		}
		if !slices.Contains(aboutArguments, im.Name) {
			return fmt.Errorf("the guest imports %s", im.Name)
		}
		if im.Name == nodeNamesImport && functions.Has(abi.PreScore) {
			return errors.New("the guest has prescore and imports node_names: a score may depend on the nodes with room")
		}
	}
	return nil
}

// otherObject ends a call that chooses a node for a Pod that the host has signed, and reads an object
// that is no argument of it.
func (p *Plugin) otherObject(inst *host.Instance, ref abi.Ref) {
	if p.signature == nil || !slices.ContainsFunc(normalizing.Functions(), func(f abi.Function) bool { return f.String() == inst.Calling() }) {
		return
	}
	inst.Abort(fmt.Errorf("slot %d, version %d is not an argument of this call: a guest that does not read pod.metadata.name depends only on its arguments", ref.Slot(), ref.Version()))
}

// SignsLike returns an error unless the plugin may take the place of another in a running scheduler:
// its results depend on more of Pods than those that the other has signed, which the scheduler does not
// ask for again.
func (p *Plugin) SignsLike(before *Plugin) error {
	if before.signature == nil || p.offered&choosing == 0 {
		return nil
	}
	if p.signature == nil {
		return errors.New("its results depend on more than a Pod and a node, and the guest before has signed the queued Pods: restart the scheduler")
	}
	for _, path := range p.signature.paths {
		if !slices.Contains(before.signature.paths, path) {
			return fmt.Errorf("it reads %s, and the guest before has signed the queued Pods without it: restart the scheduler", path)
		}
	}
	return nil
}
