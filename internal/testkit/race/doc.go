// Package race says whether Go's race detector is on.
package race
