package hookmsg

import (
	"fmt"
	"iter"
	"maps"
	"math/bits"
	"strings"
)

// Fields is a set of fields of a [Decision]. Their names are those of hook.proto.
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

	// AllFields are all fields.
	AllFields = fieldsEnd - 1
)

// Numbers returns those of the fields that are numbers of [Resources].
func (f Fields) Numbers() Fields { return f & (FieldCPUSetCPUs - 1) }

// Texts returns those of the fields that are texts of [Resources].
func (f Fields) Texts() Fields { return f & (FieldUnified - 1) &^ (FieldCPUSetCPUs - 1) }

// OfResources returns those of the fields that are of [Resources]. The others belong to a
// container's configuration, and only a runtime can apply them.
func (f Fields) OfResources() Fields { return f & (FieldContainerAnnotations - 1) }

// numberFields are the fields of Resources that are numbers.
var numberFields = [...]struct {
	name string
	in   func(*Resources) **int64
}{
	{"cpu_shares", func(r *Resources) **int64 { return &r.CPUShares }},
	{"cfs_quota_us", func(r *Resources) **int64 { return &r.CFSQuotaUS }},
	{"cfs_period_us", func(r *Resources) **int64 { return &r.CFSPeriodUS }},
	{"cpu_bvt", func(r *Resources) **int64 { return &r.CPUBvt }},
	{"cpu_idle", func(r *Resources) **int64 { return &r.CPUIdle }},
	{"cpu_burst_us", func(r *Resources) **int64 { return &r.CPUBurstUS }},
	{"memory_limit_bytes", func(r *Resources) **int64 { return &r.MemoryLimitBytes }},
	{"memory_min_bytes", func(r *Resources) **int64 { return &r.MemoryMinBytes }},
	{"memory_low_bytes", func(r *Resources) **int64 { return &r.MemoryLowBytes }},
	{"memory_high_bytes", func(r *Resources) **int64 { return &r.MemoryHighBytes }},
	{"oom_score_adj", func(r *Resources) **int64 { return &r.OOMScoreAdj }},
	{"net_cls_classid", func(r *Resources) **int64 { return &r.NetClsClassID }},
}

// textFields are the fields of Resources that are text.
var textFields = [...]struct {
	name string
	in   func(*Resources) **string
}{
	{"cpuset_cpus", func(r *Resources) **string { return &r.CPUSetCPUs }},
	{"cpuset_mems", func(r *Resources) **string { return &r.CPUSetMems }},
	{"core_sched_group", func(r *Resources) **string { return &r.CoreSchedGroup }},
	{"resctrl_group", func(r *Resources) **string { return &r.ResctrlGroup }},
	{"resctrl_schemata", func(r *Resources) **string { return &r.ResctrlSchemata }},
}

// numbers returns the numbers in the order of numberFields.
func (r *Resources) numbers() [len(numberFields)]*int64 {
	return [...]*int64{
		r.CPUShares, r.CFSQuotaUS, r.CFSPeriodUS, r.CPUBvt, r.CPUIdle, r.CPUBurstUS,
		r.MemoryLimitBytes, r.MemoryMinBytes, r.MemoryLowBytes, r.MemoryHighBytes, r.OOMScoreAdj, r.NetClsClassID,
	}
}

// texts returns the texts in the order of textFields.
func (r *Resources) texts() [len(textFields)]*string {
	return [...]*string{r.CPUSetCPUs, r.CPUSetMems, r.CoreSchedGroup, r.ResctrlGroup, r.ResctrlSchemata}
}

