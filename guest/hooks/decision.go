package hooks

import "github.com/kubewasm/kubewasm/guest/internal/wire"

// Decision is what should change. The zero value changes nothing; what is set by
// a Set method is changed, everything else stays as it is.
//
// The methods that read are for tests.
//
// The message is kubewasm.hooks.v1.Decision of codec/hookpb/hook.proto.
type Decision struct {
	// Resources of the cgroup that the request is about.
	Resources

	annotations Strings
	envs        Strings

	scratch []byte
}

// SetContainerAnnotation adds an annotation to the container, or replaces it.
func (d *Decision) SetContainerAnnotation(key, value string) { d.annotations.set(key, value) }

// ContainerAnnotations returns the annotations that are set.
func (d *Decision) ContainerAnnotations() Strings { return d.annotations }

// SetContainerEnv adds a variable to the container's environment, or replaces
// it. It takes effect at [PreCreateContainer] only.
func (d *Decision) SetContainerEnv(name, value string) { d.envs.set(name, value) }

// ContainerEnvs returns the variables that are set.
func (d *Decision) ContainerEnvs() Strings { return d.envs }

// reset makes d the decision that changes nothing and keeps its memory.
func (d *Decision) reset() {
	*d = Decision{
		Resources:   d.Resources.empty(),
		annotations: d.annotations.empty(),
		envs:        d.envs.empty(),
		scratch:     d.scratch,
	}
}

// append writes the message. The decision that changes nothing is no bytes.
func (d *Decision) append(b []byte) []byte {
	d.scratch = d.Resources.append(d.scratch[:0])
	if len(d.scratch) != 0 {
		b = wire.AppendBytes(b, 1, d.scratch)
	}
	b = d.annotations.append(b, 2)
	return d.envs.append(b, 3)
}
