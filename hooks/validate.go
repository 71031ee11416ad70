package hooks

import (
	"errors"
	"fmt"
	"math"
	"path"
	"strings"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
)

// maxMistakes is the maximum number of mistakes in a message.
const maxMistakes = 20

// Maximum numbers of entries of a decision that make the host access files. The size of the
// decision bounds maps that cost only memory.
const (
	maxMounts  = 128
	maxDevices = 128
)

// invalid returns all mistakes in the decision, nil if there are none.
func invalid(d *hookmsg.Decision, level abi.Level) []error {
	errs := cgroup.Validate(d.Resources, level)
	if configures(d) {
		errs = append(errs, invalidConfiguration(d)...)
	}
	if len(errs) > maxMistakes {
		more := len(errs) - maxMistakes
		errs = append(errs[:maxMistakes], fmt.Errorf("%d more mistakes", more))
	}
	return errs
}

// configures reports whether a decision sets anything of a container's configuration.
func configures(d *hookmsg.Decision) bool {
	return len(d.ContainerAnnotations)+len(d.ContainerEnvs)+len(d.ContainerMounts)+len(d.ContainerDevices) != 0
}

// invalidConfiguration returns the mistakes in a decision's settings of a container's
// configuration.
func invalidConfiguration(d *hookmsg.Decision) (errs []error) {
	if n := len(d.ContainerMounts); n > maxMounts {
		errs = append(errs, fmt.Errorf("%s has %d entries, want at most %d", hookmsg.FieldContainerMounts, n, maxMounts))
	}
	if n := len(d.ContainerDevices); n > maxDevices {
		errs = append(errs, fmt.Errorf("%s has %d entries, want at most %d", hookmsg.FieldContainerDevices, n, maxDevices))
	}
	if errs != nil {
		return errs
	}
	for key, value := range d.ContainerAnnotations {
		if key == "" || strings.ContainsFunc(key, isControl) || strings.IndexByte(value, 0) >= 0 {
			errs = append(errs, fmt.Errorf("container_annotations[%.200q]: not an annotation", key))
		}
	}
	for name, value := range d.ContainerEnvs {
		if name == "" || strings.ContainsFunc(name, isControl) || strings.Contains(name, "=") || strings.IndexByte(value, 0) >= 0 {
			errs = append(errs, fmt.Errorf("container_envs[%.200q]: not an environment variable", name))
		}
	}
	if len(d.ContainerMounts)+len(d.ContainerDevices) == 0 {
		return errs
	}
	seen := map[string]bool{}
	for i := range d.ContainerMounts {
		m := &d.ContainerMounts[i]
		if err := checkMount(m, seen); err != nil {
			errs = append(errs, fmt.Errorf("container_mounts[%.200q]: %w", m.Destination, err))
		}
	}
	for i := range d.ContainerDevices {
		v := &d.ContainerDevices[i]
		if err := checkDevice(v, seen); err != nil {
			errs = append(errs, fmt.Errorf("container_devices[%.200q]: %w", v.Path, err))
		}
	}
	return errs
}

// checkMount checks that a mount is valid, and the only one at its destination. [Grants] limit the
// mounts of a plugin.
func checkMount(m *hookmsg.Mount, seen map[string]bool) error {
	switch {
	case !cleanPath(m.Destination):
		return errors.New("the destination is not an absolute and clean path")
	case seen[m.Destination]:
		return errors.New("the path is used twice")
	case m.Type == "" || strings.ContainsFunc(m.Type, isControl):
		return fmt.Errorf("the type %.200q is not a file system type", m.Type)
	case m.Type == "bind" && !cleanPath(m.Source):
		return fmt.Errorf("the source %.200q of a bind mount is not an absolute and clean path", m.Source)
	case strings.ContainsFunc(m.Source, isControl):
		return fmt.Errorf("the source %.200q has a control character", m.Source)
	}
	for _, option := range m.Options {
		if option == "" || strings.Contains(option, ",") || strings.ContainsFunc(option, isControl) {
			return fmt.Errorf("%.200q is not a mount option", option)
		}
	}
	seen[m.Destination] = true
	return nil
}

// checkDevice checks a device file by the rules of the OCI runtime
// specification, linux.devices.
func checkDevice(v *hookmsg.Device, seen map[string]bool) error {
	// The kernel has 12 bits of major and 20 of minor numbers.
	const maxMajor, maxMinor = 1<<12 - 1, 1<<20 - 1
	switch {
	case !cleanPath(v.Path):
		return errors.New("the path is not absolute and clean")
	case seen[v.Path]:
		return errors.New("the path is used twice")
	case v.Type != "c" && v.Type != "b" && v.Type != "p":
		return fmt.Errorf("the type is %.200q, want c, b or p", v.Type)
	case v.Major < 0 || v.Major > maxMajor || v.Minor < 0 || v.Minor > maxMinor:
		return fmt.Errorf("%d:%d is not the number of a device", v.Major, v.Minor)
	case v.Type == "p" && (v.Major != 0 || v.Minor != 0):
		return errors.New("a FIFO has no number")
	}
	for _, p := range [...]struct {
		name string
		n    *int64
		max  int64
	}{{"file_mode", v.FileMode, 0o777}, {"uid", v.UID, math.MaxUint32}, {"gid", v.GID, math.MaxUint32}} {
		if p.n != nil && (*p.n < 0 || *p.n > p.max) {
			return fmt.Errorf("%s is %d, want 0 to %d", p.name, *p.n, p.max)
		}
	}
	seen[v.Path] = true
	return nil
}

func cleanPath(p string) bool {
	return path.IsAbs(p) && path.Clean(p) == p && p != "/" && !strings.ContainsFunc(p, isControl)
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }
