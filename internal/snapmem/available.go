package snapmem

import (
	"bufio"
	"bytes"
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"
)

// Available returns the memory available to this process, in bytes: the machine's memory, or
// the lowest limit of its cgroup and the cgroups above. root is the root of the file system. The
// result is 0 if it is unknown.
//
// See https://docs.kernel.org/admin-guide/cgroup-v2.html and cgroup-v1/memory.html
// in the same guide.
func Available(root fs.FS) uint64 {
	available := uint64(math.MaxUint64)
	if b, err := fs.ReadFile(root, "proc/meminfo"); err == nil {
		for line := range bytes.Lines(b) {
			if fields := bytes.Fields(line); len(fields) == 3 && string(fields[0]) == "MemTotal:" {
				if kib, err := strconv.ParseUint(string(fields[1]), 10, 54); err == nil {
					available = kib << 10
				}
			}
		}
	}
	b, _ := fs.ReadFile(root, "proc/self/cgroup") // Without it there is no limit.
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		// hierarchy-ID:controller-list:cgroup-path
		parts := strings.SplitN(s.Text(), ":", 3)
		if len(parts) != 3 {
			continue
		}
		var hierarchy, file string
		switch parts[1] {
		case "":
			hierarchy, file = "sys/fs/cgroup", "memory.max"
		case "memory":
			hierarchy, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		// A container may see the path that its cgroup has outside, and its own
		// cgroup as the root: the walk up ends there.
		for cgroup := path.Clean("/" + parts[2]); ; cgroup = path.Dir(cgroup) {
			if b, err := fs.ReadFile(root, path.Join(hierarchy, cgroup, file)); err == nil {
				// "max" is no number, and no limit.
				if limit, err := strconv.ParseUint(string(bytes.TrimSpace(b)), 10, 64); err == nil {
					available = min(available, limit)
				}
			}
			if cgroup == "/" {
				break
			}
		}
	}
	if available == math.MaxUint64 {
		return 0
	}
	return available
}
