// Package snapmem holds the linear memories of guests: what they may have
// together, the image that they begin from, and the way back to it.
//
// On Linux a memory is address space, reserved for as much as the guest may ever
// have, so that growth moves nothing. Its beginning is a private mapping of the
// image: instances share the pages that they only read, and a reset copies the
// pages that they wrote. Elsewhere, and where the kernel refuses, a memory is a
// slice and a reset copies all of it.
//
// For debugging, memory that no call uses can be hidden: a read of it then ends
// the process where it happens, and not later, somewhere else, or not at all.
package snapmem
