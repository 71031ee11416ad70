package host

import (
	"bytes"
	"io"
	"os"
	"strconv"
)

// defaultMappings is Linux' DEFAULT_MAX_MAP_COUNT, for a system that does not report its limit.
const defaultMappings = 65_530

// mostMappings returns vm.max_map_count.
func mostMappings() int64 {
	text, err := os.ReadFile("/proc/sys/vm/max_map_count")
	if err != nil {
		return defaultMappings
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	if err != nil || n <= 0 {
		return defaultMappings
	}
	return n
}

// countMappings returns the number of mappings of the process. It takes half a microsecond for
// each.
func countMappings() (n int64, err error) {
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return 0, err
	}
	defer maps.Close()
	buf := make([]byte, 64<<10)
	for {
		read, err := maps.Read(buf)
		n += int64(bytes.Count(buf[:read], []byte{'\n'}))
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return 0, err
		}
	}
}
