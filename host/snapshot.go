package host

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/tetratelabs/wazero/api"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/snapmem"
)

// snapshot is the state of an instance that was started and configured, before
// its first call.
type snapshot struct {
	image *snapmem.Image
	// number is another one for each snapshot.
	number uint64
	// size is that of the image, in bytes, even after the image is closed.
	size    uint64
	globals []uint64
	wasi    wasiState
	// clock is the time of the fake clock.
	clock int64
}

// started is the state of an instance that was started and does not yet depend on its plugin. The
// versions that share a module begin from it.
type started struct {
	*snapshot
	// by are the functions that started it, args its arguments, and functions the functions that it
	// declared then.
	by, args  []string
	functions abi.Mask
}

// restorable reports whether instances can go back to a snapshot. They cannot if the policy resets
// nothing, or if the guest's state is more than its memory and its numeric globals: it changes
// tables, drops segments, or has globals with references.
func (v *version) restorable() bool {
	info := v.compiled.info
	return v.plugin.cfg.Reset != ResetNever && !info.MutatesTables && !info.DropsSegments && len(info.OpaqueGlobals) == 0
}

// first makes the first instance of a version, and the snapshot from which it and the
// others begin. The start is left out if another version of the module has done it. It is
// not shared if the guest met the limit of the memory of all plugins.
func (v *version) first(ctx context.Context) (*Instance, error) {
	if !v.restorable() {
		return v.instantiate(ctx)
	}
	grants := v.plugin.cfg.Grants
	own := slices.Contains(grants, GrantClock) || slices.Contains(grants, GrantRandom)
	if s := v.compiled.started.Load(); !own && s != nil && slices.Equal(s.by, v.startFunctions()) && slices.Equal(s.args, v.plugin.cfg.Args) {
		if err := v.accept(s.functions); err != nil {
			return nil, err
		}
		v.base, v.snapshot = s.snapshot, s.snapshot
	}
	end := v.watch(&own)
	inst, err := v.newInstance(ctx)
	if err != nil {
		return nil, err
	}
	if v.tapes != nil && (slices.Contains(grants, GrantClock) || slices.Contains(grants, GrantRandom)) {
		inst.tape = v.tapes.Start()
	}
	if v.base == nil {
		if err = v.start(ctx, inst); err == nil && !own && !inst.linear.Refused() && v.compiled.starts.Add(1) > 1 {
			err = v.offer(inst)
		}
	}
	end()
	if err == nil {
		err = v.configure(ctx, inst)
	}
	if err == nil {
		err = v.takeSnapshot(inst)
	}
	if err != nil {
		v.discard(inst)
		return nil, err
	}
	inst.endSequence()
	inst.used = false
	return inst, nil
}

// watch has the host functions of a version set own when the guest calls one that depends on the
// plugin or has an effect. The functions of WASI depend on arguments and grants alone, and only one
// has an effect: it prints. Without Config.Args, the arguments of a dialect are the plugin's name.
func (v *version) watch(own *bool) (end func()) {
	imports, named := v.imports, v.dialect != nil && len(v.plugin.cfg.Args) == 0
	v.imports = make([]*Import, len(imports))
	for n, im := range imports {
		v.imports[n] = im
		if im.Module != wasiModule || im.Name == "fd_write" || named && strings.HasPrefix(im.Name, "args_") {
			watched := *im
			watched.Func = func(inst *Instance, stack []uint64) {
				*own = true
				im.Func(inst, stack)
			}
			v.imports[n] = &watched
		}
	}
	return func() { v.imports = imports }
}

// offer makes the state of inst, which was started, the initial state of the module's versions.
func (v *version) offer(inst *Instance) error {
	base, err := v.newSnapshot(inst)
	if err != nil {
		return err
	}
	s := &started{base, v.startFunctions(), v.plugin.cfg.Args, v.functions}
	if !v.compiled.started.CompareAndSwap(nil, s) {
		base.image.Close() // Another version was faster, or starts it differently.
		return nil
	}
	v.base = base
	return nil
}

