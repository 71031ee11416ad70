package hookmsg

import (
	"encoding/binary"
	"slices"
	"sync"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
)

// AppendRequest appends the encoding of r to dst and returns the extended slice.
// Fields are written in the order of their numbers and maps in the order of
// their keys, so equal requests are equal bytes. Strings are not checked to be
// UTF-8.
//
// 0 allocs when dst has room: TestAppendRequestDoesNotAllocate.
func AppendRequest(dst []byte, r *Request) []byte {
	e := encoders.Get().(*Encoder)
	defer encoders.Put(e)
	return e.AppendProjected(dst, r, &everything)
}

var everything Projection

// Encoder encodes requests one after the other. It knows the keys of the maps of
// the last one and their order.
//
// Sorting is half of the cost of a map of Go, which comes in another order each
// time. The next request has mostly the same keys: it is about the same pod, about
// each of its containers and at one stage after the other, or about a replica. A
// look-up of each key shows whether it does, and finds the values as well.
//
// The zero value is ready for use, by one goroutine at a time.
type Encoder struct {
	keys [mapUnified + 1][]string
}

// The maps whose keys an Encoder knows: those of a request by their numbers, those
// of a decision, and the one of resources.
const (
	mapDecisionAnnotations = 2
	mapDecisionEnvs        = 3
	mapUnified             = 12
)

// encoders are *Encoder. They are dropped when memory is collected, and with them
// what they hold of pods that are gone.
var encoders = sync.Pool{New: func() any { return new(Encoder) }}

const fieldContainerEnvs = 11

// AppendProjected appends the encoding of those fields of r that p lets travel,
// with the same guarantees as [AppendRequest].
func (e *Encoder) AppendProjected(dst []byte, r *Request, p *Projection) []byte {
	dst = appendNumber(dst, 1, int64(r.Stage))
	dst = appendNumber(dst, 2, int64(r.Level))
	if p.has(3) && r.Pod != (PodMeta{}) {
		var start int
		dst, start = beginMessage(dst, 3)
		dst = appendString(dst, 1, r.Pod.Namespace)
		dst = appendString(dst, 2, r.Pod.Name)
		dst = appendString(dst, 3, r.Pod.UID)
		dst = endMessage(dst, start)
	}
	if p.has(4) && r.Container != (ContainerMeta{}) {
		var start int
		dst, start = beginMessage(dst, 4)
		dst = appendString(dst, 1, r.Container.Name)
		dst = appendString(dst, 2, r.Container.ID)
		dst = endMessage(dst, start)
	}
	dst = e.appendProjectedMap(dst, 5, r.PodLabels, p)
	dst = e.appendProjectedMap(dst, 6, r.PodAnnotations, p)
	dst = e.appendProjectedMap(dst, 7, r.ContainerAnnotations, p)
	if p.has(8) {
		dst = appendString(dst, 8, r.CgroupParent)
	}
	dst = appendNumber(dst, 9, int64(r.QOSClass))
	if p.has(10) {
		dst = e.appendResources(dst, 10, r.Resources)
	}
	return appendProjectedEnvs(dst, r.ContainerEnvs, p)
}

func (e *Encoder) appendProjectedMap(dst []byte, field protowire.Number, m map[string]string, p *Projection) []byte {
	if p.has(int(field)) {
		return e.appendMap(dst, field, int(field), m)
	}
	for _, k := range p.keys[field] {
		if v, ok := m[k]; ok {
			dst = appendEntries(dst, field, []Env{{k, v}})
		}
	}
	return dst
}

func appendProjectedEnvs(dst []byte, envs []Env, p *Projection) []byte {
	if p.has(fieldContainerEnvs) {
		return appendEntries(dst, fieldContainerEnvs, envs)
	}
	if keys := p.keys[fieldContainerEnvs]; len(keys) != 0 {
		for i := range envs {
			if _, ok := slices.BinarySearch(keys, envs[i].Name); ok {
				dst = appendEntries(dst, fieldContainerEnvs, envs[i:i+1])
			}
		}
	}
	return dst
}

