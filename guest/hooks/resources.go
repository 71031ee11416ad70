package hooks

import (
	"math/bits"

	"github.com/kubewasm/kubewasm/guest/internal/wire"
)

// Unlimited is the quota or the amount of memory that stands for no limit.
const Unlimited = -1

// The fields of the message Resources.
const (
	fieldCPUShares   = 1
	fieldCFSQuota    = 2
	fieldCFSPeriod   = 3
	fieldCPUSet      = 4
	fieldCPUSetMems  = 5
	fieldCPUBvt      = 6
	fieldCPUIdle     = 7
	fieldCPUBurst    = 8
	fieldMemoryLimit = 9
	fieldMemoryMin   = 10
	fieldMemoryLow   = 11
	fieldMemoryHigh  = 12
	fieldOOMScoreAdj = 13
	fieldUnified     = 14
	fieldNetCls      = 15
	fieldCoreSched   = 16
	fieldResctrl     = 17
	fieldSchemata    = 18
)

// Resources are the limits and weights of one cgroup. Each may be set or not;
// the methods that read report whether it is.
//
// The host checks the values of a decision, and refuses those that the kernel would not accept.
//
// The message is kubewasm.hooks.v1.Resources of abi/hook.proto.
type Resources struct {
	set     uint32 // Bit n for field n.
	numbers [fieldNetCls + 1]int64
	unified Strings

	cpus, mems, coreSched, resctrl, schemata string
}

// CPUShares returns the share of the CPU in contention, in the unit of cgroup
// v1, where 1024 is one CPU.
func (r *Resources) CPUShares() (shares int64, ok bool) { return r.number(fieldCPUShares) }

// SetCPUShares sets the share of the CPU in contention, 2 to 262144, where 1024
// is one CPU. On cgroup v2 the host converts it to a weight.
func (r *Resources) SetCPUShares(shares int64) { r.setNumber(fieldCPUShares, shares) }

// CFSQuota returns the CPU time of each period, in microseconds, or [Unlimited].
func (r *Resources) CFSQuota() (us int64, ok bool) { return r.number(fieldCFSQuota) }

// SetCFSQuota sets the CPU time of each period, in microseconds: at least 1000, or [Unlimited]. The
// period is that of the request, which may be configured in the kubelet: scale the quota to
// [Resources.CFSPeriod], or decide the period as well.
func (r *Resources) SetCFSQuota(us int64) { r.setNumber(fieldCFSQuota, us) }

// CFSPeriod returns the period of the quota, in microseconds.
func (r *Resources) CFSPeriod() (us int64, ok bool) { return r.number(fieldCFSPeriod) }

// SetCFSPeriod sets the period of the quota, 1000 to 1000000 microseconds.
func (r *Resources) SetCFSPeriod(us int64) { r.setNumber(fieldCFSPeriod, us) }

// CPUBurst returns the quota that may be saved up for later periods, in
// microseconds.
func (r *Resources) CPUBurst() (us int64, ok bool) { return r.number(fieldCPUBurst) }

// SetCPUBurst sets the quota that may be saved up for later periods, in
// microseconds: 0 to the quota.
func (r *Resources) SetCPUBurst(us int64) { r.setNumber(fieldCPUBurst, us) }

// CPUSet returns the CPUs that may be used, as a list: "0-3,8".
func (r *Resources) CPUSet() (cpus string, ok bool) { return r.cpus, r.has(fieldCPUSet) }

// SetCPUSet sets the CPUs that may be used, as a list: "0-3,8". An empty
// list stands for those of the parent cgroup.
func (r *Resources) SetCPUSet(cpus string) {
	r.cpus = cpus
	r.set |= 1 << fieldCPUSet
}

// CPUSetMems returns the memory nodes that may be used, as a list.
func (r *Resources) CPUSetMems() (nodes string, ok bool) { return r.mems, r.has(fieldCPUSetMems) }

// SetCPUSetMems sets the memory nodes that may be used, as a list. An empty
// one stands for those of the parent cgroup.
func (r *Resources) SetCPUSetMems(nodes string) {
	r.mems = nodes
	r.set |= 1 << fieldCPUSetMems
}

