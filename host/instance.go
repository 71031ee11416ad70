package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/sys"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host/confidential"
	"github.com/kubewasm/kubewasm/internal/cut"
	"github.com/kubewasm/kubewasm/internal/recording"
	"github.com/kubewasm/kubewasm/internal/snapmem"
)

// Instance is one instance of a plugin's module, with its own memory. It serves
// one call at a time and is not safe for use by several goroutines.
type Instance struct {
	plugin  *Plugin
	version *version
	// slot is the place of the idle instance. hold is the Hold that keeps it, nil if
	// the pool does.
	slot *slot
	hold *Hold
	// gone is set once the instance has left the pool. The pool's mutex guards
	// it.
	gone bool
	// swept is set if no caller has taken the instance since the last sweep.
	swept bool
	// retained is the number of users that want the guest's memory preserved.
	retained atomic.Int32
	module   api.Module
	memory   api.Memory
	// linear is the memory that the field memory is a view of.
	linear *snapmem.Memory
	// remote is the instance in another process, nil if it is in this one.
	remote *remoteInstance
	// globals are those that a snapshot contains.
	globals []api.MutableGlobal
	// functions are resolved once: looking an export up costs microseconds.
	functions [64]function
	// exports are those of version.exportList, in its order.
	// handles are those for nested calls, by depth.
	exports []api.Function
	handles [][]api.Function
	nested  int
	// command runs the guest if it is a program, and program is its streams and
	// arguments; spent is set once it has run.
	command api.Function
	program program
	spent   bool
	// stack holds the parameters and the result of a call.
	stack [maxParams]uint64
	ctx   callContext
	meter meter
	// tree is the call tree of a profile, nil without one.
	tree  *callTree
	state any

	wasi wasiState
	// shared is nil unless the guest uses the state that all instances share.
	shared *sharing

	// calling is the running export, empty between calls.
	calling string
	// hostCall is the host function that the guest called last.
	hostCall *Import
	// reason is the status reason that the guest gave in this call, and lastReason the one of this
	// or an earlier call: most are given again.
	reason, lastReason string
	// logged counts the bytes that the call has logged and printed.
	logged int
	// kept is the number of bytes that Keep has counted in the call.
	kept   int
	output output
	// failed is the error of a nested call that did not return. The guest's
	// memory may then be half written, even if the panic was recovered.
	failed error
	// stain holds the confidential values that the call has seen. stained is set once the stain was
	// handed out, and found once the adapter has added its part.
	stain          confidential.Stain
	stained, found bool
	// tape records the calls, nil if they are not recorded. used is set by the first call after the
	// start or a reset, and skip counts releases until the next try to record.
	tape *recording.Tape
	used bool
	skip int
	// releases is the number of releases since the start or a reset, for version.resetGrown.
	releases int
	// results are the types of the results of the recorded call.
	results []abi.ValueType
	// broken is set when the guest did not return from a call: its memory may
	// be half written, so the instance must not run again.
	broken bool
}

// function is an export with its name and the number of its parameters.
type function struct {
	api.Function
	name    string
	params  int
	results []abi.ValueType
}

// callContext is the context that a guest runs under. It is part of the
// instance, so that a call allocates nothing and a host function finds the
// instance by a type assertion.
type callContext struct {
	parent context.Context
	inst   *Instance
	// values holds the values that wazero looks up while it makes the instance, and nothing
	// afterwards.
	values context.Context
}

func (c *callContext) Deadline() (time.Time, bool) { return c.parent.Deadline() }
func (c *callContext) Done() <-chan struct{}       { return c.parent.Done() }
func (c *callContext) Err() error                  { return c.parent.Err() }

// Value hides the caller's values: wazero looks for its own keys in every call,
// and a guest needs none.
func (c *callContext) Value(key any) any { return c.values.Value(key) }

// Plugin returns the plugin that the instance belongs to.
func (i *Instance) Plugin() *Plugin { return i.plugin }

// Implements reports whether the guest implements f.
func (i *Instance) Implements(f abi.Function) bool { return i.version.functions.Has(f) }

// Context returns the caller's context of the running call.
func (i *Instance) Context() context.Context { return i.ctx.parent }

// Deadline returns the time at which Limits.Timeout of the running call ends. Host functions that
// wait for something need it beside Context: the guest is stopped when it resumes, and not before.
func (i *Instance) Deadline() time.Time {
	if i.meter.deadline.IsZero() {
		i.meter.deadline = time.Now().Add(i.version.limits.Timeout)
	}
	return i.meter.deadline
}