// AppendDecision appends the encoding of d to dst and returns the extended
// slice, with the same guarantees as [AppendRequest].
func AppendDecision(dst []byte, d *Decision) []byte {
	e := encoders.Get().(*Encoder)
	defer encoders.Put(e)
	dst = e.appendResources(dst, 1, d.Resources)
	dst = e.appendMap(dst, 2, mapDecisionAnnotations, d.ContainerAnnotations)
	dst = e.appendMap(dst, 3, mapDecisionEnvs, d.ContainerEnvs)
	for i := range d.ContainerMounts {
		m := &d.ContainerMounts[i]
		var start int
		dst, start = beginMessage(dst, 4)
		dst = appendString(dst, 1, m.Destination)
		dst = appendString(dst, 2, m.Source)
		dst = appendString(dst, 3, m.Type)
		for j := range m.Options {
			dst = appendOptionalString(dst, 4, &m.Options[j])
		}
		dst = endMessage(dst, start)
	}
	for i := range d.ContainerDevices {
		v := &d.ContainerDevices[i]
		var start int
		dst, start = beginMessage(dst, 5)
		dst = appendString(dst, 1, v.Path)
		dst = appendString(dst, 2, v.Type)
		dst = appendNumber(dst, 3, v.Major)
		dst = appendNumber(dst, 4, v.Minor)
		dst = appendOptional(dst, 5, v.FileMode)
		dst = appendOptional(dst, 6, v.UID)
		dst = appendOptional(dst, 7, v.GID)
		dst = endMessage(dst, start)
	}
	return dst
}

func (e *Encoder) appendResources(dst []byte, field protowire.Number, r *Resources) []byte {
	if r == nil {
		return dst
	}
	dst, start := beginMessage(dst, field)
	dst = appendOptional(dst, 1, r.CPUShares)
	dst = appendOptional(dst, 2, r.CFSQuotaUS)
	dst = appendOptional(dst, 3, r.CFSPeriodUS)
	dst = appendOptionalString(dst, 4, r.CPUSetCPUs)
	dst = appendOptionalString(dst, 5, r.CPUSetMems)
	dst = appendOptional(dst, 6, r.CPUBvt)
	dst = appendOptional(dst, 7, r.CPUIdle)
	dst = appendOptional(dst, 8, r.CPUBurstUS)
	dst = appendOptional(dst, 9, r.MemoryLimitBytes)
	dst = appendOptional(dst, 10, r.MemoryMinBytes)
	dst = appendOptional(dst, 11, r.MemoryLowBytes)
	dst = appendOptional(dst, 12, r.MemoryHighBytes)
	dst = appendOptional(dst, 13, r.OOMScoreAdj)
	dst = e.appendMap(dst, 14, mapUnified, r.Unified)
	dst = appendOptional(dst, 15, r.NetClsClassID)
	dst = appendOptionalString(dst, 16, r.CoreSchedGroup)
	dst = appendOptionalString(dst, 17, r.ResctrlGroup)
	dst = appendOptionalString(dst, 18, r.ResctrlSchemata)
	return endMessage(dst, start)
}

// appendNumber appends a field without presence: zero is left out.
func appendNumber(dst []byte, field protowire.Number, v int64) []byte {
	if v == 0 {
		return dst
	}
	return appendOptional(dst, field, &v)
}

func appendOptional(dst []byte, field protowire.Number, v *int64) []byte {
	if v == nil {
		return dst
	}
	return protowire.AppendVarint(appendTag(dst, field, protowire.VarintType), uint64(*v))
}

// appendString appends a field without presence: the empty string is left out.
func appendString(dst []byte, field protowire.Number, v string) []byte {
	if v == "" {
		return dst
	}
	return appendOptionalString(dst, field, &v)
}

func appendOptionalString(dst []byte, field protowire.Number, v *string) []byte {
	if v == nil {
		return dst
	}
	dst = appendTag(dst, field, protowire.BytesType)
	if len(*v) < 0x80 {
		return append(append(dst, byte(len(*v))), *v...)
	}
	return protowire.AppendString(dst, *v)
}

// appendTag appends the tag of a field. Of those with a number below 16, as most of
// ours have, it has one byte.
func appendTag(dst []byte, field protowire.Number, typ protowire.Type) []byte {
	if field < 16 {
		return append(dst, byte(field)<<3|byte(typ))
	}
	return protowire.AppendTag(dst, field, typ)
}

// bytesTag is the tag of a message or a map, whose numbers are below 16.
func bytesTag(field protowire.Number) byte { return byte(field)<<3 | byte(protowire.BytesType) }

// appendMap appends one entry for each key, in the order of the keys.
func (e *Encoder) appendMap(dst []byte, field protowire.Number, which int, m map[string]string) []byte {
	if len(m) == 0 {
		return dst
	}
	keys := e.keys[which]
	if len(keys) == len(m) {
		if appended, ok := appendKeys(dst, field, keys, m); ok {
			return appended
		}
	}
	keys = keys[:0]
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	e.keys[which] = keys
	dst, _ = appendKeys(dst, field, keys, m)
	return dst
}

