package hooks

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
)

// Grants allow a plugin to decide beyond the resources of a pod's cgroups. The zero value grants
// nothing. Each grant is a name or pattern. A decision with anything that is not granted is refused
// as a whole, with a [GrantError].
//
// The configuration is the same in YAML:
//
//	decisionGrants:
//	  env: [NVIDIA_VISIBLE_DEVICES]
//	  annotations: ["example.com/*"]
//	  cdi: ["nvidia.com/gpu=*"]
//	  mounts: [{source: "/var/lib/models/**", destination: "/models/**"}]
//	  devices: ["/dev/nvidia*"]
//	  resctrl: ["batch", "latency-*"]
//	  oomScoreAdj: -998
//
// # Notes
//
//   - The pattern of a name is one name, or a prefix and a "*": "SHOP_*". It never begins with "*".
//   - The pattern of a path is absolute and clean. "*" matches any characters but "/". "/**" at the
//     end matches everything below a directory, but not the directory itself. The first name in a
//     pattern has no "*".
type Grants struct {
	// Env are the environment variables that the plugin may set: prefer names to patterns. A
	// pattern with "*" does not grant variables known to decide which code a process runs, whom it
	// trusts or whom it talks to (LD_PRELOAD, NODE_OPTIONS, SSL_CERT_FILE, HTTPS_PROXY). Those are
	// granted only by their full names. No such list is complete. A pattern grants code execution
	// if it covers a name that something in the container reads in that way. It also grants names
	// read by a runtime, such as NVIDIA_VISIBLE_DEVICES.
	Env []string `json:"env,omitempty"`
	// Annotations are the annotations of a container that the plugin may set. In a pattern the "*"
	// comes after the "/". Keys that runtimes act upon are granted only by their full names: those
	// without a "/", and those in the domains of Kubernetes and of the runtimes. Only CDI grants
	// the annotations of CDI.
	Annotations []string `json:"annotations,omitempty"`
	// CDI are the qualified names of the devices of the Container Device Interface that an
	// annotation cdi.k8s.io/… may ask for: "nvidia.com/gpu=0", "nvidia.com/gpu=*". The
	// specification on the node defines a CDI device, including mounts and hooks.
	CDI []string `json:"cdi,omitempty"`
	// Mounts are the mounts that the plugin may add to a container.
	Mounts []MountGrant `json:"mounts,omitempty"`
	// Devices are the paths of device files on the node that the plugin may add to a container, at
	// the same path and with the same type and numbers. A pattern with "*" grants no block devices,
	// and none of the kernel's memory (character devices with the major number 1): those are
	// granted only by their full paths. The name after "/dev/" must not begin with "*".
	Devices []string `json:"devices,omitempty"`
	// Resctrl are the names of the resctrl groups into which the plugin may put the processes of
	// containers, and whose allocation it may set. The groups belong to the node: the kernel has
	// about a dozen, and an allocation affects all processes in a group.
	Resctrl []string `json:"resctrl,omitempty"`
	// OOMScoreAdj is the lowest OOM score that the plugin may set, from -1000 to -998; 0 means the
	// lowest score without a grant, -997. The kubelet and the runtime have -999: the kernel would
	// end them before the processes of a container with a lower score. -1000 exempts those processes:
	// out of memory, the node then ends others, regardless of the container's usage.
	OOMScoreAdj int64 `json:"oomScoreAdj,omitempty"`
	// IdleQOSClasses lets the plugin make the cgroups of QoS classes idle. The kernel refuses the
	// kubelet's writes of their shares then: a running kubelet logs that each minute, and one that
	// is started ends. No grant is needed for pods and containers.
	IdleQOSClasses bool `json:"idleQOSClasses,omitempty"`
}

// leastOOMScoreAdj is the lowest OOM score that needs no grant: that of a guaranteed pod
// (k8s.io/kubernetes/pkg/kubelet/qos, guaranteedOOMScoreAdj).
const leastOOMScoreAdj = -997

