package hooks

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
)

// Fields is a set of what a decision may set. The names are those of hook.proto.
type Fields uint32

// The fields, in the order of numberFields and textFields.
const (
	FieldCPUShares Fields = 1 << iota
	FieldCFSQuota
	FieldCFSPeriod
	FieldCPUBvt
	FieldCPUIdle
	FieldCPUBurst
	FieldMemoryLimit
	FieldMemoryMin
	FieldMemoryLow
	FieldMemoryHigh
	FieldOOMScoreAdj
	FieldNetClsClassID
	FieldCPUSetCPUs
	FieldCPUSetMems
	FieldCoreSchedGroup
	FieldResctrlGroup
	FieldResctrlSchemata
	FieldUnified
	FieldContainerAnnotations
	FieldContainerEnvs
	FieldContainerMounts
	FieldContainerDevices

	fieldsEnd

	// ResourceFields are those of a cgroup and its processes, the others those
	// of a container's configuration, which only a runtime can bring about.
	ResourceFields = FieldContainerAnnotations - 1
	// AllFields are all of them.
	AllFields = fieldsEnd - 1
)

// fieldNames are the names by number.
var fieldNames = func() (names [22]string) {
	n := 0
	for i := range numberFields {
		names[n] = numberFields[i].name
		n++
	}
	for i := range textFields {
		names[n] = textFields[i].name
		n++
	}
	copy(names[n:], []string{"unified", "container_annotations", "container_envs", "container_mounts", "container_devices"})
	return names
}()

// keyed are the fields that are maps or lists with a key: what two plugins may
// share.
const keyed = FieldUnified | FieldContainerAnnotations | FieldContainerEnvs | FieldContainerMounts | FieldContainerDevices

// String returns the names, separated by commas.
func (f Fields) String() string {
	var names []string
	for f &= AllFields; f != 0; f &= f - 1 {
		names = append(names, fieldNames[bits.TrailingZeros32(uint32(f))])
	}
	return strings.Join(names, ", ")
}

// ParseField returns the field of a name and, of "unified[io.weight]", the key.
func ParseField(name string) (field Fields, key string, err error) {
	plain, rest, hasKey := strings.Cut(name, "[")
	key, closed := strings.CutSuffix(rest, "]")
	for i := range fieldNames {
		if fieldNames[i] != plain {
			continue
		}
		if field = 1 << i; hasKey && (!closed || key == "" || field&keyed == 0) {
			break
		}
		return field, key, nil
	}
	return 0, "", fmt.Errorf("%q is no field of a decision; there are %s, and keys like unified[io.weight]", name, AllFields)
}

// FieldsOf returns the fields that a decision sets.
func FieldsOf(d *hookmsg.Decision) (f Fields) {
	if d == nil {
		return 0
	}
	if r := d.Resources; r != nil {
		numbers := numbersOf(r)
		for i := range numbers {
			if numbers[i] != nil {
				f |= 1 << i
			}
		}
		for i := range textFields {
			if *textFields[i].in(r) != nil {
				f |= FieldCPUSetCPUs << i
			}
		}
		if len(r.Unified) != 0 {
			f |= FieldUnified
		}
	}
	for i, n := range [...]int{len(d.ContainerAnnotations), len(d.ContainerEnvs), len(d.ContainerMounts), len(d.ContainerDevices)} {
		if n != 0 {
			f |= FieldContainerAnnotations << i
		}
	}
	return f
}

// Select returns what the decision sets of the fields. The result shares the
// memory of d; it has no Resources if none of their fields is set.
func (f Fields) Select(d *hookmsg.Decision) *hookmsg.Decision {
	if d == nil {
		return nil
	}
	s := new(hookmsg.Decision)
	if r := f.selectResources(d.Resources); r != nil {
		s.Resources = r
	}
	if f&FieldContainerAnnotations != 0 {
		s.ContainerAnnotations = d.ContainerAnnotations
	}
	if f&FieldContainerEnvs != 0 {
		s.ContainerEnvs = d.ContainerEnvs
	}
	if f&FieldContainerMounts != 0 {
		s.ContainerMounts = d.ContainerMounts
	}
	if f&FieldContainerDevices != 0 {
		s.ContainerDevices = d.ContainerDevices
	}
	return s
}

