package host

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/kubewasm/kubewasm/host/profile"
	"github.com/kubewasm/kubewasm/internal/symbols"
	"github.com/kubewasm/kubewasm/internal/wasmbin"
)

// Profiler collects the fuel of a plugin's calls, by function and by call path. A plugin with a
// Profiler in its Config is compiled for it, and its calls take up to three times as long; they
// cost the same fuel. So it is for tools, and for copies of a plugin that serve nothing. The zero
// value is ready for use, by one plugin.
type Profiler struct {
	mu     sync.Mutex
	start  time.Time
	module []byte
	plugin string
	digest string
	calls  int64
	// live are the trees of present instances, gone is the data of former ones.
	live map[*callTree]struct{}
	gone map[pathNode]counts
	// paths numbers the call paths of gone; 0 is the host.
	paths map[pathNode]int
	order []pathNode
}

// pathNode is a function that is called from a path.
type pathNode struct {
	caller   int
	function uint32
}

// counts are the fuel and the bytes of a path.
type counts struct{ fuel, bytes int64 }

// Profile returns the profile of the calls since the last Reset. No call of the plugin may run
// meanwhile.
func (p *Profiler) Profile() *profile.Profile {
	p.mu.Lock()
	defer p.mu.Unlock()
	for tree := range p.live {
		p.collect(tree)
	}
	out := &profile.Profile{Plugin: p.plugin, Digest: p.digest, Start: p.start, Calls: p.calls}
	if !p.start.IsZero() {
		out.Duration = time.Since(p.start)
	}
	table := symbols.Read(p.module)
	functions := map[uint32]*profile.Function{
		hostFunctionIndex: {Name: "(host)"},
		moreFunctionIndex: {Name: "(more call paths)"},
	}
	function := func(index uint32) *profile.Function {
		f := functions[index]
		if f == nil {
			f = table.Function(index)
			functions[index] = f
		}
		return f
	}
	for _, node := range p.order {
		c := p.gone[node]
		if c == (counts{}) {
			continue
		}
		s := profile.Sample{Fuel: c.fuel, Bytes: c.bytes}
		for n := node; ; n = p.order[n.caller-1] {
			s.Stack = append(s.Stack, function(n.function))
			if n.caller == 0 {
				break
			}
		}
		out.Samples = append(out.Samples, s)
	}
	slices.SortStableFunc(out.Samples, func(a, b profile.Sample) int { return cmp.Compare(b.Fuel, a.Fuel) })
	return out
}

// Reset drops the collected data: of the start of a plugin, for example. No call of the plugin may
// run meanwhile.
func (p *Profiler) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for tree := range p.live {
		p.collect(tree)
	}
	p.start, p.calls, p.gone, p.paths, p.order = time.Now(), 0, nil, nil, nil
}

// begin records the module of the plugin.
func (p *Profiler) begin(v *version, module []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plugin, p.digest, p.module = v.plugin.cfg.Name, v.digest, module
	if p.start.IsZero() {
		p.start = time.Now()
	}
}

// The layout of wasmbin.Profiler.
const (
	treeNodes = 0x440000
	nodeBytes = 32

	// Node 1 is that of the paths for which there is no room.
	moreNode = 1
)

// The functions that stand for none of the guest's.
const (
	hostFunctionIndex = 1<<32 - 1
	moreFunctionIndex = 1<<32 - 2
)

// collect moves the counts of a tree to gone. p.mu is held.
func (p *Profiler) collect(t *callTree) {
	if p.gone == nil {
		p.gone, p.paths = map[pathNode]counts{}, map[pathNode]int{}
	}
	n := uint32(t.count.Get())
	path := make([]int, n) // Of each node; a caller comes before its callees.
	number := func(node pathNode) int {
		i := p.paths[node]
		if i == 0 {
			p.order = append(p.order, node)
			i = len(p.order)
			p.paths[node] = i
		}
		return i
	}
	for i := uint32(0); i < n; i++ {
		node, ok := t.memory.Read(treeNodes+i*nodeBytes, nodeBytes)
		if !ok {
			return
		}
		fuel, bytes := binary.LittleEndian.Uint64(node), binary.LittleEndian.Uint64(node[8:])
		caller, function := binary.LittleEndian.Uint32(node[16:]), binary.LittleEndian.Uint32(node[20:])
		at := pathNode{function: function}
		switch i {
		case 0:
			at.function = hostFunctionIndex
		case moreNode:
			at.function = moreFunctionIndex
		default:
			at.caller = path[caller]
		}
		if i != 0 && (i != moreNode || n > 2) {
			path[i] = number(at)
		}
		if fuel|bytes == 0 {
			continue
		}
		if i == 0 {
			number(at)
		}
		c := p.gone[at]
		c.fuel += int64(fuel)
		c.bytes += int64(bytes)
		p.gone[at] = c
		binary.LittleEndian.PutUint64(node, 0)
		binary.LittleEndian.PutUint64(node[8:], 0)
	}
}

