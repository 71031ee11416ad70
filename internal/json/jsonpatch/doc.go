// Package jsonpatch edits JSON documents and describes the edits as JSON Patch
// (RFC 6902).
//
// A [Document] is read from bytes and expanded only along the edited paths: parts that no edit
// touches keep their bytes, even when the document is written again. Members keep their order.
//
// [Apply] carries out a patch of another program as an API server does, within limits: the memory
// and time that a patch may use depend on its length, not on its content. [Diff] finds a patch that
// is not much longer than the resulting document. Their costs are reported to a [Pay], which may
// end them. Guests and the host use the same code, so like package json it uses no reflection and
// no fmt.
package jsonpatch
