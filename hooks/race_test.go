//go:build race

package hooks_test

// raceEnabled: the race detector allocates.
const raceEnabled = true
