//go:build !linux

package host

import (
	"errors"

	"github.com/tetratelabs/wazero/api"
)

// mapCode leaves machine code where it is, as on Linux where a file cannot be mapped.
func mapCode(api.Function, string) ([]byte, bool, error) { return nil, false, errors.ErrUnsupported }

func mappable(string) error { return errors.ErrUnsupported }

func dropPages([]byte) {}

func splitMapping([]byte) bool { return false }

func joinMapping([]byte) {}
