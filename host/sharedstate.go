package host

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"time"
	"unsafe"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/internal/statemap"
)

// GrantState lets a guest use the state that all instances of its plugin share.
const GrantState = "state"

// stateModule is the module of the imports of GrantState.
const stateModule = "kubewasm/state"

// sharedState is the state of a plugin, which versions that understand it hand on.
type sharedState struct {
	*statemap.Map
	// form is that of the metadata of the version that made it, empty for none.
	form string
	// turn has an element while a call is repeated that others have often forestalled. Transactions do
	// not begin meanwhile, as long as they can wait: of many calls that write what they all read, one
	// at a time succeeds, and some would never do.
	turn chan struct{}
}

// enter takes the turn within a time, and reports whether it has.
func (s *sharedState) enter(ctx context.Context, within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case s.turn <- struct{}{}:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// leave ends the turn.
func (s *sharedState) leave() { <-s.turn }

// sharing is the part of an instance that uses the shared state.
type sharing struct {
	tx statemap.Tx
	// refused is set if the running function has no state, and keep once the guest has called keep.
	refused, keep bool
	// status is set if the running function has a status code.
	status bool
	// trial is set if the writes of the next or running call do not count, and first is the record of
	// the call that it repeats.
	trial bool
	first *statemap.Record
	// record is set if the next or running call is to be recorded, and reads is the record of the last.
	record bool
	reads  *statemap.Record
	// args are the arguments of the running call, attempt is the number of its repetitions, and spent
	// their fuel. began is the time of the first conflict.
	args     [maxParams]uint64
	attempt  int
	spent    int64
	began    time.Time
	conflict bool
	// turn is set while the call has the turn of the state.
	turn   bool
	buffer []byte
}

// maxAttempts is the number of times that a call is repeated since others changed the state.
const maxAttempts = 15

// A call takes the turn after turnAfter repetitions, and waits for it up to turnWait. A transaction that
// begins waits up to beginWait for the turn to end: a function that runs others, on other instances,
// may have it.
const (
	turnAfter = 2
	turnWait  = time.Second
	beginWait = 100 * time.Millisecond
)

// The prices of work on the state in fuel, two units for about a nanosecond: of a write with its
// commit, and of an entry of a list.
const (
	stateWriteWork = 500
	stateEntryWork = 50
)

// StateImports returns the host functions of the state that all instances of a plugin share, for
// [Adapter.Imports]; the adapter must set [Adapter.Again].
func StateImports() []Import {
	i32, i64 := abi.I32, abi.I64
	fn := func(name string, memory uint16, params, results []abi.ValueType, f func(inst *Instance, tx *statemap.Tx, stack []uint64)) Import {
		return Import{
			Module: stateModule, Name: name, Params: params, Results: results, Memory: memory, Grant: GrantState,
			Func: func(inst *Instance, stack []uint64) {
				tx := inst.transaction()
				kept := tx.Kept()
				f(inst, tx, stack)
				inst.Keep(tx.Kept() - kept)
			},
		}
	}
	one := []abi.ValueType{i32}
	return []Import{
		fn("get", 0b1111, []abi.ValueType{i32, i32, i32, i32}, one, func(inst *Instance, tx *statemap.Tx, stack []uint64) {
			e := tx.Get(inst.stateKey(stack[0], stack[1]))
			s := inst.shared
			s.buffer = statemap.AppendGet(s.buffer[:0], e)
			stack[0] = uint64(inst.Write(uint32(stack[2]), uint32(stack[3]), s.buffer))
		}),
		fn("put", 0b1111, []abi.ValueType{i32, i32, i32, i32, i64}, one, func(inst *Instance, tx *statemap.Tx, stack []uint64) {
			key := inst.stateKey(stack[0], stack[1])
			if err := statemap.CheckValue(int(uint32(stack[3]))); err != nil {
				inst.Abort(err)
			}
			inst.Spend(stateWriteWork)
			stack[0] = uint64(tx.Put(key, inst.Read(uint32(stack[2]), uint32(stack[3])), int64(stack[4])))
		}),
		fn("delete", 0b11, []abi.ValueType{i32, i32, i64}, one, func(inst *Instance, tx *statemap.Tx, stack []uint64) {
			inst.Spend(stateWriteWork)
			stack[0] = uint64(tx.Delete(inst.stateKey(stack[0], stack[1]), int64(stack[2])))
		}),
		fn("add", 0b11, []abi.ValueType{i32, i32, i64, i64}, one, func(inst *Instance, tx *statemap.Tx, stack []uint64) {
			inst.Spend(stateWriteWork)
			stack[0] = uint64(tx.Add(inst.stateKey(stack[0], stack[1]), int64(stack[2]), int64(stack[3])))
		}),
		fn("list", 0b111111, []abi.ValueType{i32, i32, i32, i32, i32, i32}, one, func(inst *Instance, tx *statemap.Tx, stack []uint64) {
			for _, length := range [...]uint64{stack[1], stack[3]} {
				if n := int(uint32(length)); n != 0 {
					if err := statemap.CheckKey(n); err != nil {
						inst.Abort(err)
					}
				}
			}
			prefix, after := lent(inst.Read(uint32(stack[0]), uint32(stack[1]))), lent(inst.Read(uint32(stack[2]), uint32(stack[3])))
			inst.Spend(stateEntryWork * int64(tx.Written()))
			entries := tx.Listed()
			s := inst.shared
			s.buffer = tx.List(s.buffer[:0], prefix, after)
			inst.Spend(stateEntryWork * int64(tx.Listed()-entries))
			stack[0] = uint64(inst.Write(uint32(stack[4]), uint32(stack[5]), s.buffer))
		}),
		fn("keep", 0, nil, nil, func(inst *Instance, _ *statemap.Tx, _ []uint64) { inst.shared.keep = true }),
	}
}

// lent returns a text that is lent like b.
func lent(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// stateKey reads a key, which is lent.
func (i *Instance) stateKey(ptr, length uint64) string {
	if err := statemap.CheckKey(int(uint32(length))); err != nil {
		i.Abort(err)
	}
	return lent(i.Read(uint32(ptr), uint32(length)))
}

// errNoState is the error of a function that has no shared state.
var errNoState = errors.New("this function has no state that all instances share")

// transaction returns the transaction of the running call, and begins it with its first use.
func (i *Instance) transaction() *statemap.Tx {
	s := i.shared
	if s.refused {
		i.Abort(errNoState)
	}
	if !s.tx.Open() {
		first := s.first
		if s.trial && first == nil {
			first = &statemap.Record{}
		}
		if shared := i.version.shared; !s.turn && len(shared.turn) != 0 && shared.enter(i.Context(), min(beginWait, i.version.limits.Timeout/4)) {
			shared.leave()
		}
		s.tx.Begin(i.version.shared.Map, first)
	}
	return &s.tx
}

// StateTrial has the next call use the state without an effect on it: the call is a trial or, if
// reads is not nil, repeats the call that had them, and reads the same. See [Instance.StateReads].
func (i *Instance) StateTrial(reads any) {
	if s := i.shared; s != nil {
		s.trial = true
		s.first, _ = reads.(*statemap.Record)
	}
}

// RecordState has the next call record the data that it reads of the state.
func (i *Instance) RecordState() {
	if i.shared != nil {
		i.shared.record = true
	}
}

// StateReads returns the data that the last call, which was recorded, has read of the state, for
// [Instance.StateTrial], and about its length in bytes; nil if there is none. It must be called
// before the instance is released.
func (i *Instance) StateReads() (reads any, bytes int) {
	if i.shared == nil || i.shared.reads == nil {
		return nil, 0
	}
	return i.shared.reads, i.shared.reads.Bytes()
}

// beginSharing begins a call, or its repetition.
func (i *Instance) beginSharing(start bool, name string, status bool) {
	s := i.shared
	s.tx.Drop()
	s.keep, s.conflict, s.reads = false, false, nil
	s.status = status
	s.refused = start || i.version.shared == nil
	for _, f := range [...]abi.Function{abi.Configure, abi.QueueSort, abi.EventsToRegister, abi.SignPod} {
		s.refused = s.refused || name == f.String()
	}
}

// endSharing ends the transaction of a call. failed is set if the guest did not return. The error is
// that of a call that would have to be repeated too often; s.conflict is set if it is to be repeated.
func (i *Instance) endSharing(failed bool) error {
	s := i.shared
	trial := s.trial
	defer func() {
		if !s.conflict {
			s.trial, s.record, s.first = false, false, nil
		}
	}()
	if !s.tx.Open() {
		return nil
	}
	if failed || trial || s.status && !i.keeps(abi.Code(int32(uint32(i.stack[0])))) {
		if s.record && !failed {
			s.reads = s.tx.Record()
		}
		s.tx.Drop()
		return nil
	}
	if s.record {
		s.reads = s.tx.Record()
	}
	err := s.tx.Commit()
	if err == nil {
		return nil
	}
	s.reads = nil
	used, now := i.meter.used(i.version.limits.Fuel), time.Now()
	if s.attempt == 0 {
		s.began = now
	}
	s.spent += used
	if s.attempt++; s.attempt > maxAttempts || s.spent > i.version.limits.Fuel || now.Sub(s.began) > i.version.limits.Timeout {
		return fmt.Errorf("after %d times: %w", s.attempt, err)
	}
	s.conflict = true
	return nil
}

// keeps reports whether the writes of a call count that has returned a code.
func (i *Instance) keeps(code abi.Code) bool {
	scheduler := i.plugin.adapter.Kind == abi.KindScheduler
	switch code {
	case abi.Success:
		return true
	case abi.Wait, abi.Skip:
		return scheduler || i.shared.keep
	case abi.Unschedulable, abi.UnschedulableAndUnresolvable, abi.Pending:
		return i.shared.keep
	}
	return false
}

// share gives a version the state of the one that it replaces, if it understands it, or an empty one.
// old may be nil.
func (v *version) share(old *version) {
	if !v.stateful() {
		if old != nil {
			old.dropShared(v, "the new version does not use the state")
		}
		return
	}
	form := v.stateForm()
	if old != nil && old.shared != nil && form != "" && form == old.shared.form {
		v.shared = old.shared
		return
	}
	v.shared = v.newShared()
	if old != nil {
		old.dropShared(v, "the new version does not declare that it understands the state")
	}
}

func (v *version) newShared() *sharedState {
	return &sharedState{statemap.New(v.limits.StateEntries, v.limits.StateBytes), v.stateForm(), make(chan struct{}, 1)}
}

// dropShared logs that the version that replaces old begins with an empty state.
func (v *version) dropShared(by *version, reason string) {
	if v.shared == nil {
		return
	}
	if l, n := v.plugin.cfg.Logger, v.shared.Len(); l != nil && n != 0 {
		l.Warn("the state of the plugin begins empty: "+reason, slog.String("plugin", v.plugin.cfg.Name), slog.Int("dropped", n),
			slog.String("was", v.shared.form), slog.String("state", by.stateForm()), slog.String("digest", by.digest))
	}
}

// stateful reports whether the guest imports functions of the state.
func (v *version) stateful() bool {
	for _, im := range v.imports {
		if im.Module == stateModule {
			return true
		}
	}
	return false
}

// stateForm returns the member state of the metadata, empty without one.
func (v *version) stateForm() string {
	m, err := metadata.Parse(v.about.Custom(abi.MetadataSection))
	if err != nil {
		return ""
	}
	return m.State
}

// SharedState returns the entries of the state that the instances of the plugin share, ordered by
// key; none if its guest uses none. The values must not be changed.
func (p *Plugin) SharedState() iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		v := p.current.Load()
		if v.shared == nil {
			return
		}
		for _, e := range v.shared.All() {
			if !yield(e.Key, e.Value) {
				return
			}
		}
	}
}