// appendKeys appends the entries of keys, and reports whether m has all of them.
func appendKeys(dst []byte, field protowire.Number, keys []string, m map[string]string) (_ []byte, ok bool) {
	// Some at a time, on the stack: looking up and copying in turns takes half as
	// long again as one after the other.
	var entries [16]Env
	for len(keys) != 0 {
		n := min(len(keys), len(entries))
		for i, k := range keys[:n] {
			v, ok := m[k]
			if !ok {
				return nil, false
			}
			entries[i] = Env{k, v}
		}
		dst, keys = appendEntries(dst, field, entries[:n]), keys[n:]
	}
	return dst, true
}

// appendEntries appends entries of a map. Both fields of each are always written,
// as protobuf's own encoders do.
func appendEntries(dst []byte, field protowire.Number, entries []Env) []byte {
	room := 0
	for i := range entries {
		room += len(entries[i].Name) + len(entries[i].Value) + entryOverhead
	}
	// There is room for all of them, so what follows needs no bounds.
	dst = slices.Grow(dst, room)
	start := unsafe.Pointer(unsafe.SliceData(dst))
	for i := range entries {
		key, value := entries[i].Name, entries[i].Value
		if len(key) >= 0x80 || len(value) >= 0x80 {
			dst = appendLongEntry(dst, field, key, value) // Within the room.
			continue
		}
		// The tags have one byte, and so have the lengths of key and value: what is
		// before the key is written as one number.
		n := 4 + len(key) + len(value)
		at := len(dst) + 4
		head := uint32(n) | uint32(bytesTag(1))<<8 | uint32(len(key))<<16
		if n >= 0x80 {
			at++
			head = uint32(n)&0x7f | 0x80 | uint32(n)>>7<<8 | uint32(bytesTag(1))<<16 | uint32(len(key))<<24
		}
		binary.LittleEndian.PutUint64((*[8]byte)(unsafe.Add(start, len(dst)))[:], uint64(bytesTag(field))|uint64(head)<<8)
		put(unsafe.Add(start, at), key)
		at += len(key)
		binary.LittleEndian.PutUint16((*[2]byte)(unsafe.Add(start, at))[:], uint16(bytesTag(2))|uint16(len(value))<<8)
		at += 2
		put(unsafe.Add(start, at), value)
		dst = dst[:at+len(value)]
	}
	return dst
}

// put copies s to p. Most keys and many values have 8 to 32 bytes, which two moves
// copy faster than a call.
func put(p unsafe.Pointer, s string) {
	n, from := len(s), unsafe.Pointer(unsafe.StringData(s))
	switch {
	case 16 <= n && n <= 32:
		*(*[16]byte)(p) = *(*[16]byte)(from)
		*(*[16]byte)(unsafe.Add(p, n-16)) = *(*[16]byte)(unsafe.Add(from, n-16))
	case 8 <= n && n < 16:
		*(*[8]byte)(p) = *(*[8]byte)(from)
		*(*[8]byte)(unsafe.Add(p, n-8)) = *(*[8]byte)(unsafe.Add(from, n-8))
	default:
		copy(unsafe.Slice((*byte)(p), n), s)
	}
}

// entryOverhead is how long an entry is at most, without its key and its value:
// three tags and three lengths.
const entryOverhead = 3 + 3*binary.MaxVarintLen64

func appendLongEntry(dst []byte, field protowire.Number, key, value string) []byte {
	dst = protowire.AppendVarint(append(dst, bytesTag(field)), uint64(2+protowire.SizeBytes(len(key))+protowire.SizeBytes(len(value))))
	dst = protowire.AppendString(append(dst, bytesTag(1)), key)
	return protowire.AppendString(append(dst, bytesTag(2)), value)
}

// beginMessage appends the tag of a message and one byte for its length; start
// is where its fields begin. endMessage fills the length in.
func beginMessage(dst []byte, field protowire.Number) (_ []byte, start int) {
	dst = append(dst, bytesTag(field), 0)
	return dst, len(dst)
}

func endMessage(dst []byte, start int) []byte {
	n := uint64(len(dst) - start)
	if n < 0x80 {
		dst[start-1] = byte(n)
		return dst
	}
	// The length needs more than the one byte: move the fields.
	more := protowire.SizeVarint(n) - 1
	for range more {
		dst = append(dst, 0)
	}
	copy(dst[start+more:], dst[start:])
	protowire.AppendVarint(dst[:start-1], n)
	return dst
}
