package admission

import (
	"iter"

	"github.com/kubewasm/kubewasm/guest/admission/field"
	"github.com/kubewasm/kubewasm/guest/api/apps"
	"github.com/kubewasm/kubewasm/guest/api/batch"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/api/meta"
	"github.com/kubewasm/kubewasm/internal/json"
)

// Pod is a Pod, or the Pod template of a workload. It is valid during the call, as its
// object is.
type Pod struct {
	metadata meta.ObjectMeta
	spec     core.PodSpec
	path     *field.Path
}

// PodOf returns the Pod of a request: its object, or the template of a Deployment,
// ReplicaSet, StatefulSet, DaemonSet, Job, CronJob, ReplicationController or PodTemplate.
// ok is false for all other objects, and if there is no object.
//
// Requests for the subresources ephemeralcontainers (kubectl debug), resize and status of a Pod
// also have the whole Pod. Those for other subresources have different objects: exec a
// PodExecOptions, binding a Binding, scale of a workload a Scale.
func PodOf(req *Request) (pod Pod, ok bool) { return podIn(req.Kind(), req.Object()) }

// OldPodOf is [PodOf] for the old object.
func OldPodOf(req *Request) (pod Pod, ok bool) { return podIn(req.Kind(), req.OldObject()) }

func podIn(kind GroupVersionKind, object []byte) (Pod, bool) {
	if object == nil {
		return Pod{}, false
	}
	if kind.Kind == "" { // The review was written by hand.
		kind = kindOf(object)
	}
	template := func(t core.PodTemplateSpec, name string, more ...string) (Pod, bool) {
		return Pod{t.Metadata(), t.Spec(), field.NewPath(name, more...)}, true
	}
	switch kind {
	case GroupVersionKind{"", "v1", "Pod"}:
		pod := core.PodFromJSON(object)
		return Pod{pod.Metadata(), pod.Spec(), nil}, true
	case GroupVersionKind{"apps", "v1", "Deployment"}:
		return template(apps.DeploymentFromJSON(object).Spec().Template(), "spec", "template")
	case GroupVersionKind{"apps", "v1", "ReplicaSet"}:
		return template(apps.ReplicaSetFromJSON(object).Spec().Template(), "spec", "template")
	case GroupVersionKind{"apps", "v1", "StatefulSet"}:
		return template(apps.StatefulSetFromJSON(object).Spec().Template(), "spec", "template")
	case GroupVersionKind{"apps", "v1", "DaemonSet"}:
		return template(apps.DaemonSetFromJSON(object).Spec().Template(), "spec", "template")
	case GroupVersionKind{"batch", "v1", "Job"}:
		return template(batch.JobFromJSON(object).Spec().Template(), "spec", "template")
	case GroupVersionKind{"batch", "v1", "CronJob"}:
		return template(batch.CronJobFromJSON(object).Spec().JobTemplate().Spec().Template(), "spec", "jobTemplate", "spec", "template")
	case GroupVersionKind{"", "v1", "ReplicationController"}:
		return template(core.ReplicationControllerFromJSON(object).Spec().Template(), "spec", "template")
	case GroupVersionKind{"", "v1", "PodTemplate"}:
		return template(core.PodTemplateFromJSON(object).Template(), "template")
	}
	return Pod{}, false
}

// kindOf returns the kind that an object names.
func kindOf(object []byte) (kind GroupVersionKind) {
	for m := json.Object(object); m.Next(); {
		switch m.Key() {
		case "apiVersion":
			kind.Version = m.Value().String()
			for i := range kind.Version {
				if kind.Version[i] == '/' {
					kind.Group, kind.Version = kind.Version[:i], kind.Version[i+1:]
					break
				}
			}
		case "kind":
			kind.Kind = m.Value().String()
		}
	}
	return kind
}

// Metadata returns the metadata of the Pod, for a workload those of its template.
func (p Pod) Metadata() meta.ObjectMeta { return p.metadata }

// Spec returns the spec of the Pod.
func (p Pod) Spec() core.PodSpec { return p.spec }

// Path returns the path of the Pod in the object: nil, the root, for a Pod, and
// spec.template or the like for a workload. Child("metadata") and Child("spec") are
// its parts.
func (p Pod) Path() *field.Path { return p.path }

// ContainerList is a list of a Pod's containers.
type ContainerList string

// The lists that a Pod has.
const (
	InitContainers      ContainerList = "initContainers"
	Containers          ContainerList = "containers"
	EphemeralContainers ContainerList = "ephemeralContainers"
)

// Container is a container of a Pod. An ephemeral container has all fields of the others.
type Container struct {
	core.Container
	list  ContainerList
	index int
	pod   *field.Path
}

// List returns the list of the Pod that has the container.
func (c Container) List() ContainerList { return c.list }

// Path returns the path of the container in the object: spec.containers[0],
// spec.template.spec.initContainers[1].
func (c Container) Path() *field.Path {
	return c.pod.Child("spec", string(c.list)).Index(c.index)
}

// AllContainers returns every container of the Pod: init containers, containers and
// ephemeral containers, in this order.
func (p Pod) AllContainers() iter.Seq[Container] {
	return func(yield func(Container) bool) {
		for i, c := range p.spec.InitContainers() {
			if !yield(Container{c, InitContainers, i, p.path}) {
				return
			}
		}
		for i, c := range p.spec.Containers() {
			if !yield(Container{c, Containers, i, p.path}) {
				return
			}
		}
		for i, c := range p.spec.EphemeralContainers() {
			if !yield(Container{c.Container(), EphemeralContainers, i, p.path}) {
				return
			}
		}
	}
}
