// Package metadata reads and writes the custom section "kubewasm" of a guest's
// module: the name and version of the plugin, its kind, and the fields of
// objects that it reads. SPEC.md, section 7, has the format.
//
// It is for hosts and tools; guests do not need it.
package metadata
