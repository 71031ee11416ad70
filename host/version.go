package host

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/sys"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/wasmbin"
)

// version is one module of a plugin, with its instances.
type version struct {
	plugin *Plugin
	limits Limits
	// digest is the SHA-256 of the module, in hexadecimal.
	digest string
	// wasm is a wazero runtime of its own: plugins do not trust each other, and
	// a memory limit belongs to a runtime.
	wasm     wazero.Runtime
	compiled wazero.CompiledModule
	// exported are its exports, which wazero collects anew for each call.
	exported map[string]api.FunctionDefinition
	// compiling is closed when a compilation whose caller stopped waiting has
	// ended; nil if there is none. compiled belongs to it until then.
	compiling chan struct{}
	info      *wasmbin.Info
	about     *Module
	functions abi.Mask
	// dialect is that of the guest, nil for our own ABI; exports are the functions of
	// exportList that it has, bit n for the one with index n.
	dialect *Dialect
	exports uint64
	handles handles
	// snapshot is the initial state of new instances and of those that trapped;
	// nil if the guest has state that a snapshot does not capture.
	snapshot *snapshot
	pool     *pool

	// pins is the number of pins on the version, replaced is set once another
	// version serves new calls. Plugin.mu guards both.
	pins     int
	replaced bool

	freeOnce sync.Once
	freeErr  error
}

// fetch returns a module and its digest, which is want unless that is empty. The
// digest is checked before anything looks at the bytes.
func fetch(ctx context.Context, plugin string, source Source, want string) (module []byte, digest string, err error) {
	module, err = source.Fetch(ctx)
	if err != nil {
		return nil, "", fmt.Errorf("plugin %q: fetch module: %w", plugin, err)
	}
	digest = digestOf(module)
	if want != "" && !strings.EqualFold(digest, want) {
		return nil, "", &DigestError{Plugin: plugin, Want: strings.ToLower(want), Got: digest}
	}
	return module, digest, nil
}

// digestOf returns the SHA-256 of a module in lower-case hexadecimal.
func digestOf(module []byte) string {
	h := sha256.New()
	writePieces(h, module)
	return hex.EncodeToString(h.Sum(nil))
}

// writePieces writes b to a hash by the megabyte. Each write is one run of assembly,
// which Go's garbage collector waits for, and with it every other goroutine: a module
// of 256 MB would take some hundred milliseconds.
func writePieces(h hash.Hash, b []byte) {
	for piece := range slices.Chunk(b, 1<<20) {
		h.Write(piece)
	}
}

// newVersion builds a version from the bytes of its module: rewrite, compile,
// check, instantiate, configure, probe. A version that it returns has answered
// a call; one that fails is freed.
func (p *Plugin) newVersion(ctx context.Context, module []byte, digest string) (*version, error) {
	about, err := inspect(module, digest)
	if err != nil {
		return nil, &ModuleError{Plugin: p.cfg.Name, Err: err}
	}
	d := p.adapter.dialectOf(about)
	if d != nil && d.Inspect != nil {
		if about.inspected, err = d.Inspect(module); err != nil {
			return nil, &ModuleError{Plugin: p.cfg.Name, Err: err}
		}
	}
	if check := p.adapter.Check; check != nil && d == nil {
		if err := check(about); err != nil {
			return nil, fmt.Errorf("plugin %q: %w", p.cfg.Name, err)
		}
	}
	if err := p.runtime.begin(p.cfg.Name); err != nil {
		return nil, err
	}
	v := &version{plugin: p, digest: digest, about: about, dialect: d, limits: p.cfg.Limits}
	if v.dialect != nil {
		v.limits = v.limits.or(v.dialect.Defaults)
	}
	v.limits = v.limits.or(p.adapter.Defaults).withDefaults()
	if p.cfg.SHA256 != "" {
		v.limits.Compile = cmp.Or(v.limits.Compile, defaultCompile)
	}
	v.pool = newPool(v.limits.Instances, p.runtime.memory.Guard, v.discard)
	v.wasm = wazero.NewRuntimeWithConfig(ctx, p.runtime.engine.
		WithCompilationCache(p.runtime.cache).
		WithMemoryLimitPages(uint32(v.limits.MemoryBytes/pageSize)))
	if err := v.load(ctx, module); err != nil {
		return nil, errors.Join(err, v.abandon())
	}
	p.runtime.building.Done()
	return v, nil
}

// abandon frees a version that could not be built, when its compilation has
// ended.
func (v *version) abandon() error {
	if v.compiling == nil {
		defer v.plugin.runtime.building.Done()
		return v.free(context.Background())
	}
	go func() {
		defer v.plugin.runtime.building.Done()
		<-v.compiling
		_ = v.free(context.Background()) // The caller has stopped waiting.
	}()
	return nil
}