// MountGrant grants mounts.
type MountGrant struct {
	// Type is the type of the file system: "bind", the default, or "tmpfs". Others cannot be
	// granted.
	Type string `json:"type,omitempty"`
	// Source is the pattern of the mounted path on the node. tmpfs has none. The targets of
	// symbolic links must match as well. A pattern with a "*" grants nothing in /proc, /sys and
	// /dev.
	Source string `json:"source,omitempty"`
	// Destination is the pattern of the path in the container, with the same rules.
	Destination string `json:"destination"`
	// ReadWrite allows a writable mount. Without it the mount must have the option ro, and bind
	// instead of rbind unless it has rro: ro alone leaves the mounts below the source writable. A
	// tmpfs needs it.
	ReadWrite bool `json:"readWrite,omitempty"`
	// Options are mount options allowed in addition to the harmless ones: bind, rbind, ro, rro, rw,
	// private, rprivate, nosuid, nodev, noexec, noatime, nodiratime, relatime, strictatime,
	// nosymfollow, and of tmpfs size, mode and nr_inodes. Options that must be listed include
	// "rshared", which shows the container's mounts to the node, and "suid", "dev" and "exec",
	// which override restrictions of the source.
	Options []string `json:"options,omitempty"`
}

// GrantError reports a part of a decision that is not granted to the plugin, or an owned field that
// the plugin may not set. For a decision, a [DecisionError] that names the plugin wraps it.
type GrantError struct {
	// Field is the name in hook.proto with its key: "container_envs[LD_PRELOAD]".
	Field string
	// Value describes the value of the decision. It is empty in a configuration.
	Value string
	// Reason is the reason that no grant of the plugin allows it.
	Reason string
	// Grants are the narrowest grants that would allow it, nil if none can.
	Grants *Grants
}

func (e *GrantError) Error() string {
	s := e.Field
	if e.Value != "" {
		s += " = " + e.Value
	}
	s += " is not granted: " + e.Reason
	if e.Grants != nil {
		if b, err := json.Marshal(e.Grants); err == nil {
			s += fmt.Sprintf("; decisionGrants %s would allow it", b)
		}
	}
	return s
}

// cdiPrefix is the prefix of annotation keys that ask for CDI devices
// (tags.cncf.io/container-device-interface, AnnotationPrefix).
const cdiPrefix = "cdi.k8s.io/"

// validate returns all mistakes in the patterns.
func (g *Grants) validate() (errs []error) {
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf("decisionGrants: "+format, args...)) }
	for _, pattern := range g.Env {
		beginning, wild := strings.CutSuffix(pattern, "*")
		switch {
		case beginning == "" || strings.ContainsAny(beginning, "*=") || strings.ContainsFunc(beginning, isControl):
			fail("env %q is not a name, or a beginning of names and a *", pattern)
		case wild && steersProcess(beginning):
			fail("env %q stands for variables that decide what a process runs, trusts or talks to: name each", pattern)
		}
	}
	for _, pattern := range g.Annotations {
		beginning, wild := strings.CutSuffix(pattern, "*")
		switch {
		case beginning == "" || strings.Contains(beginning, "*") || strings.ContainsFunc(beginning, isControl) || wild && strings.Index(beginning, "/") < 1:
			fail("annotation %q is not a key, or a domain with a / and a *", pattern)
		case strings.HasPrefix(beginning, cdiPrefix):
			fail("annotation %q asks for CDI devices: cdi grants those", pattern)
		case wild && steersRuntime(beginning):
			fail("annotation %q stands for keys that a runtime acts upon: name each", pattern)
		}
	}
	for _, pattern := range g.Resctrl {
		beginning := strings.TrimSuffix(pattern, "*")
		if cgroup.Validate(&hookmsg.Resources{ResctrlGroup: &beginning}, abi.LevelContainer) != nil {
			fail("resctrl %q is not the name of a group, or a beginning of names and a *", pattern)
		}
	}
	if s := g.OOMScoreAdj; s != 0 && (s < -1000 || s >= leastOOMScoreAdj) {
		fail("oomScoreAdj is %d, want -1000 to %d", s, leastOOMScoreAdj-1)
	}
	for _, pattern := range g.CDI {
		if _, name, ok := cutCDI(pattern); !ok || strings.Contains(strings.TrimSuffix(name, "*"), "*") {
			fail("cdi %q is not like vendor.com/class=name or vendor.com/class=*", pattern)
		}
	}
	for i := range g.Mounts {
		m := &g.Mounts[i]
		switch {
		case m.Type != "" && m.Type != "bind" && m.Type != "tmpfs":
			fail("mount of type %q: only bind and tmpfs can be granted", m.Type)
		case m.Type == "tmpfs" && m.Source != "":
			fail("mount %q: a tmpfs has no source", m.Source)
		case m.Type != "tmpfs":
			if err := checkPathPattern(m.Source); err != nil {
				fail("mount source %w", err)
			}
		}
		if err := checkPathPattern(m.Destination); err != nil {
			fail("mount destination %w", err)
		}
		for _, option := range m.Options {
			if option == "" || strings.Contains(option, ",") || strings.ContainsFunc(option, isControl) || isBind(option) {
				fail("mount option %q cannot be granted", option)
			}
		}
	}
	for _, pattern := range g.Devices {
		err := checkPath(pattern)
		name, below := strings.CutPrefix(pattern, "/dev/")
		switch {
		case err != nil:
			fail("device %w", err)
		case !below || strings.HasPrefix(name, "*"):
			fail("device %q is not a path below /dev whose first name is known", pattern)
		}
	}
	return errs
}

