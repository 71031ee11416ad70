// Package service is what the guest sides of services are built on: extension points that
// other modules define in a .proto file, and for which kubewasm gen writes a package with an
// interface to implement, a function that registers a plugin, and types for messages.
//
// An author of a plugin does not use this package, but that one:
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
// A request is a view, as the objects of guest/api are: a field is read when it is asked for.
// It is valid during the call, and its strings may be kept. A response is a struct whose
// fields are set; it is empty when the method is called.
//
// A method of a host service is a function of a type in that package. Natively, in tests,
// [github.com/kubewasm/kubewasm/guest/guesttest/servicetest] provides the host.
package service
