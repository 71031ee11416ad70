package host

import (
	"context"
	"fmt"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/wasmbin"
)

// fuelSlice is how much fuel a guest gets at a time. When it is used up the host
// regains control: it looks at the clock and at the caller's context, and Go's
// garbage collector, which waits for running guests, gets its turn. It is about
// a millisecond of work, in which the look itself, a tenth of a microsecond,
// does not count.
const fuelSlice = 2_000_000

// meter is the fuel of an instance.
type meter struct {
	// global is the guest's counter: what is left of the slice.
	global api.MutableGlobal
	// stack is what is left of Limits.StackBytes.
	stack api.MutableGlobal
	// owed is what the host did on behalf of the guest and has not taken from
	// the counter yet: reaching it costs more than many a host function.
	owed int64
	// rest is what was left of the slice when the last call ended.
	rest int64
	// left is the fuel of the call beyond the slice.
	left int64
	// granted is the fuel of all slices so far, of the calls before too, and the
	// time that the guest slept: what the fake clock shows, and what is left.
	granted int64
	// deadline is the end of Limits.Timeout. It is zero during the first slice:
	// a call that ends within it never looks at the clock.
	deadline time.Time
}

// begin gives a new call its fuel. What is left of the last slice is its first one,
// unless that is short: so most calls leave the counter alone.
func (m *meter) begin(fuel int64) {
	slice := m.rest
	if slice < fuelSlice/2 || slice > fuel {
		slice = min(fuelSlice, fuel)
		m.granted += slice - m.rest
		m.set(slice)
	}
	m.left, m.deadline = fuel-slice, time.Time{}
}

// end notes what is left of the slice, and reports whether the call has spent more
// than it had. A guest looks at its counter where it enters functions and loops, so
// what it executes behind the last of them counts only here.
func (m *meter) end() (overdrawn bool) {
	m.rest = m.get()
	return m.rest+m.left < 0
}

// get returns what is left of the slice, negative if it was overdrawn.
func (m *meter) get() int64 { return int64(m.global.Get()) - m.owed }

func (m *meter) set(fuel int64) {
	m.owed = 0
	m.global.Set(uint64(fuel))
}

func fuelError(fuel int64) error { return fmt.Errorf("%w: %d instructions", ErrFuel, fuel) }

// hostCallFuel is what a call of a host function costs, beside the bytes that it
// moves: about as many instructions as run in that time.
const hostCallFuel = 100

// maxOwed is how much may be owed: less than any budget would notice.
const maxOwed = 1 << 12

// charge takes fuel for what the host does on behalf of the guest. The guest
// yields at a function or loop if that was more than it had, at the latest when
// maxOwed is reached.
func (m *meter) charge(fuel int) {
	if m.owed += int64(fuel); m.owed >= maxOwed {
		m.set(m.get())
	}
}

// chargeBytes takes the price of the guest's own bulk operations for n bytes.
func (m *meter) chargeBytes(n int) { m.charge(n / wasmbin.BytesPerFuel) }

// used returns how much of the fuel of the last call is gone.
func (m *meter) used(fuel int64) int64 {
	if m.global == nil {
		return 0
	}
	return fuel - m.left - m.get()
}

// yield is called by a guest whose slice is used up. It ends the call by a panic
// or gives the guest another slice.
func (i *Instance) yield(module api.Module) {
	i.meet(module)
	i.look()
}

// look ends the call by a panic if something of it is used up, or grants another
// slice.
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
	spent := m.get() // Negative: what the slice was overdrawn by.
	if spent+m.left < 0 {
		panic(fuelError(limits.Fuel))
	}
	slice := min(fuelSlice-spent, m.left)
	m.left -= slice
	m.granted += slice
	m.set(spent + slice)
}

// meet makes the instance known to itself when its start section runs, which is
// before wazero hands the module over.
func (i *Instance) meet(module api.Module) {
	if i.meter.global == nil {
		i.meter.bind(module)
		i.meter.left = i.version.limits.Fuel - fuelSlice
	}
	if i.memory == nil {
		i.memory = module.ExportedMemory(abi.Memory)
	}
}

// unwind notes that no function of the guest runs any more, behind a call that did
// not return.
func (i *Instance) unwind() { i.meter.stack.Set(uint64(i.version.limits.StackBytes)) }

// bind finds the counters in a module that was rewritten.
func (m *meter) bind(module api.Module) {
	m.global = module.ExportedGlobal(wasmbin.FuelGlobal).(api.MutableGlobal)
	m.owed, m.rest = 0, int64(m.global.Get())
	m.granted = m.rest
	m.stack = module.ExportedGlobal(wasmbin.StackGlobal).(api.MutableGlobal)
}
