package hookmsg

import (
	"slices"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kubewasm/kubewasm/internal/wire"
)

// Append appends the encoding of r to dst and returns the extended slice.
// Fields are written in the order of their numbers and maps in the order of
// their keys, so equal requests are equal bytes. Strings are not checked to be
// UTF-8.
//
// 0 allocs when dst has room: TestAppendRequestDoesNotAllocate.
func (r *Request) Append(dst []byte) []byte { return everything.AppendRequest(dst, r) }

var everything Reads

// AppendRequest appends the encoding of those fields of req that travel, with the same
// guarantees as [Request.Append].
func (r *Reads) AppendRequest(dst []byte, req *Request) []byte {
	e := encoders.Get().(*encoder)
	defer encoders.Put(e)
	dst = wire.AppendNumber(dst, 1, int64(req.Stage))
	dst = wire.AppendNumber(dst, 2, int64(req.Level))
	if r.whole(3) && req.Pod != (PodMeta{}) {
		var start int
		dst, start = wire.BeginMessage(dst, 3)
		dst = wire.AppendString(dst, 1, req.Pod.Namespace)
		dst = wire.AppendString(dst, 2, req.Pod.Name)
		dst = wire.AppendString(dst, 3, req.Pod.UID)
		dst = wire.EndMessage(dst, start)
	}
	if r.whole(4) && req.Container != (ContainerMeta{}) {
		var start int
		dst, start = wire.BeginMessage(dst, 4)
		dst = wire.AppendString(dst, 1, req.Container.Name)
		dst = wire.AppendString(dst, 2, req.Container.ID)
		dst = wire.EndMessage(dst, start)
	}
	for i, m := range [...]map[string]string{req.PodLabels, req.PodAnnotations, req.ContainerAnnotations} {
		dst = r.appendMap(dst, e, 5+i, m)
	}
	if r.whole(8) {
		dst = wire.AppendString(dst, 8, req.CgroupParent)
	}
	dst = wire.AppendNumber(dst, 9, int64(req.QOSClass))
	if r.whole(10) {
		dst = e.appendResources(dst, 10, req.Resources)
	}
	all := r.whole(11)
	for i := range req.ContainerEnvs {
		if env := &req.ContainerEnvs[i]; all || slices.Contains(r.keys[11], env.Name) {
			dst = wire.AppendEntry(dst, 11, env.Name, env.Value)
		}
	}
	return r.appendNode(dst, e, req.Node)
}

// AppendNode appends the encoding of those fields about a node that travel, as
// [Reads.AppendRequest] does.
func (r *Reads) AppendNode(dst []byte, node *Node) []byte {
	e := encoders.Get().(*encoder)
	defer encoders.Put(e)
	return r.appendNode(dst, e, node)
}

func (r *Reads) appendNode(dst []byte, e *encoder, node *Node) []byte {
	if node == nil {
		return dst
	}
	if r.whole(12) {
		dst = wire.AppendString(dst, 12, node.Name)
	}
	for i, m := range [...]map[string]string{node.Labels, node.Annotations, node.Capacity, node.Allocatable} {
		dst = r.appendMap(dst, e, 13+i, m)
	}
	if t := node.Topology; t != nil && r.whole(17) {
		var start int
		dst, start = wire.BeginMessage(dst, 17)
		dst = appendTopology(dst, t)
		dst = wire.EndMessage(dst, start)
	}
	return dst
}

func appendTopology(dst []byte, t *Topology) []byte {
	var start int
	dst = wire.AppendString(dst, 1, t.OnlineCPUs)
	for _, n := range t.NUMANodes {
		dst, start = wire.BeginMessage(dst, 2)
		dst = wire.AppendNumber(dst, 1, n.ID)
		dst = wire.AppendString(dst, 2, n.CPUs)
		dst = wire.AppendNumber(dst, 3, n.MemoryBytes)
		dst = wire.EndMessage(dst, start)
	}
	for i, groups := range [...][]CPUGroup{t.Sockets, t.Cores} {
		for _, g := range groups {
			dst, start = wire.BeginMessage(dst, protowire.Number(3+i))
			dst = wire.AppendNumber(dst, 1, g.ID)
			dst = wire.AppendString(dst, 2, g.CPUs)
			dst = wire.EndMessage(dst, start)
		}
	}
	for _, c := range t.Caches {
		dst, start = wire.BeginMessage(dst, 5)
		dst = wire.AppendNumber(dst, 1, c.Level)
		dst = wire.AppendString(dst, 2, c.Type)
		dst = wire.AppendNumber(dst, 3, c.SizeBytes)
		dst = wire.AppendString(dst, 4, c.CPUs)
		dst = wire.EndMessage(dst, start)
	}
	return dst
}

// appendMap appends those entries of the map with a number that travel.
func (r *Reads) appendMap(dst []byte, e *encoder, field int, m map[string]string) []byte {
	if r.whole(field) {
		return e.appendMap(dst, protowire.Number(field), field, m)
	}
	for _, k := range r.keys[field] {
		if v, ok := m[k]; ok {
			dst = wire.AppendEntry(dst, protowire.Number(field), k, v)
		}
	}
	return dst
}

// encoder encodes messages one after the other. It remembers the keys of the maps of the last one
// and their order.
//
// Sorting is three quarters of the cost of encoding a map of Go, whose order changes each time. The
// next request mostly has the same keys: it concerns the same pod, each of its containers at one
// stage after the other, or a replica. A look-up of each key shows whether the keys are the same,
// and finds the values as well.
type encoder struct {
	keys [mapUnified + 1][]string
}

// The maps whose keys an encoder knows: those of a request by their numbers, those
// of a decision, and the one of resources.
const (
	mapDecisionAnnotations = 2
	mapDecisionEnvs        = 3
	mapUnified             = 18
)

// encoders are *encoder. They are dropped when memory is collected, together with the data of
// former pods in them.
var encoders = sync.Pool{New: func() any { return new(encoder) }}

// Append appends the encoding of d to dst and returns the extended slice, with the
// same guarantees as [Request.Append].
func (d *Decision) Append(dst []byte) []byte {
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

func (e *encoder) appendResources(dst []byte, field protowire.Number, r *Resources) []byte {
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
	begin, keys := len(dst), e.keys[which]
	same := len(keys) == len(m)
	for i := 0; same && i < len(keys); i++ {
		var value string
		if value, same = m[keys[i]]; same {
			dst = wire.AppendEntry(dst, field, keys[i], value)
		}
	}
	if same {
		return dst
	}
	dst, keys = dst[:begin], keys[:0]
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	e.keys[which] = keys
	for _, key := range keys {
		dst = wire.AppendEntry(dst, field, key, m[key])
	}
	return dst
}
