// Package hookmsg holds the messages of runtime hooks: the [Request] that a host hands to a guest
// and the [Decision] that the guest returns.
//
// The Go types are plain structs. abi/hook.proto is their definition, for guests in any language,
// and a test compares the codec with it field by field. The codec is written by hand on
// google.golang.org/protobuf/encoding/protowire: a request is encoded without an allocation, and
// equal requests are equal bytes. The code that kubewasm gen writes for services takes three times
// as long: it knows neither the fields that a plugin reads nor the order of the keys.
package hookmsg