// callTree is the call tree of an instance, in a module beside it.
type callTree struct {
	owner  *Profiler
	module api.Module
	memory api.Memory
	// These are those of wasmbin.Profiler.
	current, last, count api.MutableGlobal
	spend, child         api.Function
	stack                [2]uint64

	// moved is the sum of the host's changes of the guest's counter. charged is the fuel that the
	// host has charged and the tree has counted.
	moved, charged int64
	// begunFlushed and begunCharged are the results of flushed and charged at the beginning of the
	// call.
	begunFlushed, begunCharged int64
}

// newCallTree makes a call tree for an instance.
func (c *compiled) newCallTree(owner *Profiler) (*callTree, error) {
	ctx := context.Background()
	module, err := c.wasm.InstantiateModule(ctx, c.profiler, moduleConfig)
	if err != nil {
		return nil, fmt.Errorf("instantiate profiler: %w", err)
	}
	global := func(name string) api.MutableGlobal { return module.ExportedGlobal(name).(api.MutableGlobal) }
	t := &callTree{
		owner: owner, module: module, memory: module.Memory(),
		current: global("cur"), last: global("last"), count: global("count"),
		spend: module.ExportedFunction("spend"), child: module.ExportedFunction("child"),
	}
	t.last.Set(fuelSlice)
	owner.mu.Lock()
	defer owner.mu.Unlock()
	if owner.live == nil {
		owner.live = map[*callTree]struct{}{}
	}
	owner.live[t] = struct{}{}
	return t, nil
}

// context returns a context in which a guest that is instantiated finds the functions of the
// tree.
func (t *callTree) context(ctx context.Context) context.Context {
	return experimental.WithImportResolver(ctx, func(name string) api.Module {
		if name != wasmbin.ProfilerModule {
			return nil
		}
		return t.module
	})
}

// drop forgets the counts: those of a start section, which is no call.
func (t *callTree) drop() {
	for i := range uint32(t.count.Get()) {
		t.memory.WriteUint64Le(treeNodes+i*nodeBytes, 0)
		t.memory.WriteUint64Le(treeNodes+i*nodeBytes+8, 0)
	}
	t.current.Set(0)
}

// close keeps the counts of the tree, and frees it.
func (t *callTree) close() {
	t.owner.mu.Lock()
	defer t.owner.mu.Unlock()
	t.owner.collect(t)
	delete(t.owner.live, t)
	_ = t.module.Close(context.Background()) // It has no files.
}

// move follows a change of the guest's counter by the host.
func (t *callTree) move(by int64) {
	t.moved += by
	t.last.Set(uint64(int64(t.last.Get()) + by))
}

// flush charges the running function for the guest's fuel since the last event.
func (t *callTree) flush(m *meter) {
	t.stack[0] = m.global.Get()
	_ = t.spend.CallWithStack(context.Background(), t.stack[:]) // It does not trap.
}

// flushed returns the guest's own fuel that the tree has counted, plus a constant.
func (t *callTree) flushed() int64 { return t.moved - int64(t.last.Get()) }

// charge adds fuel that the host charged to the current node.
func (t *callTree) charge(fuel int64) {
	t.charged += fuel
	at := treeNodes + uint32(t.current.Get())*nodeBytes
	was, _ := t.memory.ReadUint64Le(at)
	t.memory.WriteUint64Le(at, was+uint64(fuel))
}

// begin begins a call.
func (t *callTree) begin(m *meter) {
	t.last.Set(m.global.Get())
	t.begunFlushed, t.begunCharged = t.flushed(), t.charged
}

// end ends a call that used fuel. Fuel that the host charged outside of host functions goes to the
// node in which the call ended.
func (t *callTree) end(m *meter, fuel int64) {
	t.flush(m)
	t.charge(fuel - (t.flushed() - t.begunFlushed) - (t.charged - t.begunCharged))
	t.current.Set(0)
	t.owner.mu.Lock()
	t.owner.calls++
	t.owner.mu.Unlock()
}

// hosted runs a host function as a function that the running one calls.
func (t *callTree) hosted(i *Instance, function uint32, run func()) {
	m, limit := &i.meter, i.version.limits.Fuel
	t.flush(m)
	caller := t.current.Get()
	t.stack = [2]uint64{caller, uint64(function)}
	_ = t.child.CallWithStack(context.Background(), t.stack[:])
	node := t.stack[0]
	t.current.Set(node)
	used, flushed, charged := m.used(limit), t.flushed(), t.charged
	run()
	t.flush(m)
	t.current.Set(node)
	t.charge(m.used(limit) - used - (t.flushed() - flushed) - (t.charged - charged))
	t.current.Set(caller)
}
