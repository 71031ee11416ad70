//go:build !linux

package hooks

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
)

// device is for Linux, where runtimes take the numbers of devices.
func (n *node) device(string) (hookmsg.Device, error) {
	return hookmsg.Device{}, fmt.Errorf("devices are looked up on Linux, and this is %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
