package hookwire

import (
	"slices"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/internal/wire"
)

// AppendRequest appends the encoding of r to dst and returns the extended slice.
// Fields are written in the order of their numbers and maps in the order of
// their keys, so equal requests are equal bytes. Strings are not checked to be
// UTF-8.
//
// 0 allocs when dst has room: TestAppendRequestDoesNotAllocate.
func AppendRequest(dst []byte, r *hookmsg.Request) []byte { return everything.AppendRequest(dst, r) }

var everything Reads

// AppendRequest appends the encoding of those fields of req that travel, with the same
// guarantees as [AppendRequest].
func (r *Reads) AppendRequest(dst []byte, req *hookmsg.Request) []byte {
	e := encoders.Get().(*encoder)
	defer encoders.Put(e)
	return e.appendRequest(dst, req, r)
}

// encoder encodes messages one after the other. It knows the keys of the maps of
// the last one and their order.
//
// Sorting is three quarters of the cost of a map of Go, which comes in another order
// each time. The next request has mostly the same keys: it is about the same pod, about
// each of its containers and at one stage after the other, or about a replica. A
// look-up of each key shows whether it does, and finds the values as well.
type encoder struct {
	keys [mapUnified + 1][]string
}

// The maps whose keys an encoder knows: those of a request by their numbers, those
// of a decision, and the one of resources.
const (
	mapDecisionAnnotations = 2
	mapDecisionEnvs        = 3
	mapUnified             = 12
)

// encoders are *encoder. They are dropped when memory is collected, and with them
// what they hold of pods that are gone.
var encoders = sync.Pool{New: func() any { return new(encoder) }}

const fieldContainerEnvs = 11

func (e *encoder) appendRequest(dst []byte, r *hookmsg.Request, reads *Reads) []byte {
	dst = wire.AppendNumber(dst, 1, int64(r.Stage))
	dst = wire.AppendNumber(dst, 2, int64(r.Level))
	if reads.whole(3) && r.Pod != (hookmsg.PodMeta{}) {
		var start int
		dst, start = wire.BeginMessage(dst, 3)
		dst = wire.AppendString(dst, 1, r.Pod.Namespace)
		dst = wire.AppendString(dst, 2, r.Pod.Name)
		dst = wire.AppendString(dst, 3, r.Pod.UID)
		dst = wire.EndMessage(dst, start)
	}
	if reads.whole(4) && r.Container != (hookmsg.ContainerMeta{}) {
		var start int
		dst, start = wire.BeginMessage(dst, 4)
		dst = wire.AppendString(dst, 1, r.Container.Name)
		dst = wire.AppendString(dst, 2, r.Container.ID)
		dst = wire.EndMessage(dst, start)
	}
	dst = e.appendReadMap(dst, 5, r.PodLabels, reads)
	dst = e.appendReadMap(dst, 6, r.PodAnnotations, reads)
	dst = e.appendReadMap(dst, 7, r.ContainerAnnotations, reads)
	if reads.whole(8) {
		dst = wire.AppendString(dst, 8, r.CgroupParent)
	}
	dst = wire.AppendNumber(dst, 9, int64(r.QOSClass))
	if reads.whole(10) {
		dst = e.appendResources(dst, 10, r.Resources)
	}
	return appendReadEnvs(dst, r.ContainerEnvs, reads)
}

func (e *encoder) appendReadMap(dst []byte, field protowire.Number, m map[string]string, reads *Reads) []byte {
	if reads.whole(int(field)) {
		return e.appendMap(dst, field, int(field), m)
	}
	for _, k := range reads.keys[field] {
		if v, ok := m[k]; ok {
			dst = wire.AppendEntry(dst, field, k, v)
		}
	}
	return dst
}

func appendReadEnvs(dst []byte, envs []hookmsg.Env, reads *Reads) []byte {
	all := reads.whole(fieldContainerEnvs)
	for i := range envs {
		if all || slices.Contains(reads.keys[fieldContainerEnvs], envs[i].Name) {
			dst = wire.AppendEntry(dst, fieldContainerEnvs, envs[i].Name, envs[i].Value)
		}
	}
	return dst
}

