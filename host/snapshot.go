package host

import (
	"fmt"

	"github.com/tetratelabs/wazero/api"

	"github.com/kubewasm/kubewasm/internal/snapmem"
)

// snapshot is the state of an instance that was started and configured, before
// its first call.
type snapshot struct {
	image *snapmem.Image
	// size is that of the image, in bytes, also after the image is closed.
	size    uint64
	globals []uint64
	wasi    wasiState
	// clock is the time of the fake clock.
	clock int64
}

// takeSnapshot takes the state of inst for v, so that inst and later instances go
// back to it. There is none if nothing is to be reset, or if the guest's state is
// more than its memory and its numeric globals: it changes tables, drops
// segments, or has globals with references.
//
// After an error inst must not be used any more.
func (v *version) takeSnapshot(inst *Instance) error {
	if v.plugin.cfg.Reset == ResetNever || v.compiled.info.MutatesTables || v.compiled.info.DropsSegments || len(v.compiled.info.OpaqueGlobals) != 0 {
		return nil
	}
	memory, _ := inst.memory.Read(0, inst.memory.Size())
	image, err := v.plugin.runtime.memory.NewImage(memory)
	if err != nil {
		return fmt.Errorf("plugin %q: take snapshot: %w: %w", v.plugin.cfg.Name, ErrMemory, err)
	}
	v.snapshot = &snapshot{image: image, size: image.Size(), wasi: inst.wasi, clock: inst.meter.clock(), globals: make([]uint64, len(v.compiled.info.Globals))}
	inst.bindGlobals()
	for i, g := range inst.globals {
		v.snapshot.globals[i] = g.Get()
	}
	if err := inst.linear.Adopt(image); err != nil {
		return fmt.Errorf("plugin %q: map snapshot: %w: %w", v.plugin.cfg.Name, ErrMemory, err)
	}
	return nil
}

// restore brings inst, new or used, to the state of the snapshot and reports
// whether it could.
func (v *version) restore(inst *Instance) bool {
	if v.snapshot == nil || !inst.linear.Reset(inst.memory) {
		return false
	}
	for i, g := range inst.globals {
		g.Set(v.snapshot.globals[i])
	}
	inst.wasi = v.snapshot.wasi
	// A start section has run and may have printed.
	inst.calling, inst.output.bytes = "", inst.output.bytes[:0]
	inst.meter.wind(v.snapshot.clock)
	inst.unwind()
	if inst.broken {
		// A function keeps the stack that it has grown; a new one begins small.
		v.resolve(inst)
		inst.broken = false
	}
	return true
}

// bindGlobals finds the globals that a snapshot contains.
func (i *Instance) bindGlobals() {
	i.globals = make([]api.MutableGlobal, len(i.version.compiled.info.Globals))
	for n, g := range i.version.compiled.info.Globals {
		i.globals[n] = i.module.ExportedGlobal(g.Name).(api.MutableGlobal)
	}
}
