package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/tetratelabs/wazero/experimental"

	"github.com/kubewasm/kubewasm/internal/snapmem"
)

// memoryExport is the name under which a guest exports its memory.
const memoryExport = "memory"

// ErrMemory is the error of an instance that could not be made, because the plugins of the Runtime
// already use RuntimeConfig.MemoryBytes, or the system has no more memory.
var ErrMemory = errors.New("no memory for another instance")

// MemoryInUse returns the linear memory of all instances of all plugins, in bytes, in the length
// that guests see, plus the pages stored by their snapshots. RuntimeConfig.MemoryBytes counts the
// same. Instances that begin from one snapshot share most of it.
func (rt *Runtime) MemoryInUse() uint64 { return rt.memory.Budget.Used() }

// newMemory makes the memory of a new instance, from the snapshot if there is
// one. Every failure must occur here: wazero panics when an allocator returns
// nothing.
func (v *version) newMemory(inst *Instance) (err error) {
	if err := v.plugin.runtime.mappings.take(instanceMappings); err != nil {
		return fmt.Errorf("plugin %q: instantiate: %w", v.plugin.cfg.Name, err)
	}
	least, most := uint64(v.compiled.info.Memory.Min)*pageSize, v.limits.MemoryBytes/pageSize*pageSize
	if m := v.compiled.info.Memory; m.HasMax {
		most = min(most, uint64(m.Max)*pageSize)
	}
	// A start section runs in each instance, and must find the same memory as in
	// the first.
	if v.compiled.remote != nil {
		err = v.newRemoteMemory(inst, least, most)
	} else if s := v.snapshot; s != nil && !v.compiled.info.Starts {
		inst.linear, err = v.plugin.runtime.memory.NewFrom(s.image, least, most)
	} else {
		inst.linear, err = v.plugin.runtime.memory.New(least, most)
	}
	if err != nil {
		return fmt.Errorf("plugin %q: instantiate: %w: %w", v.plugin.cfg.Name, ErrMemory, err)
	}
	return nil
}

// allocatorContext returns a context in which wazero finds mem as its
// allocator. The key is private to wazero.
func allocatorContext(mem *snapmem.Memory) context.Context {
	return experimental.WithMemoryAllocator(context.Background(), mem)
}
