package main

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// resident returns the resident memory of the process, with the files in memory that it
// has open: it may have mapped a part of one, or one twice.
func resident() (bytes uint64, err error) {
	smaps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return 0, err
	}
	defer smaps.Close()
	lines := bufio.NewScanner(smaps) // All at once would be a part of what is measured.
	count := "Rss:"
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if !strings.HasSuffix(fields[0], ":") { // The first line of a mapping.
			if count = "Rss:"; len(fields) > 5 && strings.HasPrefix(fields[5], "/memfd:") {
				count = "Anonymous:"
			}
		}
		if fields[0] == count {
			kb, err := strconv.ParseUint(fields[1], 10, 64)
			if err != nil {
				return 0, err
			}
			bytes += kb << 10
		}
	}
	if err := lines.Err(); err != nil {
		return 0, err
	}
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0, err
	}
	for _, f := range files {
		name := "/proc/self/fd/" + f.Name()
		var stat syscall.Stat_t
		if to, _ := os.Readlink(name); strings.HasPrefix(to, "/memfd:") && syscall.Stat(name, &stat) == nil {
			bytes += uint64(stat.Blocks) * 512
		}
	}
	return bytes, nil
}
