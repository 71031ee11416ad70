package hooks

import (
	"errors"
	"iter"
	"slices"
	"unsafe"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/internal/wire"
)

// Request is a request of the host to decide on. It is a view of the bytes that the host sent: one
// pass records the place of each field, and only fields that the plugin reads are decoded.
//
// The message is kubewasm.hooks.v1.Request of abi/hook.proto.
type Request struct {
	data  []byte
	stage abi.Stage
	level abi.Level
	qos   abi.QOSClass
	// parts are the positions of the fields, by number.
	parts [fieldNodeTopology + 1]part

	resourcesRead bool
	resources     Resources
	copies        copies
}

// The fields of the message Request that are not numbers.
const (
	fieldPod                  = 3
	fieldContainer            = 4
	fieldPodLabels            = 5
	fieldPodAnnotations       = 6
	fieldContainerAnnotations = 7
	fieldCgroupParent         = 8
	fieldResources            = 10
	fieldContainerEnvs        = 11
	fieldNodeName             = 12
	fieldNodeLabels           = 13
	fieldNodeAnnotations      = 14
	fieldNodeCapacity         = 15
	fieldNodeAllocatable      = 16
	fieldNodeTopology         = 17
)

// part is the part of a message that holds all fields of one number, from the
// first to the last, with others in between. An end of 0 means that there is
// none.
type part struct{ start, end uint32 }

// copies copies strings out of the request, whose memory the next request uses
// again. Small ones share a block: an allocation for each would cost more than
// the rest of a decision.
type copies struct{ block []byte }

const (
	blockSize = 1 << 10
	smallCopy = 128
)

func (c *copies) string(b []byte) string {
	if len(b) > smallCopy {
		return string(b)
	}
	if len(c.block) < len(b) {
		c.block = make([]byte, blockSize)
	}
	n := copy(c.block, b)
	s := unsafe.String(unsafe.SliceData(c.block), n)
	c.block = c.block[n:]
	return s
}

var errRequest = errors.New("read hook request: the bytes are not a message")

// parse makes r a view of data, which must not change until the next parse.
// Strings that r returned before stay valid.
//
// The loop works on locals and calls nothing for the fields that a host writes:
// a call costs a Go guest as much as reading the field does.
func (r *Request) parse(data []byte) error {
	r.data, r.stage, r.level, r.qos, r.resourcesRead = data, 0, 0, 0, false
	for i := range r.parts {
		r.parts[i] = part{}
	}
	for i := 0; i < len(data); {
		start, key := i, data[i]
		field := int(key >> 3)
		i++
		if key&^0x7f == 0 && key&7 == 2 && field != 0 && i < len(data) {
			n := int(data[i])
			i++
			if n >= 0x80 && i < len(data) && data[i] < 0x80 {
				n = n&0x7f | int(data[i])<<7
				i++
			} else if n >= 0x80 {
				n = len(data) // For the reader below.
			}
			if n <= len(data)-i {
				i += n
				if field < len(r.parts) {
					p := &r.parts[field]
					if p.end == 0 {
						p.start = uint32(start)
					}
					p.end = uint32(i)
				}
				continue
			}
		}
		// Numbers, and encodings that no host writes.
		f := wire.NewReaderAt(data, start)
		if !f.Next() {
			return errRequest
		}
		_, i = f.Span()
		switch {
		case f.Field == 1:
			r.stage = abi.Stage(f.Int64())
		case f.Field == 2:
			r.level = abi.Level(f.Int64())
		case f.Field == 9:
			r.qos = abi.QOSClass(f.Int64())
		case int(f.Field) < len(r.parts):
			p := &r.parts[f.Field]
			if p.end == 0 {
				p.start = uint32(start)
			}
			p.end = uint32(i)
		}
	}
	return nil
}

// part returns the part of the message with the fields of a number.
func (r *Request) part(field int) []byte {
	p := r.parts[field]
	return r.data[p.start:p.end]
}

func (r *Request) strings(field int) Strings {
	return Strings{raw: r.part(field), field: uint8(field), copies: &r.copies}
}

// Stage returns the moment of the request.
func (r *Request) Stage() abi.Stage { return r.stage }

// Level returns the level of the request.
func (r *Request) Level() abi.Level { return r.level }

