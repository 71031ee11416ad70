package host

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/wasmbin"
)

const wasiModule = wasi_snapshot_preview1.ModuleName

// Plugin is a module that is ready to be called. It is safe for use by several
// goroutines.
type Plugin struct {
	cfg     Config
	limits  Limits
	runtime *Runtime
	// wasm is the plugin's own wazero runtime: plugins do not trust each other,
	// and a memory limit belongs to a runtime.
	wasm      wazero.Runtime
	compiled  wazero.CompiledModule
	info      *wasmbin.Info
	functions abi.Mask
	// snapshot is what new instances and those that trapped begin from; nil if
	// the guest has state that a snapshot does not capture.
	snapshot *snapshot
	pool     *pool

	closeOnce sync.Once
	closeErr  error
}

// Load makes a plugin of a module: fetch, verify, check, compile, instantiate,
// configure.
//
// Errors, for errors.As: *[DigestError]; *[ModuleError] for bytes that are no
// module for this host; *[ExportError] and *[ImportError] for a module that is
// no guest for this caller, all of them at once; *[TrapError] for a guest that
// traps while it starts; *[StatusError] for a guest that refuses its
// configuration.
func (rt *Runtime) Load(ctx context.Context, cfg Config) (*Plugin, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	module, err := fetch(ctx, &cfg)
	if err != nil {
		return nil, err
	}
	p := &Plugin{cfg: cfg, limits: cfg.Limits.withDefaults(), runtime: rt}
	p.pool = newPool(p.limits.Instances, p.discard)
	p.wasm = wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().
		WithCompilationCache(rt.cache).
		WithMemoryLimitPages(uint32(p.limits.MemoryBytes/pageSize)))
	if err := p.load(ctx, module); err != nil {
		p.free(context.WithoutCancel(ctx))
		return nil, err
	}
	if err := rt.add(p); err != nil {
		p.free(context.WithoutCancel(ctx))
		return nil, err
	}
	return p, nil
}

// load does the work of Load from the bytes on.
func (p *Plugin) load(ctx context.Context, module []byte) (err error) {
	// wazero checks what it reads; a panic in it must not take a scheduler down
	// all the same.
	defer func() {
		if r := recover(); r != nil {
			err = &ModuleError{Plugin: p.cfg.Name, Err: fmt.Errorf("runtime panicked: %v", r)}
		}
	}()
	module, p.info, err = wasmbin.Rewrite(module, wasmbin.Options{
		Meter:            true,
		Fuel:             fuelSlice,
		MaxMemoryPages:   uint32(p.limits.MemoryBytes / pageSize),
		MaxTableElements: maxTableElements,
	})
	if err != nil {
		return &ModuleError{Plugin: p.cfg.Name, Err: err}
	}
	if p.compiled, err = p.wasm.CompileModule(ctx, module); err != nil {
		return &ModuleError{Plugin: p.cfg.Name, Err: err}
	}
	imports := newImportTable(commonImports, p.cfg.Imports)
	errs := imports.check(p.cfg.Name, p.compiled)
	errs = append(errs, p.checkModule()...)
	if len(errs) != 0 {
		return errors.Join(errs...)
	}
	if err := instantiateWASI(ctx, p.wasm); err != nil {
		return err
	}
	if err := imports.instantiate(ctx, p.wasm); err != nil {
		return err
	}
	if err := instantiateMeter(ctx, p.wasm); err != nil {
		return err
	}
	inst, err := p.instantiate(ctx)
	if err != nil {
		return err
	}
	p.snapshot = p.takeSnapshot(inst)
	p.pool.count = 1
	p.pool.put(inst)
	return nil
}

// checkModule reports the exports that every guest needs, as far as they are
// missing or of the wrong type.
func (p *Plugin) checkModule() []error {
	errs := p.checkExport(nil, abi.Marker, nil, []abi.ValueType{abi.I64})
	if _, ok := p.compiled.ExportedMemories()[abi.Memory]; !ok {
		errs = append(errs, &ExportError{Plugin: p.cfg.Name, Export: abi.Memory, Want: "a memory"})
	}
	for _, name := range startFunctions {
		if _, ok := p.compiled.ExportedFunctions()[name]; ok {
			errs = p.checkExport(errs, name, nil, nil)
		}
	}
	return errs
}

