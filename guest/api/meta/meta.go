package meta

import (
	"github.com/kubewasm/kubewasm/guest/internal/json"
	"github.com/kubewasm/kubewasm/guest/internal/view"
	"github.com/kubewasm/kubewasm/guest/internal/wire"
)

// ObjectMeta is a view of the metadata that every object has. The zero value is
// metadata without anything in it.
type ObjectMeta struct{ d *objectMeta }

type objectMeta struct {
	view.Message
	name, generateName, namespace, uid, resourceVersion string
	labels, annotations                                 view.StringMap
}

// NewObjectMeta returns a view of the message m.
func NewObjectMeta(m view.Message) ObjectMeta { return ObjectMeta{&objectMeta{Message: m}} }

var noObjectMeta objectMeta

func (m ObjectMeta) data() *objectMeta {
	if m.d == nil {
		return &noObjectMeta
	}
	if m.d.Unread() {
		m.d.read()
	}
	return m.d
}

func (d *objectMeta) read() {
	if d.JSON {
		for it := json.Object(d.Raw); it.Next(); {
			switch it.Key() {
			case "name":
				d.name = it.Value().String()
			case "generateName":
				d.generateName = it.Value().String()
			case "namespace":
				d.namespace = it.Value().String()
			case "uid":
				d.uid = it.Value().String()
			case "resourceVersion":
				d.resourceVersion = it.Value().String()
			case "labels":
				d.labels.SetJSON(it.Value())
			case "annotations":
				d.annotations.SetJSON(it.Value())
			}
		}
		return
	}
	for r := wire.NewReader(d.Raw); r.Next(); {
		switch r.Field {
		case 1:
			d.name = r.String()
		case 2:
			d.generateName = r.String()
		case 3:
			d.namespace = r.String()
		case 5:
			d.uid = r.String()
		case 6:
			d.resourceVersion = r.String()
		case 11:
			d.labels.Add(&r)
		case 12:
			d.annotations.Add(&r)
		}
	}
}

// Name returns metadata.name, unique in the namespace.
func (m ObjectMeta) Name() string { return m.data().name }

// GenerateName returns metadata.generateName, the prefix of a name that the API
// server is asked to make: an object that is being created may have no other.
func (m ObjectMeta) GenerateName() string { return m.data().generateName }

// Namespace returns metadata.namespace, empty for objects without one.
func (m ObjectMeta) Namespace() string { return m.data().namespace }

// UID returns metadata.uid, unique in time and space.
func (m ObjectMeta) UID() string { return m.data().uid }

// ResourceVersion returns metadata.resourceVersion, an opaque text that changes
// with the object.
func (m ObjectMeta) ResourceVersion() string { return m.data().resourceVersion }

// Labels returns metadata.labels.
func (m ObjectMeta) Labels() StringMap { return StringMap{&m.data().labels} }

// Annotations returns metadata.annotations.
func (m ObjectMeta) Annotations() StringMap { return StringMap{&m.data().annotations} }

// StringMap is a view of a map of strings to strings, such as labels. The zero
// value is an empty map.
type StringMap struct{ m *view.StringMap }

// NewStringMap returns a view of m.
func NewStringMap(m *view.StringMap) StringMap { return StringMap{m} }

// Get returns the value of key, empty if there is none.
func (m StringMap) Get(key string) string {
	value, _ := m.Lookup(key)
	return value
}

// Lookup returns the value of key and whether there is one.
func (m StringMap) Lookup(key string) (value string, ok bool) {
	if m.m == nil {
		return "", false
	}
	return m.m.Lookup(key)
}

// Has reports whether the map has the key.
func (m StringMap) Has(key string) bool {
	_, ok := m.Lookup(key)
	return ok
}

// Len returns the number of entries.
func (m StringMap) Len() int {
	if m.m == nil {
		return 0
	}
	return len(m.m.Entries())
}

// All calls yield with each key and value, in the order in which the object has
// them, until it returns false: for k, v := range labels.All.
func (m StringMap) All(yield func(key, value string) bool) {
	if m.m == nil {
		return
	}
	for _, e := range m.m.Entries() {
		if !yield(e.Key, e.Value) {
			return
		}
	}
}
