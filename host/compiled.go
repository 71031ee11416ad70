package host

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/kubewasm/kubewasm/internal/wasmbin"
)

// compiled is a module as wazero has compiled it, with all that does not depend on a
// plugin. The versions of a Runtime that have the same module, under the same limits on
// it, share one: nothing but their instances is their own.
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
	// exports are the exported functions, which wazero collects anew for each call.
	exports map[string]api.FunctionDefinition
	// imports are the imported functions. Of those with one name, hosted has the first;
	// it has none of the rewriter's. hostedIndex are their indexes in the module.
	imports, hosted []api.FunctionDefinition
	hostedIndex     []uint32

	// ready is closed when the compilation has ended, with err. begun is set when it no
	// longer waits for those of other modules.
	ready  chan struct{}
	begun  atomic.Bool
	err    error
	cancel context.CancelFunc
	// users is the number of versions that have it or wait for it. Runtime.mu guards it.
	users int

	linking sync.Once
	linkErr error

	// started is the state of an instance after its start, nil before there is one that
	// does not depend on the plugin.
	started atomic.Pointer[started]
}

// compiledKey is what versions have in common that share a compiled module.
type compiledKey struct {
	digest       string
	memoryBytes  uint64
	stackBytes   int
	compile      time.Duration
	defineMemory bool
	profile      bool
}

// compile returns the compiled module of a version. It compiles unless another version
// has the same one or compiles it already. The wait ends after Limits.BuildTimeout and
// with ctx; the compilation then goes on if another version waits for it. Each success
// is followed by a call of release.
func (rt *Runtime) compile(ctx context.Context, v *version, module []byte) (*compiled, error) {
	ctx, cancel := context.WithTimeout(ctx, v.limits.BuildTimeout)
	defer cancel()
	c := rt.share(compiledKey{
		v.digest, v.limits.MemoryBytes, v.limits.StackBytes, v.limits.Compile, v.dialect != nil && v.dialect.DefineMemory,
		v.plugin.cfg.Profiler != nil,
	}, module)
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
			return nil, fmt.Errorf("compile: wait for other modules: %w after %s at most", ctx.Err(), v.limits.BuildTimeout)
		}
		return nil, fmt.Errorf("compile: %w after %s at most", ctx.Err(), v.limits.BuildTimeout)
	}
}

