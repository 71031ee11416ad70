package view

import "unsafe"

// cached is the head of the cached value of a field of a message. It is the first field
// of each of the types below. A message has a chain of them, in the order in which a
// plugin first read the fields; it reads those of the next version in the same order. A
// pass over a thousand Nodes mostly waits for memory, so a message has room only for the
// fields that are read.
//
// The memory of an earlier version is used again.
type cached struct {
	next *cached
	key  cacheKey
}

// cacheKey names a cached value: the field and the kind in the lower half, the version
// of the message in the upper half, 0 if none. It is one number, so that one comparison
// is enough.
type cacheKey uint64

// The kinds of cached values, above the bits of the field.
const (
	// madeMessage is a message.
	madeMessage cacheKey = iota << 24
	// madeMessages is messages, those of a list.
	madeMessages
	// madeMapMessages is messages, those of a map.
	madeMapMessages
	// madePosition is a position.
	madePosition
	// madeText is text.
	madeText
	// madeAnswers is answers.
	madeAnswers
	// madeEntries is a values of []entry.
	madeEntries
	// madeStrings is a values of []string.
	madeStrings
	// madeValues is a values of any, which is a slice of the results of an accessor.
	madeValues
)

// keyOf returns the key of the value of field n of a version.
func keyOf(made cacheKey, version uint64, n uint32) cacheKey {
	return made | cacheKey(version<<32|uint64(n))
}

func (k cacheKey) field() uint32 { return uint32(k) & (1<<24 - 1) }

func (k cacheKey) version() uint64 { return uint64(k >> 32) }

// in returns the key in another version.
func (k cacheKey) in(version uint64) cacheKey { return k&(1<<32-1) | cacheKey(version<<32) }

// sameField reports whether both have the same field and the same kind.
func (k cacheKey) sameField(of cacheKey) bool { return uint32(k) == uint32(of) }

// position is the place of a field in a part of an object.
type position struct {
	cached
	field
}

// text is the string that was made of a field.
type text struct {
	cached
	string
}

// values is a slice that was made of a field.
type values[T any] struct {
	cached
	of T
}

// The address of a value is that of its part.
var _ [0]struct{} = [unsafe.Offsetof(message{}.cached) + unsafe.Offsetof(messages{}.cached) + unsafe.Offsetof(text{}.cached) + unsafe.Offsetof(position{}.cached) +
	unsafe.Offsetof(answers{}.cached) + unsafe.Offsetof(values[any]{}.cached)]struct{}{}

// hit returns the T with the key, nil if there is none in that version.
func hit[T any](m *message, k cacheKey) *T {
	for p := m.made; p != nil; p = p.next {
		if p.key == k {
			return (*T)(unsafe.Pointer(p))
		}
	}
	return nil
}

// reusable returns the T of the same field and kind as the key, of any version, nil if
// there is none.
func reusable[T any](m *message, k cacheKey) *T {
	for p := m.made; p != nil; p = p.next {
		if p.key.sameField(k) {
			return (*T)(unsafe.Pointer(p))
		}
	}
	return nil
}

// cacheFor returns the T to read into under the key: that of an earlier version, or otherwise a new
// one. T is the type of the key's kind.
func cacheFor[T any](m *message, k cacheKey) *T {
	t := reusable[T](m, k)
	if t == nil {
		t = new(T)
		m.add((*cached)(unsafe.Pointer(t)))
	}
	(*cached)(unsafe.Pointer(t)).key = k
	return t
}

// add puts c at the end of the chain.
func (m *message) add(c *cached) {
	last := &m.made
	for *last != nil {
		last = &(*last).next
	}
	*last = c
}
