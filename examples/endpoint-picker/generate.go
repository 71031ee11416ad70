// Package endpointpicker has the extension points of a router for language models: which
// endpoint serves a request. The host side is in package picker, the one of plugins in
// package pickerguest.
package endpointpicker

//go:generate kubewasm gen --output-dir pickerguest --host picker picker.proto
