// Package service is the base of the guest sides of services: extension points that other modules
// define in a .proto file, and for which kubewasm gen writes a package with an interface to
// implement, a function that registers a plugin, and types for messages.
//
// An author of a plugin uses that package, and from this one only the codes of errors:
//
//	package main
//
//	import "example.com/llm/pickerguest"
//
//	type shortest struct{}
//
//	func (shortest) Pick(req pickerguest.PickRequest, resp *pickerguest.PickResponse) error {
//		…
//	}
//
//	func init() { pickerguest.RegisterPicker(shortest{}) }
//	func main() {}
//
// A request is a view: numbers and strings are read in one pass before the call, and messages,
// lists, maps and objects on request. It is valid during the call, whose memory serves the next
// one; a view that is kept shows another request. Strings and lists of numbers and strings may be
// kept. A string shares the memory of its request: a plugin that keeps a few of a large one clones
// them. A response is a struct whose fields are set; it is empty when the method is called, and
// encoded when the method returns. Its lists belong to the plugin: it may set one that it keeps, or
// keep one that it made.
//
// An error of a method may have a code of gRPC, see [NewError]; without one it reads as [Unknown].
// An error of a host service may have one too, see [CodeOf].
//
// A method of a host service is a function of a type in that package. Natively, in tests,
// [github.com/kubewasm/kubewasm/host/service/servicetest] provides the host.
package service