// checkFunctions does the same for the functions that the guest says that it
// implements.
func (p *Plugin) checkFunctions(mask abi.Mask) []error {
	var errs []error
	for _, f := range mask.Functions() {
		sig := f.Signature()
		errs = p.checkExport(errs, sig.Name, sig.Params, sig.Results)
	}
	return errs
}

// checkExport appends to errs what is wrong with an exported function.
func (p *Plugin) checkExport(errs []error, name string, params, results []abi.ValueType) []error {
	want, got := abi.FormatSignature(params, results), ""
	if def, ok := p.compiled.ExportedFunctions()[name]; ok {
		got = abi.FormatSignature(def.ParamTypes(), def.ResultTypes())
	}
	if got == want {
		return errs
	}
	return append(errs, &ExportError{Plugin: p.cfg.Name, Export: name, Got: got, Want: want})
}

// instantiate makes an instance that is ready to be called: started, asked for
// its functions, configured.
func (p *Plugin) instantiate(ctx context.Context) (*Instance, error) {
	inst := &Instance{plugin: p, output: output{limit: p.limits.OutputBytes}}
	inst.ctx = callContext{parent: ctx, inst: inst}
	if p.cfg.NewState != nil {
		inst.state = p.cfg.NewState()
	}
	// The start functions are called below, under the same rules as any other
	// function. A start section runs within InstantiateModule.
	inst.calling = "start"
	module, err := p.wasm.InstantiateModule(&inst.ctx, p.compiled, wazero.NewModuleConfig().
		WithName("").
		WithArgs(p.cfg.Name). // Go code that looks at os.Args[0] must find it.
		WithStartFunctions().
		WithStdout(&inst.output).
		WithStderr(&inst.output))
	if err != nil {
		// A start section that traps has a stack; what cannot be linked has none.
		if trap := newTrapError(p.cfg.Name, "start", text(inst.output.bytes, len(inst.output.bytes)), err); trap.Stack != "" {
			return nil, trap
		}
		return nil, &ModuleError{Plugin: p.cfg.Name, Err: err}
	}
	inst.module, inst.memory = module, module.ExportedMemory(abi.Memory)
	inst.meter.bind(module)
	if p.restore(inst) {
		return inst, nil
	}
	if err := p.prepare(ctx, inst); err != nil {
		p.discard(inst)
		return nil, err
	}
	return inst, nil
}

// prepare starts a new instance and resolves its functions.
func (p *Plugin) prepare(ctx context.Context, inst *Instance) error {
	if err := inst.start(ctx); err != nil {
		return err
	}
	mask, err := p.ask(ctx, inst)
	if err != nil {
		return err
	}
	p.resolve(inst)
	if !mask.Has(abi.Configure) {
		return nil
	}
	result, err := inst.Call(ctx, abi.Configure)
	if err != nil {
		return err
	}
	if code := abi.Code(int32(uint32(result))); code != abi.Success {
		return &StatusError{Plugin: p.cfg.Name, Function: abi.Configure.String(), Code: code, Reason: inst.reason}
	}
	return nil
}

// resolve looks the functions of the guest up.
func (p *Plugin) resolve(inst *Instance) {
	for _, f := range p.functions.Functions() {
		inst.functions[f] = inst.module.ExportedFunction(f.Signature().Name)
	}
}

// ask calls the marker. What the first instance answers holds for all.
func (p *Plugin) ask(ctx context.Context, inst *Instance) (abi.Mask, error) {
	result, err := inst.run(ctx, inst.module.ExportedFunction(abi.Marker), abi.Marker)
	if err != nil {
		return 0, err
	}
	mask := abi.Mask(result)
	if p.functions != 0 {
		if mask != p.functions {
			return 0, &ModuleError{Plugin: p.cfg.Name, Err: fmt.Errorf("an instance implements %s, an earlier one %s", mask, p.functions)}
		}
		return mask, nil
	}
	if unknown := mask.Unknown(); unknown != 0 {
		return 0, &ModuleError{Plugin: p.cfg.Name, Err: fmt.Errorf("the guest implements %s, which this version of the ABI does not know", unknown)}
	}
	if mask.Of(p.cfg.Kind) == 0 {
		return 0, &ModuleError{Plugin: p.cfg.Name, Err: fmt.Errorf("the guest implements no %s function, only: %s", p.cfg.Kind, mask)}
	}
	if errs := p.checkFunctions(mask); len(errs) != 0 {
		return 0, errors.Join(errs...)
	}
	p.functions = mask
	return mask, nil
}

