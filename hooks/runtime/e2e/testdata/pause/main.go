// Command pause is the one program of the image that the test's containers are
// made of. It waits to be told to end, but not for ever: a test that is killed
// leaves it behind.
package main

import (
	"context"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Minute):
	}
}
