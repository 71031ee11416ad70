package objects

import (
	"slices"
	"strings"
	"sync/atomic"
)

// ReadSet is the fields of objects of a kind that any instance of a guest was seen reading. It
// does not change: a larger one replaces it.
type ReadSet[T any] struct {
	// masks are the fields of the parts of an object, by the numbers of the parts.
	masks [parts + 1]uint64
	// entries are the labels and annotations that were read alone.
	entries []EntryKey
	// all encodes all fields that travel.
	all *Encoder[T]
	// classes encodes the fields by which objects differ: without name, UID and resource
	// version. identity encodes the latter two, by which versions of an object differ, too.
	classes, identity *Encoder[T]
}

const (
	// parts is the number of the last part of an object: metadata, spec, status.
	parts = 3
	// maxEntries is the maximum number of separate labels and annotations, and maxKey the maximum
	// length of the key of one: longer than any valid one. Beyond that the whole map is in the read
	// set.
	maxEntries, maxKey = 16, 512
)

// The fields of the metadata that identify an object or its version.
const (
	nameField, namespaceField, uidField, versionField = 1 << 1, 1 << 3, 1 << 5, 1 << 6

	// identity are the fields that no two Nodes share. All versions of an object share its name.
	identity = nameField | uidField | versionField
)

// newReadSet returns the ReadSet of a guest that has read none of the fields that e encodes. The
// fields that identify an object are in it from the beginning.
func newReadSet[T any](e *Encoder[T]) *ReadSet[T] {
	r := &ReadSet[T]{all: e, masks: [parts + 1]uint64{MetadataPart: nameField | namespaceField | uidField}}
	r.classes, r.identity = r.onlyClasses(), r.onlyIdentity()
	return r
}

// hasEntry reports whether an entry of the labels or the annotations is in the ReadSet.
func (r *ReadSet[T]) hasEntry(field uint32, key string) bool {
	return r.masks[MetadataPart]>>field&1 != 0 || slices.Contains(r.entries, EntryKey{Field: field, Key: key})
}

// with returns the ReadSet that also has fields of a part.
func (r *ReadSet[T]) with(part uint32, fields uint64) *ReadSet[T] {
	grown := &ReadSet[T]{all: r.all, masks: r.masks, entries: r.entries, classes: r.classes}
	grown.masks[part] |= fields
	if part != MetadataPart || fields&^identity&^r.masks[part] != 0 {
		grown.classes = grown.onlyClasses()
	}
	grown.identity = grown.onlyIdentity()
	return grown
}

func (r *ReadSet[T]) onlyIdentity() *Encoder[T] {
	return r.all.Only([]uint64{MetadataPart: r.masks[MetadataPart] & (uidField | versionField)}, nil)
}

func (r *ReadSet[T]) onlyClasses() *Encoder[T] {
	masks := r.masks
	masks[MetadataPart] &^= identity
	return r.all.Only(masks[:], r.entries)
}

// withEntry returns the ReadSet that also has an entry. The key is not kept.
func (r *ReadSet[T]) withEntry(field uint32, key string) *ReadSet[T] {
	if len(r.entries) >= maxEntries || len(key) > maxKey {
		return r.with(MetadataPart, 1<<field)
	}
	grown := &ReadSet[T]{all: r.all, masks: r.masks, entries: append(slices.Clip(r.entries), EntryKey{Field: field, Key: strings.Clone(key)})}
	grown.classes, grown.identity = grown.onlyClasses(), r.identity
	return grown
}

// Paths returns the fields as paths of a [FieldSet].
func (r *ReadSet[T]) Paths() []string { return Paths[T](r.masks[:], r.entries) }

// reads is the read set of a kind.
type reads[T any] struct {
	// store guards the following fields.
	store *Store
	set   atomic.Pointer[ReadSet[T]]
}

// add records that a guest reads fields of a part.
func (r *reads[T]) add(part uint32, fields uint64) {
	if part > parts || r.set.Load().masks[part]&fields == fields {
		return
	}
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	if set := r.set.Load(); set.masks[part]&fields != fields {
		r.set.Store(set.with(part, fields))
	}
}

// addEntry records that a guest reads an entry of the labels or the annotations that is not in the
// read set.
func (r *reads[T]) addEntry(field uint32, key string) {
	if field != LabelsField && field != AnnotationsField {
		return
	}
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	if set := r.set.Load(); !set.hasEntry(field, key) {
		r.set.Store(set.withEntry(field, key))
	}
}
