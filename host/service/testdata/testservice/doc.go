// Package testservice is a service for tests of package service.
package testservice

//go:generate kubewasm gen --host . --output-dir guest test.proto

// Schema returns the encoded FileDescriptorSet of the services.
func Schema() []byte { return []byte(serviceSchema) }