// decisionFields are the names by number.
var decisionFields = func() (names [22]string) {
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

// All returns the fields of the set one by one.
func (f Fields) All() iter.Seq[Fields] {
	return func(yield func(Fields) bool) {
		for f := f & AllFields; f != 0; f &= f - 1 {
			if !yield(f & -f) {
				return
			}
		}
	}
}

// String returns the names, separated by commas.
func (f Fields) String() string {
	var names []string
	for field := range f.All() {
		names = append(names, decisionFields[field.number()])
	}
	return strings.Join(names, ", ")
}

// number returns the number of a single field.
func (f Fields) number() int { return bits.TrailingZeros32(uint32(f)) }

// ParseField returns the single field with a name and, for "unified[io.weight]", the
// key. Only maps and lists have keys.
func ParseField(name string) (field Fields, key string, err error) {
	const keyed = FieldUnified | FieldContainerAnnotations | FieldContainerEnvs | FieldContainerMounts | FieldContainerDevices
	plain, rest, hasKey := strings.Cut(name, "[")
	key, closed := strings.CutSuffix(rest, "]")
	for i := range decisionFields {
		if decisionFields[i] != plain {
			continue
		}
		if field = 1 << i; hasKey && (!closed || key == "" || field&keyed == 0) {
			break
		}
		return field, key, nil
	}
	return 0, "", fmt.Errorf("%q is no field of a decision; there are %s, and keys like unified[io.weight]", name, AllFields)
}

// Number returns the address of the single field f, which is one of [Fields.Numbers].
func (r *Resources) Number(f Fields) **int64 { return numberFields[f.number()].in(r) }

// Text returns the address of the single field f, which is one of [Fields.Texts].
func (r *Resources) Text(f Fields) **string {
	return textFields[f.number()-len(numberFields)].in(r)
}

// Fields returns the fields that are set; none if r is nil.
func (r *Resources) Fields() (f Fields) {
	if r == nil {
		return 0
	}
	for i, v := range r.numbers() {
		if v != nil {
			f |= 1 << i
		}
	}
	for i, v := range r.texts() {
		if v != nil {
			f |= FieldCPUSetCPUs << i
		}
	}
	if len(r.Unified) != 0 {
		f |= FieldUnified
	}
	return f
}

// Fields returns the fields that are set; none if d is nil.
func (d *Decision) Fields() (f Fields) {
	if d == nil {
		return 0
	}
	f = d.Resources.Fields()
	for i, n := range [...]int{len(d.ContainerAnnotations), len(d.ContainerEnvs), len(d.ContainerMounts), len(d.ContainerDevices)} {
		if n != 0 {
			f |= FieldContainerAnnotations << i
		}
	}
	return f
}

// Select returns the resources with only the fields of the set, nil if none is left. The result
// shares the memory of r.
func (r *Resources) Select(f Fields) *Resources {
	has := r.Fields()
	switch f &= has; f {
	case 0:
		return nil
	case has:
		return r
	}
	s := new(Resources)
	for field := range f.Numbers().All() {
		*s.Number(field) = *r.Number(field)
	}
	for field := range f.Texts().All() {
		*s.Text(field) = *r.Text(field)
	}
	if f&FieldUnified != 0 {
		s.Unified = r.Unified
	}
	return s
}

// Select returns the decision with only the fields of the set, nil if d is nil. The result shares
// the memory of d.
func (d *Decision) Select(f Fields) *Decision {
	if d == nil {
		return nil
	}
	s := &Decision{Resources: d.Resources.Select(f)}
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

// Overlay returns the resources with the fields of top in place of their own, and the entries of
// Unified one by one. Both may be nil, and neither is changed.
func (r *Resources) Overlay(top *Resources) *Resources {
	switch {
	case top == nil:
		return r
	case r == nil:
		return top
	}
	merged := *r
	for i, v := range top.numbers() {
		if v != nil {
			*numberFields[i].in(&merged) = v
		}
	}
	for i, v := range top.texts() {
		if v != nil {
			*textFields[i].in(&merged) = v
		}
	}
	if len(top.Unified) != 0 {
		merged.Unified = make(map[string]string, len(r.Unified)+len(top.Unified))
		maps.Copy(merged.Unified, r.Unified)
		maps.Copy(merged.Unified, top.Unified)
	}
	return &merged
}

// Equal reports whether both set the same fields to the same values. Either may be nil.
func (r *Resources) Equal(s *Resources) bool {
	f := r.Fields()
	if f != s.Fields() {
		return false
	}
	for field := range f.Numbers().All() {
		if **r.Number(field) != **s.Number(field) {
			return false
		}
	}
	for field := range f.Texts().All() {
		if **r.Text(field) != **s.Text(field) {
			return false
		}
	}
	return f&FieldUnified == 0 || maps.Equal(r.Unified, s.Unified)
}
