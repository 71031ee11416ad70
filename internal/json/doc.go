// Package json reads JSON in place: a [Value] is a span of the document's bytes, and nothing is
// decoded before it is requested.
//
// Guests and the host use it. It is made for guests: no reflection, no fmt, no encoding/json, which
// alone would add 1.4 MB to a module. An object is walked member by member,
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
// # Checks
//
// The walk checks the bytes that it passes: keys, colons, commas, the words true, false and null,
// and that the value ends. In nested values that are passed over it only counts brackets. [Valid]
// checks a whole document by the grammar of RFC 8259.
//
// Bytes that are not JSON end the walk where they stop making sense, and Malformed reports that.
// They never cause a panic, a read beyond them, or a recursion: a document of nothing but opening
// brackets is skipped in a loop.
//
// # Speed
//
// A [Walker] reads each level of a document once, for reading values deep in it. In guests three of
// its loops are WebAssembly assembly: scan_wasm.s is scan_native.go, and leaves unusual forms to
// the Go beside it. A test compares both.
//
// # Strings
//
// A string without escapes is returned in place: it shares its memory with the document and is
// valid until the document is written to. In a host, a document that lies in the memory of a guest
// is copied before it is read: its strings would later be those of another request. Any other
// string is decoded as encoding/json does it, with U+FFFD for invalid UTF-8 and for a surrogate
// without its other half.
package json