// share returns the compiled module with a key, which may not be ready yet, and counts
// one more user of it.
func (rt *Runtime) share(key compiledKey, module []byte) *compiled {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if c := rt.compiled[key]; c != nil {
		c.users++
		return c
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &compiled{key: key, owner: rt, ready: make(chan struct{}), cancel: cancel, users: 1}
	rt.compiled[key] = c
	rt.building.Add(1) // The version that asks is counted already, so the Runtime is not closed.
	go c.build(ctx, module)
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

// build rewrites and compiles the module. wazero looks at its context between two
// functions, so the compilation may outlast the last version that waits for it by the
// function that is being compiled.
func (c *compiled) build(ctx context.Context, module []byte) {
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
	// wazero checks the module that it reads, but a panic in it must not end the
	// process.
	defer func() {
		if r := recover(); r != nil {
			c.err = fmt.Errorf("compiler panicked: %v", r)
		}
	}()
	module, info, err := c.rewrite(module)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		c.err = err
		return
	}
	c.info = info
	pages := uint32(c.key.memoryBytes / pageSize)
	if c.key.profile {
		pages = wasmbin.MaxPages // The limit of the guest is in the module as well.
	}
	c.wasm = wazero.NewRuntimeWithConfig(ctx, c.owner.engine.
		WithCompilationCache(c.owner.cache).
		WithMemoryLimitPages(pages))
	if c.key.profile {
		if c.profiler, c.err = c.wasm.CompileModule(ctx, wasmbin.Profiler); c.err != nil {
			return
		}
	}
	if c.module, err = c.compile(ctx, module); err != nil {
		c.err = shorten(err)
		return
	}
	c.exports, c.imports = c.module.ExportedFunctions(), c.module.ImportedFunctions()
	known := map[[2]string]bool{}
	for index, fn := range c.imports {
		module, name, _ := fn.Import()
		if key := [2]string{module, name}; !known[key] && !rewriters(module) {
			known[key] = true
			c.hosted, c.hostedIndex = append(c.hosted, fn), append(c.hostedIndex, uint32(index))
		}
	}
}

// rewriters reports whether a module is one from which only a rewritten guest imports.
func rewriters(module string) bool {
	return module == wasmbin.YieldModule || module == wasmbin.ProfilerModule
}

// compile compiles a rewritten module, or takes its machine code from the cache.
func (c *compiled) compile(ctx context.Context, module []byte) (wazero.CompiledModule, error) {
	code := c.owner.code
	if code.dir == "" {
		return c.wasm.CompileModule(ctx, module)
	}
	files := code.files(module)
	code.check(files)
	compiled, err := c.wasm.CompileModule(ctx, module)
	if err != nil && ctx.Err() == nil {
		// wazero fails if it cannot write to the cache, as on a full disk, and then has the
		// code in memory. It stays there until the runtime is closed.
		compiled, err = c.wasm.CompileModule(ctx, module)
	}
	if err == nil {
		code.keep(files)
	}
	return compiled, err
}

// rewrite makes a module ready for wazero under the limits of the versions that share it.
func (c *compiled) rewrite(module []byte) ([]byte, *wasmbin.Info, error) {
	out, info, err := c.owner.rewritten.rewrite(module, c.key.digest, wasmbin.Options{
		Meter:            true,
		Fuel:             fuelSlice,
		LimitComplexity:  true,
		CompileTime:      c.key.compile,
		CheckElements:    true,
		StackBytes:       int32(c.key.stackBytes),
		MaxMemoryPages:   uint32(c.key.memoryBytes / pageSize),
		MaxTableElements: maxTableElements,
		ExpandRemainders: runtime.GOARCH == "arm64",
		DefineMemory:     c.key.defineMemory,
		Profile:          c.key.profile,
	})
	if errors.Is(err, wasmbin.ErrTooSlow) {
		err = fmt.Errorf("%w; limits.compile can allow more, and is %s for a module whose sha256 is given", err, defaultCompile)
	}
	return out, info, err
}

// free closes what build and link have made. The machine code stays in the cache of the
// Runtime.
func (c *compiled) free() {
	if c.wasm == nil {
		return
	}
	// Only open files can cause an error, and a guest has none.
	_ = c.wasm.Close(context.Background())
	for _, m := range []wazero.CompiledModule{c.module, c.profiler} {
		if m != nil {
			_ = m.Close(context.Background())
		}
	}
	if s := c.started.Load(); s != nil {
		s.image.Close()
	}
}

// link makes the host modules from which the module imports, once. A version has checked
// its imports before.
func (c *compiled) link() error {
	c.linking.Do(func() {
		ctx := context.Background()
		builders := map[string]wazero.HostModuleBuilder{}
		for n, fn := range c.hosted {
			module, name, _ := fn.Import()
			if builders[module] == nil {
				builders[module] = c.wasm.NewHostModuleBuilder(module)
			}
			run := hostFunction(n)
			if c.key.profile {
				run = profiledFunction(n, c.hostedIndex[n])
			}
			builders[module].NewFunctionBuilder().
				WithGoModuleFunction(run, fn.ParamTypes(), fn.ResultTypes()).
				WithName(name).
				Export(name)
		}
		for module, b := range builders {
			if _, err := b.Instantiate(ctx); err != nil {
				c.linkErr = fmt.Errorf("instantiate host module %q: %w", module, err)
				return
			}
		}
		c.linkErr = instantiateMeter(ctx, c.wasm)
	})
	return c.linkErr
}
