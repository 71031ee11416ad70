//go:build !linux

package main

import (
	"errors"
	"os"
)

func peakOf(*os.ProcessState) string { return "?" }

func mappings() (int, error) { return 0, errors.ErrUnsupported }

func mapUpTo(int) error { return errors.ErrUnsupported }
