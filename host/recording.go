package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"runtime"

	"github.com/kubewasm/kubewasm/host/confidential"
	"github.com/kubewasm/kubewasm/host/record"
	"github.com/kubewasm/kubewasm/internal/recording"
	"github.com/kubewasm/kubewasm/internal/wire"
)

// recorder is a recorder that plugins of a Runtime share.
type recorder struct {
	*recording.Recorder
	users int
}

// recorderKey is a configuration. Two hooks for redaction are equal if they are the same
// function.
type recorderKey struct {
	settings string
	redact   uintptr
}

func keyOf(cfg *record.Config) recorderKey {
	settings, _ := json.Marshal(cfg) // It has numbers and texts only.
	return recorderKey{string(settings), reflect.ValueOf(cfg.Redact).Pointer()}
}

// recordTo returns the recorder for a configuration, and a function that ends its use. Recorders of
// two configurations with one path write to separate files.
//
// Failures of a recorder are logged by the logger of the plugin that was loaded first, unless the
// configuration has a Report.
func (rt *Runtime) recordTo(cfg *record.Config, logger *slog.Logger) (recording.Tapes, func() error, error) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	key := keyOf(cfg)
	r := rt.recorders[key]
	if r == nil {
		own := *cfg
		if own.Report == nil && logger != nil {
			own.Report = func(err error) {
				if err != nil {
					logger.Error("calls are not recorded", "file", cfg.Path, "err", err)
				} else {
					logger.Info("calls are recorded again", "file", cfg.Path)
				}
			}
		}
		made, err := recording.NewRecorder(own)
		if err != nil {
			return nil, nil, err
		}
		r = &recorder{Recorder: made}
		rt.recorders[key] = r
	}
	r.users++
	return r.Recorder, func() error {
		rt.mu.Lock()
		r.users--
		last := r.users == 0
		if last {
			delete(rt.recorders, key)
		}
		rt.mu.Unlock()
		if !last {
			return nil
		}
		return r.Close()
	}, nil
}

// Recorders returns the numbers of the recorders of open plugins, by their paths.
func (rt *Runtime) Recorders() map[string]record.Stats {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	stats := make(map[string]record.Stats, len(rt.recorders))
	for _, r := range rt.recorders {
		path := r.Config().Path
		stats[path] = stats[path].Plus(r.Stats())
	}
	return stats
}

// describe returns the description of the version for a recording.
func (v *version) describe() recording.Version {
	cfg := &v.plugin.cfg
	limits, _ := json.Marshal(v.limits) // It has numbers and texts only.
	var rule *confidential.Rule
	if r := &cfg.Confidential; r.Extended() || r.PlainEnvironment {
		rule = r
	}
	r := recording.Version{
		Plugin: cfg.Name, SHA256: v.digest, Kind: v.plugin.adapter.Kind, Config: cfg.GuestConfig, Args: cfg.Args,
		Grants: cfg.Grants, Limits: limits, Reset: string(cfg.Reset), Engine: rewritingVersion,
		GoPass: v.plugin.runtime.goPass, Confidential: rule, Arch: runtime.GOARCH, ABI: 1,
	}
	if d := v.dialect; d != nil {
		r.Dialect, r.Start, r.Command, r.DefineMemory = d.Name, d.Start, d.Command, d.DefineMemory
	}
	for _, im := range v.imports {
		r.Imports = append(r.Imports, recording.Import{Module: im.Module, Name: im.Name, Params: im.Params, Results: im.Results, Memory: im.Memory})
	}
	for _, e := range v.exportList() {
		r.Exports = append(r.Exports, recording.Export{Name: e.Name, Params: e.Params, Results: e.Results, Optional: e.Optional})
	}
	return r
}

// record begins a sequence of calls, unless the instance has one or has run since its start.
func (i *Instance) record() {
	if v := i.version; v.tapes != nil && i.tape == nil && !i.used {
		if i.tape, i.skip = v.tapes.Tape(); i.tape != nil {
			i.meter.align()
		}
	}
}

// sequenceOver reports whether the instance is to be reset for the recording, when it is
// released.
func (i *Instance) sequenceOver() bool {
	if i.tape != nil {
		if i.tape.Next() {
			return false
		}
		if i.retained.Load() <= 0 {
			return true
		}
		i.endSequence() // The next one begins when no user needs the memory.
		i.skip = 0
		return false
	}
	i.skip--
	return i.skip <= 0 && i.used && (i.retained.Load() <= 0 || i.skip < -retainedCalls)
}

// retainedCalls is the number of calls that a recording waits for before it resets an instance
// whose memory is retained: where that never ends, as on a busy scheduler, there would be no
// recording.
const retainedCalls = 1 << 12

