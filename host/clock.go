package host

import (
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/kubewasm/kubewasm/internal/recording"
)

// A guest that is not granted the real clocks has clocks that advance by a
// nanosecond with each instruction. They are the same in each run, and yet in
// proportion to the work. A Go guest's garbage collector depends on that, since
// it gives its background work a quarter of the time.
const (
	// fakeEpoch is the start of the fake wall clock, in nanoseconds: the year
	// 2022.
	fakeEpoch = 1_640_995_200 * int64(time.Second)
	// fakeStart is the start of the fake monotonic clock. Go takes 0 for a
	// clock that does not work.
	fakeStart = 1
)

// The clock ids of WASI. Its clocks of processes and threads were never
// implemented.
const (
	clockRealtime  = 0
	clockMonotonic = 1
)

// processStart is the zero of the real monotonic clock of all guests, and of the clock of breakers.
var processStart = time.Now()

// clockTimeGet is clock_time_get (id, precision, time_ptr).
func clockTimeGet(inst *Instance, args []uint64) uint64 {
	id, granted := uint32(args[0]), inst.grantsClock()
	var now int64
	switch {
	case id > clockMonotonic:
		return wasiInval
	case granted:
		switch outside := inst.plugin.with.Outside; {
		case outside != nil:
			now = outside.Time()
		case id == clockRealtime:
			now = time.Now().UnixNano()
		default:
			now = fakeStart + int64(time.Since(processStart))
		}
		if inst.tape != nil {
			inst.tape.Numbers(recording.Value, uint64(now))
		}
	case id == clockRealtime:
		now = fakeEpoch + inst.meter.clock()
	default:
		now = fakeStart + inst.meter.clock()
	}
	return inst.putTime(args[2], now)
}

// clockResGet is clock_res_get (id, resolution_ptr).
func clockResGet(inst *Instance, args []uint64) uint64 {
	id := uint32(args[0])
	if id > clockMonotonic {
		return wasiInval
	}
	resolution := time.Nanosecond
	if id == clockRealtime && inst.grantsClock() {
		resolution = time.Microsecond
	}
	return inst.putTime(args[1], int64(resolution))
}

func (i *Instance) putTime(ptr uint64, nanoseconds int64) uint64 {
	if !i.has(ptr, 8) {
		return wasiFault
	}
	i.put(uint32(ptr), binary.LittleEndian.AppendUint64(make([]byte, 0, 8), uint64(nanoseconds)))
	return wasiSuccess
}

func (i *Instance) grantsClock() bool { return slices.Contains(i.plugin.cfg.Grants, GrantClock) }

// clock returns the fuel spent over the life of the instance, plus the time that it slept.
func (m *meter) clock() int64 { return m.granted - m.get() }

// wind makes clock return t, between two calls.
func (m *meter) wind(t int64) {
	m.rest = m.get()
	m.granted = t + m.rest
}

// sleep advances the fake clock by the timeout of a clock subscription of
// poll_oneoff, if it is relative: after its sleep the guest finds that the time
// has passed.
func (m *meter) sleep(subscription []byte) {
	const absolute, most = 1, math.MaxInt64 / 4
	timeout := binary.LittleEndian.Uint64(subscription[24:])
	if flags := binary.LittleEndian.Uint16(subscription[40:]); flags&absolute == 0 && timeout < most && m.granted < most {
		m.granted += int64(timeout)
	}
}
