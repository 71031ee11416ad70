// Package hookwire encodes and decodes the messages of package hookmsg.
//
// abi/hook.proto is their definition, and a test compares with it, field by field. The
// codec is written by hand on google.golang.org/protobuf/encoding/protowire: a request is
// encoded without an allocation, and equal requests are equal bytes. The code that
// kubewasm gen writes for services takes three times as long: it has neither the fields
// that a plugin reads nor the order of the keys of the request before.
package hookwire