// QOSClass returns the QoS class of the pod or, at [abi.LevelQOS], the class of the request.
func (r *Request) QOSClass() abi.QOSClass { return r.qos }

// Pod returns the pod's name. It is empty at [abi.LevelQOS].
func (r *Request) Pod() (pod PodMeta) {
	for f := wire.NewReader(r.part(fieldPod)); f.Next(); {
		if f.Field != fieldPod {
			continue
		}
		for m := wire.NewReader(f.Bytes()); m.Next(); {
			switch m.Field {
			case 1:
				pod.namespace = r.copies.string(m.Bytes())
			case 2:
				pod.name = r.copies.string(m.Bytes())
			case 3:
				pod.uid = r.copies.string(m.Bytes())
			}
		}
	}
	return pod
}

// Container returns the container's name. It is empty above [abi.LevelContainer].
func (r *Request) Container() (container ContainerMeta) {
	for f := wire.NewReader(r.part(fieldContainer)); f.Next(); {
		if f.Field != fieldContainer {
			continue
		}
		for m := wire.NewReader(f.Bytes()); m.Next(); {
			switch m.Field {
			case 1:
				container.name = r.copies.string(m.Bytes())
			case 2:
				container.id = r.copies.string(m.Bytes())
			}
		}
	}
	return container
}

// CgroupParent returns the cgroup of the pod, the parent of those of its containers, or the cgroup
// of the class at [abi.LevelQOS]: a slash-separated path relative to the root of the hierarchy.
func (r *Request) CgroupParent() string { return r.text(fieldCgroupParent) }

func (r *Request) text(field uint32) (text string) {
	for f := wire.NewReader(r.part(int(field))); f.Next(); {
		if f.Field == field {
			text = r.copies.string(f.Bytes())
		}
	}
	return text
}

// PodLabels returns the labels of the pod object.
func (r *Request) PodLabels() Strings { return r.strings(fieldPodLabels) }

// PodAnnotations returns the annotations of the pod object.
func (r *Request) PodAnnotations() Strings { return r.strings(fieldPodAnnotations) }

// ContainerAnnotations returns the annotations that the runtime keeps of the
// container.
func (r *Request) ContainerAnnotations() Strings { return r.strings(fieldContainerAnnotations) }

// ContainerEnvs returns the environment of the container. If a name occurs twice,
// the last value counts.
func (r *Request) ContainerEnvs() Strings { return r.strings(fieldContainerEnvs) }

// Node returns the node of the host. It is empty if the host follows none: a plugin that
// reads it should declare the fields, such as node_annotations[example.com/ratio], and is
// then asked only when the host knows them.
func (r *Request) Node() Node { return Node{r} }

// Resources returns the resources that the kubelet requests, before any plugin
// changed them. Resources that are not set are unknown. They are valid until
// Decide returns.
func (r *Request) Resources() *Resources {
	if r.resourcesRead {
		return &r.resources
	}
	r.resourcesRead = true
	r.resources.reset()
	for f := wire.NewReader(r.part(fieldResources)); f.Next(); {
		if f.Field == fieldResources {
			r.resources.read(f.Bytes(), &r.copies)
		}
	}
	return &r.resources
}

// Node describes the node of the host.
type Node struct{ r *Request }

// Name returns the name of the Node object, empty if the node is unknown.
func (n Node) Name() string { return n.r.text(fieldNodeName) }

// Labels returns the labels of the Node object.
func (n Node) Labels() Strings { return n.r.strings(fieldNodeLabels) }

// Annotations returns the annotations of the Node object.
func (n Node) Annotations() Strings { return n.r.strings(fieldNodeAnnotations) }

// Capacity returns status.capacity of the Node object: quantities by resource.
func (n Node) Capacity() Strings { return n.r.strings(fieldNodeCapacity) }

// Allocatable returns status.allocatable of the Node object: quantities by resource.
func (n Node) Allocatable() Strings { return n.r.strings(fieldNodeAllocatable) }

// Topology returns the arrangement of the node's processors.
func (n Node) Topology() Topology { return Topology(n) }

// Topology is the arrangement of a node's processors. It is empty if the host does not know it.
// Lists of CPUs are in the kernel's format: "0-3,8". CPUs that are offline are in none.
type Topology struct{ r *Request }

