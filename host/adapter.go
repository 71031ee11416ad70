package host

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host/confidential"
)

// Adapter describes the offer of a component to its guests: the kind of extension, the
// functions that they may import, and the other ABIs that are served. The packages sched,
// admission and hooks are adapters; a user of theirs sets a [Config] only.
type Adapter struct {
	// Kind is the kind of extension that the component can serve. A guest that
	// implements no function of it is refused. Required.
	Kind abi.Kind
	// Imports are the functions that the component offers beside the common ones.
	Imports []Import
	// FunctionGrants are those that functions of guests need, which the adapter checks. A plugin may
	// have them beside those of the imports.
	FunctionGrants []string
	// Exports are the functions beside those of package abi that the component calls, by
	// their index here: see [Instance.CallExport]. There are 64 at most. All but the
	// optional ones must be there. Guests of a dialect have those of [Dialect.Exports].
	Exports []Export
	// Check is called with the description of each version's module before the module is
	// compiled: an error refuses it. nil checks nothing.
	Check func(m *Module) error
	// Dialects are the other ABIs that the component serves. A module that is of none
	// of them, or exports [abi.Marker], is a guest of package abi.
	Dialects []Dialect
	// Defaults are the limits where Config.Limits is zero. Those of a [Dialect]
	// take precedence over them.
	Defaults Limits
	// Probe is called with the first instance of each version before the version
	// serves: an error refuses it. The instance is reset afterwards. If Probe is
	// nil, nothing is probed.
	Probe func(ctx context.Context, inst *Instance) error
	// Confidential records the confidential values that the running call received by other ways
	// than [Instance.Confidential]. It is called when the guest logs something or traps, at most
	// once in a call. nil records nothing.
	Confidential func(inst *Instance, s *confidential.Stain)
	// ResetGrown is set if no call needs data that earlier calls left in the guest's memory. With
	// [ResetOnError], an instance is then also reset when it has served 16 calls and its memory has
	// grown by 2 MiB since the snapshot, or by 16 MiB divided by the number of such instances of the
	// Runtime, at least 256 KiB. A reset is cheaper than a guest's garbage collector.
	// Guests of a [Dialect] are not reset for growth: they may keep the objects of a cluster in
	// memory.
	ResetGrown bool
	// StandIn makes a plugin whose module cannot be fetched or loaded: calls fail with an
	// *[UnavailableError] until it can. The source is checked again as a followed one is. Mistakes
	// of the configuration stay errors of [Runtime.Load].
	StandIn bool
	// Swapped is called whenever another version has begun to serve, by the goroutine that swaps;
	// nil is not called.
	Swapped func()
	// Again prepares the state of an instance for the repetition of its call, whose first result does
	// not count since other calls have changed the shared state that it has read: see [StateImports].
	// nil does nothing.
	Again func(inst *Instance)
	// NewState makes the result of [Instance.State], once for each instance; nil leaves it nil.
	NewState func() any
}

// Validate reports every mistake of a configuration at once, as [Runtime.Load] does.
// Adapters join them with the mistakes of their own configuration.
func (a *Adapter) Validate(cfg *Config) error {
	errs := cfg.validate(a.grants())
	errs = append(errs, a.Defaults.check("defaults")...)
	errs = append(errs, checkExports(a.Exports)...)
	for i := range a.Dialects {
		errs = append(errs, a.Dialects[i].Defaults.check("dialect "+a.Dialects[i].Name+": defaults")...)
		if err := a.Dialects[i].check(); err != nil {
			errs = append(errs, err)
		}
	}
	if a.Kind == abi.KindCommon {
		errs = append(errs, errors.New("kind is missing"))
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("plugin %q: configuration: %w", cfg.Name, errors.Join(errs...))
}

// grants returns the grants that a plugin may have.
func (a *Adapter) grants() []string {
	known := []string{GrantClock, GrantRandom}
	add := func(imports []Import) {
		for _, im := range imports {
			if im.Grant != "" && !slices.Contains(known, im.Grant) {
				known = append(known, im.Grant)
			}
		}
	}
	add(a.Imports)
	for i := range a.Dialects {
		add(a.Dialects[i].Imports)
	}
	return append(known, a.FunctionGrants...)
}

// dialectOf finds the dialect of a module, nil for our own ABI.
func (a *Adapter) dialectOf(m *Module) *Dialect {
	if m.Export(abi.Marker) != "" {
		return nil
	}
	for i := range a.Dialects {
		if d := &a.Dialects[i]; d.Detect(m) {
			return d
		}
	}
	return nil
}
