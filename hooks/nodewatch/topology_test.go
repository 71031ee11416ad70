package nodewatch_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks/nodewatch"
)

// machine writes files of sysfs, by their paths below devices/system.
func machine(t *testing.T, files map[string]string) (root string) {
	t.Helper()
	root = t.TempDir()
	for name, text := range files {
		file := filepath.Join(root, "devices/system", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// twoSockets returns the files of two sockets with two cores of two threads each, a core of which is
// offline, with a memory node for each socket and one without CPUs.
func twoSockets() map[string]string {
	files := map[string]string{
		"cpu/online": "0-5,7", "node/online": "0-3",
		"node/node0/cpulist": "0-3", "node/node0/meminfo": "Node 0 MemTotal:       16777216 kB\nNode 0 MemFree:        1000 kB",
		"node/node1/cpulist": "4-5,7", "node/node1/meminfo": "Node 1 MemTotal:       16777216 kB",
		"node/node2/cpulist": "", "node/node2/meminfo": "Node 2 MemTotal:       1024 kB",
		"node/node3/cpulist": "", "node/node3/meminfo": "Node 3 MemTotal:       0 kB",
	}
	for cpu, of := range map[int]struct {
		socket, core   string
		threads, third string
	}{
		0: {"0", "0", "0,2", "0-3"}, 2: {"0", "0", "0,2", "0-3"}, 1: {"0", "4", "1,3", "0-3"}, 3: {"0", "4", "1,3", "0-3"},
		4: {"1", "0", "4", "4-5,7"}, 5: {"1", "4", "5,7", "4-5,7"}, 7: {"1", "4", "5,7", "4-5,7"},
	} {
		dir := "cpu/cpu" + strconv.Itoa(cpu) + "/"
		files[dir+"topology/physical_package_id"], files[dir+"topology/core_id"], files[dir+"topology/core_cpus_list"] = of.socket, of.core, of.threads
		for i, c := range [][4]string{{"1", "Data", "48K", of.threads}, {"1", "Instruction", "32K", of.threads}, {"3", "Unified", "32768K", of.third}} {
			index := dir + "cache/index" + strconv.Itoa(i) + "/"
			files[index+"level"], files[index+"type"], files[index+"size"], files[index+"shared_cpu_list"] = c[0], c[1], c[2], c[3]
		}
	}
	return files
}

func TestTheTopologyOfAServer(t *testing.T) {
	want := &hookmsg.Topology{
		OnlineCPUs: "0-5,7",
		NUMANodes:  []hookmsg.NUMANode{{ID: 0, CPUs: "0-3", MemoryBytes: 16 << 30}, {ID: 1, CPUs: "4-5,7", MemoryBytes: 16 << 30}, {ID: 2, MemoryBytes: 1 << 20}},
		Sockets:    []hookmsg.CPUGroup{{ID: 0, CPUs: "0-3"}, {ID: 1, CPUs: "4-5,7"}},
		Cores:      []hookmsg.CPUGroup{{ID: 0, CPUs: "0,2"}, {ID: 4, CPUs: "1,3"}, {ID: 0, CPUs: "4"}, {ID: 4, CPUs: "5,7"}},
		Caches: []hookmsg.CPUCache{
			{Level: 1, Type: "Data", SizeBytes: 48 << 10, CPUs: "0,2"}, {Level: 1, Type: "Data", SizeBytes: 48 << 10, CPUs: "1,3"},
			{Level: 1, Type: "Data", SizeBytes: 48 << 10, CPUs: "4"}, {Level: 1, Type: "Data", SizeBytes: 48 << 10, CPUs: "5,7"},
			{Level: 1, Type: "Instruction", SizeBytes: 32 << 10, CPUs: "0,2"}, {Level: 1, Type: "Instruction", SizeBytes: 32 << 10, CPUs: "1,3"},
			{Level: 1, Type: "Instruction", SizeBytes: 32 << 10, CPUs: "4"}, {Level: 1, Type: "Instruction", SizeBytes: 32 << 10, CPUs: "5,7"},
			{Level: 3, Type: "Unified", SizeBytes: 32 << 20, CPUs: "0-3"}, {Level: 3, Type: "Unified", SizeBytes: 32 << 20, CPUs: "4-5,7"},
		},
	}
	got, err := nodewatch.ReadTopology(machine(t, twoSockets()))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestTopologiesOfOtherMachines(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(files map[string]string)
		want   string // The error, empty for none.
		check  func(t *hookmsg.Topology) bool
	}{
		{"a kernel before 5.3", func(files map[string]string) {
			files["cpu/cpu4/topology/thread_siblings_list"] = files["cpu/cpu4/topology/core_cpus_list"]
			delete(files, "cpu/cpu4/topology/core_cpus_list")
		}, "", func(t *hookmsg.Topology) bool { return len(t.Cores) == 4 }},
		{"without NUMA", func(files map[string]string) {
			for name := range files {
				if strings.HasPrefix(name, "node/") {
					delete(files, name)
				}
			}
		}, "", func(t *hookmsg.Topology) bool { return t.NUMANodes == nil && len(t.Sockets) == 2 }},
		{"without caches", func(files map[string]string) {
			for name := range files {
				if strings.Contains(name, "/cache/") {
					delete(files, name)
				}
			}
		}, "", func(t *hookmsg.Topology) bool { return t.Caches == nil && len(t.Cores) == 4 }},
		{"caches without a size", func(files map[string]string) { delete(files, "cpu/cpu0/cache/index2/size") }, "", func(t *hookmsg.Topology) bool { return len(t.Caches) == 11 }},
		{"nothing", func(files map[string]string) { clear(files) }, "no such file", nil},
		{"a CPU beyond all", func(files map[string]string) { files["cpu/online"] = "0-8192" }, "not a list of numbers below 8192", nil},
		{"CPUs out of order", func(files map[string]string) { files["cpu/online"] = "4,0" }, "not a list", nil},
		{"a CPU without a socket", func(files map[string]string) { delete(files, "cpu/cpu7/topology/physical_package_id") }, "no such file", nil},
		{"a core that is no number", func(files map[string]string) { files["cpu/cpu7/topology/core_id"] = "x" }, "invalid syntax", nil},
		{"a cache of another unit", func(files map[string]string) { files["cpu/cpu0/cache/index2/size"] = "32M" }, "not a size like 32K", nil},
		{"memory of another unit", func(files map[string]string) { files["node/node0/meminfo"] = "Node 0 MemTotal: 1 MB" }, "not an amount of kB", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			files := twoSockets()
			tt.change(files)
			got, err := nodewatch.ReadTopology(machine(t, files))
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got error %v, want one with %q", err, tt.want)
				}
				return
			}
			if err != nil || !tt.check(got) {
				t.Errorf("got %+v, error %v", got, err)
			}
		})
	}
}