// each calls yield with each field of the topology that has a number, until it returns
// false.
func (t Topology) each(number uint32, yield func(b []byte) bool) {
	for f := wire.NewReader(t.r.part(fieldNodeTopology)); f.Next(); {
		if f.Field != fieldNodeTopology {
			continue
		}
		for m := wire.NewReader(f.Bytes()); m.Next(); {
			if m.Field == number && !yield(m.Bytes()) {
				return
			}
		}
	}
}

// OnlineCPUs returns the list of the online CPUs.
func (t Topology) OnlineCPUs() (cpus string) {
	t.each(1, func(b []byte) bool {
		cpus = t.r.copies.string(b)
		return true
	})
	return cpus
}

// NUMANodes returns the NUMA nodes that have CPUs or memory, by ID.
func (t Topology) NUMANodes() iter.Seq[NUMANode] {
	return func(yield func(NUMANode) bool) {
		t.each(2, func(b []byte) bool {
			numbers, texts := t.r.values(b)
			return yield(NUMANode{ID: numbers[1], CPUs: texts[2], MemoryBytes: numbers[3]})
		})
	}
}

// Sockets returns the sockets by ID.
func (t Topology) Sockets() iter.Seq[CPUGroup] { return t.groups(3) }

// Cores returns the cores in the order of their first CPUs. The CPUs of one are its
// hardware threads. The IDs may be the same in two sockets.
func (t Topology) Cores() iter.Seq[CPUGroup] { return t.groups(4) }

func (t Topology) groups(number uint32) iter.Seq[CPUGroup] {
	return func(yield func(CPUGroup) bool) {
		t.each(number, func(b []byte) bool {
			numbers, texts := t.r.values(b)
			return yield(CPUGroup{ID: numbers[1], CPUs: texts[2]})
		})
	}
}

// Caches returns the caches of the CPUs, each once, by level, type and first CPU.
func (t Topology) Caches() iter.Seq[CPUCache] {
	return func(yield func(CPUCache) bool) {
		t.each(5, func(b []byte) bool {
			numbers, texts := t.r.values(b)
			return yield(CPUCache{Level: numbers[1], Type: texts[2], SizeBytes: numbers[3], CPUs: texts[4]})
		})
	}
}

// values returns the numbers and the texts of a part of the topology, by their fields.
func (r *Request) values(b []byte) (numbers [5]int64, texts [5]string) {
	for m := wire.NewReader(b); m.Next(); {
		switch {
		case m.Field >= uint32(len(numbers)):
		case m.Field == 2 || m.Field == 4:
			texts[m.Field] = r.copies.string(m.Bytes())
		default:
			numbers[m.Field] = m.Int64()
		}
	}
	return numbers, texts
}

// NUMANode is a memory node with its CPUs.
type NUMANode struct {
	ID          int64
	CPUs        string
	MemoryBytes int64
}

// CPUGroup is the CPUs of a socket or a core.
type CPUGroup struct {
	ID   int64
	CPUs string
}

// CPUCache is a cache and the CPUs that share it.
type CPUCache struct {
	Level int64
	// Type is Data, Instruction or Unified.
	Type      string
	SizeBytes int64
	CPUs      string
}

// PodMeta names a pod by its metadata.
type PodMeta struct{ namespace, name, uid string }

// Namespace returns metadata.namespace.
func (p PodMeta) Namespace() string { return p.namespace }

// Name returns metadata.name.
func (p PodMeta) Name() string { return p.name }

// UID returns metadata.uid.
func (p PodMeta) UID() string { return p.uid }

// ContainerMeta names a container of a pod.
type ContainerMeta struct{ name, id string }

// Name returns the name in the pod's spec.
func (c ContainerMeta) Name() string { return c.name }

// ID returns the identifier that the runtime gave the container; it is empty
// before the container is created.
func (c ContainerMeta) ID() string { return c.id }

// Strings is a map of strings to strings, such as labels. It is a list that is
// searched from one end to the other: for the twenty entries that a pod has, a
// Go map would cost more than it saves.
type Strings struct {
	// raw has the entries of a request, encoded, with other fields in between.
	raw    []byte
	field  uint8
	copies *copies
	// entries are those of a decision.
	entries []entry
}

