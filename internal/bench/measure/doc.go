// Package measure has an extension point whose calls the benchmark measures. Plugins are those
// of guests/measure and guests/measure.c.
package measure

//go:generate kubewasm gen --host . --output-dir measureguest measure.proto

// Schema returns the encoded FileDescriptorSet of the service, for the guest in C.
func Schema() []byte { return []byte(serviceSchema) }