// endSequence ends the sequence of calls.
func (i *Instance) endSequence() {
	if i.tape != nil {
		i.tape.Close()
		i.tape = nil
	}
}

func (i *Instance) beginRecording(kind recording.CallKind, name string, n int) {
	i.tape.Begin(kind, name, i.stack[:n])
	if kind == recording.AsProgram {
		for _, arg := range i.program.args {
			i.tape.Data(recording.Argument, []byte(arg))
		}
		i.tape.Data(recording.Input, i.program.stdin)
	}
}

func (i *Instance) endRecording(err error) {
	if i.program.running {
		i.tape.Data(recording.Output, i.program.stdout)
	}
	if i.linear.Refused() {
		i.tape.Refused()
	}
	end, result, reason := recording.Returned, uint64(0), ""
	if len(i.results) > 0 {
		result = recording.Narrow(i.stack[0], i.results[0])
	}
	if trap := (*TrapError)(nil); errors.As(err, &trap) {
		end, result, reason = recording.Trapped, 0, trap.Reason
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			end, reason = recording.Stopped, ""
		}
	}
	i.tape.End(end, result, i.meter.used(i.version.limits.Fuel), reason, i.output.bytes)
}

func (i *Instance) recordWrite(buf, limit uint32, data []byte) {
	n := len(data)
	if uint64(n) > uint64(limit) {
		data = nil // It comes when the guest repeats the call with more room.
	}
	i.tape.Bytes(recording.Write, data, uint64(buf), uint64(limit), uint64(n))
}

// Confidential declares the bytes that the running host function hands over: a message of a shape,
// a part of it, by the number of the field, or a list of such messages. In JSON a recording finds
// confidential values by itself, as long as the object contains its kind.
func (i *Instance) Confidential(shape confidential.Shape, part uint32, list bool) {
	if shape.Sealed() {
		i.stained = true
		i.stain.Seal()
	}
	if i.tape != nil {
		i.tape.Confidential(shape, part, list)
	}
}

// Confided reports whether the running or last call received sealed data, by
// [Instance.Confidential].
func (i *Instance) Confided() bool { return i.stain.Sealed() }

// ConfidentialObject is [Instance.Confidential] about an object of a kind without a group, or one
// of its fields. It takes some nanoseconds unless the call is recorded.
func (i *Instance) ConfidentialObject(object interface{ Kind() string }, part uint32) {
	rule := i.Rule()
	if kind := object.Kind(); i.tape != nil || rule.Extended() || rule.Seals(wire.AnyGroup, kind) {
		i.Confidential(rule.ShapeOf(wire.AnyGroup, kind), part, false)
	}
}

// ConfidentialText declares the bytes that the running host function hands over as the value of a
// label or annotation of an object.
func (i *Instance) ConfidentialText(object interface{ Kind() string }) {
	rule := i.Rule()
	switch kind := object.Kind(); {
	case rule.Seals(wire.AnyGroup, kind):
		i.Confidential(wire.ShapeWhole, 0, false)
	case i.tape != nil:
		i.Confidential(wire.ShapeText, 0, false)
	}
}

// Rule returns the plugin's rule for confidential data.
func (i *Instance) Rule() *confidential.Rule { return &i.plugin.cfg.Confidential }

// Stain returns the confidential values that the running call has seen. Its Text filters the
// guest's log lines.
func (i *Instance) Stain() *confidential.Stain {
	i.stained = true
	if f := i.plugin.adapter.Confidential; f != nil && !i.found {
		i.found = true
		f(i, &i.stain)
	}
	return &i.stain
}

// Fresh returns a new instance outside of the pool, in the state before its first call, for a
// caller that repeats the calls of another instance. It keeps its version, even after
// [Plugin.Swap], until it is discarded, which [Plugin.Close] waits for, and is never released.
// Limits.Instances does not count it.
//
// Errors are those of a new instance in [Runtime.Load], and [ErrClosed].
func (p *Plugin) Fresh(ctx context.Context) (*Instance, error) {
	p.mu.Lock()
	v := p.current.Load() // A swap cannot close its pool now.
	err := v.pool.addFresh()
	p.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("plugin %q: %w", p.cfg.Name, err)
	}
	inst, err := v.instantiate(ctx)
	if err != nil {
		v.pool.endFresh()
		return nil, err
	}
	inst.record()
	return inst, nil
}

// Rewind brings an instance from [Plugin.Fresh] back to the state before its first call, and
// reports whether it could. If it could not, the instance must be discarded.
func (i *Instance) Rewind() bool {
	if !i.version.restore(i) {
		return false
	}
	i.renew()
	i.record()
	return true
}

// Discard frees an instance from [Plugin.Fresh].
func (i *Instance) Discard() {
	i.version.discard(i)
	i.version.pool.endFresh()
}
