package core

import (
	"strings"

	"github.com/kubewasm/kubewasm/guest/api/resource"
	"github.com/kubewasm/kubewasm/guest/view"
)

// ResourceList is amounts of resources by their names.
type ResourceList map[string]resource.Quantity

// add adds each amount of a list.
func (l ResourceList) add(list view.Map[resource.Quantity]) {
	for name, amount := range list.All {
		sum := l[name]
		sum.Add(amount)
		l[name] = sum
	}
}

// addAll adds each amount of another list.
func (l ResourceList) addAll(other ResourceList) {
	for name, amount := range other {
		sum := l[name]
		sum.Add(amount)
		l[name] = sum
	}
}

// max raises each amount to that of another list.
func (l ResourceList) max(other ResourceList) {
	for name, amount := range other {
		if have, ok := l[name]; !ok || amount.Cmp(have) > 0 {
			l[name] = amount
		}
	}
}

// Requests returns the resources that the Pod requests of a node, as the scheduler computes them
// for a Pod that it has to place (k8s.io/component-helpers/resource.PodRequests). They are the sum
// of the containers or, if that is more, an init container with the sidecars before it; the
// requests of the Pod as a whole, if set, replace these; and its overhead is added. The status of a
// running Pod does not count.
func (p Pod) Requests() ResourceList {
	spec := p.Spec()
	sum := ResourceList{}
	for _, c := range spec.Containers() {
		sum.add(c.Resources().Requests())
	}
	// Init containers run one after the other, but beside the sidecars that were
	// started before.
	sidecars, peak := ResourceList{}, ResourceList{}
	for _, c := range spec.InitContainers() {
		if c.isSidecar() {
			sum.add(c.Resources().Requests())
			sidecars.add(c.Resources().Requests())
			peak.max(sidecars)
			continue
		}
		together := ResourceList{}
		together.add(c.Resources().Requests())
		together.addAll(sidecars)
		peak.max(together)
	}
	sum.max(peak)
	for name, amount := range spec.Resources().Requests().All {
		if isOfPod(name) {
			sum[name] = amount
		}
	}
	sum.add(spec.Overhead())
	return sum
}

// isOfPod reports whether a resource may be that of a Pod as a whole.
func isOfPod(name string) bool {
	return name == ResourceCPU || name == ResourceMemory || strings.HasPrefix(name, ResourceHugePagesPrefix)
}

// isSidecar reports whether an init container runs as long as the Pod does.
func (c Container) isSidecar() bool { return c.RestartPolicy() == ContainerRestartPolicyAlways }

// HostPorts returns the ports that the Pod takes on its node: those with a host
// port of sidecars and containers, in this order.
func (p Pod) HostPorts() []ContainerPort {
	var ports []ContainerPort
	take := func(c Container) {
		for _, port := range c.Ports() {
			if port.HostPort() > 0 {
				ports = append(ports, port)
			}
		}
	}
	spec := p.Spec()
	for _, c := range spec.InitContainers() {
		if c.isSidecar() {
			take(c)
		}
	}
	for _, c := range spec.Containers() {
		take(c)
	}
	return ports
}

// ConflictsOnHost reports whether two ports cannot both be taken on one node: the number and the
// protocol are the same, and so is the address, unless one of them is for all addresses.
func (c ContainerPort) ConflictsOnHost(other ContainerPort) bool {
	const all = "0.0.0.0"
	protocol := func(p ContainerPort) string {
		if s := p.Protocol(); s != "" {
			return s
		}
		return ProtocolTCP
	}
	address := func(p ContainerPort) string {
		if s := p.HostIP(); s != "" {
			return s
		}
		return all
	}
	if c.HostPort() <= 0 || c.HostPort() != other.HostPort() || protocol(c) != protocol(other) {
		return false
	}
	a, b := address(c), address(other)
	return a == b || a == all || b == all
}

// QOSClass returns the QoS class of the Pod: that of its status, which the API server sets, or else the
// one that Kubernetes computes of its resources. It is PodQOSGuaranteed, PodQOSBurstable or
// PodQOSBestEffort.
func (p Pod) QOSClass() string {
	if class := p.Status().QOSClass(); class != "" {
		return class
	}
	spec := p.Spec()
	if r := spec.Resources(); r.ofPod() {
		return r.qosClass()
	}
	class := ""
	for _, list := range [...][]Container{spec.InitContainers(), spec.Containers()} {
		for _, c := range list {
			class = commonClass(class, c.Resources().qosClass())
		}
	}
	if class == "" {
		return PodQOSBestEffort
	}
	return class
}

// ofPod reports whether there is a resource that counts for a Pod as a whole.
func (r ResourceRequirements) ofPod() bool {
	for _, list := range [...]view.Map[resource.Quantity]{r.Requests(), r.Limits()} {
		for name := range list.All {
			if isOfPod(name) {
				return true
			}
		}
	}
	return false
}

// qosClass returns the class of a Pod with these requirements alone.
func (r ResourceRequirements) qosClass() (class string) {
	requests, limits := r.Requests(), r.Limits()
	for _, name := range [...]string{ResourceCPU, ResourceMemory} {
		request, _ := requests.Lookup(name)
		limit, _ := limits.Lookup(name)
		of := PodQOSGuaranteed
		if request.Cmp(limit) != 0 {
			of = PodQOSBurstable
		} else if request.IsZero() {
			of = PodQOSBestEffort
		}
		class = commonClass(class, of)
	}
	return class
}

// commonClass returns the class of two parts of a Pod, of which the first may be empty.
func commonClass(a, b string) string {
	if a == "" || a == b {
		return b
	}
	return PodQOSBurstable
}
