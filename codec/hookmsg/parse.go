package hookmsg

import (
	"fmt"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/wire"
)

// ParseRequest decodes a request. It copies the parts of b that it keeps.
//
// Unknown fields are skipped; of a field that occurs twice the last one counts, and messages are
// merged, as in protobuf. Unlike protobuf's own decoders it refuses a known field of a different
// wire type instead of skipping it: the guest set it on purpose. Every error names the field.
func ParseRequest(b []byte) (*Request, error) {
	r := new(Request)
	c := wire.NewCursor(b)
	for c.Next() {
		switch c.Number {
		case 1:
			r.Stage = abi.Stage(c.Enum("stage"))
		case 2:
			r.Level = abi.Level(c.Enum("level"))
		case 3:
			m := c.Message("pod")
			for m.Next() {
				switch m.Number {
				case 1:
					r.Pod.Namespace = m.String("namespace")
				case 2:
					r.Pod.Name = m.String("name")
				case 3:
					r.Pod.UID = m.String("uid")
				}
			}
			c.Done(&m, "pod")
		case 4:
			m := c.Message("container")
			for m.Next() {
				switch m.Number {
				case 1:
					r.Container.Name = m.String("name")
				case 2:
					r.Container.ID = m.String("id")
				}
			}
			c.Done(&m, "container")
		case 5:
			c.Entry("pod_labels", &r.PodLabels)
		case 6:
			c.Entry("pod_annotations", &r.PodAnnotations)
		case 7:
			c.Entry("container_annotations", &r.ContainerAnnotations)
		case 8:
			r.CgroupParent = c.String("cgroup_parent")
		case 9:
			r.QOSClass = abi.QOSClass(c.Enum("qos_class"))
		case 10:
			if r.Resources == nil {
				r.Resources = new(Resources)
			}
			resources(&c, r.Resources, new(numbers))
		case 11:
			name, value := c.KeyValue("container_envs")
			r.ContainerEnvs = append(r.ContainerEnvs, Env{Name: name, Value: value})
		case 12, 13, 14, 15, 16, 17:
			if r.Node == nil {
				r.Node = new(Node)
			}
			node(&c, r.Node)
		}
	}
	if err := c.Err(); err != nil {
		return nil, fmt.Errorf("parse hook request: %w", err)
	}
	return r, nil
}

// node decodes a field about the node.
func node(c *wire.Cursor, n *Node) {
	switch c.Number {
	case 12:
		n.Name = c.String("node_name")
	case 13:
		c.Entry("node_labels", &n.Labels)
	case 14:
		c.Entry("node_annotations", &n.Annotations)
	case 15:
		c.Entry("node_capacity", &n.Capacity)
	case 16:
		c.Entry("node_allocatable", &n.Allocatable)
	case 17:
		if n.Topology == nil {
			n.Topology = new(Topology)
		}
		topology(c, n.Topology)
	}
}

func topology(c *wire.Cursor, t *Topology) {
	m := c.Message("node_topology")
	for m.Next() {
		switch m.Number {
		case 1:
			t.OnlineCPUs = m.String("online_cpus")
		case 2:
			n := parts(&m, "numa_nodes", 0, 1, 0)
			t.NUMANodes = append(t.NUMANodes, NUMANode{ID: n.numbers[0], CPUs: n.texts[1], MemoryBytes: n.numbers[2]})
		case 3:
			g := parts(&m, "sockets", 0, 1)
			t.Sockets = append(t.Sockets, CPUGroup{ID: g.numbers[0], CPUs: g.texts[1]})
		case 4:
			g := parts(&m, "cores", 0, 1)
			t.Cores = append(t.Cores, CPUGroup{ID: g.numbers[0], CPUs: g.texts[1]})
		case 5:
			v := parts(&m, "caches", 0, 1, 0, 1)
			t.Caches = append(t.Caches, CPUCache{Level: v.numbers[0], Type: v.texts[1], SizeBytes: v.numbers[2], CPUs: v.texts[3]})
		}
	}
	c.Done(&m, "node_topology")
}

// values are the fields of a message, by their numbers less 1.
type values struct {
	numbers [4]int64
	texts   [4]string
}

// parts decodes a message of numbers, which are 0 in kinds, and texts, which are 1.
func parts(c *wire.Cursor, name string, kinds ...int) (v values) {
	m := c.Message(name)
	for m.Next() {
		switch i := int(m.Number) - 1; {
		case i < 0 || i >= len(kinds):
		case kinds[i] == 1:
			v.texts[i] = m.String(name)
		default:
			n, _ := m.Varint(name)
			v.numbers[i] = int64(n)
		}
	}
	c.Done(&m, name)
	return v
}

