// Package measure has an extension point whose calls the benchmark measures. Plugins are those
// of guests/measure and guests/measure.c.
package measure

//go:generate go run -C ../../.. ./cmd/kubewasm gen --host internal/bench/measure --output-dir internal/bench/measure/measureguest internal/bench/measure/measure.proto

// Schema returns the encoded FileDescriptorSet of the service, for the guest in C.
func Schema() []byte { return []byte(serviceSchema) }