// State returns the value that Adapter.NewState made for this instance.
func (i *Instance) State() any { return i.state }

// Call calls a function of the guest, which must be in [Plugin.Functions], and
// returns its result: a status code, or two packed numbers. Arguments that are optional, see
// [abi.Signature], may be left out, and are 0 then.
//
// The error is a *[TrapError] if the guest did not return, or was stopped because ctx
// ended or a limit was reached. The instance is then reset before its next call, with a
// new State, or reset or discarded when it is released. If it cannot be reset, each
// further call fails. The error is ctx's if ctx ended before the call.
//
// 0 allocs: TestCallDoesNotAllocate.
func (i *Instance) Call(ctx context.Context, f abi.Function, args ...uint64) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("plugin %q: call %s: %w", i.plugin.cfg.Name, f, err)
	}
	fn := &i.functions[f&63]
	if fn.Function == nil {
		return 0, fmt.Errorf("plugin %q: call %s: the guest does not implement it", i.plugin.cfg.Name, f)
	}
	if len(args) != fn.params && !optional(f, len(args)) {
		return 0, fmt.Errorf("plugin %q: call %s: %d arguments, want %d", i.plugin.cfg.Name, f, len(args), fn.params)
	}
	i.stack[max(fn.params-1, 0)%maxParams] = 0 // An argument that is left out.
	for n, arg := range args {                 // copy takes longer for so few.
		i.stack[n%maxParams] = arg
	}
	return i.run(ctx, &fn.Function, fn.name, recording.ByFunction, fn.params, fn.results)
}

// optional reports whether f may be called with n arguments, whatever number of them the guest
// takes.
func optional(f abi.Function, n int) bool {
	sig := f.Signature()
	return n <= len(sig.Params) && n >= len(sig.Params)-sig.Optional
}

// run calls fn, a handle of the named export, with n parameters in i.stack.
func (i *Instance) run(ctx context.Context, fn *api.Function, name string, kind recording.CallKind, n int, results []abi.ValueType) (uint64, error) {
	if i.shared == nil {
		return i.runOnce(ctx, fn, name, kind, n, results)
	}
	i.shared.args, i.shared.attempt, i.shared.spent = i.stack, 0, 0
	result, err := i.runOnce(ctx, fn, name, kind, n, results)
	if err != nil || !i.shared.conflict {
		return result, err
	}
	return i.repeat(ctx, fn, name, kind, n, results)
}

// repeat runs a call that conflicts with others about the state until it does not.
func (i *Instance) repeat(ctx context.Context, fn *api.Function, name string, kind recording.CallKind, n int, results []abi.ValueType) (uint64, error) {
	s, state := i.shared, i.version.shared
	defer func() {
		if s.turn {
			s.turn = false
			state.leave()
		}
	}()
	for {
		if again := i.plugin.adapter.Again; again != nil {
			again(i)
		}
		if s.attempt >= turnAfter && !s.turn {
			s.turn = state.enter(ctx, min(turnWait, i.version.limits.Timeout))
		}
		i.stack = s.args
		result, err := i.runOnce(ctx, fn, name, kind, n, results)
		if err != nil || !s.conflict {
			return result, err
		}
	}
}

// runOnce is run without the repetitions of a call that conflicts with others about the state.
func (i *Instance) runOnce(ctx context.Context, fn *api.Function, name string, kind recording.CallKind, n int, results []abi.ValueType) (uint64, error) {
	start, err := i.begin(ctx, name, kind, n, results)
	if err != nil {
		return 0, err
	}
	i.nested = 1
	err = (*fn).CallWithStack(&i.ctx, i.stack[:])
	if err = i.end(ctx, name, start, err); !i.broken {
		i.shrink(fn, name)
	}
	return i.stack[0], err
}

// begin begins a call. The instance counts as broken until end, and remains so
// if a host function panics through wazero.
func (i *Instance) begin(ctx context.Context, name string, kind recording.CallKind, n int, results []abi.ValueType) (start time.Time, err error) {
	if i.broken && !i.revive() {
		return start, fmt.Errorf("plugin %q: call %s: the instance trapped before and cannot be reset", i.plugin.cfg.Name, name)
	}
	i.ctx.parent, i.calling, i.reason, i.logged, i.kept = ctx, name, "", 0, 0
	i.meter.begin(i.version.limits.Fuel)
	if i.plugin.cfg.Observer != nil {
		start = time.Now()
	}
	if i.shared != nil {
		i.beginSharing(kind == recording.ByStart, name, len(results) != 0)
	}
	i.broken, i.used, i.nested, i.failed = true, true, 0, nil
	if i.stained {
		i.stain, i.stained, i.found = confidential.Stain{}, false, false
	}
	if i.tape != nil {
		i.beginRecording(kind, name, n)
		i.results = results
	}
	if i.tree != nil {
		i.tree.begin(&i.meter)
	}
	return start, nil
}