// selectResources returns nil if nothing is left.
func (f Fields) selectResources(r *hookmsg.Resources) *hookmsg.Resources {
	if r == nil || f&ResourceFields == 0 {
		return nil
	}
	if f&ResourceFields == ResourceFields {
		return r
	}
	s := new(hookmsg.Resources)
	for i := range numberFields {
		if f&(1<<i) != 0 {
			*numberFields[i].in(s) = *numberFields[i].in(r)
		}
	}
	for i := range textFields {
		if f&(FieldCPUSetCPUs<<i) != 0 {
			*textFields[i].in(s) = *textFields[i].in(r)
		}
	}
	if f&FieldUnified != 0 {
		s.Unified = r.Unified
	}
	if FieldsOf(&hookmsg.Decision{Resources: s}) == 0 {
		return nil
	}
	return s
}

// keysOf calls yield with the keys of the keyed fields of a decision.
func keysOf(d *hookmsg.Decision, yield func(field Fields, key string)) {
	if d.Resources != nil {
		for key := range d.Resources.Unified {
			yield(FieldUnified, key)
		}
	}
	for key := range d.ContainerAnnotations {
		yield(FieldContainerAnnotations, key)
	}
	for key := range d.ContainerEnvs {
		yield(FieldContainerEnvs, key)
	}
	for i := range d.ContainerMounts {
		yield(FieldContainerMounts, d.ContainerMounts[i].Destination)
	}
	for i := range d.ContainerDevices {
		yield(FieldContainerDevices, d.ContainerDevices[i].Path)
	}
}

// ownership is what a plugin owns: whole fields, and keys of others.
type ownership struct {
	whole Fields
	keys  map[string]bool // "unified[io.weight]".
	// partly are the fields that keys belong to.
	partly Fields
}

func keyName(field Fields, key string) string { return field.String() + "[" + key + "]" }

// parseOwnership parses what a plugin's configuration says that it owns.
func parseOwnership(names []string) (o ownership, errs []error) {
	for _, name := range names {
		field, key, err := ParseField(name)
		switch {
		case err != nil:
			errs = append(errs, err)
		case key == "":
			o.whole |= field
		default:
			if o.keys == nil {
				o.keys = map[string]bool{}
			}
			o.keys[keyName(field, key)] = true
			o.partly |= field
		}
	}
	return o, errs
}

func (o *ownership) none() bool { return o.whole|o.partly == 0 }

// overlap returns what both own, in words.
func (o *ownership) overlap(p *ownership) (shared []string) {
	for f := o.whole & p.whole; f != 0; f &= f - 1 {
		shared = append(shared, fieldNames[bits.TrailingZeros32(uint32(f))])
	}
	for _, pair := range [2][2]*ownership{{o, p}, {p, o}} {
		for key := range pair[1].keys {
			field, _, _ := strings.Cut(key, "[")
			if f, _, err := ParseField(field); err == nil && pair[0].whole&f != 0 {
				shared = append(shared, key)
			}
		}
	}
	for key := range p.keys {
		if o.keys[key] {
			shared = append(shared, key)
		}
	}
	return shared
}

// outside returns the first field or key that d sets and o does not hold, in the
// order of hook.proto; empty if there is none.
func (o *ownership) outside(d *hookmsg.Decision) (name string) {
	set := FieldsOf(d)
	if set&^o.whole == 0 {
		return ""
	}
	if plain := set &^ o.whole &^ keyed; plain != 0 {
		return (plain & -plain).String()
	}
	keysOf(d, func(field Fields, key string) {
		if o.whole&field != 0 {
			return
		}
		if k := keyName(field, key); !o.keys[k] && (name == "" || k < name) {
			name = k
		}
	})
	return name
}

// inside returns the first field or key that d sets and o holds.
func (o *ownership) inside(d *hookmsg.Decision) (name string) {
	if set := FieldsOf(d) & (o.whole | o.partly); set == 0 {
		return ""
	} else if whole := set & o.whole; whole != 0 {
		return (whole & -whole).String()
	}
	keysOf(d, func(field Fields, key string) {
		if k := keyName(field, key); o.keys[k] && (name == "" || k < name) {
			name = k
		}
	})
	return name
}
