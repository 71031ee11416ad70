package snapmem

import (
	"os"
	"testing"
	"testing/fstest"
)

func TestAvailableMemory(t *testing.T) {
	const meminfo = "MemTotal:       16384000 kB\nMemFree:         1234567 kB\nHugePages_Total:       0\n"
	tests := []struct {
		name  string
		files map[string]string
		want  uint64
	}{
		{"a machine that says nothing", nil, 0},
		{"a machine without cgroups", map[string]string{"proc/meminfo": meminfo}, 16384000 << 10},
		{"a broken meminfo", map[string]string{"proc/meminfo": "MemTotal: lots kB\n"}, 0},
		{"a container on cgroup v2", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "536870912\n",
		}, 512 << 20},
		{"a service below a slice with less", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/system.slice/agent.service\n",
			"sys/fs/cgroup/system.slice/memory.max":               "1073741824\n",
			"sys/fs/cgroup/system.slice/agent.service/memory.max": "max\n",
		}, 1 << 30},
		{"a container on cgroup v1", map[string]string{
			"proc/meminfo":     "MemTotal: 16384000 kB\n",
			"proc/self/cgroup": "3:cpu,cpuacct:/docker/4b1f\n2:memory:/docker/4b1f\n0::/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":  "268435456\n",
			"sys/fs/cgroup/cpu,cpuacct/memory.max":        "1\n",
			"sys/fs/cgroup/memory/other/memory.max":       "2\n",
			"sys/fs/cgroup/memory/docker/memory.max":      "3\n",
			"sys/fs/cgroup/memory/docker/4b1f/memory.max": "4\n",
		}, 256 << 20},
		{"no limit on cgroup v1", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "2:memory:/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, 16384000 << 10},
		{"a cgroup outside of the namespace", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/../../other\nnonsense\n", "sys/fs/cgroup/memory.max": "4096\n",
		}, 4096},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			root := fstest.MapFS{}
			for name, contents := range test.files {
				root[name] = &fstest.MapFile{Data: []byte(contents)}
			}
			if got := Available(root); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
	if _, err := os.Stat("/proc/meminfo"); err != nil {
		t.Skip("no /proc")
	}
	if got := Available(os.DirFS("/")); got < 1<<20 {
		t.Errorf("this process may have %d bytes", got)
	}
}
