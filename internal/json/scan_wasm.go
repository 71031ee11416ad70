package json

// next goes to the next member or element and reports whether there is one.
//
//go:noescape
func next(w *walk) bool

// skipString returns the index after the string whose first byte, behind the
// opening quote, is b[i], or -1 if it does not end.
//
//go:noescape
func skipString(b []byte, i int) int

// skipNested returns the index after the array or object that begins at b[i], or -1
// if it does not end. It tells strings from the rest and counts brackets: depth costs
// no memory.
//
//go:noescape
func skipNested(b []byte, i int) int

// indexNested notes in nested where the arrays and objects lie that have
// indexedLength or more, and returns how many they are; 0 if doc is neither an
// array nor an object, does not end, or if there is no room.
//
//go:noescape
func indexNested(doc []byte, nested []uint64) int

// find returns the index of name in names[1:] and 0 if it is not there. It begins
// to look at names[from].
//
//go:noescape
func find(names []string, name string, from int) int

// readFields reads members of an object that is walked over into fields, until one
// has an unusual form. It returns where in names to look for the next one, -1 if there
// is none.
//
//go:noescape
func readFields(w *Walker, names []string, fields []Field, version uint32, from int) int

// seek begins the walk over the array or object that lies from start up to end in the
// document.
//
//go:noescape
func seek(w *Walker, start, end int, opening byte)

// isPlain reports whether v is a string as it lies: nothing is to be decoded and
// nothing follows.
//
//go:noescape
func isPlain(v []byte) bool
