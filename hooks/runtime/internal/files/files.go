// Package files names the files of cgroups for limits that runtimes have fields for and hook
// messages have not: those of huge pages and of swap. They are entries of FieldUnified.
package files

import (
	"strconv"
	"strings"

	"github.com/kubewasm/kubewasm/hooks/cgroup"
)

// Memsw is the limit of memory and swap on cgroup v1, and swap that of swap on v2.
const (
	Memsw = "memory.memsw.limit_in_bytes"
	swap  = "memory.swap.max"
)

// HugepageSize returns the size of huge pages limited by a file, "2MB" of "hugetlb.2MB.max" or
// "hugetlb.2MB.limit_in_bytes"; empty for other files.
func HugepageSize(file string) string {
	size, ok := strings.CutPrefix(file, "hugetlb.")
	if !ok {
		return ""
	}
	for _, suffix := range [...]string{".max", ".limit_in_bytes"} {
		if size, ok := strings.CutSuffix(size, suffix); ok && size != "" && !strings.Contains(size, ".") {
			return size
		}
	}
	return ""
}

// Supported reports whether runtimes have a field for a file, of either version of cgroups: huge
// pages, and v1's limit of memory and swap. It is for proxy.Config.SupportsFile.
func Supported(name string) bool { return HugepageSize(name) != "" || name == Memsw }

// Hugepages returns the file and the text for a limit of huge pages of a size.
func Hugepages(v cgroup.Version, size string, limit uint64) (file, text string) {
	suffix := ".limit_in_bytes"
	if v == cgroup.V2 {
		suffix = ".max"
	}
	return "hugetlb." + size + suffix, strconv.FormatUint(limit, 10)
}

// Swap returns the file and the text for a limit of memory, and one of memory and swap together, of
// which 0 is no limit; ok is false if there is none.
func Swap(v cgroup.Version, limit, sum int64) (file, text string, ok bool) {
	switch {
	case sum == 0:
		return "", "", false
	case v != cgroup.V2:
		return Memsw, strconv.FormatInt(sum, 10), true
	case sum < 0:
		return swap, "max", true
	case limit > 0 && sum >= limit:
		return swap, strconv.FormatInt(sum-limit, 10), true
	}
	return "", "", false
}
