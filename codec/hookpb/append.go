package hookpb

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// AppendRequest appends the encoding of r to dst and returns the extended slice.
// Fields are written in the order of their numbers and maps in the order of
// their keys, so equal requests are equal bytes. Strings are not checked to be
// UTF-8.
//
// 0 allocs when dst has room and no map has more than 64 keys:
// TestAppendRequestDoesNotAllocate.
func AppendRequest(dst []byte, r *Request) []byte { return AppendProjected(dst, r, &everything) }

var everything Projection

// AppendProjected appends the encoding of those fields of r that p lets travel,
// with the same guarantees as [AppendRequest].
func AppendProjected(dst []byte, r *Request, p *Projection) []byte {
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
	dst = appendProjectedMap(dst, 5, r.PodLabels, p)
	dst = appendProjectedMap(dst, 6, r.PodAnnotations, p)
	dst = appendProjectedMap(dst, 7, r.ContainerAnnotations, p)
	if p.has(8) {
		dst = appendString(dst, 8, r.CgroupParent)
	}
	dst = appendNumber(dst, 9, int64(r.QOSClass))
	if p.has(10) {
		dst = appendResources(dst, 10, r.Resources)
	}
	return appendProjectedMap(dst, 11, r.ContainerEnvs, p)
}

func appendProjectedMap(dst []byte, field protowire.Number, m map[string]string, p *Projection) []byte {
	if p.has(int(field)) {
		return appendMap(dst, field, m)
	}
	for _, k := range p.keys[field] {
		if v, ok := m[k]; ok {
			dst = appendEntry(dst, field, k, v)
		}
	}
	return dst
}

// AppendDecision appends the encoding of d to dst and returns the extended
// slice, with the same guarantees as [AppendRequest].
func AppendDecision(dst []byte, d *Decision) []byte {
	dst = appendResources(dst, 1, d.Resources)
	dst = appendMap(dst, 2, d.ContainerAnnotations)
	dst = appendMap(dst, 3, d.ContainerEnvs)
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

func appendResources(dst []byte, field protowire.Number, r *Resources) []byte {
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
	dst = appendMap(dst, 14, r.Unified)
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
	dst = protowire.AppendTag(dst, field, protowire.VarintType)
	return protowire.AppendVarint(dst, uint64(*v))
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
	dst = protowire.AppendTag(dst, field, protowire.BytesType)
	return protowire.AppendString(dst, *v)
}

// appendMap appends one entry for each key.
func appendMap(dst []byte, field protowire.Number, m map[string]string) []byte {
	if len(m) == 0 {
		return dst
	}
	// The entries of a common pod fit on the stack.
	type pair struct{ key, value string }
	var array [64]pair
	pairs := array[:0]
	for k, v := range m {
		if len(pairs) >= len(array) {
			pairs = append(pairs, pair{k, v}) // Sorted below.
			continue
		}
		// Sorted as they come, by a search for the place: comparing keys that begin
		// alike is what costs.
		low, high := 0, len(pairs)
		for low < high {
			if middle := (low + high) / 2; pairs[middle].key < k {
				low = middle + 1
			} else {
				high = middle
			}
		}
		pairs = pairs[:len(pairs)+1]
		copy(pairs[low+1:], pairs[low:])
		pairs[low] = pair{k, v}
	}
	if len(pairs) > len(array) {
		slices.SortFunc(pairs, func(a, b pair) int { return strings.Compare(a.key, b.key) })
	}
	for i := range pairs {
		dst = appendEntry(dst, field, pairs[i].key, pairs[i].value)
	}
	return dst
}

// appendEntry appends an entry of a map. Both fields of it are always written,
// as protobuf's own encoders do.
func appendEntry(dst []byte, field protowire.Number, key, value string) []byte {
	n := 2 + protowire.SizeBytes(len(key)) + protowire.SizeBytes(len(value))
	if len(key) < 0x80 && len(value) < 0x80 && n < 0x4000 {
		// All tags have one byte, and so have these lengths.
		dst = append(dst, byte(field)<<3|2)
		if n < 0x80 {
			dst = append(dst, byte(n))
		} else {
			dst = append(dst, byte(n)|0x80, byte(n>>7))
		}
		dst = append(dst, 1<<3|2, byte(len(key)))
		dst = append(dst, key...)
		dst = append(dst, 2<<3|2, byte(len(value)))
		return append(dst, value...)
	}
	dst = protowire.AppendTag(dst, field, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(n))
	dst = protowire.AppendTag(dst, 1, protowire.BytesType)
	dst = protowire.AppendString(dst, key)
	dst = protowire.AppendTag(dst, 2, protowire.BytesType)
	return protowire.AppendString(dst, value)
}

// beginMessage appends the tag of a message and one byte for its length; start
// is where its fields begin. endMessage fills the length in.
func beginMessage(dst []byte, field protowire.Number) (_ []byte, start int) {
	dst = protowire.AppendTag(dst, field, protowire.BytesType)
	dst = append(dst, 0)
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
