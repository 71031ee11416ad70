// Package metadata reads and writes what a guest says about itself in the custom
// section "kubewasm" of its module: its name and version, what kind of plugin it
// is, and which fields of objects it reads. SPEC.md, section 7, has the format.
//
// It is for hosts and tools; guests have no use for it.
package metadata
