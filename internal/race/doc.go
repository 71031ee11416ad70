// Package race says whether Go's race detector is on. Its test runs the tests of
// the packages in which goroutines meet under it, so that one go test covers
// both.
package race