// AppendDecision appends the encoding of d to dst and returns the extended
// slice, with the same guarantees as [AppendRequest].
func AppendDecision(dst []byte, d *hookmsg.Decision) []byte {
	e := encoders.Get().(*encoder)
	defer encoders.Put(e)
	dst = e.appendResources(dst, 1, d.Resources)
	dst = e.appendMap(dst, 2, mapDecisionAnnotations, d.ContainerAnnotations)
	dst = e.appendMap(dst, 3, mapDecisionEnvs, d.ContainerEnvs)
	for i := range d.ContainerMounts {
		m := &d.ContainerMounts[i]
		var start int
		dst, start = wire.BeginMessage(dst, 4)
		dst = wire.AppendString(dst, 1, m.Destination)
		dst = wire.AppendString(dst, 2, m.Source)
		dst = wire.AppendString(dst, 3, m.Type)
		for _, option := range m.Options {
			dst = wire.AppendItem(dst, 4, option)
		}
		dst = wire.EndMessage(dst, start)
	}
	for i := range d.ContainerDevices {
		v := &d.ContainerDevices[i]
		var start int
		dst, start = wire.BeginMessage(dst, 5)
		dst = wire.AppendString(dst, 1, v.Path)
		dst = wire.AppendString(dst, 2, v.Type)
		dst = wire.AppendNumber(dst, 3, v.Major)
		dst = wire.AppendNumber(dst, 4, v.Minor)
		dst = wire.AppendOptionalNumber(dst, 5, v.FileMode)
		dst = wire.AppendOptionalNumber(dst, 6, v.UID)
		dst = wire.AppendOptionalNumber(dst, 7, v.GID)
		dst = wire.EndMessage(dst, start)
	}
	return dst
}

func (e *encoder) appendResources(dst []byte, field protowire.Number, r *hookmsg.Resources) []byte {
	if r == nil {
		return dst
	}
	dst, start := wire.BeginMessage(dst, field)
	dst = wire.AppendOptionalNumber(dst, 1, r.CPUShares)
	dst = wire.AppendOptionalNumber(dst, 2, r.CFSQuotaUS)
	dst = wire.AppendOptionalNumber(dst, 3, r.CFSPeriodUS)
	dst = wire.AppendOptionalString(dst, 4, r.CPUSetCPUs)
	dst = wire.AppendOptionalString(dst, 5, r.CPUSetMems)
	dst = wire.AppendOptionalNumber(dst, 6, r.CPUBvt)
	dst = wire.AppendOptionalNumber(dst, 7, r.CPUIdle)
	dst = wire.AppendOptionalNumber(dst, 8, r.CPUBurstUS)
	dst = wire.AppendOptionalNumber(dst, 9, r.MemoryLimitBytes)
	dst = wire.AppendOptionalNumber(dst, 10, r.MemoryMinBytes)
	dst = wire.AppendOptionalNumber(dst, 11, r.MemoryLowBytes)
	dst = wire.AppendOptionalNumber(dst, 12, r.MemoryHighBytes)
	dst = wire.AppendOptionalNumber(dst, 13, r.OOMScoreAdj)
	dst = e.appendMap(dst, 14, mapUnified, r.Unified)
	dst = wire.AppendOptionalNumber(dst, 15, r.NetClsClassID)
	dst = wire.AppendOptionalString(dst, 16, r.CoreSchedGroup)
	dst = wire.AppendOptionalString(dst, 17, r.ResctrlGroup)
	dst = wire.AppendOptionalString(dst, 18, r.ResctrlSchemata)
	return wire.EndMessage(dst, start)
}

// appendMap appends one entry for each key, in the order of the keys.
func (e *encoder) appendMap(dst []byte, field protowire.Number, which int, m map[string]string) []byte {
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
	for _, key := range keys {
		value, ok := m[key]
		if !ok {
			return nil, false
		}
		dst = wire.AppendEntry(dst, field, key, value)
	}
	return dst, true
}