// ParseDecision decodes a decision that a guest wrote, unchecked. It copies the parts of b that it
// keeps; the rules and the errors are those of [ParseRequest]. Package hooks checks the values.
//
// No bytes are the decision that changes nothing.
//
// 1 alloc for a decision of up to four numbers, 1 more for all of them:
// TestParseDecisionAllocatesOnce.
func ParseDecision(b []byte) (*Decision, error) {
	// No more than most decisions need: the cost is that of garbage collection.
	all := new(struct {
		Decision
		resources Resources
		few       [4]int64
	})
	d, numbers := &all.Decision, numbers(all.few[:0])
	c := wire.NewCursor(b)
	for c.Next() {
		switch c.Number {
		case 1:
			d.Resources = &all.resources
			resources(&c, d.Resources, &numbers)
		case 2:
			c.Entry("container_annotations", &d.ContainerAnnotations)
		case 3:
			c.Entry("container_envs", &d.ContainerEnvs)
		case 4:
			d.ContainerMounts = append(d.ContainerMounts, mount(&c))
		case 5:
			d.ContainerDevices = append(d.ContainerDevices, device(&c))
		}
	}
	if err := c.Err(); err != nil {
		return nil, fmt.Errorf("parse hook decision: %w", err)
	}
	return d, nil
}

func mount(c *wire.Cursor) (v Mount) {
	m := c.Message("container_mounts")
	for m.Next() {
		switch m.Number {
		case 1:
			v.Destination = m.String("destination")
		case 2:
			v.Source = m.String("source")
		case 3:
			v.Type = m.String("type")
		case 4:
			v.Options = append(v.Options, m.String("options"))
		}
	}
	c.Done(&m, "container_mounts")
	return v
}

func device(c *wire.Cursor) (v Device) {
	m := c.Message("container_devices")
	number := func(name string) *int64 {
		n, _ := m.Varint(name)
		return new(int64(n))
	}
	for m.Next() {
		switch m.Number {
		case 1:
			v.Path = m.String("path")
		case 2:
			v.Type = m.String("type")
		case 3:
			v.Major = *number("major")
		case 4:
			v.Minor = *number("minor")
		case 5:
			v.FileMode = number("file_mode")
		case 6:
			v.UID = number("uid")
		case 7:
			v.GID = number("gid")
		}
	}
	c.Done(&m, "container_devices")
	return v
}

// numbers are the targets of the fields of one Resources.
type numbers []int64

// resources decodes the field that the cursor is at into r.
func resources(c *wire.Cursor, r *Resources, n *numbers) {
	m := c.Message("resources")
	for m.Next() {
		switch m.Number {
		case 1:
			r.CPUShares = optional(&m, "cpu_shares", n)
		case 2:
			r.CFSQuotaUS = optional(&m, "cfs_quota_us", n)
		case 3:
			r.CFSPeriodUS = optional(&m, "cfs_period_us", n)
		case 4:
			r.CPUSetCPUs = m.OptionalString("cpuset_cpus")
		case 5:
			r.CPUSetMems = m.OptionalString("cpuset_mems")
		case 6:
			r.CPUBvt = optional(&m, "cpu_bvt", n)
		case 7:
			r.CPUIdle = optional(&m, "cpu_idle", n)
		case 8:
			r.CPUBurstUS = optional(&m, "cpu_burst_us", n)
		case 9:
			r.MemoryLimitBytes = optional(&m, "memory_limit_bytes", n)
		case 10:
			r.MemoryMinBytes = optional(&m, "memory_min_bytes", n)
		case 11:
			r.MemoryLowBytes = optional(&m, "memory_low_bytes", n)
		case 12:
			r.MemoryHighBytes = optional(&m, "memory_high_bytes", n)
		case 13:
			r.OOMScoreAdj = optional(&m, "oom_score_adj", n)
		case 14:
			m.Entry("unified", &r.Unified)
		case 15:
			r.NetClsClassID = optional(&m, "net_cls_classid", n)
		case 16:
			r.CoreSchedGroup = m.OptionalString("core_sched_group")
		case 17:
			r.ResctrlGroup = m.OptionalString("resctrl_group")
		case 18:
			r.ResctrlSchemata = m.OptionalString("resctrl_schemata")
		}
	}
	c.Done(&m, "resources")
}

// optional stores the number of the field in n and returns its address.
func optional(c *wire.Cursor, name string, n *numbers) *int64 {
	v, ok := c.Varint(name)
	if !ok {
		return nil
	}
	if len(*n) == cap(*n) {
		*n = make(numbers, 0, 16) // The others stay where they are.
	}
	*n = append(*n, int64(v))
	return &(*n)[len(*n)-1]
}
