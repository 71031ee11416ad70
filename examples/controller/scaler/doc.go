// Package scaler is the host side of the extension point of this controller, generated from
// scaler.proto.
package scaler

// Schema returns the schema of the extension point, for modules not made by kubewasm build, which
// carry it in the custom section kubewasm_schema.
func Schema() []byte { return []byte(serviceSchema) }