// CPUBvt returns the group identity.
func (r *Resources) CPUBvt() (bvt int64, ok bool) { return r.number(fieldCPUBvt) }

// SetCPUBvt sets the group identity, -2 to 2, on kernels that have
// cpu.bvt_warp_ns: tasks of a larger one preempt those of a smaller one.
func (r *Resources) SetCPUBvt(bvt int64) { r.setNumber(fieldCPUBvt, bvt) }

// CPUIdle returns whether the tasks run only when a CPU would idle.
func (r *Resources) CPUIdle() (idle, ok bool) {
	n, ok := r.number(fieldCPUIdle)
	return n != 0, ok
}

// SetCPUIdle sets whether the tasks run only when a CPU would idle. The host
// refuses it at [abi.LevelQOS], where it would stop the kubelet from working.
func (r *Resources) SetCPUIdle(idle bool) {
	var n int64
	if idle {
		n = 1
	}
	r.setNumber(fieldCPUIdle, n)
}

// MemoryLimit returns the memory that may be used, in bytes, or [Unlimited].
func (r *Resources) MemoryLimit() (bytes int64, ok bool) { return r.number(fieldMemoryLimit) }

// SetMemoryLimit sets the memory that may be used, in bytes, or [Unlimited].
func (r *Resources) SetMemoryLimit(bytes int64) { r.setNumber(fieldMemoryLimit, bytes) }

// MemoryMin returns the memory that is never reclaimed, in bytes, or
// [Unlimited].
func (r *Resources) MemoryMin() (bytes int64, ok bool) { return r.number(fieldMemoryMin) }

// SetMemoryMin sets the memory that is never reclaimed, in bytes, or
// [Unlimited].
func (r *Resources) SetMemoryMin(bytes int64) { r.setNumber(fieldMemoryMin, bytes) }

// MemoryLow returns the memory that is reclaimed last, in bytes, or [Unlimited].
func (r *Resources) MemoryLow() (bytes int64, ok bool) { return r.number(fieldMemoryLow) }

// SetMemoryLow sets the memory that is reclaimed last, in bytes, or [Unlimited].
func (r *Resources) SetMemoryLow(bytes int64) { r.setNumber(fieldMemoryLow, bytes) }

// MemoryHigh returns the memory above which the tasks are slowed down, in bytes,
// or [Unlimited].
func (r *Resources) MemoryHigh() (bytes int64, ok bool) { return r.number(fieldMemoryHigh) }

// SetMemoryHigh sets the memory above which the tasks are slowed down, in bytes,
// or [Unlimited].
func (r *Resources) SetMemoryHigh(bytes int64) { r.setNumber(fieldMemoryHigh, bytes) }

// OOMScoreAdj returns the addend to the badness of the processes.
func (r *Resources) OOMScoreAdj() (score int64, ok bool) { return r.number(fieldOOMScoreAdj) }

// SetOOMScoreAdj sets the addend to the badness of the container's processes
// when memory runs out, -1000 to 1000. Less than -997, the score of a guaranteed pod,
// needs a grant of the plugin's operator.
func (r *Resources) SetOOMScoreAdj(score int64) { r.setNumber(fieldOOMScoreAdj, score) }

// NetClsClassID returns the class of the packets that the tasks send, 0 for none.
func (r *Resources) NetClsClassID() (class uint32, ok bool) {
	n, ok := r.number(fieldNetCls)
	return uint32(n), ok
}

// SetNetClsClassID sets the class of the packets that the tasks send, or 0 for none:
// 0x100001 is 10:1 for tc. A host on cgroup v2 has no place for it.
func (r *Resources) SetNetClsClassID(class uint32) { r.setNumber(fieldNetCls, int64(class)) }

// CoreSchedGroup returns the core scheduling group of a container's processes.
func (r *Resources) CoreSchedGroup() (group string, ok bool) {
	return r.coreSched, r.has(fieldCoreSched)
}

// SetCoreSchedGroup sets the name of the core scheduling group of a container's
// processes, of 1 to 128 bytes: only processes of one group run on the CPUs of one
// core at a time.
func (r *Resources) SetCoreSchedGroup(group string) {
	r.coreSched = group
	r.set |= 1 << fieldCoreSched
}

