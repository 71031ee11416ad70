// Package jsonpatch edits JSON documents and describes the edits as JSON Patch
// (RFC 6902).
//
// A [Document] is read from bytes and taken apart only along the paths that are
// edited: what no edit touches stays the bytes that it was, also when the document
// is written again. Members keep their order.
//
// [Apply] carries out a patch of another program as an API server does, within limits:
// what a patch may do to memory and time depends on its length, not on how it is made.
// [Diff] finds a patch, which is not much longer than the document that it makes.
// What they cost is told to a [Pay], which may end them. Guests and the host use the
// same code, so like package json it uses no reflection and no fmt.
package jsonpatch
