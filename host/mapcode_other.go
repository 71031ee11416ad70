//go:build !linux

package host

import (
	"errors"
	"os"
)

// mapCode leaves machine code to be read into memory, as on Linux where a file cannot be mapped.
func mapCode([]byte, *os.File, int64) (bool, error) { return false, nil }

func mapCopy([]byte, *os.File, int64) (bool, error) { return false, nil }

func unmapCode([]byte) {}

func mappable(string) error { return errors.ErrUnsupported }

func dropPages([]byte) {}

func splitMapping([]byte, int) bool { return false }

func joinMapping([]byte) {}
