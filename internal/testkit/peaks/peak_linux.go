package main

import "syscall"

// peakMemory returns the most resident memory that the process has had, in bytes.
func peakMemory() (uint64, error) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0, err
	}
	return uint64(usage.Maxrss) << 10, nil
}
