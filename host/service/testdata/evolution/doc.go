// Package evolution has one extension point as three .proto files: old, evolved, which adds to it,
// and broken, which changes it in ways that no guest or host survives. Each has a plugin. The
// test loads each plugin into the hosts of the three.
package evolution
