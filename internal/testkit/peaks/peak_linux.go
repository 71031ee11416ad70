package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
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

// mappings returns how many memory mappings the process has.
func mappings() (int, error) {
	maps, err := os.ReadFile("/proc/self/maps")
	return bytes.Count(maps, []byte("\n")), err
}

// mapUpTo maps pages until the process may have so many mappings more.
func mapUpTo(left int) error {
	text, err := os.ReadFile("/proc/sys/vm/max_map_count")
	if err != nil {
		return err
	}
	most, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	used, err := mappings()
	if err != nil {
		return err
	}
	page, n := os.Getpagesize(), (most-left-used)/2
	if n <= 0 {
		return fmt.Errorf("the process has %d of %d mappings", used, most)
	}
	pages, err := syscall.Mmap(-1, 0, (2*n+1)*page, syscall.PROT_NONE, syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE)
	if err != nil {
		return err
	}
	for i := range n { // Each splits the mapping around it.
		if err := syscall.Mprotect(pages[(2*i+1)*page:(2*i+2)*page], syscall.PROT_READ); err != nil {
			return err
		}
	}
	return nil
}
