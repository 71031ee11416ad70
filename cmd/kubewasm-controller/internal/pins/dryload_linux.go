//go:build amd64 || arm64

package pins

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubewasm/kubewasm/internal/cut"
	"github.com/kubewasm/kubewasm/internal/wall"
)

// role is that of the process of a dry load.
const role = "kubewasm-dry-load"

// The packets of the process: it is behind the wall, and it has loaded the module. Any other is the
// reason that it has not.
const ready, loaded = "ready", "loaded"

func init() { wall.Main(role, serveDry) }

// loadDry loads a module in a process of its own. The error is a notLoadableError if the process was
// behind the wall when it failed.
func loadDry(ctx context.Context, of dryLoad, spec, module []byte, timeout time.Duration) error {
	of.SpecBytes, of.ModuleBytes = len(spec), len(module)
	file, err := wall.NewFile(len(spec) + len(module))
	if err != nil {
		return fmt.Errorf("make a file in memory: %w", err)
	}
	defer unix.Close(file)
	at := 0
	for _, part := range [][]byte{spec, module} {
		for len(part) != 0 {
			n, err := unix.Pwrite(file, part, int64(at))
			if err != nil {
				return fmt.Errorf("write a file in memory: %w", err)
			}
			part, at = part[n:], at+n
		}
	}
	p, err := wall.Start(role, of.MemoryBytes, 128)
	if err != nil {
		return err
	}
	defer p.Close()
	defer context.AfterFunc(ctx, func() { p.Kill(context.Cause(ctx)) })()
	late := errors.New("it takes too long")
	timer := time.AfterFunc(loadTimeout, func() { p.Kill(late) })
	defer timer.Stop()
	if _, err = p.Receive(); err != nil {
		return fmt.Errorf("the kernel has no wall for a process that loads modules: %w", err)
	}
	timer.Reset(timeout)
	var packet []byte
	request, err := json.Marshal(of)
	if err != nil {
		return err
	}
	if err = p.Send(request, file); err == nil {
		packet, err = p.Receive()
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, late):
		return notLoadableError{fmt.Errorf("the module is not loaded within %s", timeout)}
	case err != nil:
		return notLoadableError{fmt.Errorf("the module is not loaded with %d MiB of memory: %w", of.MemoryBytes>>20, err)}
	case string(packet) != loaded:
		return notLoadableError{errors.New(cut.Text(string(packet), maxMessageBytes))}
	}
	return nil
}

// serveDry loads a module in the process.
func serveDry(child *wall.Child) {
	child.Send([]byte(ready))
	packet, files, ok := child.Receive()
	var of dryLoad
	if !ok || len(files) != 1 || json.Unmarshal(packet, &of) != nil {
		return
	}
	bytes, err := wall.Map(files[0], of.SpecBytes+of.ModuleBytes)
	if err != nil {
		return
	}
	debug.SetMemoryLimit(int64(of.MemoryBytes / 2))
	answer := loaded
	if err := of.run(context.Background(), bytes[:of.SpecBytes], bytes[of.SpecBytes:], wall.Lock); err != nil {
		answer = cut.Text(err.Error(), maxMessageBytes)
	}
	child.Send([]byte(answer))
	child.Receive() // It ends when the controller has read that.
}
