package host

import (
	"bytes"

	"github.com/tetratelabs/wazero/api"
)

// snapshot is the state of an instance that was started and configured, and has
// served no call yet.
type snapshot struct {
	memory  []byte
	globals []uint64
}

// takeSnapshot copies the state of inst, or returns nil where nothing is to be
// reset and for a guest whose state is more than its memory and its numeric
// globals: tables that it changes, segments that it drops, globals that hold
// references.
func (v *version) takeSnapshot(inst *Instance) *snapshot {
	if v.plugin.cfg.Reset == ResetNever || v.info.MutatesTables || v.info.DropsSegments || len(v.info.OpaqueGlobals) != 0 {
		return nil
	}
	memory, _ := inst.memory.Read(0, inst.memory.Size())
	s := &snapshot{memory: bytes.Clone(memory), globals: make([]uint64, len(v.info.Globals))}
	for i, g := range v.info.Globals {
		s.globals[i] = inst.module.ExportedGlobal(g.Name).Get()
	}
	return s
}

// restore brings inst to the state of the snapshot and reports whether it could.
// Memory never shrinks, so an instance that has grown is beyond it.
func (v *version) restore(inst *Instance) bool {
	s := v.snapshot
	if s == nil || int(inst.memory.Size()) > len(s.memory) {
		return false
	}
	if missing := len(s.memory) - int(inst.memory.Size()); missing > 0 {
		if _, ok := inst.memory.Grow(uint32(missing / pageSize)); !ok {
			return false
		}
	}
	memory, _ := inst.memory.Read(0, inst.memory.Size())
	copy(memory, s.memory)
	for i, g := range v.info.Globals {
		inst.module.ExportedGlobal(g.Name).(api.MutableGlobal).Set(s.globals[i])
	}
	// A function keeps the stack that it has grown; a new one begins small.
	v.resolve(inst)
	return true
}
