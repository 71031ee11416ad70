package core

import "iter"

// AllContainers returns every container of a Pod: init containers, containers and
// ephemeral containers, in this order. An ephemeral container, which a user adds to a
// running Pod, has all fields of a Container.
func (p PodSpec) AllContainers() iter.Seq[Container] {
	return func(yield func(Container) bool) {
		for _, c := range p.InitContainers() {
			if !yield(c) {
				return
			}
		}
		for _, c := range p.Containers() {
			if !yield(c) {
				return
			}
		}
		for _, c := range p.EphemeralContainers() {
			if !yield(c.Container()) {
				return
			}
		}
	}
}

// Container returns the ephemeral container as one of the others: the fields of
// EphemeralContainerCommon are those of Container, with the same numbers.
func (e EphemeralContainer) Container() Container { return Container(e.EphemeralContainerCommon()) }
