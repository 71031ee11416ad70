package nodewatch

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
)

const (
	// maxCPUs is one more than the largest number of a CPU or a memory node: CONFIG_NR_CPUS is
	// at most 8192.
	maxCPUs = 8192
	// maxSysFile bounds a file of sysfs.
	maxSysFile = 64 << 10
)

// readTopology reads the topology of a machine's processors from the kernel's sysfs at root:
// "/sys".
func readTopology(root string) (*hookmsg.Topology, error) {
	s := sysfs{cpu: filepath.Join(root, "devices/system/cpu"), node: filepath.Join(root, "devices/system/node")}
	t, err := s.topology()
	if err != nil {
		return nil, fmt.Errorf("read the topology of the node: %w", err)
	}
	return t, nil
}

// sysfs holds the directories in which the kernel describes its processors.
type sysfs struct{ cpu, node string }

// read returns the text of a file.
func read(parts ...string) (string, error) {
	f, err := os.Open(filepath.Join(parts...))
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSysFile))
	return strings.TrimSpace(string(b)), err
}

// number returns the number in a file.
func number(parts ...string) (int64, error) {
	text, err := read(parts...)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", filepath.Join(parts...), err)
	}
	return n, nil
}

func (s *sysfs) topology() (*hookmsg.Topology, error) {
	t := new(hookmsg.Topology)
	var err error
	if t.OnlineCPUs, err = read(s.cpu, "online"); err != nil {
		return nil, err
	}
	online, err := parseCPUs(t.OnlineCPUs)
	if err != nil {
		return nil, err
	}
	sockets := map[int64][]int{}
	cores, caches := map[string]bool{}, map[hookmsg.CPUCache]bool{}
	for _, cpu := range online {
		dir := filepath.Join(s.cpu, "cpu"+strconv.Itoa(cpu))
		socket, err := number(dir, "topology/physical_package_id")
		if err != nil {
			return nil, err
		}
		sockets[socket] = append(sockets[socket], cpu)
		core, err := number(dir, "topology/core_id")
		if err != nil {
			return nil, err
		}
		threads, err := read(dir, "topology/core_cpus_list")
		if errors.Is(err, fs.ErrNotExist) { // Before Linux 5.3.
			threads, err = read(dir, "topology/thread_siblings_list")
		}
		if err != nil {
			return nil, err
		}
		if !cores[threads] {
			cores[threads] = true
			t.Cores = append(t.Cores, hookmsg.CPUGroup{ID: core, CPUs: threads})
		}
		of, err := readCaches(dir)
		if err != nil {
			return nil, err
		}
		for _, c := range of {
			if !caches[c] {
				caches[c] = true
				t.Caches = append(t.Caches, c)
			}
		}
	}
	for id, cpus := range sockets {
		t.Sockets = append(t.Sockets, hookmsg.CPUGroup{ID: id, CPUs: formatCPUs(cpus)})
	}
	slices.SortFunc(t.Sockets, func(a, b hookmsg.CPUGroup) int { return cmp.Compare(a.ID, b.ID) })
	// They were found in the order of their first CPUs.
	slices.SortStableFunc(t.Caches, func(a, b hookmsg.CPUCache) int {
		return cmp.Or(cmp.Compare(a.Level, b.Level), cmp.Compare(a.Type, b.Type))
	})
	t.NUMANodes, err = s.numaNodes()
	return t, err
}

// readCaches returns the caches of a CPU.
func readCaches(cpu string) (caches []hookmsg.CPUCache, err error) {
	for i := range 16 { // Linux knows five.
		dir := filepath.Join(cpu, "cache", "index"+strconv.Itoa(i))
		level, err := number(dir, "level")
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return nil, err
		}
		c := hookmsg.CPUCache{Level: level}
		if c.Type, err = read(dir, "type"); err != nil {
			return nil, err
		}
		if c.CPUs, err = read(dir, "shared_cpu_list"); err != nil {
			return nil, err
		}
		size, err := read(dir, "size")
		if errors.Is(err, fs.ErrNotExist) { // Some machines do not report it.
			caches = append(caches, c)
			continue
		}
		kib, ok := strings.CutSuffix(size, "K")
		n, parsed := strconv.ParseUint(kib, 10, 32)
		if err := errors.Join(err, parsed); err != nil || !ok {
			return nil, fmt.Errorf("%s: %q is not a size like 32K", filepath.Join(dir, "size"), size)
		}
		c.SizeBytes = int64(n) << 10
		caches = append(caches, c)
	}
	return caches, nil
}

// numaNodes returns the nodes that have CPUs or memory.
func (s *sysfs) numaNodes() (nodes []hookmsg.NUMANode, err error) {
	online, err := read(s.node, "online")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	ids, err := parseCPUs(online)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		dir := filepath.Join(s.node, "node"+strconv.Itoa(id))
		n := hookmsg.NUMANode{ID: int64(id)}
		if n.CPUs, err = read(dir, "cpulist"); err != nil {
			return nil, err
		}
		text, err := read(dir, "meminfo")
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(text) { // "Node 0 MemTotal:       32823312 kB"
			if _, of, ok := strings.Cut(line, " MemTotal:"); ok {
				fields := strings.Fields(of)
				if len(fields) != 2 || fields[1] != "kB" {
					return nil, fmt.Errorf("%s: %q is not an amount of kB", filepath.Join(dir, "meminfo"), line)
				}
				kib, err := strconv.ParseUint(fields[0], 10, 50)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", filepath.Join(dir, "meminfo"), err)
				}
				n.MemoryBytes = int64(kib) << 10
			}
		}
		if n.CPUs != "" || n.MemoryBytes != 0 {
			nodes = append(nodes, n)
		}
	}
	return nodes, nil
}

// parseCPUs parses the kernel's list format, "0-3,8".
func parseCPUs(list string) (cpus []int, err error) {
	if list == "" {
		return nil, nil
	}
	for item := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(item, "-")
		first, err := strconv.ParseUint(from, 10, 32)
		last := first
		if err == nil && isRange {
			last, err = strconv.ParseUint(to, 10, 32)
		}
		if err != nil || first > last || last >= maxCPUs || len(cpus) > 0 && int(first) <= cpus[len(cpus)-1] {
			return nil, fmt.Errorf("%.100q is not a list of numbers below %d like \"0-3,8\"", list, maxCPUs)
		}
		for n := first; n <= last; n++ {
			cpus = append(cpus, int(n))
		}
	}
	return cpus, nil
}

// formatCPUs writes sorted numbers in the kernel's notation.
func formatCPUs(cpus []int) string {
	var b strings.Builder
	for i := 0; i < len(cpus); {
		end := i + 1
		for end < len(cpus) && cpus[end] == cpus[end-1]+1 {
			end++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(cpus[i]))
		if end-i > 1 {
			b.WriteString("-" + strconv.Itoa(cpus[end-1]))
		}
		i = end
	}
	return b.String()
}
