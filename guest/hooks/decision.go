package hooks

import "github.com/kubewasm/kubewasm/guest/internal/wire"

// Decision is the changes of a plugin. The Set methods set the values to change;
// everything else stays the same. The zero value changes nothing.
//
// Everything except the Resources needs a grant of the plugin's operator; without
// it the host refuses the decision. //kubewasm:decides declares the fields, see the
// command kubewasm, so that a missing grant is found when the guest is loaded.
//
// The methods that read are for tests.
//
// The message is kubewasm.hooks.v1.Decision of abi/hook.proto.
type Decision struct {
	// Resources of the cgroup of the request.
	Resources

	annotations Strings
	envs        Strings
	mounts      []Mount
	devices     []Device

	scratch []byte
}

// SetContainerAnnotation adds an annotation to the container, or replaces it.
func (d *Decision) SetContainerAnnotation(key, value string) { d.annotations.set(key, value) }

// ContainerAnnotations returns the annotations that are set.
func (d *Decision) ContainerAnnotations() Strings { return d.annotations }

// SetContainerEnv adds a variable to the container's environment, or replaces
// it. It takes effect at [abi.PreCreateContainer] only.
func (d *Decision) SetContainerEnv(name, value string) { d.envs.set(name, value) }

// ContainerEnvs returns the variables that are set.
func (d *Decision) ContainerEnvs() Strings { return d.envs }

// Mount is a mount of a container, as in the mounts of the OCI runtime
// specification.
type Mount struct {
	// Destination is the path in the container, absolute and clean.
	Destination string
	// Source is the source of the mount: for a bind mount, a path on the node.
	Source string
	// Type is that of the file system: "bind", "tmpfs".
	Type string
	// Options are mount options: "bind", "ro". With rbind, ro leaves the mounts below
	// the source writable.
	Options []string
}

// AddContainerMount adds a mount to the container. It takes effect at
// [abi.PreCreateContainer] only.
func (d *Decision) AddContainerMount(m Mount) { d.mounts = append(d.mounts, m) }

// ContainerMounts returns the mounts that are added.
func (d *Decision) ContainerMounts() []Mount { return d.mounts }

// Device is a device file of a container, as in linux.devices of the OCI runtime
// specification.
type Device struct {
	// Path is that in the container and on the node, absolute and clean.
	Path string
	// Type is "c" for a character device, "b" for a block device, "p" for a
	// FIFO, which has no numbers.
	Type         string
	Major, Minor int64
	// FileMode, UID and GID are the runtime's defaults if they are nil.
	FileMode, UID, GID *int64
}

// AddContainerDevice adds a device to the container. It takes effect at
// [abi.PreCreateContainer] only.
func (d *Decision) AddContainerDevice(v Device) { d.devices = append(d.devices, v) }

// ContainerDevices returns the devices that are added.
func (d *Decision) ContainerDevices() []Device { return d.devices }

// reset makes d the decision that changes nothing and keeps its memory.
func (d *Decision) reset() {
	d.Resources.reset()
	d.annotations.reset()
	d.envs.reset()
	if len(d.mounts)+len(d.devices) != 0 {
		clear(d.mounts)
		clear(d.devices)
		d.mounts, d.devices = d.mounts[:0], d.devices[:0]
	}
}

// append writes the message, no bytes for a decision that changes nothing.
func (d *Decision) append(b []byte) []byte {
	d.scratch = d.Resources.append(d.scratch[:0])
	if len(d.scratch) != 0 {
		b = wire.AppendBytes(b, 1, d.scratch)
	}
	b = d.annotations.append(b, 2)
	b = d.envs.append(b, 3)
	for i := range d.mounts {
		d.scratch = d.mounts[i].append(d.scratch[:0])
		b = wire.AppendBytes(b, 4, d.scratch)
	}
	for i := range d.devices {
		d.scratch = d.devices[i].append(d.scratch[:0])
		b = wire.AppendBytes(b, 5, d.scratch)
	}
	return b
}

func (m *Mount) append(b []byte) []byte {
	b = appendString(b, 1, m.Destination)
	b = appendString(b, 2, m.Source)
	b = appendString(b, 3, m.Type)
	for _, option := range m.Options {
		b = wire.AppendBytes(b, 4, option)
	}
	return b
}

func (v *Device) append(b []byte) []byte {
	b = appendString(b, 1, v.Path)
	b = appendString(b, 2, v.Type)
	b = appendNumber(b, 3, v.Major)
	b = appendNumber(b, 4, v.Minor)
	for i, n := range [...]*int64{v.FileMode, v.UID, v.GID} {
		if n != nil {
			b = wire.AppendVarint(b, uint32(5+i), uint64(*n))
		}
	}
	return b
}
