// Package stellar serves unmodified plugins of the webhook of the Stellar operator for Kubernetes.
//
// Such a plugin exports validate () -> i32 and imports from the module env:
//
//	get_input_len () -> i32           the length of the request
//	read_input (ptr, len) -> i32      copies the request and returns its length; -1 out of bounds
//	write_output (ptr, len) -> i32    the verdict; 0, or -1 out of bounds or over 256 KiB
//	log_message (ptr, len)            a line for the log
//
// Request and verdict are JSON. If a plugin writes no verdict, or an empty one, a result of 0
// allows the request and any other result denies it.
package stellar
