// Package servicetest tests plugins of services, natively and as WebAssembly, see [Each].
//
// A test calls the plugin by the host side that kubewasm gen wrote, as a component does.
package servicetest
