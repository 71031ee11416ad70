package meta

import "github.com/kubewasm/kubewasm/guest/internal/view"

// ObjectMeta is a view of the metadata that every object has. The zero value is
// metadata without anything in it.
type ObjectMeta struct {
	d       *objectMeta
	version uint32
}

type objectMeta struct {
	view.Message
	fields              [13]view.Field
	labels, annotations view.StringMap
}

// NewObjectMeta returns metadata that becomes part of o. It is for the packages
// of this SDK, as are its methods Set and Of.
func NewObjectMeta(o *view.Object) ObjectMeta {
	d := &objectMeta{}
	d.In(o)
	d.labels.Set(&d.Message, &d.fields[11])
	d.annotations.Set(&d.Message, &d.fields[12])
	return ObjectMeta{d: d}
}

// Set makes m the metadata in the field f of parent.
func (m ObjectMeta) Set(parent *view.Message, f *view.Field) { m.d.Set(parent, f) }

// Of returns m as it is in a version of its object.
func (m ObjectMeta) Of(version uint32) ObjectMeta { return ObjectMeta{m.d, version} }

var objectMetaNames = view.Names{1: "name", 2: "generateName", 3: "namespace", 5: "uid", 6: "resourceVersion", 11: "labels", 12: "annotations"}

var noObjectMeta = objectMeta{Message: view.Message{Version: view.None}}

func (m ObjectMeta) data() *objectMeta {
	if m.d != nil && m.d.Version == m.version {
		return m.d
	}
	return m.read()
}

func (m ObjectMeta) read() *objectMeta {
	d := m.d
	if d == nil {
		return &noObjectMeta
	}
	d.Read(m.version, d.fields[:], objectMetaNames)
	return d
}

// Name returns metadata.name, unique in the namespace.
func (m ObjectMeta) Name() string {
	d := m.data()
	return d.Text(&d.fields[1])
}

// GenerateName returns metadata.generateName, the prefix of a name that the API
// server is asked to make: an object that is being created may have no other.
func (m ObjectMeta) GenerateName() string {
	d := m.data()
	return d.Text(&d.fields[2])
}

// Namespace returns metadata.namespace, empty for objects without one.
func (m ObjectMeta) Namespace() string {
	d := m.data()
	return d.Text(&d.fields[3])
}

// UID returns metadata.uid, unique in time and space.
func (m ObjectMeta) UID() string {
	d := m.data()
	return d.Text(&d.fields[5])
}

// ResourceVersion returns metadata.resourceVersion, an opaque text that changes
// with the object.
func (m ObjectMeta) ResourceVersion() string {
	d := m.data()
	return d.Text(&d.fields[6])
}

// Labels returns metadata.labels.
func (m ObjectMeta) Labels() StringMap { return StringMap{&m.data().labels, m.version} }

// Annotations returns metadata.annotations.
func (m ObjectMeta) Annotations() StringMap { return StringMap{&m.data().annotations, m.version} }

// StringMap is a view of a map of strings to strings, such as labels. The zero
// value is an empty map.
type StringMap struct {
	m       *view.StringMap
	version uint32
}

// NewStringMap returns a view of m as it is in a version of its object. It is for
// the packages of this SDK.
func NewStringMap(m *view.StringMap, version uint32) StringMap { return StringMap{m, version} }

// Get returns the value of key, empty if there is none.
func (m StringMap) Get(key string) string {
	value, _ := m.m.Lookup(m.version, key)
	return value
}

// Lookup returns the value of key and whether there is one.
func (m StringMap) Lookup(key string) (value string, ok bool) { return m.m.Lookup(m.version, key) }

// Has reports whether the map has the key.
func (m StringMap) Has(key string) bool {
	_, ok := m.m.Lookup(m.version, key)
	return ok
}

// Len returns the number of entries.
func (m StringMap) Len() int { return len(m.m.Entries(m.version)) }

// All calls yield with each key and value, in the order in which the object has
// them, until it returns false: for k, v := range labels.All.
func (m StringMap) All(yield func(key, value string) bool) {
	for _, e := range m.m.Entries(m.version) {
		if !yield(e.Key, e.Value) {
			return
		}
	}
}
