package host

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/kubewasm/kubewasm/internal/wasmbin"
)

// compiled is a module as wazero has compiled it, with everything that does not depend on a plugin.
// The versions of a Runtime with the same module, under the same limits on it, share one compiled
// and differ only in their instances.
type compiled struct {
	key   compiledKey
	owner *Runtime
	// wasm is a wazero runtime for this module: modules do not trust each other, and a
	// memory limit belongs to a runtime.
	wasm   wazero.Runtime
	module wazero.CompiledModule
	// profiler is wasmbin.Profiler, nil if the guest is not profiled.
	profiler wazero.CompiledModule
	info     *wasmbin.Info
	// content is the initial content of memories, if wazero does not have it.
	content *content
	// imports are the imported functions. hosted are those that the host provides, the first of
	// each name, without the functions of the rewriter. hostedIndex are their indexes in the
	// module. They are not read from wazero, which would make and keep a definition of each
	// function.
	imports, hosted []wasmbin.Extern
	hostedIndex     []uint32
	// memories are the memories that it imports, and exportsMemory is set if it exports the guest's.
	memories      []wasmbin.Extern
	exportsMemory bool
	// remote is the module in another process, nil if it is in this one. wasm and module are nil then.
	remote *remote
	// weaker are the reasons for which the wall is lower than it could be.
	weaker []string
	// hosts are the host modules from which it imports.
	hosts []wazero.CompiledModule

	// ready is closed when the compilation has ended, with err. begun is set when it no
	// longer waits for those of other modules.
	ready  chan struct{}
	begun  atomic.Bool
	err    error
	cancel context.CancelFunc
	// ended is closed by cancel.
	ended <-chan struct{}
	// users is the number of versions that have it or wait for it, and instances the most that one of
	// them may have. Runtime.mu guards both.
	users, instances int

	// cache is wazero's cache, if the module has a separate one. files serves its requests for
	// machine code; nil if there is no cache of files.
	cache wazero.CompilationCache
	files *engineCache
	// code is the mapping of the machine code, nil if there is none. pieces is the number of pieces
	// of a split mapping, 0 if it is whole.
	code   []byte
	pieces int64

	// shipped is set if the module was taken from the compiled form of a source. notShipped is the
	// reason why a granted form could not be used; warned is set once a version has logged it.
	shipped    bool
	notShipped error
	warned     atomic.Bool

	linking sync.Once
	linkErr error

	// started is the state of an instance after its start, nil until there is one that does not
	// depend on the plugin. It is taken for the second version that starts: most modules have only
	// one, whose snapshot has all of it. starts counts the versions that started.
	started atomic.Pointer[started]
	starts  atomic.Int32
}

// compiledKey identifies a compiled module: versions with equal keys share it.
type compiledKey struct {
	digest       string
	memoryBytes  uint64
	stackBytes   int
	compile      time.Duration
	defineMemory bool
	profile      bool
	// domain is the trust domain whose processes have the module, empty for a module in this process.
	domain string
}

// compile returns the compiled module of a version. It compiles unless another version
// has the same one or compiles it already. The wait ends after Limits.BuildTimeout and
// with ctx; the compilation then goes on if another version waits for it. Each success
// is followed by a call of release. ship, unless it is nil, returns a compiled form that the
// module is taken from if nothing else has it.
func (rt *Runtime) compile(ctx context.Context, v *version, module []byte, ship func(context.Context) ([]byte, error)) (*compiled, error) {
	ctx, cancel := context.WithTimeout(ctx, v.limits.BuildTimeout)
	defer cancel()
	key := compiledKey{
		digest: v.digest, memoryBytes: v.limits.MemoryBytes, stackBytes: v.limits.StackBytes, compile: v.limits.Compile,
		defineMemory: v.dialect != nil && v.dialect.DefineMemory, profile: v.plugin.cfg.Profiler != nil,
	}
	if v.plugin.isolation() == IsolationProcess {
		key.domain = "domain " + v.plugin.domain()
	}
	c := rt.share(key, v.limits.Instances, module, ship)
	select {
	case <-c.ready:
		if c.err != nil {
			rt.release(c)
			return nil, c.err
		}
		return c, nil
	case <-ctx.Done():
		rt.release(c)
		if !c.begun.Load() {
			return nil, fmt.Errorf("compile: wait for other modules: %w within %s", ctx.Err(), v.limits.BuildTimeout)
		}
		return nil, fmt.Errorf("compile: %w within %s", ctx.Err(), v.limits.BuildTimeout)
	}
}

