//go:build unix

package main

import (
	"syscall"
	"time"
)

// processTime is the time that this process has kept processors busy.
func processTime() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(err) // Getrusage fails on bad arguments only.
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
