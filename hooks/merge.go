package hooks

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
)

// part is the decision of one plugin.
type part struct {
	plugin   string
	decision *hookmsg.Decision
}

// merge merges decisions that do not conflict, and changes none of them. A single decision is
// returned unchanged.
func merge(parts []part) *hookmsg.Decision {
	if len(parts) == 0 {
		return new(hookmsg.Decision)
	}
	d := parts[0].decision
	if len(parts) > 1 {
		d = &hookmsg.Decision{
			Resources:            d.Resources,
			ContainerAnnotations: maps.Clone(d.ContainerAnnotations), ContainerEnvs: maps.Clone(d.ContainerEnvs),
			ContainerMounts: slices.Clone(d.ContainerMounts), ContainerDevices: slices.Clone(d.ContainerDevices),
		}
	}
	for _, p := range parts[1:] {
		d.Resources = d.Resources.Overlay(p.decision.Resources)
		d.ContainerAnnotations = mergeMap(d.ContainerAnnotations, p.decision.ContainerAnnotations)
		d.ContainerEnvs = mergeMap(d.ContainerEnvs, p.decision.ContainerEnvs)
		for _, m := range p.decision.ContainerMounts {
			if !slices.ContainsFunc(d.ContainerMounts, func(n hookmsg.Mount) bool { return n.Destination == m.Destination }) {
				d.ContainerMounts = append(d.ContainerMounts, m)
			}
		}
		for _, v := range p.decision.ContainerDevices {
			if !slices.ContainsFunc(d.ContainerDevices, func(w hookmsg.Device) bool { return w.Path == v.Path }) {
				d.ContainerDevices = append(d.ContainerDevices, v)
			}
		}
	}
	return d
}

// mergeMap adds m to into, which it may change.
func mergeMap(into, m map[string]string) map[string]string {
	if into == nil {
		return maps.Clone(m)
	}
	maps.Copy(into, m)
	return into
}

// compatible returns an error if a decision of the plugin conflicts with those of earlier plugins:
// both set a field to different values, or a burst exceeds the quota, which the kernel refuses.
func (p *plugin) compatible(d *hookmsg.Decision, earlier []part) error {
	r := new(hookmsg.Resources)
	if d.Resources != nil {
		r = d.Resources
	}
	burst, quota := r.CPUBurstUS, r.CFSQuotaUS
	for _, e := range earlier {
		if field, values, ok := difference(e.decision, d); !ok {
			return &ConflictError{Field: field, Plugins: [2]string{e.plugin, p.Name()}, Values: values}
		}
		if e := e.decision.Resources; e != nil {
			burst, quota = cmp.Or(burst, e.CPUBurstUS), cmp.Or(quota, e.CFSQuotaUS)
		}
	}
	if r.CPUBurstUS == nil && r.CFSQuotaUS == nil {
		return nil
	}
	both := &hookmsg.Resources{CPUBurstUS: burst, CFSQuotaUS: quota}
	if err := errors.Join(cgroup.Validate(both, abi.LevelContainer)...); err != nil {
		return &DecisionError{Plugin: p.Name(), Err: err}
	}
	return nil
}

// difference returns the first field that a and b set differently; ok is set if there is
// none.
func difference(a, b *hookmsg.Decision) (field string, values [2]string, ok bool) {
	if both := a.Resources.Fields() & b.Resources.Fields(); both != 0 {
		for f := range both.Numbers().All() {
			if x, y := **a.Resources.Number(f), **b.Resources.Number(f); x != y {
				return f.String(), [2]string{strconv.FormatInt(x, 10), strconv.FormatInt(y, 10)}, false
			}
		}
		for f := range both.Texts().All() {
			if x, y := **a.Resources.Text(f), **b.Resources.Text(f); x != y {
				return f.String(), [2]string{strconv.Quote(x), strconv.Quote(y)}, false
			}
		}
		if field, values, ok = mapDifference("unified", a.Resources.Unified, b.Resources.Unified); !ok {
			return field, values, false
		}
	}
	if field, values, ok = mapDifference("container_annotations", a.ContainerAnnotations, b.ContainerAnnotations); !ok {
		return field, values, false
	}
	if field, values, ok = mapDifference("container_envs", a.ContainerEnvs, b.ContainerEnvs); !ok {
		return field, values, false
	}
	for i := range a.ContainerMounts {
		for j := range b.ContainerMounts {
			if m, n := &a.ContainerMounts[i], &b.ContainerMounts[j]; m.Destination == n.Destination && !reflect.DeepEqual(m, n) {
				return "container_mounts[" + m.Destination + "]", [2]string{describeMount(m), describeMount(n)}, false
			}
		}
	}
	for i := range a.ContainerDevices {
		for j := range b.ContainerDevices {
			if v, w := &a.ContainerDevices[i], &b.ContainerDevices[j]; v.Path == w.Path && !reflect.DeepEqual(v, w) {
				return "container_devices[" + v.Path + "]", [2]string{describeDevice(v), describeDevice(w)}, false
			}
		}
	}
	return "", values, true
}

func describeMount(m *hookmsg.Mount) string {
	return fmt.Sprintf("%s %q (%s)", m.Type, m.Source, strings.Join(m.Options, ","))
}

func describeDevice(v *hookmsg.Device) string {
	s := fmt.Sprintf("%s %d:%d", v.Type, v.Major, v.Minor)
	for _, p := range [...]struct {
		name string
		n    *int64
	}{{"mode", v.FileMode}, {"uid", v.UID}, {"gid", v.GID}} {
		if p.n != nil {
			s += fmt.Sprintf(" %s %d", p.name, *p.n)
		}
	}
	return s
}

func mapDifference(name string, a, b map[string]string) (field string, values [2]string, ok bool) {
	// Takes the first in the order of the keys, so that messages are reproducible.
	key, found := "", false
	for k, v := range b {
		if w, both := a[k]; both && v != w && (!found || k < key) {
			key, found = k, true
		}
	}
	if !found {
		return "", values, true
	}
	return name + "[" + key + "]", [2]string{strconv.Quote(a[key]), strconv.Quote(b[key])}, false
}