// compile rewrites and compiles a module, for as long as Limits.BuildTimeout and
// ctx allow, the wait for other compilations included. wazero looks at its context
// between two functions, so the compilation may outlast the wait for it by the
// function that is being compiled.
func (v *version) compile(ctx context.Context, module []byte) error {
	ctx, cancel := context.WithTimeout(ctx, v.limits.BuildTimeout)
	defer cancel()
	slots := v.plugin.runtime.compiling
	select {
	case slots <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("compile: wait for other modules: %w after %s at most", ctx.Err(), v.limits.BuildTimeout)
	}
	done := make(chan struct{})
	var err error
	go func() {
		defer close(done)
		defer func() { <-slots }()
		// wazero checks the module that it reads, but a panic in it must not
		// end the process.
		defer func() {
			if r := recover(); r != nil {
				err = fmt.Errorf("compiler panicked: %v", r)
			}
		}()
		if module, v.info, err = v.rewrite(module); err != nil || ctx.Err() != nil {
			return
		}
		v.compiled, err = v.compileModule(ctx, module)
		err = shorten(err)
	}()
	select {
	case <-done:
		if err == nil && v.compiled == nil {
			err = ctx.Err()
		}
		return err
	case <-ctx.Done():
		v.compiling = done
		return fmt.Errorf("compile: %w after %s at most", ctx.Err(), v.limits.BuildTimeout)
	}
}

// compileModule compiles a rewritten module, or takes its machine code from the cache.
func (v *version) compileModule(ctx context.Context, module []byte) (wazero.CompiledModule, error) {
	code := v.plugin.runtime.code
	if code.dir == "" {
		return v.wasm.CompileModule(ctx, module)
	}
	files := code.files(module)
	code.check(files)
	compiled, err := v.wasm.CompileModule(ctx, module)
	if err != nil && ctx.Err() == nil {
		// wazero fails if it cannot write to the cache, as on a full disk, and then has the
		// code in memory. It stays there until the runtime is closed.
		compiled, err = v.wasm.CompileModule(ctx, module)
	}
	if err == nil {
		code.keep(files)
	}
	return compiled, err
}

// rewrite makes a module ready for wazero under the limits of the version.
func (v *version) rewrite(module []byte) ([]byte, *wasmbin.Info, error) {
	out, info, err := v.plugin.runtime.rewritten.rewrite(module, v.digest, wasmbin.Options{
		Meter:            true,
		Fuel:             fuelSlice,
		LimitComplexity:  true,
		CompileTime:      v.limits.Compile,
		CheckElements:    true,
		StackBytes:       int32(v.limits.StackBytes),
		MaxMemoryPages:   uint32(v.limits.MemoryBytes / pageSize),
		MaxTableElements: maxTableElements,
		ExpandRemainders: runtime.GOARCH == "arm64",
		DefineMemory:     v.dialect != nil && v.dialect.DefineMemory,
	})
	if errors.Is(err, wasmbin.ErrTooSlow) {
		err = fmt.Errorf("%w; limits.compile can allow more, and is %s for a module whose sha256 is given", err, defaultCompile)
	}
	return out, info, err
}

// load does the work of newVersion.
func (v *version) load(ctx context.Context, module []byte) (err error) {
	// As in compile, a panic of wazero ends here.
	defer func() {
		if r := recover(); r != nil {
			err = &ModuleError{Plugin: v.plugin.cfg.Name, Err: fmt.Errorf("runtime panicked: %v", r)}
		}
	}()
	if err := v.compile(ctx, module); err != nil {
		return &ModuleError{Plugin: v.plugin.cfg.Name, Err: err}
	}
	var imports importTable
	if v.dialect != nil {
		imports = newImportTable(wasiImports, v.dialect.Imports)
	} else {
		imports = newImportTable(wasiImports, commonImports, v.plugin.adapter.Imports)
	}
	errs := imports.check(v.plugin.cfg.Name, v.compiled, v.plugin.cfg.Grants)
	errs = append(errs, v.checkModule()...)
	if len(errs) != 0 {
		return errors.Join(errs...)
	}
	if err := imports.instantiate(ctx, v.wasm); err != nil {
		return err
	}
	if err := instantiateMeter(ctx, v.wasm); err != nil {
		return err
	}
	inst, err := v.instantiate(ctx)
	if err != nil {
		return err
	}
	for name := range v.exported {
		var ok bool
		if v.handles, ok = handlesOf(inst.module.ExportedFunction(name)); ok {
			break
		}
	}
	if err := v.takeSnapshot(inst); err != nil {
		v.discard(inst)
		return err
	}
	if probe := v.plugin.adapter.Probe; probe != nil {
		if err := probe(ctx, inst); err != nil {
			v.discard(inst)
			return fmt.Errorf("plugin %q: probe: %w", v.plugin.cfg.Name, err)
		}
		if v.snapshot == nil || !v.restore(inst) {
			// No call must see the state after the probe.
			v.discard(inst)
			return nil
		}
		inst.renew()
	}
	v.pool.count = 1
	v.pool.put(inst)
	return nil
}

