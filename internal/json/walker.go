package json

// Walker walks over the arrays and objects of one document, one at a time. It is for reading
// several nested ones: it knows the ends of the longer ones and passes over them without reading
// them again.
type Walker struct {
	walk
	whole []byte
	// The fields into which Lookup reads the object.
	names  [2]string
	fields [2]Field
}

// Read makes doc the document of w, and records the places of its longer values in index. Neither
// may be written to as long as w is in use. IndexRoom(len(doc)) numbers are usually enough. A
// document that needs more, because it is nested deeply, or that does not end, is read without
// index.
func (w *Walker) Read(doc []byte, index []uint64) {
	n := 0
	if len(index) != 0 {
		n = indexNested(doc, index)
	}
	w.whole, w.doc, w.nested = doc, doc, index[:n]
}

// ReadIndexed is Read with an index of doc that was made before. Entries that cannot be right are
// skipped.
func (w *Walker) ReadIndexed(doc []byte, index []uint64) { w.whole, w.doc, w.nested = doc, doc, index }

// Object begins the walk over the members of the object that lies from start up to
// end in the document, as Span returns it.
func (w *Walker) Object(start, end int) { w.seek(start, end, '{') }

// Array begins the walk over the elements of the array that lies from start up to
// end in the document, as Span returns it.
func (w *Walker) Array(start, end int) { w.seek(start, end, '[') }

func (w *Walker) seek(start, end int, opening byte) {
	w.begin(w.whole[:end:end], start, opening)
	w.passed = FirstFrom(w.nested, start+1)
}

// Key is [Members.Key], in an object.
func (w *Walker) Key() string { return w.key() }

// Field is the place of a member's value.
type Field struct {
	// Value has the end of the value in its upper half and its beginning in the
	// lower one.
	Value uint64
	// First is 0.
	First uint32
	// Version is the version passed to ReadObject.
	Version uint32
}

// ReadObject reads the object that lies from start up to end in the document: the member with the
// name names[i] becomes fields[i], and the zero Field if its value is null. Of several with the
// same name the last counts; names[0] is unused. It is fastest if members come in the order of
// names. Of a malformed object it reads the part before the mistake.
func (w *Walker) ReadObject(start, end int, names []string, fields []Field, version uint32) {
	fields = fields[:len(names)]
	w.Object(start, end)
	for from := 1; ; {
		if from = readFields(w, names, fields, version, from); from < 0 || !nextOf(&w.walk) {
			return
		}
		// A member of an unusual form.
		if i := find(names, w.key(), from); i != 0 {
			from, fields[i] = i+1, Field{}
			if w.doc[w.start] != 'n' {
				fields[i] = Field{Value: uint64(w.end)<<32 | uint64(w.start), Version: version}
			}
		}
	}
}

// find returns the index of name in names[1:] and 0 if it is missing. It begins the search at
// names[from].
func find(names []string, name string, from int) int {
	for i := from; i < len(names); i++ {
		if names[i] == name {
			return i
		}
	}
	for i := min(from, len(names)) - 1; i > 0; i-- {
		if names[i] == name {
			return i
		}
	}
	return 0
}

// Lookup returns the value of the member with the name, in the object that lies from
// start up to end in the document. Of several the last counts.
func (w *Walker) Lookup(start, end int, name string) (v Value, ok bool) {
	const none = 1 // ReadObject writes 0, also for null.
	w.names[1], w.fields[1] = name, Field{First: none}
	w.ReadObject(start, end, w.names[:], w.fields[:], 1)
	switch f := &w.fields[1]; {
	case f.First == none:
		return nil, false
	case f.Version == 0:
		return null, true
	default:
		return w.whole[uint32(f.Value) : f.Value>>32], true
	}
}

var null = Value("null")

// nestedEnd returns the end of the array or object that begins at i, -1 if that is not known.
func (w *walk) nestedEnd(i int) int {
	for ; w.passed < len(w.nested); w.passed++ {
		if start := int(uint32(w.nested[w.passed])); start >= i {
			end := int(w.nested[w.passed] >> 32)
			if start == i && end > i+1 && end <= len(w.doc) && w.doc[end-1] == w.doc[i]+2 {
				return end
			}
			break
		}
	}
	return -1
}
