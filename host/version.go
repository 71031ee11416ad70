package host

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/sys"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/codes"
	"github.com/kubewasm/kubewasm/internal/cut"
	"github.com/kubewasm/kubewasm/internal/recording"
	"github.com/kubewasm/kubewasm/internal/wasmbin"
)

// version is one module of a plugin, with its instances.
type version struct {
	plugin *Plugin
	limits Limits
	// digest is the SHA-256 of the module, in hexadecimal.
	digest string
	// compiled is the module, which other versions may share; imports are the functions that it
	// imports, in the order of compiled.hosted.
	compiled  *compiled
	imports   []*Import
	about     *Module
	functions abi.Mask
	// dialect is that of the guest, nil for our own ABI; exports are the functions of
	// exportList that it has, bit n for the one with index n.
	dialect *Dialect
	exports uint64
	handles handles
	// snapshot is the initial state of new instances and of those that trapped; nil if the guest
	// has state outside of a snapshot. base is that of the module before its configuration; nil if
	// it is not shared.
	snapshot, base *snapshot
	// resetGrown is set if instances are reset whose memory has grown, see [Adapter.ResetGrown].
	resetGrown bool
	pool       *pool
	// shared is the state that its instances share, nil if the guest uses none, and before the version
	// serves.
	shared *sharedState
	// tapes makes the tapes of recorded instances, nil if none is.
	tapes *recording.VersionTape

	// unavailable is the reason why this is not a version but represents that there is none.
	unavailable error

	// pins is the number of pins on the version, replaced is set once another
	// version serves new calls. Plugin.mu guards both.
	pins     int
	replaced bool

	freeOnce sync.Once
}

// fetch returns a module and its digest, which is want unless that is empty. The digest is checked
// before the bytes are parsed.
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
func (p *Plugin) newVersion(ctx context.Context, module []byte, digest string, ship func(context.Context) ([]byte, error)) (*version, error) {
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
		v.limits = v.limits.Or(v.dialect.Defaults)
	}
	v.limits = v.limits.Or(p.adapter.Defaults).withDefaults()
	if p.cfg.Module.SHA256 != "" {
		v.limits.Compile = cmp.Or(v.limits.Compile, defaultCompile)
	}
	v.pool = newPool(v.limits.Instances, p.runtime.memory.Guard, v.discard)
	defer p.runtime.building.Done()
	if err := v.load(ctx, module, ship); err != nil {
		v.free()
		return nil, err
	}
	return v, nil
}