// share returns the compiled module with a key, which may still be compiling, and counts one more
// user of it, with so many instances.
func (rt *Runtime) share(key compiledKey, instances int, module []byte, ship func(context.Context) ([]byte, error)) *compiled {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if c := rt.compiled[key]; c != nil {
		c.users++
		c.instances = max(c.instances, instances)
		return c
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &compiled{key: key, owner: rt, ready: make(chan struct{}), cancel: cancel, ended: ctx.Done(), users: 1, instances: instances}
	rt.compiled[key] = c
	rt.building.Add(1) // The calling version is counted already, so the Runtime is not closed.
	go c.build(ctx, module, ship)
	return c
}

// release ends the use of a compiled module by a version. The last one frees it.
func (rt *Runtime) release(c *compiled) {
	rt.mu.Lock()
	c.users--
	last := c.users == 0
	if last {
		delete(rt.compiled, c.key)
	}
	rt.mu.Unlock()
	if !last {
		return
	}
	c.cancel()
	select {
	case <-c.ready:
		c.free()
	default:
		go func() {
			<-c.ready
			c.free()
		}()
	}
}

// build rewrites and compiles the module. With one worker wazero never checks its context,
// so the compilation may outlast the last version that waits for it. Limits.Compile bounds it.
func (c *compiled) build(ctx context.Context, module []byte, ship func(context.Context) ([]byte, error)) {
	defer c.owner.building.Done()
	defer close(c.ready)
	select {
	case c.owner.compiling <- struct{}{}:
	case <-ctx.Done():
		c.err = ctx.Err()
		return
	}
	defer func() { <-c.owner.compiling }()
	c.begun.Store(true)
	if c.err = c.owner.mappings.take(moduleMappings); c.err != nil {
		return
	}
	// wazero checks the module that it reads, but a panic in it must not end the
	// process.
	defer func() {
		if r := recover(); r != nil {
			c.err = fmt.Errorf("compiler panicked: %v", r)
		}
	}()
	if c.key.domain != "" {
		if c.err = c.buildRemote(ctx, module); c.err == nil {
			c.host()
		}
		return
	}
	pages := uint32(c.key.memoryBytes / pageSize)
	if c.key.profile {
		pages = wasmbin.MaxPages // The limit of the guest is in the module as well.
	}
	cache := c.owner.shared
	if c.owner.modules.on() {
		c.cache, c.files = newEngineCache()
		if cache = c.cache; c.files != nil {
			c.files.copies = c.owner.modules.copies
		}
	}
	c.wasm = wazero.NewRuntimeWithConfig(ctx, c.owner.engine.
		WithCoreFeatures(features).
		WithCompilationCache(cache).
		WithMemoryLimitPages(pages))
	if c.err = c.compile(ctx, module, ship); c.err != nil {
		return
	}
	if c.key.profile {
		if c.profiler, c.err = c.wasm.CompileModule(ctx, wasmbin.Profiler); c.err != nil {
			return
		}
	}
	c.host()
}

// host finds the functions that the host provides.
func (c *compiled) host() {
	known := map[[2]string]bool{}
	for index, fn := range c.imports {
		if key := [2]string{fn.Module, fn.Name}; !known[key] && !rewriters(fn.Module) {
			known[key] = true
			c.hosted, c.hostedIndex = append(c.hosted, fn), append(c.hostedIndex, uint32(index))
		}
	}
}

// rewriters reports whether only rewritten guests import from a module.
func rewriters(module string) bool {
	return module == wasmbin.YieldModule || module == wasmbin.ProfilerModule
}

// compile rewrites and compiles the module, or takes the result from the cache or from a compiled
// form.
func (c *compiled) compile(ctx context.Context, module []byte, ship func(context.Context) ([]byte, error)) error {
	opts := c.rewriting()
	key := moduleKeyOf(c.key.digest, opts, c.owner.goPass)
	if c.files != nil && c.fromCache(ctx, key) == nil {
		return nil
	}
	if ship != nil {
		c.takeShipped(ctx, key, ship)
		if c.shipped {
			return nil
		}
	}
	module, info, err := rewrite(module, opts, c.owner.goPass)
	if errors.Is(err, wasmbin.ErrTooSlow) {
		err = fmt.Errorf("%w; limits.compile can allow more, and is %s for a module whose sha256 is given", err, defaultCompile)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return err
	}
	compiled, err := c.wasm.CompileModule(ctx, module)
	if err != nil {
		return shorten(err)
	}
	if err := c.describe(module); err != nil {
		return err
	}
	c.module, c.info = compiled, info
	if c.files == nil {
		return nil
	}
	// If anything fails, the next load takes as long as this one.
	switch err := c.toCache(ctx, key, module); {
	case err == nil:
		_ = compiled.Close(context.Background()) // Only of its code in memory.
	case !errors.Is(err, errNoStub) && ctx.Err() == nil:
		c.owner.cacheFailed(fmt.Errorf("keep a compiled module: %w", err))
	}
	return nil
}

// toCache puts the compiled module into the cache, and takes it from there.
func (c *compiled) toCache(ctx context.Context, key moduleKey, module []byte) error {
	code, ok := parseSerialized(c.files.added)
	c.files.added = nil
	if !ok {
		return errNoStub // wazero compiles to something else.
	}
	stub, err := newStub(module, c.info)
	if err != nil {
		return err
	}
	err = c.load(ctx, stub.module, func(name engineKey) (*cachedModule, error) {
		code.key = name
		if err := c.owner.modules.write(key, stub, code); err != nil {
			return nil, err
		}
		return c.owner.modules.read(key)
	})
	if c.owner.modules.dir != "" {
		_ = c.owner.modules.trim() // The next runtime reports it.
	}
	return err
}

// fromCache takes the compiled module from the cache.
func (c *compiled) fromCache(ctx context.Context, key moduleKey) error {
	m, err := c.owner.modules.read(key)
	if err != nil {
		return err
	}
	if err := c.describe(m.module); err != nil {
		return errors.Join(err, m.file.Close())
	}
	err = c.load(ctx, m.module, func(name engineKey) (*cachedModule, error) {
		if name != m.code.key {
			return nil, fmt.Errorf("%w: the processor has different features", errNoStub)
		}
		return m, nil
	})
	if err != nil {
		_ = m.file.Close() // Unless load has closed it.
	}
	return err
}

// describe records the imports of a rewritten module, or of the stub of one.
func (c *compiled) describe(module []byte) error {
	imports, exports, _, err := wasmbin.Describe(module)
	if err != nil {
		return err
	}
	for _, im := range imports {
		if im.Kind == wasmbin.ExternMemory && !c.key.defineMemory {
			c.memories = append(c.memories, im)
		}
	}
	for _, e := range exports {
		c.exportsMemory = c.exportsMemory || e.Kind == wasmbin.ExternMemory && e.Name == memoryExport
	}
	c.imports = slices.DeleteFunc(imports, func(im wasmbin.Extern) bool { return im.Kind != wasmbin.ExternFunc })
	return nil
}

// load has wazero compile a stub with the machine code from a file of the cache.
func (c *compiled) load(ctx context.Context, stub []byte, file func(engineKey) (*cachedModule, error)) (err error) {
	var from *cachedModule
	// If a page of a file cannot be read, as on a damaged disk, the fault must not end the process,
	// and each later one at its start.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("load machine code: %v", r)
		}
		if err != nil {
			c.files.reader.abandon()
			if from != nil {
				_ = from.file.Close()
			}
		}
		c.files.stub, c.files.reader = nil, nil
	}()
	c.files.stub = func(key engineKey) (_ *cachedModule, err error) {
		from, err = file(key)
		return from, err
	}
	module, err := c.wasm.CompileModule(ctx, stub)
	if err != nil {
		return err
	}
	if from == nil {
		return errors.Join(errNoStub, module.Close(context.Background()))
	}
	c.module, c.info, c.content = module, from.about.Info, from.takeContent()
	if c.files.reader.mapped {
		c.code = c.files.reader.memory
		c.split()
	}
	return nil
}