// revive resets an instance whose guest did not return from its last call, for a caller that
// continues with it, and reports whether it may run. An instance that is already running, because a
// host function calls it, may not.
func (i *Instance) revive() bool {
	if i.calling != "" || !i.version.restore(i) {
		return false
	}
	if observer := i.plugin.cfg.Observer; observer != nil {
		observer.Restarted(i.plugin.label, false)
	}
	i.renew()
	i.record()
	return true
}

// end ends a call and returns its error. err is nil if the guest returned.
func (i *Instance) end(ctx context.Context, name string, start time.Time, err error) error {
	if err == nil {
		err = i.failed
	}
	// A guest checks its counter where it enters functions and loops, so the instructions
	// after the last of them are checked only here.
	if i.meter.rest = i.meter.get(); err == nil && i.meter.rest+i.meter.left < 0 {
		err = fuelError(i.version.limits.Fuel)
	}
	if i.tree != nil {
		i.tree.end(&i.meter, i.FuelUsed())
	}
	if err != nil && i.startedWell(err, name) {
		err = nil
		i.unwind()
	}
	returned := err == nil
	if i.shared != nil {
		err = cmp.Or(err, i.endSharing(!returned))
	}
	var trap *TrapError
	if err != nil {
		trap = newTrapError(i.plugin.cfg.Name, name, cut.Text(i.output.bytes, i.output.limit), err)
		if !errors.Is(err, context.Canceled) && !errors.Is(err, ErrHostFault) { // The caller's fault, not the plugin's.
			if b := i.plugin.breaker; b != nil {
				b.failed()
			}
			if l := i.plugin.callLogger; l != nil {
				l.Log(ctx, slog.LevelError, "the guest trapped", "plugin", trap.Plugin, "function", name, "reason", i.Stain().Text(trap.Reason), "stack", trap.Frames(maxLoggedFrames))
			}
		}
		err = trap
	} else {
		if b := i.plugin.breaker; b != nil {
			b.succeeded()
		}
		i.broken = false
	}
	if i.tape != nil {
		if returned {
			i.endRecording(nil)
		} else {
			i.endRecording(err)
		}
	}
	if trap != nil { // Errors are logged, and reach others than the caller.
		stain := i.Stain()
		trap.Reason, trap.Output = stain.Text(trap.Reason), stain.Text(trap.Output)
	}
	if account := i.plugin.with.Account; account != nil {
		account.Charge(i.meter.used(i.version.limits.Fuel))
	}
	if observer := i.plugin.cfg.Observer; observer != nil {
		observer.Called(ctx, CallEvent{
			Plugin: i.plugin.label, Digest: i.version.digest, Function: name, Start: start, Duration: time.Since(start), Fuel: i.meter.used(i.version.limits.Fuel), Err: err,
		})
	}
	if len(i.output.bytes) != 0 {
		i.log(slog.LevelInfo, cut.Text(i.output.bytes, i.output.limit))
		i.output.bytes = i.output.bytes[:0]
	}
	i.ctx.parent, i.calling = context.Background(), ""
	return err
}

// startFunctions initialise a module: the function of a reactor or, if there is
// none, that of a command.
var startFunctions = []string{"_initialize", "_start"}

// startedWell reports whether err is the exit with code 0 by which a command
// ends its start.
func (i *Instance) startedWell(err error, name string) bool {
	var exit *sys.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 0 {
		return false
	}
	return i.program.running || slices.Contains(i.version.startFunctions(), name)
}

// start runs the module's own initialisation.
func (i *Instance) start(ctx context.Context) error {
	for _, name := range i.version.startFunctions() {
		fn := i.module.ExportedFunction(name)
		if _, err := i.run(ctx, &fn, name, recording.ByStart, 0, nil); err != nil {
			return err
		}
	}
	return nil
}

// FuelUsed returns the fuel that the last call used. If it trapped, it may have used up to
// 2,000,000 more.
func (i *Instance) FuelUsed() int64 {
	used := i.meter.used(i.version.limits.Fuel)
	if i.shared != nil {
		used += i.shared.spent
	}
	return used
}