// load does the work of newVersion.
func (v *version) load(ctx context.Context, module []byte, ship func(context.Context) ([]byte, error)) (err error) {
	if t := v.plugin.with.Throttle; t != nil {
		start := time.Now()
		defer func() { t.Worked(time.Since(start)) }()
	}
	var inst *Instance
	// As in compiled.build, a panic of wazero ends here.
	defer func() {
		if r := recover(); r != nil {
			if inst != nil {
				v.discard(inst)
			}
			err = &ModuleError{Plugin: v.plugin.cfg.Name, Err: fmt.Errorf("runtime panicked: %v", r)}
		}
	}()
	if v.compiled, err = v.plugin.runtime.compile(ctx, v, module, ship); err != nil {
		return &ModuleError{Plugin: v.plugin.cfg.Name, Err: err}
	}
	if err, l := v.compiled.notShipped, v.plugin.cfg.Logger; err != nil && l != nil && v.compiled.warned.CompareAndSwap(false, true) {
		l.Warn("the compiled form of the module was not used", "plugin", v.plugin.cfg.Name, "err", err)
	}
	if profiler := v.plugin.cfg.Profiler; profiler != nil {
		profiler.begin(v, module)
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
	if err := v.compiled.link(); err != nil {
		return err
	}
	if compiled := v.plugin.with.Compiled; compiled != nil {
		if err := compiled(); err != nil {
			return err
		}
	}
	v.imports = imports.of(v.compiled)
	if v.plugin.tapes != nil {
		v.tapes = v.plugin.tapes.Version(v.describe())
	}
	if inst, err = v.first(ctx); err != nil {
		return err
	}
	v.compiled.rest() // wazero has read it all, and most code of a start is needed by no call.
	for name, e := range v.about.exports {
		var ok bool
		if e.Kind != wasmbin.ExternFunc {
			continue
		}
		if v.handles, ok = handlesOf(inst.module.ExportedFunction(name)); ok {
			break
		}
	}
	if probe := v.plugin.adapter.Probe; probe != nil && !v.plugin.with.Unconfigured {
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
	if v.snapshot != nil && v.compiled.remote != nil {
		v.compiled.remote.join()
	}
	return nil
}

// checkModule returns the errors of the exports that every guest needs.
func (v *version) checkModule() []error {
	errs := v.checkExportList()
	switch {
	case v.dialect == nil:
		errs = v.checkExport(errs, abi.Signature{Name: abi.Marker, Results: []abi.ValueType{abi.I64}})
	case v.dialect.Command:
		errs = v.checkExport(errs, abi.Signature{Name: commandStart})
	}
	if !v.compiled.exportsMemory {
		errs = append(errs, &ExportError{Plugin: v.plugin.cfg.Name, Export: memoryExport, Want: "a memory"})
	}
	for _, name := range v.startFunctions() {
		errs = v.checkExport(errs, abi.Signature{Name: name})
	}
	return errs
}

// checkFunctions does the same for the functions that the guest declares to
// implement.
func (v *version) checkFunctions(mask abi.Mask) []error {
	var errs []error
	for _, f := range mask.Functions() {
		errs = v.checkExport(errs, f.Signature())
	}
	return errs
}

// checkExport appends the errors of an exported function to errs.
func (v *version) checkExport(errs []error, sig abi.Signature) []error {
	want, got := sig.Type(), v.about.Export(sig.Name)
	for taken := len(sig.Params) - sig.Optional; taken <= len(sig.Params); taken++ {
		if got == (abi.Signature{Params: sig.Params[:taken], Results: sig.Results}).Type() {
			return errs
		}
	}
	return append(errs, &ExportError{Plugin: v.plugin.cfg.Name, Export: sig.Name, Got: got, Want: want})
}

// instantiate makes an instance that is ready to be called: started, with its
// functions resolved, and configured.
func (v *version) instantiate(ctx context.Context) (*Instance, error) {
	inst, err := v.newInstance(ctx)
	if err != nil || v.snapshot != nil {
		return inst, err
	}
	if v.tapes != nil {
		inst.tape, inst.skip = v.tapes.Tape()
	}
	if err = v.start(ctx, inst); err == nil {
		err = v.configure(ctx, inst)
	}
	if err != nil {
		v.discard(inst)
		return nil, err
	}
	return inst, nil
}

// newInstance makes an instance, in the state of the snapshot if there is one.
func (v *version) newInstance(ctx context.Context) (*Instance, error) {
	inst := &Instance{plugin: v.plugin, version: v, output: output{limit: v.limits.OutputBytes}}
	inst.ctx = callContext{parent: ctx, inst: inst}
	if inst.meter.slice = fuelSlice; v.plugin.with.Throttle != nil {
		inst.meter.slice = backgroundSlice
	}
	if v.plugin.adapter.NewState != nil {
		inst.state = v.plugin.adapter.NewState()
	}
	if v.stateful() {
		inst.shared = &sharing{}
	}
	var err error
	if err = v.newMemory(inst); err != nil {
		return nil, err
	}
	defer func() {
		// wazero frees the memory of modules that it has instantiated.
		if inst.module == nil {
			inst.linear.Free()
		}
	}()
	// The start functions are called below, under the same rules as any other
	// function. A start section runs within InstantiateModule.
	inst.calling, inst.ctx.values = "start", allocatorContext(inst.linear)
	if owner := v.plugin.cfg.Profiler; owner != nil {
		if inst.tree, err = v.compiled.newCallTree(owner); err != nil {
			return nil, fmt.Errorf("plugin %q: %w", v.plugin.cfg.Name, err)
		}
		defer func() {
			if inst.tree.drop(); inst.module == nil {
				inst.tree.close()
			}
		}()
		inst.meter.tree = inst.tree
		inst.ctx.values = inst.tree.context(inst.ctx.values)
	}
	module, err := v.compiled.instantiate(inst)
	if err != nil {
		// A start section that traps has a stack, one that exits an exit code; a module that cannot
		// be linked has neither.
		trap := newTrapError(v.plugin.cfg.Name, "start", cut.Text(inst.output.bytes, inst.output.limit), err)
		if trap.Stack != "" || errors.As(err, new(*sys.ExitError)) {
			return nil, trap
		}
		return nil, &ModuleError{Plugin: v.plugin.cfg.Name, Err: shorten(err)}
	}
	inst.ctx.values = context.Background()
	inst.module, inst.memory = module, module.ExportedMemory(memoryExport)
	inst.meter.bind(module)
	if v.plugin.adapter.ResetGrown {
		v.plugin.runtime.growing.instances.Add(1)
	}
	if v.snapshot == nil {
		if err := v.compiled.content.write(inst.memory); err != nil {
			v.discard(inst)
			return nil, &ModuleError{Plugin: v.plugin.cfg.Name, Err: err}
		}
	}
	if v.snapshot != nil {
		inst.bindGlobals()
		if v.compiled.info.Starts {
			if err := inst.adopt(v.snapshot); err != nil {
				v.discard(inst)
				return nil, fmt.Errorf("plugin %q: instantiate: map snapshot: %w", v.plugin.cfg.Name, inst.noMemory(err))
			}
		}
		if !v.restore(inst) {
			v.discard(inst)
			return nil, fmt.Errorf("plugin %q: instantiate: %w", v.plugin.cfg.Name, inst.noMemory(errors.New("the snapshot is too large")))
		}
		v.resolve(inst)
		return inst, nil
	}
	return inst, nil
}

var markerResults = []abi.ValueType{abi.I64}

// start starts a new instance and resolves its functions.
func (v *version) start(ctx context.Context, inst *Instance) error {
	if err := inst.start(ctx); err != nil {
		return err
	}
	if v.dialect == nil {
		marker := inst.module.ExportedFunction(abi.Marker)
		result, err := inst.run(ctx, &marker, abi.Marker, recording.ByStart, 0, markerResults)
		if err == nil {
			err = v.accept(abi.Mask(result))
		}
		if err != nil {
			return err
		}
	}
	v.resolve(inst)
	return nil
}

// configurable reports whether instances are configured after their start.
func (v *version) configurable() bool {
	return v.dialect == nil && v.functions.Has(abi.Configure) && !v.plugin.with.Unconfigured
}

// configure has a started instance read its configuration.
func (v *version) configure(ctx context.Context, inst *Instance) error {
	if !v.configurable() {
		return nil
	}
	result, err := inst.Call(ctx, abi.Configure)
	if err != nil {
		return err
	}
	if code := codes.Code(int32(uint32(result))); code != codes.OK {
		return &StatusError{Plugin: v.plugin.cfg.Name, Function: abi.Configure.String(), Code: code, Reason: inst.reason, Functions: v.functions}
	}
	return nil
}

// resolve looks the functions of the guest up.
func (v *version) resolve(inst *Instance) {
	for _, f := range v.functions.Functions() {
		sig := f.Signature()
		inst.functions[f] = function{inst.module.ExportedFunction(sig.Name), sig.Name, v.about.params(sig.Name), sig.Results}
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

// accept checks the functions that the marker of an instance returns, none for a guest of a
// dialect. The functions of the first instance apply to all.
func (v *version) accept(mask abi.Mask) error {
	if v.dialect != nil {
		return nil
	}
	if v.functions != 0 {
		if mask != v.functions {
			return &ModuleError{Plugin: v.plugin.cfg.Name, Err: fmt.Errorf("an instance implements %s, an earlier one %s", mask, v.functions)}
		}
		return nil
	}
	if unknown := mask.Unknown(); unknown != 0 {
		return &ModuleError{Plugin: v.plugin.cfg.Name, Err: fmt.Errorf("the guest implements %s, unknown to this version of the ABI", unknown)}
	}
	if mask.Of(v.plugin.adapter.Kind) == 0 {
		return &ModuleError{Plugin: v.plugin.cfg.Name, Err: fmt.Errorf("the guest implements no %s function, only: %s", v.plugin.adapter.Kind, mask)}
	}
	if errs := v.checkFunctions(mask); len(errs) != 0 {
		return errors.Join(errs...)
	}
	v.functions = mask
	return nil
}

// discard frees an instance that does not run.
func (v *version) discard(inst *Instance) {
	inst.endSequence()
	if v.plugin.adapter.ResetGrown {
		v.plugin.runtime.growing.instances.Add(-1)
	}
	// Only open files can cause an error, and a guest has none.
	_ = inst.module.Close(context.Background())
	if inst.tree != nil {
		inst.tree.close()
	}
}

// close turns new calls away, waits until ctx ends for the instances in use to be
// released, and frees everything.
func (v *version) close(ctx context.Context) error {
	v.pool.close()
	select {
	case <-v.pool.drained:
		v.free()
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// free frees the resources of the version. Its instances are gone.
func (v *version) free() {
	v.freeOnce.Do(func() {
		if v.snapshot != nil && v.snapshot != v.base {
			v.snapshot.image.Close() // After the memories of the instances, which begin from it.
		}
		if v.compiled != nil {
			v.plugin.runtime.release(v.compiled)
		}
	})
}

// maxTableElements is the maximum number of elements in the tables of a guest, 8 bytes each in the
// host: a Go guest of 3 MB has 5,000. A table that grows is copied, and nothing can interrupt the
// copy: one of a million elements, 8 MB, delayed other goroutines by 20 to 30 ms.
const maxTableElements = 1 << 17