// checkModule reports which of the exports that every guest needs are missing
// or of the wrong type.
func (v *version) checkModule() []error {
	errs := v.checkExportList()
	switch {
	case v.dialect == nil:
		errs = v.checkExport(errs, abi.Marker, nil, []abi.ValueType{abi.I64})
	case v.dialect.Command:
		errs = v.checkExport(errs, commandStart, nil, nil)
	}
	if _, ok := v.compiled.ExportedMemories()[abi.Memory]; !ok {
		errs = append(errs, &ExportError{Plugin: v.plugin.cfg.Name, Export: abi.Memory, Want: "a memory"})
	}
	for _, name := range v.startFunctions() {
		errs = v.checkExport(errs, name, nil, nil)
	}
	return errs
}

// checkFunctions does the same for the functions that the guest declares to
// implement.
func (v *version) checkFunctions(mask abi.Mask) []error {
	var errs []error
	for _, f := range mask.Functions() {
		sig := f.Signature()
		errs = v.checkExport(errs, sig.Name, sig.Params, sig.Results)
	}
	return errs
}

// checkExport appends the errors of an exported function to errs.
func (v *version) checkExport(errs []error, name string, params, results []abi.ValueType) []error {
	want, got := abi.FormatSignature(params, results), ""
	if v.exported == nil {
		v.exported = v.compiled.ExportedFunctions()
	}
	if def, ok := v.exported[name]; ok {
		got = abi.FormatSignature(def.ParamTypes(), def.ResultTypes())
	}
	if got == want {
		return errs
	}
	return append(errs, &ExportError{Plugin: v.plugin.cfg.Name, Export: name, Got: got, Want: want})
}

// instantiate makes an instance that is ready to be called: started, with its
// functions resolved, and configured.
func (v *version) instantiate(ctx context.Context) (*Instance, error) {
	inst := &Instance{plugin: v.plugin, version: v, output: output{limit: v.limits.OutputBytes}}
	inst.ctx = callContext{parent: ctx, inst: inst}
	if v.plugin.adapter.NewState != nil {
		inst.state = v.plugin.adapter.NewState()
	}
	var err error
	if inst.linear, err = v.newMemory(); err != nil {
		return nil, err
	}
	defer func() {
		// wazero frees the memory of what it has instantiated.
		if inst.module == nil {
			inst.linear.Free()
		}
	}()
	// The start functions are called below, under the same rules as any other
	// function. A start section runs within InstantiateModule.
	inst.calling, inst.ctx.instantiation = "start", allocatorContext(inst.linear)
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions()
	module, err := v.wasm.InstantiateModule(&inst.ctx, v.compiled, config)
	if err != nil {
		// A start section that traps has a stack, one that exits an exit code;
		// what cannot be linked has neither.
		trap := newTrapError(v.plugin.cfg.Name, "start", text(inst.output.bytes, len(inst.output.bytes)), err)
		if trap.Stack != "" || errors.As(err, new(*sys.ExitError)) {
			return nil, trap
		}
		return nil, &ModuleError{Plugin: v.plugin.cfg.Name, Err: shorten(err)}
	}
	inst.ctx.instantiation = nil
	inst.module, inst.memory = module, module.ExportedMemory(abi.Memory)
	inst.meter.bind(module)
	if v.snapshot != nil {
		inst.bindGlobals()
		if v.info.Starts {
			if err := inst.linear.Adopt(v.snapshot.image); err != nil {
				v.discard(inst)
				return nil, fmt.Errorf("plugin %q: instantiate: map snapshot: %w: %w", v.plugin.cfg.Name, ErrMemory, err)
			}
		}
		if !v.restore(inst) {
			v.discard(inst)
			return nil, fmt.Errorf("plugin %q: instantiate: %w: the snapshot does not fit", v.plugin.cfg.Name, ErrMemory)
		}
		v.resolve(inst)
		return inst, nil
	}
	if err := v.prepare(ctx, inst); err != nil {
		v.discard(inst)
		return nil, err
	}
	return inst, nil
}

