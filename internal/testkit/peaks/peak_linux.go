package main

import (
	"fmt"
	"os"
	"syscall"
)

// peakOf returns the most resident memory that a process had, in megabytes.
func peakOf(ended *os.ProcessState) string {
	if ended == nil {
		return "?"
	}
	usage, ok := ended.SysUsage().(*syscall.Rusage)
	if !ok {
		return "?"
	}
	return fmt.Sprint(uint64(usage.Maxrss) >> 10)
}
