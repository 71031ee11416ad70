//go:build race

package race

// Enabled is true under the race detector, which allocates and is slow.
const Enabled = true
