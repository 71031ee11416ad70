// Package snapmem implements the linear memories of guests: the budget that
// they share, the image that they begin from, and the reset to it.
//
// On Linux a memory is address space, reserved for the maximum of the guest, so
// that growth moves nothing. Its beginning is a private mapping of the image:
// instances share the pages that they only read, and a reset copies the pages
// that they wrote. Elsewhere, and where the kernel refuses, a memory is a slice
// and a reset copies all of it.
//
// For debugging, memory that no call uses can be hidden: a read of it then ends
// the process at once, at the place of the mistake.
package snapmem