// pieceBytes is the minimum size of a piece of machine code: 24 KB, rounded up to whole pages.
var pieceBytes = roundUp(24<<10, os.Getpagesize())

// roundUp returns the multiple of unit that is n or the next larger number.
func roundUp(n, unit int) int { return (n + unit - 1) / unit * unit }

// split splits the mapping of the machine code into as many pieces as the process has mappings left
// for.
func (c *compiled) split() {
	piece, n := c.owner.mappings.split(len(c.code))
	if n > 0 && !splitMapping(c.code, piece) {
		c.owner.mappings.join(n)
		n = 0
	}
	c.pieces = n
}

// rest gives back the machine code that is resident, until it runs again. The caller has the
// module, which keeps the mapping.
func (c *compiled) rest() {
	if c.code != nil {
		dropPages(c.code)
	}
}

// rewriting returns the options for rewriting the module, under the limits of the versions that
// share it.
func (c *compiled) rewriting() wasmbin.Options {
	return wasmbin.Options{
		Meter:            true,
		Fuel:             fuelSlice,
		LimitComplexity:  true,
		CompileTime:      c.key.compile,
		CheckElements:    true,
		StackBytes:       int32(c.key.stackBytes),
		MaxMemoryPages:   uint32(c.key.memoryBytes / pageSize),
		MaxTableElements: maxTableElements,
		RefuseUnsafe:     true,
		ExpandRemainders: runtime.GOARCH == "arm64",
		ExpandTailCalls:  runtime.GOARCH == "arm64",
		DefineMemory:     c.key.defineMemory,
		Profile:          c.key.profile,
	}
}

