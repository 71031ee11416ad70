// Package hookmsg holds the messages of runtime hooks: the [Request] that a host
// hands to a guest and the [Decision] that it gets back.
//
// The Go types are plain structs. abi/hook.proto is their definition, for guests in any
// language.
package hookmsg
