package hookpb

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// ErrMalformed says that bytes are not the message that they should be: cut
// off, with a known field of the wrong wire type, or a string that is not
// UTF-8.
var ErrMalformed = errors.New("malformed message")

// ParseRequest decodes a request. It copies what it keeps of b.
//
// Unknown fields are skipped; of a field that is there twice the last one
// counts, and messages are merged, as protobuf has it. Unlike protobuf's own
// decoders it refuses a known field of another wire type instead of skipping
// it: whoever wrote it meant something by it. Every error wraps [ErrMalformed]
// and names the field.
func ParseRequest(b []byte) (*Request, error) {
	r := new(Request)
	c := cursor{rest: b}
	for c.next() {
		switch c.number {
		case 1:
			r.Stage = Stage(c.enum("stage"))
		case 2:
			r.Level = Level(c.enum("level"))
		case 3:
			m := c.message("pod")
			for m.next() {
				switch m.number {
				case 1:
					r.Pod.Namespace = m.string("namespace")
				case 2:
					r.Pod.Name = m.string("name")
				case 3:
					r.Pod.UID = m.string("uid")
				}
			}
			c.done(&m, "pod")
		case 4:
			m := c.message("container")
			for m.next() {
				switch m.number {
				case 1:
					r.Container.Name = m.string("name")
				case 2:
					r.Container.ID = m.string("id")
				}
			}
			c.done(&m, "container")
		case 5:
			c.entry("pod_labels", &r.PodLabels)
		case 6:
			c.entry("pod_annotations", &r.PodAnnotations)
		case 7:
			c.entry("container_annotations", &r.ContainerAnnotations)
		case 8:
			r.CgroupParent = c.string("cgroup_parent")
		case 9:
			r.QOSClass = QOSClass(c.enum("qos_class"))
		case 10:
			if r.Resources == nil {
				r.Resources = new(Resources)
			}
			c.resources(r.Resources, new(numbers))
		case 11:
			c.entry("container_envs", &r.ContainerEnvs)
		}
	}
	if c.err != nil {
		return nil, fmt.Errorf("parse hook request: %w: %w", ErrMalformed, c.err)
	}
	return r, nil
}

// ParseDecision decodes a decision, which a guest wrote and nobody has checked.
// It copies what it keeps of b; the rules and the errors are those of
// [ParseRequest]. Whether the values make sense is for package hooks to say.
//
// No bytes are the decision that changes nothing.
//
// 1 alloc for a decision of numbers: TestParseDecisionAllocatesOnce.
func ParseDecision(b []byte) (*Decision, error) {
	all := new(struct {
		Decision
		resources Resources
		numbers   numbers
	})
	d := &all.Decision
	c := cursor{rest: b}
	for c.next() {
		switch c.number {
		case 1:
			d.Resources = &all.resources
			c.resources(d.Resources, &all.numbers)
		case 2:
			c.entry("container_annotations", &d.ContainerAnnotations)
		case 3:
			c.entry("container_envs", &d.ContainerEnvs)
		}
	}
	if c.err != nil {
		return nil, fmt.Errorf("parse hook decision: %w: %w", ErrMalformed, c.err)
	}
	return d, nil
}

// numbers is what the fields of one Resources point to, by field number.
type numbers [14]int64

// resources decodes the field that the cursor is at into r.
func (c *cursor) resources(r *Resources, n *numbers) {
	m := c.message("resources")
	for m.next() {
		switch m.number {
		case 1:
			r.CPUShares = m.optional("cpu_shares", n)
		case 2:
			r.CFSQuotaUS = m.optional("cfs_quota_us", n)
		case 3:
			r.CFSPeriodUS = m.optional("cfs_period_us", n)
		case 4:
			r.CPUSetCPUs = m.optionalString("cpuset_cpus")
		case 5:
			r.CPUSetMems = m.optionalString("cpuset_mems")
		case 6:
			r.CPUBvt = m.optional("cpu_bvt", n)
		case 7:
			r.CPUIdle = m.optional("cpu_idle", n)
		case 8:
			r.CPUBurstUS = m.optional("cpu_burst_us", n)
		case 9:
			r.MemoryLimitBytes = m.optional("memory_limit_bytes", n)
		case 10:
			r.MemoryMinBytes = m.optional("memory_min_bytes", n)
		case 11:
			r.MemoryLowBytes = m.optional("memory_low_bytes", n)
		case 12:
			r.MemoryHighBytes = m.optional("memory_high_bytes", n)
		case 13:
			r.OOMScoreAdj = m.optional("oom_score_adj", n)
		case 14:
			m.entry("unified", &r.Unified)
		}
	}
	c.done(&m, "resources")
}

// cursor walks over the fields of one message and stops at the first error.
type cursor struct {
	number protowire.Number
	err    error

	typ   protowire.Type
	value uint64 // Of a varint.
	bytes []byte // Of a string or a message.
	rest  []byte
}

// next goes to the next field and reports whether there is one.
func (c *cursor) next() bool {
	if c.err != nil || len(c.rest) == 0 {
		return false
	}
	var n int
	if c.number, c.typ, n = protowire.ConsumeTag(c.rest); n < 0 {
		c.err = protowire.ParseError(n)
		return false
	}
	c.rest = c.rest[n:]
	switch c.typ {
	case protowire.VarintType:
		c.value, n = protowire.ConsumeVarint(c.rest)
	case protowire.BytesType:
		c.bytes, n = protowire.ConsumeBytes(c.rest)
	default:
		n = protowire.ConsumeFieldValue(c.number, c.typ, c.rest)
	}
	if n < 0 {
		c.err = fmt.Errorf("field %d: %w", c.number, protowire.ParseError(n))
		return false
	}
	c.rest = c.rest[n:]
	return true
}

// is checks the wire type of a known field.
func (c *cursor) is(want protowire.Type, name string) bool {
	if c.err == nil && c.typ != want {
		c.err = fmt.Errorf("field %s has wire type %d, want %d", name, c.typ, want)
	}
	return c.err == nil
}

func (c *cursor) enum(name string) int32 {
	if !c.is(protowire.VarintType, name) {
		return 0
	}
	return int32(c.value)
}

// optional stores the number of the field in n and returns where.
func (c *cursor) optional(name string, n *numbers) *int64 {
	if !c.is(protowire.VarintType, name) {
		return nil
	}
	n[c.number] = int64(c.value)
	return &n[c.number]
}

func (c *cursor) string(name string) string {
	if !c.is(protowire.BytesType, name) {
		return ""
	}
	if !utf8.Valid(c.bytes) {
		c.err = fmt.Errorf("field %s is not UTF-8", name)
		return ""
	}
	return string(c.bytes)
}

func (c *cursor) optionalString(name string) *string {
	s := c.string(name)
	return &s
}

// message returns a cursor over the fields of the message that the field holds.
func (c *cursor) message(name string) cursor {
	if !c.is(protowire.BytesType, name) {
		return cursor{}
	}
	return cursor{rest: c.bytes}
}

// done takes over the error of the cursor m of a message.
func (c *cursor) done(m *cursor, name string) {
	if m.err != nil {
		c.err = fmt.Errorf("%s: %w", name, m.err)
	}
}

// entry adds the map entry that the field holds to m.
func (c *cursor) entry(name string, m *map[string]string) {
	var key, value string
	e := c.message(name)
	for e.next() {
		switch e.number {
		case 1:
			key = e.string("key")
		case 2:
			value = e.string("value")
		}
	}
	c.done(&e, name)
	if c.err != nil {
		return
	}
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[key] = value
}
