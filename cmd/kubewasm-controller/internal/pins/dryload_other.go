//go:build !linux || !(amd64 || arm64)

package pins

import (
	"context"
	"errors"
	"time"
)

// loadDry has no process to load a module in.
func loadDry(context.Context, dryLoad, []byte, []byte, time.Duration) error {
	return errors.New("a process behind a wall needs Linux on amd64 or arm64")
}