type entry struct{ key, value string }

func readEntry(b []byte) (key, value []byte) {
	for f := wire.NewReader(b); f.Next(); {
		switch f.Field {
		case 1:
			key = f.Bytes()
		case 2:
			value = f.Bytes()
		}
	}
	return key, value
}

// Get returns the value of the key, empty if it is missing.
func (s Strings) Get(key string) string {
	value, _ := s.Lookup(key)
	return value
}

// Has reports whether the key is there.
func (s Strings) Has(key string) bool {
	_, ok := s.find(key)
	return ok || s.index(key) >= 0
}

// Lookup returns the value of the key and whether it is there.
func (s Strings) Lookup(key string) (value string, ok bool) {
	if i := s.index(key); i >= 0 {
		return s.entries[i].value, true
	}
	raw, ok := s.find(key)
	if !ok {
		return "", false
	}
	return s.copies.string(raw), true
}

// find returns the value of the key in the request. If a key occurs twice, the
// last value counts.
//
// The loop calls nothing for an entry that has its key and its value once each
// and in this order, as every encoder writes it.
func (s *Strings) find(key string) (value []byte, ok bool) {
	b, tag := s.raw, s.field<<3|2
	if s.field > 15 {
		tag = 0 // It takes two bytes, which are read below.
	}
	for i := 0; i+1 < len(b); {
		start := i
		mine := b[i] == tag
		n := int(b[i+1])
		i += 2
		if n >= 0x80 && i < len(b) && b[i] < 0x80 {
			n = n&0x7f | int(b[i])<<7
			i++
		}
		if !mine || n > len(b)-i || n < 2 || b[i] != 0x0a || b[i+1] >= 0x80 {
			goto unusual
		}
		{
			end, from := i+n, i+2
			to := from + int(b[i+1]) // Where the key ends.
			if to+1 >= end || b[to] != 0x12 {
				goto unusual
			}
			at := to + 2 // Where the value begins.
			size := int(b[to+1])
			if size >= 0x80 && at < end && b[at] < 0x80 {
				size = size&0x7f | int(b[at])<<7
				at++
			}
			if at+size != end {
				goto unusual
			}
			if to-from == len(key) && string(b[from:to]) == key {
				value, ok = b[at:end], true
			}
			i = end
			continue
		}
	unusual:
		f := wire.NewReaderAt(b, start)
		if !f.Next() {
			break
		}
		_, i = f.Span()
		if f.Field == uint32(s.field) {
			if k, v := readEntry(f.Bytes()); string(k) == key {
				value, ok = v, true
			}
		}
	}
	return value, ok
}

// index returns the index of the key of a decision, or -1.
func (s *Strings) index(key string) int {
	for i := range s.entries {
		if s.entries[i].key == key {
			return i
		}
	}
	return -1
}

// Len returns the number of entries, as [Strings.All] has them.
func (s Strings) Len() int {
	n := len(s.entries)
	for f := wire.NewReader(s.raw); f.Next(); {
		if f.Field == uint32(s.field) {
			n++
		}
	}
	return n
}

// All returns the entries in the order in which the host sent them: labels and annotations in the
// order of their keys, an environment in that of the runtime, where a name may occur twice.
func (s Strings) All() iter.Seq2[string, string] {
	return func(yield func(key, value string) bool) {
		for _, e := range s.entries {
			if !yield(e.key, e.value) {
				return
			}
		}
		for f := wire.NewReader(s.raw); f.Next(); {
			if f.Field != uint32(s.field) {
				continue
			}
			k, v := readEntry(f.Bytes())
			if !yield(s.copies.string(k), s.copies.string(v)) {
				return
			}
		}
	}
}

// set replaces the value of a key, or adds it.
func (s *Strings) set(key, value string) {
	if i := s.index(key); i >= 0 {
		s.entries[i].value = value
		return
	}
	s.entries = append(s.entries, entry{key, value})
}

// reset removes the entries and keeps their memory, but not the strings.
func (s *Strings) reset() {
	if len(s.entries) != 0 {
		clear(s.entries)
		s.entries = s.entries[:0]
	}
}

