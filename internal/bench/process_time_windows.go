package main

import (
	"syscall"
	"time"
)

// processTime is the time that this process has kept processors busy.
func processTime() time.Duration {
	process, err := syscall.GetCurrentProcess()
	if err != nil {
		panic(err) // It returns a constant.
	}
	var created, exited, kernel, user syscall.Filetime
	if err := syscall.GetProcessTimes(process, &created, &exited, &kernel, &user); err != nil {
		panic(err) // GetProcessTimes fails on bad arguments only.
	}
	// A Filetime counts 100 ns, whatever it is a time of.
	ticks := func(t syscall.Filetime) int64 { return int64(t.HighDateTime)<<32 | int64(t.LowDateTime) }
	return time.Duration(100 * (ticks(kernel) + ticks(user)))
}
