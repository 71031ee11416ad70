package host

import (
	"encoding/binary"
	"math"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/sys"
)

// The clocks of a guest that is not granted the real ones show how much it has
// executed, an instruction a nanosecond: the same in each run, and yet in
// proportion to what happens. A Go guest's garbage collector depends on that,
// since it gives its background work a quarter of the time.
const (
	// fakeEpoch is what the fake wall clock shows at the start, the year 2022.
	fakeEpoch = 1_640_995_200
	// fakeStart is what the fake monotonic clock shows at the start. Go takes 0
	// for a clock that does not work.
	fakeStart = 1
	nanos     = 1_000_000_000
)

// withFakeClock gives the guest of the instance its fake clocks.
func withFakeClock(config wazero.ModuleConfig, inst *Instance) wazero.ModuleConfig {
	return config.
		WithNanotime(func() int64 { return fakeStart + inst.meter.clock() }, sys.ClockResolution(1)).
		WithWalltime(func() (sec int64, nsec int32) {
			t := inst.meter.clock()
			return fakeEpoch + t/nanos, int32(t % nanos)
		}, sys.ClockResolution(1))
}

// clock returns how much fuel was spent over the life of the instance, and the
// time that it slept.
func (m *meter) clock() int64 {
	if m.global == nil {
		return 0 // The start section runs, which is charged for later.
	}
	return m.granted - m.get()
}

// wind lets clock return t, between two calls.
func (m *meter) wind(t int64) {
	m.rest = m.get()
	m.granted = t + m.rest
}

// sleep lets the fake clock go on by the timeout of a clock subscription of
// poll_oneoff, if it is relative: what sleeps finds that the time has passed.
func (m *meter) sleep(subscription []byte) {
	const absolute, most = 1, math.MaxInt64 / 4
	timeout := binary.LittleEndian.Uint64(subscription[24:])
	if flags := binary.LittleEndian.Uint16(subscription[40:]); flags&absolute == 0 && timeout < most && m.granted < most {
		m.granted += int64(timeout)
	}
}
