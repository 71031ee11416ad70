package hooks

import (
	"errors"
	"iter"
	"slices"
	"strconv"

	"github.com/kubewasm/kubewasm/guest/internal/wire"
)

// Request is what the host asks a plugin to decide on. It is a view of the bytes
// that the host sent: maps and resources are decoded when they are asked for,
// and then once.
//
// The message is kubewasm.hooks.v1.Request of codec/hookpb/hook.proto.
type Request struct {
	stage        Stage
	level        Level
	qos          QOSClass
	pod          PodMeta
	container    ContainerMeta
	cgroupParent string

	podLabels, podAnnotations           stringsField
	containerAnnotations, containerEnvs stringsField

	rawResources part
	resources    Resources
}

// part is the part of a message that holds all fields of one number, from the
// first to the last, with others in between.
type part struct {
	raw   []byte
	first int
	field uint32
}

// add notes the field that f found.
func (p *part) add(f *wire.Reader) {
	start, end := f.Span()
	if p.raw == nil {
		p.first, p.field = start, f.Field
	}
	p.raw = f.Message()[p.first:end]
}

// take calls read with the contents of each field, once.
func (p *part) take(read func(b []byte)) {
	for f := wire.NewReader(p.raw); f.Next(); {
		if f.Field == p.field {
			read(f.Bytes())
		}
	}
	p.raw = nil
}

// stringsField is a map of the request, decoded when it is asked for.
type stringsField struct {
	part
	decoded Strings
}

func (s *stringsField) strings() Strings {
	if s.raw != nil {
		s.take(func(b []byte) { s.decoded.entries = append(s.decoded.entries, readEntry(b)) })
	}
	return s.decoded
}

func (s *stringsField) empty() stringsField { return stringsField{decoded: s.decoded.empty()} }

var errRequest = errors.New("read hook request: the bytes are not a message")

// parse makes r a view of data, which must not change any more.
func (r *Request) parse(data []byte) error {
	r.reset()
	f := wire.NewReader(data)
	for f.Next() {
		switch f.Field {
		case 1:
			r.stage = Stage(f.Int64())
		case 2:
			r.level = Level(f.Int64())
		case 3:
			for m := wire.NewReader(f.Bytes()); m.Next(); {
				switch m.Field {
				case 1:
					r.pod.namespace = m.String()
				case 2:
					r.pod.name = m.String()
				case 3:
					r.pod.uid = m.String()
				}
			}
		case 4:
			for m := wire.NewReader(f.Bytes()); m.Next(); {
				switch m.Field {
				case 1:
					r.container.name = m.String()
				case 2:
					r.container.id = m.String()
				}
			}
		case 5:
			r.podLabels.add(&f)
		case 6:
			r.podAnnotations.add(&f)
		case 7:
			r.containerAnnotations.add(&f)
		case 8:
			r.cgroupParent = f.String()
		case 9:
			r.qos = QOSClass(f.Int64())
		case 10:
			r.rawResources.add(&f)
		case 11:
			r.containerEnvs.add(&f)
		}
	}
	if f.Malformed() {
		return errRequest
	}
	return nil
}

// reset empties r and keeps the memory of its lists.
func (r *Request) reset() {
	*r = Request{
		podLabels:            r.podLabels.empty(),
		podAnnotations:       r.podAnnotations.empty(),
		containerAnnotations: r.containerAnnotations.empty(),
		containerEnvs:        r.containerEnvs.empty(),
		resources:            r.resources.empty(),
	}
}

// Stage returns the moment at which the host asks.
func (r *Request) Stage() Stage { return r.stage }

// Level returns what the host asks about.
func (r *Request) Level() Level { return r.level }

// QOSClass returns the QoS class of the pod or, at [LevelQOS], the class that
// the request is about.
func (r *Request) QOSClass() QOSClass { return r.qos }

// Pod returns the pod's name. It is empty at [LevelQOS].
func (r *Request) Pod() PodMeta { return r.pod }

// Container returns the container's name. It is empty above [LevelContainer].
func (r *Request) Container() ContainerMeta { return r.container }

// CgroupParent returns the cgroup of the pod, under which those of its
// containers lie, or the cgroup of the class at [LevelQOS]: a slash-separated
// path relative to the root of the hierarchy.
func (r *Request) CgroupParent() string { return r.cgroupParent }

// PodLabels returns the labels of the pod object.
func (r *Request) PodLabels() Strings { return r.podLabels.strings() }

// PodAnnotations returns the annotations of the pod object.
func (r *Request) PodAnnotations() Strings { return r.podAnnotations.strings() }

// ContainerAnnotations returns the annotations that the runtime keeps of the
// container.
func (r *Request) ContainerAnnotations() Strings { return r.containerAnnotations.strings() }

// ContainerEnvs returns the environment of the container.
func (r *Request) ContainerEnvs() Strings { return r.containerEnvs.strings() }