// takeSnapshot takes the state of inst for v, so that inst and later instances go back to
// it. After an error inst must not be used any more.
func (v *version) takeSnapshot(inst *Instance) error {
	v.snapshot = v.base
	if v.base == nil || v.configurable() {
		own, err := v.newSnapshot(inst)
		if err != nil {
			return err
		}
		v.snapshot = own
	}
	v.resetGrown = v.plugin.adapter.ResetGrown && v.dialect == nil
	if err := inst.adopt(v.snapshot); err != nil {
		return fmt.Errorf("plugin %q: map snapshot: %w", v.plugin.cfg.Name, inst.noMemory(err))
	}
	if inst.remote != nil {
		inst.remote.restored = true
	}
	return nil
}

// adopt makes a snapshot the one that restore restores.
func (i *Instance) adopt(s *snapshot) error {
	if i.remote != nil {
		return i.remote.adopt(s)
	}
	return i.linear.Adopt(s.image)
}

// noMemory returns the error of an instance for which there is no memory, unless its process has ended.
func (i *Instance) noMemory(err error) error {
	if i.remote != nil {
		if failure := i.remote.failure(); failure != nil {
			return failure
		}
	}
	return fmt.Errorf("%w: %w", ErrMemory, err)
}

// snapshots is the number of snapshots that were taken.
var snapshots atomic.Uint64

// newSnapshot copies the state of inst. The copy shares pages that equal those of the base.
func (v *version) newSnapshot(inst *Instance) (*snapshot, error) {
	base := v.compiled.content.base()
	if v.base != nil {
		base = v.base.image
	}
	globals := make([]uint64, len(v.compiled.info.Globals))
	var memory []byte
	if inst.remote != nil {
		memory = inst.remote.image(globals)
	} else {
		memory, _ = inst.memory.Read(0, inst.memory.Size())
	}
	image, err := v.plugin.runtime.memory.NewImage(memory, base)
	if err != nil {
		return nil, fmt.Errorf("plugin %q: take snapshot: %w: %w", v.plugin.cfg.Name, ErrMemory, err)
	}
	s := &snapshot{image: image, size: image.Size(), wasi: inst.wasi, clock: inst.meter.clock(), number: snapshots.Add(1), globals: globals}
	inst.bindGlobals()
	for i, g := range inst.globals {
		s.globals[i] = g.Get()
	}
	if inst.remote != nil && !inst.remote.alive() {
		image.Close()
		return nil, fmt.Errorf("plugin %q: take snapshot: %w", v.plugin.cfg.Name, inst.remote.failure())
	}
	return s, nil
}

// restore brings inst, new or used, to the state of the snapshot and reports
// whether it could.
func (v *version) restore(inst *Instance) bool {
	switch s := v.snapshot; {
	case s == nil:
		return false
	case inst.remote != nil:
		if !inst.remote.reset(s) {
			return false
		}
	case !inst.linear.Reset(inst.memory):
		return false
	default:
		for i, g := range inst.globals {
			g.Set(s.globals[i])
		}
	}
	inst.wasi = v.snapshot.wasi
	// A start section has run and may have printed.
	inst.calling, inst.output.bytes = "", inst.output.bytes[:0]
	inst.meter.wind(v.snapshot.clock)
	inst.unwind()
	if inst.broken {
		// A function keeps the stack that it has grown; a new handle begins with a small one.
		v.resolve(inst)
		inst.broken = false
	}
	return true
}

// bindGlobals finds the globals that a snapshot contains.
func (i *Instance) bindGlobals() {
	if i.remote != nil {
		return
	}
	i.globals = make([]api.MutableGlobal, len(i.version.compiled.info.Globals))
	for n, g := range i.version.compiled.info.Globals {
		i.globals[n] = i.module.ExportedGlobal(g.Name).(api.MutableGlobal)
	}
}