// free closes the results of build and link. The machine code stays in the cache of the Runtime.
func (c *compiled) free() {
	defer c.content.close() // Images may have it as their base.
	if s := c.started.Load(); s != nil {
		defer s.image.Close()
	}
	if c.remote != nil {
		c.remote.free()
	}
	if c.wasm == nil {
		return
	}
	if c.pieces != 0 {
		joinMapping(c.code) // It stays until wazero's finalizer unmaps it.
		c.owner.mappings.join(c.pieces)
	}
	// Only open files can cause an error, and a guest has none.
	_ = c.wasm.Close(context.Background())
	for _, m := range append(c.hosts, c.module, c.profiler) {
		if m != nil {
			_ = m.Close(context.Background())
		}
	}
	if c.cache != nil {
		_ = c.cache.Close(context.Background())
	}
}

// link makes the host modules from which the module imports, once. A version has checked
// its imports before.
func (c *compiled) link() error {
	c.linking.Do(func() {
		if c.remote != nil {
			return // It was linked when it was built.
		}
		c.linkErr = c.linkTo(func(n int) api.GoModuleFunc {
			if c.key.profile {
				return profiledFunction(n, c.hostedIndex[n])
			}
			return hostFunction(n)
		}, func(ctx context.Context, module api.Module, _ []uint64) { ctx.(*callContext).inst.yield(module) })
	})
	return c.linkErr
}

// linkTo makes the host modules. host returns the function for an import, and a rewritten guest calls
// yield when its slice of fuel is used up.
func (c *compiled) linkTo(host func(n int) api.GoModuleFunc, yield api.GoModuleFunc) error {
	ctx := context.Background()
	builders := map[string]wazero.HostModuleBuilder{}
	add := func(module, name string, run api.GoModuleFunc, params, results []api.ValueType) {
		if builders[module] == nil {
			builders[module] = c.wasm.NewHostModuleBuilder(module)
		}
		builders[module].NewFunctionBuilder().WithGoModuleFunction(run, params, results).WithName(name).Export(name)
	}
	for n, fn := range c.hosted {
		params, results := valueTypes(fn)
		add(fn.Module, fn.Name, host(n), params, results)
	}
	add(wasmbin.YieldModule, wasmbin.YieldName, yield, nil, nil)
	for module, b := range builders {
		compiled, err := b.Compile(ctx)
		if err == nil {
			c.hosts = append(c.hosts, compiled)
			_, err = c.wasm.InstantiateModule(ctx, compiled, moduleConfig.WithName(module))
		}
		if err != nil {
			return fmt.Errorf("instantiate host module %q: %w", module, err)
		}
	}
	return nil
}

// instantiate makes an instance of the module, whose memory inst has.
func (c *compiled) instantiate(inst *Instance) (api.Module, error) {
	if c.remote != nil {
		return c.instantiateRemote(inst.ctx.parent, inst)
	}
	return c.wasm.InstantiateModule(&inst.ctx, c.module, moduleConfig)
}

// moduleConfig is the configuration of all modules: without a name, whatever name the module
// declares. A source of random numbers that no guest reads keeps wazero from making one of 5 KB for
// each.
var moduleConfig = wazero.NewModuleConfig().WithName("").WithStartFunctions().WithRandSource(rand.Reader)