// Resources returns the resources as they are now or, before the runtime acts,
// as the kubelet asks for them. Those that are not set are not known.
func (r *Request) Resources() *Resources {
	if r.rawResources.raw != nil {
		r.rawResources.take(r.resources.read)
	}
	return &r.resources
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
// searched from one end to the other: for the twenty entries that a pod has,
// building a Go map would cost more than it saves.
type Strings struct{ entries []entry }

type entry struct{ key, value string }

func readEntry(b []byte) (e entry) {
	for f := wire.NewReader(b); f.Next(); {
		switch f.Field {
		case 1:
			e.key = f.String()
		case 2:
			e.value = f.String()
		}
	}
	return e
}

// Get returns the value of the key, empty if it is not there.
func (s Strings) Get(key string) string {
	value, _ := s.Lookup(key)
	return value
}

// Lookup returns the value of the key and whether it is there.
func (s Strings) Lookup(key string) (value string, ok bool) {
	// From the end: of a key that is there twice the last one counts.
	for i := len(s.entries) - 1; i >= 0; i-- {
		if s.entries[i].key == key {
			return s.entries[i].value, true
		}
	}
	return "", false
}

// Len returns the number of entries.
func (s Strings) Len() int { return len(s.entries) }

// All returns the entries, in the order in which the host sent them: that of
// their keys.
func (s Strings) All() iter.Seq2[string, string] {
	return func(yield func(key, value string) bool) {
		for _, e := range s.entries {
			if !yield(e.key, e.value) {
				return
			}
		}
	}
}

// set replaces the value of a key, or adds it.
func (s *Strings) set(key, value string) {
	for i := range s.entries {
		if s.entries[i].key == key {
			s.entries[i].value = value
			return
		}
	}
	s.entries = append(s.entries, entry{key, value})
}

// empty returns the map without its entries, in the same memory. The strings
// are let go of.
func (s Strings) empty() Strings {
	clear(s.entries)
	return Strings{s.entries[:0]}
}

func (s Strings) append(b []byte, field uint32) []byte {
	for _, e := range s.entries {
		b = wire.AppendMapEntry(b, field, e.key, e.value)
	}
	return b
}

// Fields are the contents of a request in plain Go.
type Fields struct {
	Stage                         Stage
	Level                         Level
	QOSClass                      QOSClass
	PodNamespace, PodName, PodUID string
	ContainerName, ContainerID    string
	PodLabels, PodAnnotations     map[string]string
	ContainerAnnotations          map[string]string
	ContainerEnvs                 map[string]string
	CgroupParent                  string
	// Resources may be nil. Make them with the Set methods.
	Resources *Resources
}

// RequestOf makes a request, for tests. It goes through the bytes that a host
// would send, so a test reads what a guest would.
func RequestOf(f Fields) *Request {
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
	r := new(Request)
	if err := r.parse(b); err != nil {
		panic(err) // The bytes are our own.
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

// Stage is the moment in the life of a pod at which the host asks.
type Stage int32

// The stages, with the names of Koordinator's RuntimeHookService.
const (
	StageUnspecified Stage = iota
	PreRunPodSandbox
	PreCreateContainer
	PreStartContainer
	PostStartContainer
	PreUpdateContainerResources
	PostStopContainer
	PostStopPodSandbox
	PreRemoveRunPodSandbox
	// Reconcile is no event of the runtime: the host compares what is with what
	// should be, and asks for the latter.
	Reconcile
)

// String returns the name of the stage.
func (s Stage) String() string {
	return enumName("stage", int32(s), []string{
		"Unspecified", "PreRunPodSandbox", "PreCreateContainer", "PreStartContainer", "PostStartContainer",
		"PreUpdateContainerResources", "PostStopContainer", "PostStopPodSandbox", "PreRemoveRunPodSandbox", "Reconcile",
	})
}

// Level is what a request is about.
type Level int32

// The levels, from the widest to the narrowest.
const (
	LevelUnspecified Level = iota
	// LevelQOS is the cgroup above all pods of a QoS class.
	LevelQOS
	// LevelPod is the cgroup above the containers of a pod.
	LevelPod
	LevelContainer
)

// String returns the name of the level.
func (l Level) String() string {
	return enumName("level", int32(l), []string{"Unspecified", "QOS", "Pod", "Container"})
}

// QOSClass is the QoS class of a pod, core/v1 PodQOSClass.
type QOSClass int32

// The QoS classes.
const (
	QOSUnspecified QOSClass = iota
	QOSGuaranteed
	QOSBurstable
	QOSBestEffort
)

// String returns the class as Kubernetes writes it.
func (q QOSClass) String() string {
	return enumName("qosClass", int32(q), []string{"Unspecified", "Guaranteed", "Burstable", "BestEffort"})
}

func enumName(kind string, n int32, names []string) string {
	if n >= 0 && int(n) < len(names) {
		return names[n]
	}
	return kind + "(" + strconv.Itoa(int(n)) + ")"
}