// Name returns the plugin's name.
func (p *Plugin) Name() string { return p.cfg.Name }

// Functions returns the functions that the guest implements.
func (p *Plugin) Functions() abi.Mask { return p.functions }

// Acquire takes an instance for the caller alone, making one if all are in use
// and Limits.Instances allows it, waiting for one otherwise. Release it in the
// end.
//
// Errors, for errors.Is: [ErrClosed]; [ErrSaturated] together with ctx's error
// if ctx ends first. A new instance may also fail as in [Runtime.Load].
func (p *Plugin) Acquire(ctx context.Context) (*Instance, error) {
	inst, err := p.pool.acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("plugin %q: %w", p.cfg.Name, err)
	}
	if inst == nil {
		if inst, err = p.instantiate(ctx); err != nil {
			p.pool.forget()
			return nil, err
		}
	}
	return inst, nil
}

// Release gives the instance back. One whose guest trapped begins anew from the
// snapshot, or is closed if it cannot. The instance must not be used afterwards.
func (i *Instance) Release() {
	if i.broken {
		if !i.plugin.restore(i) {
			i.plugin.discard(i)
			i.plugin.pool.forget()
			return
		}
		if i.plugin.cfg.NewState != nil {
			i.state = i.plugin.cfg.NewState()
		}
		i.broken = false
	}
	i.plugin.pool.put(i)
}

// discard frees an instance that does not run.
func (p *Plugin) discard(inst *Instance) {
	// The error is that of open files, and a guest has none.
	_ = inst.module.Close(context.Background())
}

// Close turns new calls away with [ErrClosed], waits until ctx ends for the
// instances in use to be released, and frees everything. When ctx ends first,
// the error is its own, and Close may be called again to go on waiting.
func (p *Plugin) Close(ctx context.Context) error {
	p.pool.close()
	select {
	case <-p.pool.drained:
	case <-ctx.Done():
		return fmt.Errorf("plugin %q: close: wait for calls: %w", p.cfg.Name, ctx.Err())
	}
	p.closeOnce.Do(func() {
		p.runtime.remove(p)
		p.closeErr = p.free(context.WithoutCancel(ctx))
	})
	return p.closeErr
}

// free closes what load made. Closing the runtime does not free the code that
// the shared cache holds.
func (p *Plugin) free(ctx context.Context) error {
	err := p.wasm.Close(ctx)
	if p.compiled != nil {
		err = errors.Join(err, p.compiled.Close(ctx))
	}
	return err
}

// maxTableElements is how many elements the tables of a guest may have, 8 bytes
// each in the host: a Go guest of 3 MB has 5,000.
const maxTableElements = 1 << 20

// instantiateMeter offers what a rewritten guest calls when its slice of fuel is
// used up.
func instantiateMeter(ctx context.Context, rt wazero.Runtime) error {
	_, err := rt.NewHostModuleBuilder(wasmbin.YieldModule).NewFunctionBuilder().
		WithGoModuleFunction(api.GoModuleFunc(func(ctx context.Context, module api.Module, _ []uint64) {
			ctx.(*callContext).inst.yield(module)
		}), nil, nil).
		WithName(wasmbin.YieldName).
		Export(wasmbin.YieldName).
		Instantiate(ctx)
	if err != nil {
		return fmt.Errorf("instantiate host module %q: %w", wasmbin.YieldModule, err)
	}
	return nil
}

// instantiateWASI offers WASI preview 1 without files, environment, sockets,
// real clocks or randomness: wazero's fakes are deterministic.
//
// proc_exit is our own. wazero's closes the module, after which its functions
// still run, on memory that is gone; ours only ends the call, and the instance
// is discarded like any other that trapped.
func instantiateWASI(ctx context.Context, rt wazero.Runtime) error {
	b := rt.NewHostModuleBuilder(wasiModule)
	wasi_snapshot_preview1.NewFunctionExporter().ExportFunctions(b)
	b.NewFunctionBuilder().
		WithGoFunction(api.GoFunc(func(_ context.Context, stack []uint64) {
			panic(sys.NewExitError(uint32(stack[0])))
		}), []api.ValueType{api.ValueTypeI32}, nil).
		WithName("proc_exit").
		Export("proc_exit")
	if _, err := b.Instantiate(ctx); err != nil {
		return fmt.Errorf("instantiate host module %q: %w", wasiModule, err)
	}
	return nil
}
