package host

import (
	"context"
	"fmt"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/kubewasm/kubewasm/internal/wasmbin"
)

// fuelSlice is the fuel that a guest gets at a time, about a millisecond of work. When it is used
// up the host regains control: it checks the clock and the caller's context, which takes a tenth of
// a microsecond. Go's garbage collector, which waits for running guests, can run then.
const fuelSlice = 2_000_000

// backgroundSlice is the fuelSlice of a guest that is throttled: about 0.1 ms. A guest keeps a
// processor from others until its slice is used up.
const backgroundSlice = fuelSlice / 10

// meter is the fuel of an instance.
type meter struct {
	// global is the guest's counter, the rest of the slice.
	global api.MutableGlobal
	// stack is the rest of Limits.StackBytes.
	stack api.MutableGlobal
	// owed is the fuel that the host has charged and not yet taken from the counter: access to the
	// counter costs more than many host functions.
	owed int64
	// dry is set if the slice was used up when the counter was last written.
	dry bool
	// rest is the rest of the slice at the end of the last call.
	rest int64
	// left is the fuel of the call outside of the slice.
	left int64
	// granted is the fuel of all slices of this and the earlier calls, plus the
	// time that the guest slept. Less the rest of the slice, it is the fake
	// clock.
	granted int64
	// slice is the fuel that the guest gets at a time: fuelSlice, or less in the background.
	slice int64
	// tree is the call tree of a profile, nil without one.
	tree *callTree
	// deadline is the end of Limits.Timeout. It is zero during the first slice:
	// a call that ends within it never reads the clock.
	deadline time.Time
}

// begin gives a new call its fuel. The rest of the last slice is its first one,
// unless it is short: so most calls do not write the counter.
func (m *meter) begin(fuel int64) {
	slice := m.rest
	if slice < m.slice/2 || slice > fuel || slice > m.slice {
		slice = min(m.slice, fuel)
		m.granted += slice - m.rest
		m.set(slice)
	}
	m.left, m.deadline = fuel-slice, time.Time{}
}

// align ends the slice between two calls, so that the next one begins as after every reset.
func (m *meter) align() {
	m.granted = m.clock()
	m.set(0)
	m.rest = 0
}

// get returns the rest of the slice, negative if it was overdrawn.
func (m *meter) get() int64 { return int64(m.global.Get()) - m.owed }

func (m *meter) set(fuel int64) {
	m.owed, m.dry = 0, fuel < 0
	if m.tree != nil {
		m.tree.move(fuel - int64(m.global.Get()))
	}
	m.global.Set(uint64(fuel))
}

func fuelError(fuel int64) error { return fmt.Errorf("%w: %d instructions", ErrFuel, fuel) }

// hostCallFuel is the price of a call of a host function, beside the bytes that it moves: about the
// number of instructions that run in that time.
const hostCallFuel = 100

// maxOwed is the maximum of owed, small against any limit of fuel.
const maxOwed = 1 << 12

// charge deducts fuel for work of the host on behalf of the guest. If the guest had
// less, it yields at the next function, loop or call of the host, at the latest
// when maxOwed is reached.
func (m *meter) charge(fuel int) {
	if m.owed += int64(fuel); m.owed >= maxOwed {
		m.settle()
	}
}

// settle takes the owed fuel from the counter.
func (m *meter) settle() { m.set(m.get()) }

// chargeBytes deducts the price of the guest's own bulk operations for n bytes.
func (m *meter) chargeBytes(n int) { m.charge(n / wasmbin.BytesPerFuel) }

// used returns the fuel that the last call used.
func (m *meter) used(fuel int64) int64 {
	if m.global == nil {
		return 0
	}
	return fuel - m.left - m.get()
}

// pay deducts fuel for work that the host is about to do for the guest, and checks that the guest
// had that much. Between two functions or loops a guest can call the host thousands of times.
func (i *Instance) pay(fuel int) {
	if i.meter.charge(fuel); i.meter.dry {
		i.look()
	}
}

// yield is called by a guest whose slice is used up.
func (i *Instance) yield(module api.Module) {
	i.meet(module)
	i.look()
}

// look ends the call by a panic or gives the guest another slice.
func (i *Instance) look() {
	m, limits := &i.meter, &i.version.limits
	if int32(uint32(m.stack.Get())) < 0 {
		panic(fmt.Errorf("%w: %d bytes", ErrStack, limits.StackBytes))
	}
	now := time.Now()
	if m.deadline.IsZero() {
		m.deadline = now.Add(limits.Timeout)
	}
	if err := i.ctx.parent.Err(); err != nil {
		panic(err)
	}
	if now.After(m.deadline) {
		panic(fmt.Errorf("timeout of %s: %w", limits.Timeout, context.DeadlineExceeded))
	}
	spent := m.get() // Negative: the overdraft of the slice.
	if spent+m.left < 0 {
		panic(fuelError(limits.Fuel))
	}
	if t := i.plugin.with.Throttle; t != nil {
		if err := t.Rest(i.ctx.parent); err != nil {
			panic(err)
		}
	}
	slice := min(m.slice-spent, m.left)
	if b, ok := i.ctx.parent.(budget); ok {
		if err := b.Spend(slice); err != nil {
			panic(err)
		}
	}
	m.left -= slice
	m.granted += slice
	m.set(spent + slice)
}

// budget is a context of calls that share fuel beyond the limits of each, as that of a cycle of
// the scheduler.
type budget interface {
	// Spend is called by several goroutines, each about every millisecond that a guest works
	// under the context, with the fuel that the guest gets next. An error ends the call.
	Spend(fuel int64) error
}

// meet binds the instance to its module when the start section runs, which is
// before wazero returns the module.
func (i *Instance) meet(module api.Module) {
	if i.meter.global == nil {
		i.meter.bind(module)
		i.meter.left = i.version.limits.Fuel - fuelSlice
	}
	if i.memory == nil {
		i.memory = module.ExportedMemory(memoryExport)
	}
}

// unwind resets the stack counter after a call that did not return: no function of
// the guest runs any more.
func (i *Instance) unwind() { i.meter.stack.Set(uint64(i.version.limits.StackBytes)) }

// bind finds the counters in a module that was rewritten, before the first call.
// The start section has found them already if it called the host.
func (m *meter) bind(module api.Module) {
	if m.global == nil {
		m.global = module.ExportedGlobal(wasmbin.FuelGlobal).(api.MutableGlobal)
		m.stack = module.ExportedGlobal(wasmbin.StackGlobal).(api.MutableGlobal)
		m.granted = m.get()
	}
	m.rest = m.get()
}
