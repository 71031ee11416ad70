// Package hookmsg holds the messages of runtime hooks: the [Request] that a host
// hands to a guest and the [Decision] that it gets back.
//
// abi/hook.proto is their definition, for guests in any language. The Go types are
// plain structs, and the codec is written by hand on
// google.golang.org/protobuf/encoding/protowire: a request is encoded without
// an allocation, and equal requests are equal bytes. A test compares it with
// hook.proto, field by field. The code that kubewasm gen writes for services
// takes three times as long: it has neither the fields that a plugin reads nor
// the order of the keys of the request before.
package hookmsg