// ResctrlGroup returns the resctrl group of a container's processes.
func (r *Resources) ResctrlGroup() (group string, ok bool) { return r.resctrl, r.has(fieldResctrl) }

// SetResctrlGroup sets the name of the resctrl group of a container's processes. The host makes the
// group if it does not exist. It needs a grant.
func (r *Resources) SetResctrlGroup(group string) {
	r.resctrl = group
	r.set |= 1 << fieldResctrl
}

// ResctrlSchemata returns the allocation of the resctrl group.
func (r *Resources) ResctrlSchemata() (schemata string, ok bool) {
	return r.schemata, r.has(fieldSchemata)
}

// SetResctrlSchemata sets the allocation of the resctrl group, a line for each
// resource: "L3:0=ff;1=ff\nMB:0=50". Resources that it does not name stay the
// same.
func (r *Resources) SetResctrlSchemata(schemata string) {
	r.schemata = schemata
	r.set |= 1 << fieldSchemata
}

// Unified returns other files of the cgroup and their contents.
func (r *Resources) Unified() Strings { return r.unified }

// SetUnified sets the contents of another file of the cgroup, named as in the node's cgroup
// version: ("io.weight", "default 50") on v2. The host refuses files that another method
// sets, and those that do more than configure the cgroup.
func (r *Resources) SetUnified(file, value string) { r.unified.set(file, value) }

func (r *Resources) has(field uint) bool { return r.set&(1<<field) != 0 }

func (r *Resources) number(field uint) (int64, bool) {
	if !r.has(field) {
		return 0, false // The number of an earlier request.
	}
	return r.numbers[field], true
}

func (r *Resources) setNumber(field uint, n int64) {
	r.numbers[field] = n
	r.set |= 1 << field
}

// reset unsets everything and keeps the memory.
func (r *Resources) reset() {
	r.set, r.cpus, r.mems, r.coreSched, r.resctrl, r.schemata = 0, "", "", "", "", ""
	r.unified.reset()
}

// read sets the fields that the message in b has.
func (r *Resources) read(b []byte, c *copies) {
	for f := wire.NewReader(b); f.Next(); {
		switch f.Field {
		case fieldCPUSet:
			r.SetCPUSet(c.string(f.Bytes()))
		case fieldCPUSetMems:
			r.SetCPUSetMems(c.string(f.Bytes()))
		case fieldUnified:
			key, value := readEntry(f.Bytes())
			r.unified.set(c.string(key), c.string(value))
		case fieldCoreSched:
			r.SetCoreSchedGroup(c.string(f.Bytes()))
		case fieldResctrl:
			r.SetResctrlGroup(c.string(f.Bytes()))
		case fieldSchemata:
			r.SetResctrlSchemata(c.string(f.Bytes()))
		default:
			if f.Field <= fieldNetCls && f.Type == wire.Varint {
				r.setNumber(uint(f.Field), f.Int64())
			}
		}
	}
}

// append writes the message, its fields in the order of their numbers.
func (r *Resources) append(b []byte) []byte {
	const before = 1<<fieldUnified - 1
	return r.appendSet(r.unified.append(r.appendSet(b, r.set&before), fieldUnified), r.set&^before)
}

// appendSet writes the fields of a set.
func (r *Resources) appendSet(b []byte, set uint32) []byte {
	for ; set != 0; set &= set - 1 {
		field := uint(bits.TrailingZeros32(set))
		switch field {
		case fieldCPUSet:
			b = wire.AppendBytes(b, fieldCPUSet, r.cpus)
		case fieldCPUSetMems:
			b = wire.AppendBytes(b, fieldCPUSetMems, r.mems)
		case fieldCoreSched:
			b = wire.AppendBytes(b, fieldCoreSched, r.coreSched)
		case fieldResctrl:
			b = wire.AppendBytes(b, fieldResctrl, r.resctrl)
		case fieldSchemata:
			b = wire.AppendBytes(b, fieldSchemata, r.schemata)
		default:
			b = wire.AppendVarint(b, uint32(field), uint64(r.numbers[field]))
		}
	}
	return b
}
