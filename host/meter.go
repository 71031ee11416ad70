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
	// left is the fuel of the call beyond the slice.
	left int64
	// granted is the fuel of all slices so far, of the calls before too, and the
	// time that the guest slept: what the fake clock shows, and what is left.
	granted int64
	// deadline is the end of Limits.Timeout. It is zero during the first slice:
	// a call that ends within it never looks at the clock.
	deadline time.Time
}

// begin gives a new call its fuel.
func (m *meter) begin(fuel int64) {
	slice := min(fuelSlice, fuel)
	m.left, m.deadline = fuel-slice, time.Time{}
	m.granted += slice - int64(m.global.Get())
	m.global.Set(uint64(slice))
}

// overdrawn reports whether the call has spent more than it had. A guest looks at
// its counter where it enters functions and loops, so what it executes behind the
// last of them counts only here.
func (m *meter) overdrawn() bool { return int64(m.global.Get())+m.left < 0 }

func fuelError(fuel int64) error { return fmt.Errorf("%w: %d instructions", ErrFuel, fuel) }

// hostCallFuel is what a call of a host function costs, beside the bytes that it
// moves: about as many instructions as run in that time.
const hostCallFuel = 100

// charge takes fuel for what the host does on behalf of the guest. The guest
// yields at its next function or loop if that was more than it had.
func (m *meter) charge(fuel int) { m.global.Set(uint64(int64(m.global.Get()) - int64(fuel))) }

// chargeBytes takes the price of the guest's own bulk operations for n bytes.
func (m *meter) chargeBytes(n int) { m.charge(n / wasmbin.BytesPerFuel) }

// used returns how much of the fuel of the last call is gone.
func (m *meter) used(fuel int64) int64 {
	if m.global == nil {
		return 0
	}
	return fuel - m.left - int64(m.global.Get())
}

// yield is called by a guest whose slice is used up. It ends the call by a panic
// or gives the guest another slice.
func (i *Instance) yield(module api.Module) {
	m, limits := &i.meter, &i.version.limits
	i.meet(module)
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
	spent := int64(m.global.Get()) // Negative: what the slice was overdrawn by.
	if m.overdrawn() {
		panic(fuelError(limits.Fuel))
	}
	slice := min(fuelSlice-spent, m.left)
	m.left -= slice
	m.granted += slice
	m.global.Set(uint64(spent + slice))
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
	m.granted = int64(m.global.Get())
	m.stack = module.ExportedGlobal(wasmbin.StackGlobal).(api.MutableGlobal)
}