func (s *Strings) append(b []byte, field uint32) []byte {
	for i := range s.entries {
		b = wire.AppendMapEntry(b, field, s.entries[i].key, s.entries[i].value)
	}
	return b
}

// Fields are the contents of a request in plain Go.
type Fields struct {
	Stage                         abi.Stage
	Level                         abi.Level
	QOSClass                      abi.QOSClass
	PodNamespace, PodName, PodUID string
	ContainerName, ContainerID    string
	PodLabels, PodAnnotations     map[string]string
	ContainerAnnotations          map[string]string
	ContainerEnvs                 map[string]string
	NodeName                      string
	NodeLabels, NodeAnnotations   map[string]string
	NodeCapacity, NodeAllocatable map[string]string
	NodeTopology                  TopologyFields
	CgroupParent                  string
	// Resources may be nil. Make them with the Set methods.
	Resources *Resources
}

// TopologyFields are the contents of a [Topology].
type TopologyFields struct {
	OnlineCPUs     string
	NUMANodes      []NUMANode
	Sockets, Cores []CPUGroup
	Caches         []CPUCache
}

func (f *TopologyFields) append(b []byte) []byte {
	b = appendString(b, 1, f.OnlineCPUs)
	for _, n := range f.NUMANodes {
		b = wire.AppendBytes(b, 2, appendNumber(appendString(appendNumber(nil, 1, n.ID), 2, n.CPUs), 3, n.MemoryBytes))
	}
	for i, groups := range [...][]CPUGroup{f.Sockets, f.Cores} {
		for _, g := range groups {
			b = wire.AppendBytes(b, uint32(3+i), appendString(appendNumber(nil, 1, g.ID), 2, g.CPUs))
		}
	}
	for _, c := range f.Caches {
		b = wire.AppendBytes(b, 5, appendString(appendNumber(appendString(appendNumber(nil, 1, c.Level), 2, c.Type), 3, c.SizeBytes), 4, c.CPUs))
	}
	return b
}

// NewRequest makes a request, for tests. It encodes and decodes the bytes that a host would send,
// so a test reads the same as a guest.
func NewRequest(f Fields) *Request {
	var b, m []byte
	b = appendNumber(b, 1, int64(f.Stage))
	b = appendNumber(b, 2, int64(f.Level))
	m = appendString(m[:0], 1, f.PodNamespace)
	m = appendString(m, 2, f.PodName)
	m = appendString(m, 3, f.PodUID)
	b = appendString(b, 3, string(m))
	m = appendString(m[:0], 1, f.ContainerName)
	m = appendString(m, 2, f.ContainerID)
	b = appendString(b, 4, string(m))
	b = appendMap(b, 5, f.PodLabels)
	b = appendMap(b, 6, f.PodAnnotations)
	b = appendMap(b, 7, f.ContainerAnnotations)
	b = appendString(b, 8, f.CgroupParent)
	b = appendNumber(b, 9, int64(f.QOSClass))
	if f.Resources != nil {
		b = wire.AppendBytes(b, 10, f.Resources.append(nil))
	}
	b = appendMap(b, 11, f.ContainerEnvs)
	b = appendString(b, fieldNodeName, f.NodeName)
	b = appendMap(b, fieldNodeLabels, f.NodeLabels)
	b = appendMap(b, fieldNodeAnnotations, f.NodeAnnotations)
	b = appendMap(b, fieldNodeCapacity, f.NodeCapacity)
	b = appendMap(b, fieldNodeAllocatable, f.NodeAllocatable)
	b = appendString(b, fieldNodeTopology, string(f.NodeTopology.append(nil)))
	r := new(Request)
	if err := r.parse(b); err != nil {
		panic(err) // The bytes were encoded above.
	}
	return r
}

func appendNumber(b []byte, field uint32, v int64) []byte {
	if v == 0 {
		return b
	}
	return wire.AppendVarint(b, field, uint64(v))
}

func appendString(b []byte, field uint32, v string) []byte {
	if v == "" {
		return b
	}
	return wire.AppendBytes(b, field, v)
}

func appendMap(b []byte, field uint32, m map[string]string) []byte {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		b = wire.AppendMapEntry(b, field, k, m[k])
	}
	return b
}