// Retain adds n, which may be negative, to the number of users that need the guest's memory
// preserved between their calls. While there are any, the instance is not closed for being idle,
// and a recording waits for some thousand calls before it resets the instance. A trap resets it all
// the same. Any goroutine may call Retain, even if another one has the instance.
func (i *Instance) Retain(n int) { i.retained.Add(int32(n)) }

// Release returns the instance to the pool, or to its [Hold]. If its guest trapped, it is
// reset from the snapshot, or closed if it cannot be reset. Neither the instance nor bytes
// that it lent must be used afterwards.
func (i *Instance) Release() {
	v := i.version
	if s := i.shared; s != nil { // A call that did not begin has left them.
		s.trial, s.record, s.first = false, false, nil
	}
	i.releases++
	grown := v.resetGrown && i.releases >= grownCalls && uint64(i.memory.Size()) >= v.snapshot.size+v.plugin.runtime.growing.limit()
	ended := i.hold == nil && (v.tapes != nil && i.sequenceOver() || grown)
	if i.broken || i.spent || ended || i.plugin.cfg.Reset == ResetPerCall {
		routine := ended && !i.broken && !i.spent
		restored := v.restore(i)
		if observer := i.plugin.cfg.Observer; observer != nil && !routine {
			observer.Restarted(i.plugin.label, !restored)
		}
		if !restored {
			v.discard(i)
			if i.hold != nil {
				i.hold.giveBack(false)
			} else {
				v.pool.lose(i)
			}
			return
		}
		i.renew()
	}
	if i.hold != nil {
		i.hold.giveBack(true)
		return
	}
	v.pool.put(i)
}

// The conditions for resetting an instance whose memory has grown: by a share of grownBudget, which
// is between the two limits. The upper one leaves the growth in the caches of a processor, and less
// than a reset copies page by page.
const (
	grownBudget   = 16 << 20
	minGrownBytes = 256 << 10
	maxGrownBytes = 1 << 20
	grownCalls    = 16
)

// growing counts the instances that are reset when their memory has grown.
type growing struct{ instances atomic.Int64 }

// limit returns the number of bytes by which the memory of each may grow: resets cost the requests
// of few instances more than the memory is worth, and that of many instances is much.
func (g *growing) limit() uint64 {
	return min(max(grownBudget/uint64(max(g.instances.Load(), 1)), minGrownBytes), maxGrownBytes)
}

// renew drops the host's state of a guest that was restored: it belongs to memory
// that is gone.
func (i *Instance) renew() {
	if i.plugin.adapter.NewState != nil {
		i.state = i.plugin.adapter.NewState()
	}
	i.broken, i.spent, i.used, i.releases = false, false, false, 0
	i.endSequence()
}

// Reason returns the last status reason that the guest gave in the last call,
// cut to Limits.OutputBytes and made valid UTF-8; empty if it gave none.
func (i *Instance) Reason() string { return i.reason }

// Calling returns the name of the running export, for the messages of host functions.
func (i *Instance) Calling() string { return i.calling }

// HostCall returns the name of the running host function, with its module.
func (i *Instance) HostCall() string { return i.hostCall.String() }

// Write hands data to the guest by the buffer-limit rule and returns the result for the host
// function. A buffer outside of the guest's memory is a violation of the ABI.
func (i *Instance) Write(buf, limit uint32, data []byte) uint32 {
	if uint64(len(data)) <= uint64(limit) {
		i.meter.chargeBytes(len(data))
	}
	n, err := uint32(len(data)), error(nil)
	if i.remote == nil || len(data) > math.MaxInt32 {
		n, err = abi.Write(i.space(), buf, limit, data)
	} else if _, err = abi.Write(i.space(), buf, limit, nil); err == nil && uint64(n) <= uint64(limit) {
		i.remote.write(buf, data)
	}
	if i.tape != nil {
		i.recordWrite(buf, limit, data)
	}
	if err != nil {
		i.Abort(err)
	}
	return n
}

// WriteLength is [Instance.Write] for an answer of n bytes that is longer than limit, if the caller
// does not have its bytes.
func (i *Instance) WriteLength(buf, limit uint32, n uint64) uint32 {
	_, err := abi.Write(i.space(), buf, limit, nil)
	if n > math.MaxInt32 || n <= uint64(limit) {
		err = errors.Join(err, fmt.Errorf("an answer of %d bytes, for a buffer of %d, has no bytes", n, limit))
	}
	if i.tape != nil {
		i.tape.Bytes(recording.Write, nil, uint64(buf), uint64(limit), n)
	}
	if err != nil {
		i.Abort(err)
	}
	return uint32(n)
}

