//go:build !linux

package main

import "errors"

func peakMemory() (uint64, error) { return 0, errors.ErrUnsupported }
