// Package json reads JSON where it lies: a [Value] is a span of the document's
// bytes, and nothing is decoded before somebody asks for it.
//
// Guests and the host read by it. It is made for guests: no reflection, no fmt, no encoding/json, which alone
// would add 1.4 MB to a module. An object is walked member by member,
//
//	for m := json.Object(raw); m.Next(); {
//		switch m.Key() {
//		case "name":
//			name = m.Value().String()
//		}
//	}
//
// and an array element by element with [Array]. A member that occurs twice is
// met twice, so that in a loop like the one above the last one wins, as it does
// in encoding/json and in the API server.
//
// # What is checked
//
// The walk checks what it walks over: keys, colons, commas, the words true,
// false and null, and that the value ends. It does not look into a nested value
// that nobody walks over; there it only counts brackets. [Valid] checks a whole
// document by the grammar of RFC 8259.
//
// Bytes that are not JSON end the walk where they stop making sense, and
// Malformed says so. They never cause a panic, a read beyond them, or a
// recursion: a document of nothing but opening brackets is skipped in a loop.
//
// # Speed
//
// Who walks down to a value deep in a document walks by a [Walker], which reads
// every level once. In guests the loops are WebAssembly assembly: scan_wasm.s is what
// scan_native.go is, and nextOf and seekOf take over what is unusual. A test compares
// the two.
//
// # Strings
//
// A string without escapes is returned in place: it shares its memory with the
// document and is right as long as nobody writes there. In a host, a document that
// lies in the memory of a guest is copied before it is read: its strings would be
// another request's later. Any other string is decoded as
// encoding/json does it, with U+FFFD for invalid UTF-8 and for a surrogate
// without its other half.
package json