// checkPath checks the form of a path pattern.
func checkPath(pattern string) error {
	plain := strings.TrimSuffix(pattern, "/**")
	first, _, _ := strings.Cut(strings.TrimPrefix(plain, "/"), "/")
	switch {
	case !cleanPath(pattern):
		return fmt.Errorf("%q is not an absolute and clean path", pattern)
	case strings.ContainsAny(plain, `?[]\`) || strings.Contains(plain, "**"):
		return fmt.Errorf("%q is not a pattern: * stands for a part of a name, /** at the end for all that is below", pattern)
	case first == "" || strings.Contains(first, "*"):
		return fmt.Errorf("%q begins with no name", pattern)
	}
	return nil
}

// checkPathPattern checks a path pattern of a mount.
func checkPathPattern(pattern string) error {
	if err := checkPath(pattern); err != nil {
		return err
	}
	if first, _, _ := strings.Cut(pattern[1:], "/"); strings.Contains(pattern, "*") && (first == "proc" || first == "sys" || first == "dev") {
		return fmt.Errorf("%q: the files of /%s are granted by their own paths", pattern, first)
	}
	return nil
}

// matchName reports whether a pattern of [Grants] matches a name.
func matchName(pattern, name string) bool {
	if beginning, wild := strings.CutSuffix(pattern, "*"); wild {
		return strings.HasPrefix(name, beginning)
	}
	return pattern == name
}

// matchPath reports whether a pattern of [Grants] matches a clean path.
func matchPath(pattern, p string) bool {
	dir, below := strings.CutSuffix(pattern, "/**")
	if below {
		end := 0
		for range strings.Count(dir, "/") + 1 {
			next := strings.IndexByte(p[end:], '/')
			if next < 0 {
				return false
			}
			end += next + 1
		}
		// p[:end-1] has as many names as dir, and at least one follows.
		pattern, p = dir, p[:end-1]
	}
	ok, err := path.Match(pattern, p)
	return ok && err == nil
}

// steersRuntime reports whether an annotation, by its key or prefix, may affect a container
// runtime, its plugins or the kubelet: seccomp and AppArmor profiles, runtime handlers, properties
// of systemd units.
func steersRuntime(key string) bool {
	domain, _, ok := strings.Cut(key, "/")
	if !ok {
		return true // The form of runtimes' keys: org.systemd.property.X, run.oci.handler.
	}
	for _, end := range [...]string{"kubernetes.io", "k8s.io", "crio.io", "cri-o.io", "nri.io", "containerd.io"} {
		if rest, ok := strings.CutSuffix(domain, end); ok && (rest == "" || rest[len(rest)-1] == '.') {
			return true
		}
	}
	for _, beginning := range [...]string{
		"io.kubernetes.", "io.containerd.", "io.katacontainers.", "io.microsoft.", "io.podman.", "run.oci.", "org.systemd.", "org.criu.",
		"org.opencontainers.", "com.github.containers.", "dev.gvisor.", "module.wasm.",
	} {
		if strings.HasPrefix(domain+".", beginning) {
			return true
		}
	}
	return false
}

// cutCDI splits the qualified name of a CDI device, "vendor.com/class=name", into
// its kind and its name.
func cutCDI(device string) (kind, name string, ok bool) {
	kind, name, ok = strings.Cut(device, "=")
	vendor, class, slash := strings.Cut(kind, "/")
	part := func(s, more string) bool {
		return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune(more, r)
		})
	}
	return kind, name, ok && slash && part(vendor, "._-") && part(class, "._-") && part(name, "._-:*")
}

// env returns the reason that a variable is not granted, empty if it is.
func (g *Grants) env(name string) (reason string) {
	if slices.Contains(g.Env, name) {
		return ""
	}
	if !slices.ContainsFunc(g.Env, func(pattern string) bool { return matchName(pattern, name) }) {
		return "env does not name it"
	}
	if steersProcess(name) {
		return "it decides what a process runs, trusts or talks to, so env has to name it itself"
	}
	return ""
}

// annotation returns the reason that an annotation other than of CDI is not granted, empty if it
// is.
func (g *Grants) annotation(key string) (reason string) {
	if slices.ContainsFunc(g.Annotations, func(pattern string) bool { return matchName(pattern, key) }) {
		return ""
	}
	if steersRuntime(key) {
		return "a runtime may act upon it, so annotations has to name it itself"
	}
	return "annotations does not name it"
}

// resctrl reports whether a group is granted.
func (g *Grants) resctrl(group string) bool {
	return slices.ContainsFunc(g.Resctrl, func(pattern string) bool { return matchName(pattern, group) })
}

// cdi returns the mistake in an annotation that asks for CDI devices, and the grants that would
// allow it.
func (g *Grants) cdi(key, value string) (reason string, grants *Grants) {
	if key == cdiPrefix {
		return "it is no key of CDI", nil
	}
	var missing []string
	for device := range strings.SplitSeq(value, ",") {
		if _, name, ok := cutCDI(device); !ok || strings.Contains(name, "*") {
			return fmt.Sprintf("%q is not the name of a CDI device", device), nil
		}
		if !slices.ContainsFunc(g.CDI, func(pattern string) bool { return matchName(pattern, device) }) {
			missing = append(missing, device)
		}
	}
	if missing == nil {
		return "", nil
	}
	return fmt.Sprintf("cdi does not name %s", strings.Join(missing, ", ")), &Grants{CDI: missing}
}

// takesGrant reports whether a decision sets anything that needs a grant.
func takesGrant(d *hookmsg.Decision) bool {
	return configures(d) || d.Resources != nil && (d.Resources.ResctrlGroup != nil || setsLowScore(d))
}

// setsLowScore reports whether a decision with resources sets an OOM score that needs a grant.
func setsLowScore(d *hookmsg.Decision) bool {
	return d.Resources.OOMScoreAdj != nil && *d.Resources.OOMScoreAdj < leastOOMScoreAdj
}

// idles reports whether a decision at a level makes the cgroup of a QoS class idle.
func idles(level abi.Level, d *hookmsg.Decision) bool {
	return level == abi.LevelQOS && d.Resources != nil && d.Resources.CPUIdle != nil && *d.Resources.CPUIdle != 0
}

// idle returns an error if a decision at a level needs IdleQOSClasses and has not got it.
func (g *Grants) idle(level abi.Level, d *hookmsg.Decision) *GrantError {
	if g.IdleQOSClasses || !idles(level, d) {
		return nil
	}
	return &GrantError{
		Field: hookmsg.FieldCPUIdle.String(), Value: "1", Reason: "a kubelet cannot start while a QoS class is idle", Grants: &Grants{IdleQOSClasses: true},
	}
}

// Check returns a *[GrantError] for each value that the decision sets without a grant, joined; nil
// if there is none. It checks only names: the [Engine] checks the targets of symbolic links, and
// the devices at paths, on the node. Only the Engine checks IdleQOSClasses, since a decision has no
// level.
func (g *Grants) Check(d *hookmsg.Decision) error {
	var errs []error
	for _, err := range g.check(d, nil) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// maxGrantErrors is the maximum number of values listed in a refusal, since a decision may have
// tens of thousands.
const maxGrantErrors = 32

// check returns the values that the decision sets without a grant. Unless n is nil, it also checks
// the node, and stops once it has enough to refuse.
func (g *Grants) check(d *hookmsg.Decision, n *node) (errs []*GrantError) {
	if d.Resources != nil && d.Resources.ResctrlGroup != nil && !g.resctrl(*d.Resources.ResctrlGroup) {
		group := *d.Resources.ResctrlGroup
		errs = append(errs, &GrantError{
			Field: hookmsg.FieldResctrlGroup.String(), Value: fmt.Sprintf("%.100q", group), Reason: "resctrl does not name it", Grants: &Grants{Resctrl: []string{group}},
		})
	}
	if d.Resources != nil && setsLowScore(d) && *d.Resources.OOMScoreAdj < g.OOMScoreAdj {
		score := *d.Resources.OOMScoreAdj
		errs = append(errs, &GrantError{
			Field: hookmsg.FieldOOMScoreAdj.String(), Value: strconv.FormatInt(score, 10), Reason: fmt.Sprintf("it is less than %d", min(g.OOMScoreAdj, leastOOMScoreAdj)),
			Grants: &Grants{OOMScoreAdj: score},
		})
	}
	quoted := func(value string) string { return fmt.Sprintf("%.100q", value) }
	enough := func() bool { return n != nil && len(errs) >= maxGrantErrors }
	for key, value := range d.ContainerAnnotations {
		if enough() {
			break
		}
		var reason string
		var grants *Grants
		if strings.HasPrefix(key, cdiPrefix) {
			reason, grants = g.cdi(key, value)
		} else if reason = g.annotation(key); reason != "" {
			grants = &Grants{Annotations: []string{key}}
		}
		if reason != "" {
			errs = append(errs, &GrantError{Field: keyName(hookmsg.FieldContainerAnnotations, key), Value: quoted(value), Reason: reason, Grants: grants})
		}
	}
	for name, value := range d.ContainerEnvs {
		if enough() {
			break
		}
		if reason := g.env(name); reason != "" {
			errs = append(errs, &GrantError{Field: keyName(hookmsg.FieldContainerEnvs, name), Value: quoted(value), Reason: reason, Grants: &Grants{Env: []string{name}}})
		}
	}
	for i := range d.ContainerMounts {
		m := &d.ContainerMounts[i]
		if reason, grants := g.mount(m, n); reason != "" {
			errs = append(errs, &GrantError{Field: keyName(hookmsg.FieldContainerMounts, m.Destination), Value: describeMount(m), Reason: reason, Grants: grants})
		}
	}
	for i := range d.ContainerDevices {
		v := &d.ContainerDevices[i]
		if reason, grants := g.device(v, n); reason != "" {
			errs = append(errs, &GrantError{Field: keyName(hookmsg.FieldContainerDevices, v.Path), Value: describeDevice(v), Reason: reason, Grants: grants})
		}
	}
	slices.SortFunc(errs, func(a, b *GrantError) int { return strings.Compare(a.Field, b.Field) })
	return errs
}

// harmless maps the mount options that need no grant to the types that have them. For runc, bind
// and rbind make any mount a bind mount, regardless of its type.
var harmless = map[string]string{
	"bind": "bind", "rbind": "bind",
	"ro": "bind tmpfs", "rro": "bind", "rw": "bind tmpfs", "private": "bind tmpfs", "rprivate": "bind tmpfs",
	"nosuid": "bind tmpfs", "nodev": "bind tmpfs", "noexec": "bind tmpfs", "nosymfollow": "bind tmpfs",
	"noatime": "bind tmpfs", "nodiratime": "bind tmpfs", "relatime": "bind tmpfs", "strictatime": "bind tmpfs",
	"size=": "tmpfs", "mode=": "tmpfs", "nr_inodes=": "tmpfs",
}

// isBind reports whether an option makes a mount of any type a bind mount.
func isBind(option string) bool {
	name, _, _ := strings.Cut(option, "=")
	return name == "bind" || name == "rbind"
}

// mount returns the reason that a mount is not granted, empty if it is, and the grants that would
// allow it.
func (g *Grants) mount(m *hookmsg.Mount, n *node) (reason string, grants *Grants) {
	bind := m.Type == "bind"
	switch {
	case !bind && m.Type != "tmpfs":
		return fmt.Sprintf("mounts of type %q cannot be granted", m.Type), nil
	case !bind && m.Source != "" && m.Source != "tmpfs":
		return "a tmpfs has no source", nil
	}
	// The narrowest grant, still without options.
	want := MountGrant{Destination: m.Destination, ReadWrite: true}
	if bind {
		want.Source = m.Source
	} else {
		want.Type = m.Type
	}
	var ro, rro, rw, recursive bool
	for _, option := range m.Options {
		switch option {
		case "rbind":
			recursive = true
		case "ro":
			ro = true
		case "rro":
			rro = true
		case "rw":
			rw = true
		}
		name := option
		if i := strings.IndexByte(option, '='); i >= 0 {
			name = option[:i+1]
		}
		if !slices.Contains(strings.Fields(harmless[name]), m.Type) {
			want.Options = append(want.Options, option)
		}
	}
	if i := slices.IndexFunc(want.Options, isBind); i >= 0 {
		return fmt.Sprintf("%q is no option of a mount of type %s", want.Options[i], m.Type), nil
	}
	if (ro || rro) && rw {
		return "it has both ro and rw", nil
	}
	if bind && (rro || ro && !recursive) {
		want.ReadWrite = false
	}
	reason = "mounts does not name the source and the destination"
	for i := range g.Mounts {
		have := &g.Mounts[i]
		if (have.Type == "tmpfs") == bind || bind && !matchPath(have.Source, m.Source) || !matchPath(have.Destination, m.Destination) {
			continue
		}
		extra := slices.DeleteFunc(slices.Clone(want.Options), func(option string) bool { return slices.Contains(have.Options, option) })
		switch {
		case len(extra) != 0:
			reason = fmt.Sprintf("the grant has no option %s", strings.Join(extra, ", "))
		case want.ReadWrite && !have.ReadWrite && ro:
			reason = "the grant is read-only, and ro with rbind leaves the mounts below the source writable: it takes bind, or rro"
		case want.ReadWrite && !have.ReadWrite:
			reason = "the grant is read-only: it takes the option ro"
		case !bind || n == nil:
			return "", nil
		default:
			is, err := n.resolve(m.Source)
			switch {
			case err != nil:
				// No grant can help.
				return fmt.Sprintf("the source is not found on the node: %v", err), nil
			case matchPath(have.Source, is):
				return "", nil
			}
			reason, want.Source = fmt.Sprintf("the source leads to %q, which the grant does not have", is), is
		}
	}
	return reason, &Grants{Mounts: []MountGrant{want}}
}

// device returns the reason that a device is not granted, empty if it is, and the grants that would
// allow it.
func (g *Grants) device(v *hookmsg.Device, n *node) (reason string, grants *Grants) {
	reason = "devices does not name it"
	if slices.ContainsFunc(g.Devices, func(pattern string) bool { return matchPath(pattern, v.Path) }) {
		reason = ""
		// The kernel's memory: mem, kmem, port, kmsg.
		if memory := v.Type == "c" && v.Major == 1; (v.Type == "b" || memory) && !slices.Contains(g.Devices, v.Path) {
			reason = "it is a block device or one of the kernel's memory, so devices has to name it itself"
		}
	}
	if reason != "" {
		if !strings.HasPrefix(v.Path, "/dev/") {
			return "only devices below /dev can be granted", nil
		}
		return reason, &Grants{Devices: []string{v.Path}}
	}
	if n == nil {
		return "", nil
	}
	is, err := n.device(v.Path)
	switch {
	case err != nil:
		return fmt.Sprintf("the device is not found on the node: %v", err), nil
	case is.Type != v.Type || is.Major != v.Major || is.Minor != v.Minor:
		return fmt.Sprintf("on the node the path is %s %d:%d", is.Type, is.Major, is.Minor), nil
	}
	return "", nil
}

// owned returns an error for each field that a plugin owns, or declares to set, without permission.
func (g *Grants) owned(o *ownership) (errs []*GrantError) {
	fail := func(field, reason string, grants *Grants) {
		errs = append(errs, &GrantError{Field: field, Reason: reason, Grants: grants})
	}
	for _, f := range [...]struct {
		field hookmsg.Fields
		none  bool
	}{
		{hookmsg.FieldResctrlGroup, len(g.Resctrl) == 0},
		{hookmsg.FieldResctrlSchemata, len(g.Resctrl) == 0},
		{hookmsg.FieldContainerAnnotations, len(g.Annotations)+len(g.CDI) == 0},
		{hookmsg.FieldContainerEnvs, len(g.Env) == 0},
		{hookmsg.FieldContainerMounts, len(g.Mounts) == 0},
		{hookmsg.FieldContainerDevices, len(g.Devices) == 0},
	} {
		if o.whole&f.field != 0 && f.none {
			fail(f.field.String(), "the plugin may set none of it", nil)
		}
	}
	for name := range o.keys {
		field, key, err := hookmsg.ParseField(name)
		if err != nil {
			continue
		}
		switch field {
		case hookmsg.FieldContainerEnvs:
			if reason := g.env(key); reason != "" {
				fail(name, reason, &Grants{Env: []string{key}})
			}
		case hookmsg.FieldContainerAnnotations:
			if strings.HasPrefix(key, cdiPrefix) {
				if len(g.CDI) == 0 {
					fail(name, "cdi names no device", nil)
				}
			} else if reason := g.annotation(key); reason != "" {
				fail(name, reason, &Grants{Annotations: []string{key}})
			}
		case hookmsg.FieldContainerMounts:
			if !slices.ContainsFunc(g.Mounts, func(m MountGrant) bool { return matchPath(m.Destination, key) }) {
				fail(name, "mounts does not name the destination", nil)
			}
		case hookmsg.FieldContainerDevices:
			if !slices.ContainsFunc(g.Devices, func(pattern string) bool { return matchPath(pattern, key) }) {
				fail(name, "devices does not name it", &Grants{Devices: []string{key}})
			}
		}
	}
	slices.SortFunc(errs, func(a, b *GrantError) int { return strings.Compare(a.Field, b.Field) })
	return errs
}

// Add adds the grants of more to g.
func (g *Grants) Add(more *Grants) {
	add := func(into *[]string, patterns []string) {
		for _, pattern := range patterns {
			if !slices.Contains(*into, pattern) {
				*into = append(*into, pattern)
			}
		}
	}
	add(&g.Env, more.Env)
	add(&g.Annotations, more.Annotations)
	add(&g.CDI, more.CDI)
	add(&g.Devices, more.Devices)
	add(&g.Resctrl, more.Resctrl)
	g.OOMScoreAdj = min(g.OOMScoreAdj, more.OOMScoreAdj)
	g.IdleQOSClasses = g.IdleQOSClasses || more.IdleQOSClasses
	for _, m := range more.Mounts {
		if !slices.ContainsFunc(g.Mounts, func(n MountGrant) bool { return reflect.DeepEqual(m, n) }) {
			g.Mounts = append(g.Mounts, m)
		}
	}
}