// Read returns bytes of the guest's memory, which are lent: they are valid until the
// guest runs again, and no longer than to Release. Bytes outside of its memory, or
// more of them than Limits.ResultBytes, are a violation of the ABI.
func (i *Instance) Read(ptr, length uint32) []byte {
	if uint64(length) > uint64(i.version.limits.ResultBytes) {
		if i.tape != nil {
			i.tape.Bytes(recording.Read, nil, uint64(ptr), uint64(length))
		}
		i.Abort(fmt.Errorf("%d bytes are more than the limit of %d", length, i.version.limits.ResultBytes))
	}
	i.meter.chargeBytes(int(length))
	data, err := i.lend(ptr, length)
	if i.tape != nil {
		i.tape.Bytes(recording.Read, data, uint64(ptr), uint64(length))
	}
	if err != nil {
		i.Abort(err)
	}
	return data
}

// space returns the guest's memory. If that is in another process, only its length is right.
func (i *Instance) space() []byte {
	if i.remote != nil {
		return i.remote.space()
	}
	memory, _ := i.memory.Read(0, i.memory.Size())
	return memory
}

// lend returns bytes of the guest's memory for a host function: copies, if that is in another process.
func (i *Instance) lend(ptr, length uint32) ([]byte, error) {
	data, err := abi.Read(i.space(), ptr, length)
	if i.remote != nil && len(data) != 0 {
		data = i.remote.read(ptr, length)
	}
	return data, err
}

// put copies data to the guest's memory, which must have room for it.
func (i *Instance) put(ptr uint32, data []byte) {
	if i.remote != nil {
		i.remote.write(ptr, data)
		return
	}
	copy(i.space()[ptr:], data)
}

// Keep counts n bytes that a host function keeps until the call ends, and ends the call beyond
// Limits.KeptBytes. Call it before the bytes are allocated, with a negative n for those that
// are dropped earlier.
func (i *Instance) Keep(n int) {
	if i.kept += n; i.kept > i.version.limits.KeptBytes {
		i.Abort(fmt.Errorf("the call would make the host keep %d bytes, more than limits.keptBytes, %d", i.kept, i.version.limits.KeptBytes))
	}
}

// Abort ends the running call: Call returns a *[TrapError] that wraps an *[ABIError] with err. It
// does not return, and may be used in host functions only.
func (i *Instance) Abort(err error) {
	if i.tape != nil {
		i.tape.Data(recording.Abort, []byte(err.Error()))
	}
	name := ""
	if i.hostCall != nil {
		name = i.hostCall.String()
	}
	panic(&ABIError{Function: name, Err: err})
}

// log writes a guest's line to the host's log, up to Limits.OutputBytes in one
// call.
func (i *Instance) log(level slog.Level, msg string) {
	if l := i.plugin.cfg.Logger; l != nil && l.Enabled(i.ctx.parent, level) && i.mayLog(len(msg)) {
		msg, attributes := splitLine(i.Stain().Text(msg))
		l.Log(i.ctx.parent, level, msg, append([]any{"plugin", i.plugin.cfg.Name, "function", i.calling}, attributes...)...)
	}
}

// Logged reports whether the guest has printed anything in the running or last call, or logged
// anything at a level that the logger accepts.
func (i *Instance) Logged() bool { return i.logged != 0 }

// mayLog reports whether the host may write n more bytes to its log for the guest, and counts them:
// the limit for one call is Limits.OutputBytes, and for the calls of a minute Limits.LogBytes. The
// log reports once that lines were dropped.
func (i *Instance) mayLog(n int) bool {
	p, limit := i.plugin, i.version.limits.OutputBytes
	if i.logged > limit {
		p.lines.Drop()
		return false
	}
	if i.logged += min(n, limit) + 1; i.logged > limit {
		if p.lines.Drop(); p.callLogger != nil {
			p.callLogger.Warn("the guest logs more than limits.outputBytes in one call; further output is dropped", "plugin", p.cfg.Name, "function", i.calling)
		}
		return false
	}
	ok, first := p.lines.Take(n)
	if l := p.cfg.Logger; first && l != nil {
		l.Warn("the guest logs more than limits.logBytes in a minute; lines are dropped", "plugin", p.cfg.Name, "function", i.calling, "dropped", p.lines.Dropped())
	}
	return ok
}

// output keeps the first bytes that a guest prints in a call.
type output struct {
	bytes []byte
	limit int
}

// room returns the number of bytes that can still be kept.
func (o *output) room() int { return max(o.limit-len(o.bytes), 0) }