// prepare starts a new instance and resolves its functions.
func (v *version) prepare(ctx context.Context, inst *Instance) error {
	if err := inst.start(ctx); err != nil {
		return err
	}
	if v.dialect != nil {
		v.resolve(inst)
		return nil
	}
	mask, err := v.ask(ctx, inst)
	if err != nil {
		return err
	}
	v.resolve(inst)
	if !mask.Has(abi.Configure) {
		return nil
	}
	result, err := inst.Call(ctx, abi.Configure)
	if err != nil {
		return err
	}
	if code := abi.Code(int32(uint32(result))); code != abi.Success {
		return &StatusError{Plugin: v.plugin.cfg.Name, Function: abi.Configure.String(), Code: code, Reason: inst.reason, Functions: mask}
	}
	return nil
}

// resolve looks the functions of the guest up.
func (v *version) resolve(inst *Instance) {
	for _, f := range v.functions.Functions() {
		sig := f.Signature()
		inst.functions[f] = function{inst.module.ExportedFunction(sig.Name), sig.Name, len(sig.Params)}
	}
	exports := v.exportList()
	if inst.exports == nil {
		inst.exports = make([]api.Function, len(exports))
	}
	inst.handles = nil
	for n, e := range exports {
		if v.exports&(1<<n) != 0 {
			inst.exports[n] = inst.module.ExportedFunction(e.Name)
		}
	}
	if v.dialect != nil && v.dialect.Command {
		inst.command = inst.module.ExportedFunction(commandStart)
	}
}

// implements returns a text that names the guest's dialect and the functions that a
// component may have registered.
func (v *version) implements() string {
	if v.dialect == nil {
		return (v.functions &^ abi.MaskOf(abi.CloneCycle)).String()
	}
	names := []string{}
	for n, e := range v.dialect.Exports {
		if v.exports&(1<<n) != 0 {
			names = append(names, e.Name)
		}
	}
	return v.dialect.Name + ": " + strings.Join(names, ", ")
}

// ask calls the marker. The answer of the first instance holds for all.
func (v *version) ask(ctx context.Context, inst *Instance) (abi.Mask, error) {
	marker := inst.module.ExportedFunction(abi.Marker)
	result, err := inst.run(ctx, &marker, abi.Marker)
	if err != nil {
		return 0, err
	}
	mask := abi.Mask(result)
	if v.functions != 0 {
		if mask != v.functions {
			return 0, &ModuleError{Plugin: v.plugin.cfg.Name, Err: fmt.Errorf("an instance implements %s, an earlier one %s", mask, v.functions)}
		}
		return mask, nil
	}
	if unknown := mask.Unknown(); unknown != 0 {
		return 0, &ModuleError{Plugin: v.plugin.cfg.Name, Err: fmt.Errorf("the guest implements %s, which this version of the ABI does not know", unknown)}
	}
	if mask.Of(v.plugin.adapter.Kind) == 0 {
		return 0, &ModuleError{Plugin: v.plugin.cfg.Name, Err: fmt.Errorf("the guest implements no %s function, only: %s", v.plugin.adapter.Kind, mask)}
	}
	if errs := v.checkFunctions(mask); len(errs) != 0 {
		return 0, errors.Join(errs...)
	}
	v.functions = mask
	return mask, nil
}

// discard frees an instance that does not run.
func (v *version) discard(inst *Instance) {
	// Only open files can cause an error, and a guest has none.
	_ = inst.module.Close(context.Background())
}

// close turns new calls away, waits until ctx ends for the instances in use to be
// released, and frees everything.
func (v *version) close(ctx context.Context) error {
	v.pool.close()
	select {
	case <-v.pool.drained:
		return v.free(context.WithoutCancel(ctx))
	case <-ctx.Done():
		return ctx.Err()
	}
}

// free closes what load made. Closing the runtime does not free the code that
// the shared cache holds.
func (v *version) free(ctx context.Context) error {
	v.freeOnce.Do(func() {
		v.freeErr = v.wasm.Close(ctx)
		if v.compiled != nil {
			v.freeErr = errors.Join(v.freeErr, v.compiled.Close(ctx))
		}
		if v.snapshot != nil {
			v.snapshot.image.Close() // After the runtime's memories, which begin from it.
		}
	})
	return v.freeErr
}

// maxTableElements is how many elements the tables of a guest may have, 8 bytes
// each in the host: a Go guest of 3 MB has 5,000. A table that grows is copied,
// and nothing can interrupt the copy: one of a million elements, 8 MB, delayed
// other goroutines by 20 to 30 ms.
const maxTableElements = 1 << 17

// instantiateMeter provides the function that a rewritten guest calls when its
// slice of fuel is used up.
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
