package view

import "unsafe"

// part is something that was made of a field of a message: it is the first field of
// one of the types below. A message has a chain of them, in the order in which a
// plugin first asked for them, in which it asks for them the next time: a look at a
// thousand Nodes takes most of its time to get what it reads from memory, and so the
// less there is of it, and the closer together, the better.
//
// A part of an earlier version is kept to be used again.
type part struct {
	next *part
	key  partKey
}

// partKey says what a part is: the lower half the field and what was made of it, the
// upper half the version of the message, 0 if it is of none. It is one number, as
// wide as a register: one comparison is for all, and what is written by halves and
// read as a whole soon after makes the processor wait.
type partKey uint64

// What is made of a field. It is above the bits of the field.
const (
	// madeMessage is a message.
	madeMessage partKey = iota << 24
	// madeMessages is messages, those of a list.
	madeMessages
	// madeMapMessages is messages, those of a map.
	madeMapMessages
	// madeText is text.
	madeText
	// madeAnswers is answers.
	madeAnswers
	// madeEntries is a values of []Entry.
	madeEntries
	// madeStrings is a values of []string.
	madeStrings
	// madeValues is a values of any, which is a slice of what an accessor returns.
	madeValues
)

// keyOf returns the key of what is made of field n of a version.
func keyOf(made partKey, version uint64, n uint32) partKey {
	return made | partKey(version<<32|uint64(n))
}

func (k partKey) field() uint32 { return uint32(k) & (1<<24 - 1) }

func (k partKey) version() uint64 { return uint64(k >> 32) }

// in returns the key in another version.
func (k partKey) in(version uint64) partKey { return k&(1<<32-1) | partKey(version<<32) }

// sameField reports whether both are of the same field, and the same was made of it.
func (k partKey) sameField(of partKey) bool { return uint32(k) == uint32(of) }

// text is the string that was made of a field.
type text struct {
	part
	string
}

// values is a slice that was made of a field.
type values[T any] struct {
	part
	of T
}

// The address of what is made is that of its part.
var _ [0]struct{} = [unsafe.Offsetof(message{}.part) + unsafe.Offsetof(messages{}.part) + unsafe.Offsetof(text{}.part) +
	unsafe.Offsetof(answers{}.part) + unsafe.Offsetof(values[any]{}.part)]struct{}{}

// find returns the part with the key, nil if there is none of that version.
func (m *message) find(k partKey) *part {
	for p := m.made; p != nil; p = p.next {
		if p.key == k {
			return p
		}
	}
	return nil
}

// found returns what the part with the key is of, nil if there is none of that version.
func found[T any](m *message, k partKey) *T { return (*T)(unsafe.Pointer(m.find(k))) }

// partOf returns what has a part of the same field as the key, of any version, nil if
// there is none.
func partOf[T any](m *message, k partKey) *T {
	for p := m.made; p != nil; p = p.next {
		if p.key.sameField(k) {
			return (*T)(unsafe.Pointer(p))
		}
	}
	return nil
}

// makePart returns the T with the key: that of an earlier version, or else a new one. T
// is the type that belongs to what the key says is made.
func makePart[T any](m *message, k partKey) *T {
	t := partOf[T](m, k)
	if t == nil {
		t = new(T)
		m.add((*part)(unsafe.Pointer(t)))
	}
	(*part)(unsafe.Pointer(t)).key = k
	return t
}

// add puts p at the end of the chain.
func (m *message) add(p *part) {
	last := &m.made
	for *last != nil {
		last = &(*last).next
	}
	*last = p
}
