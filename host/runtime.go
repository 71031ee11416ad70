package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/kubewasm/kubewasm/internal/snapmem"
)

// Runtime holds the shared state of the plugins of a process. It is safe for use by
// several goroutines.
type Runtime struct {
	// shared has the machine code of modules that are not in the cache of files.
	shared  wazero.CompilationCache
	modules moduleCache
	last    lastModules
	// keepModules is that of RuntimeConfig.
	keepModules bool
	// cacheFailed is called with the reason why a module is not kept in the cache.
	cacheFailed func(error)
	engine      wazero.RuntimeConfig
	// engineName is the engine in use, noCompiler the reason for an interpreter that the
	// configuration did not choose.
	engineName Engine
	noCompiler error
	// goPass is not set if RuntimeConfig.DisableGoPass is.
	goPass bool
	// minimum is RuntimeConfig.MinimumIsolation.
	minimum Isolation
	// noWall is the reason why there is no isolation by process, if Isolation has found one.
	trying sync.Once
	noWall atomic.Pointer[error]
	// sources open the modules of configurations.
	sources *registry
	memory  snapmem.Allocator
	// mappings are those of the process.
	mappings *mappings
	// growing counts the instances of adapters with ResetGrown.
	growing growing
	// compiling has an entry for each module that is being compiled.
	compiling chan struct{}

	// building counts the versions and compilations under way, including compilations for which no
	// version waits any more.
	building sync.WaitGroup

	mu      sync.Mutex
	plugins map[*Plugin]struct{}
	// recorders are those of open plugins.
	recorders map[recorderKey]*recorder
	compiled  map[compiledKey]*compiled
	domains   map[string]*domain
	closed    bool
	// borrowed is set if the cache is that of another Runtime, which closes it.
	borrowed bool
	// sweeper runs sweep while there are plugins.
	sweeper   *time.Timer
	idleAfter time.Duration
}

// RuntimeConfig configures a Runtime. The zero value works.
type RuntimeConfig struct {
	// CacheDir is a directory for rewritten and compiled modules, which makes loading one again
	// some hundred times faster. Several processes may share it. It is created with mode 0700. A
	// directory that others can write to, or that belongs to another user, is refused, since its
	// files are machine code. A disk that is full or a file that was changed costs a compilation.
	// Empty means no cache beyond the process.
	CacheDir string
	// CacheBytes is the maximum total size of the files in CacheDir: the least recently used ones
	// are removed when a module was compiled. A Go guest takes about 10 MB. 0 means 1 GiB.
	CacheBytes int64
	// CacheCopy maps copies of the machine code in the files of CacheDir, which have no names. If a
	// file with a name is overwritten in place, as by a restore, the process executes the new
	// bytes: it crashes, and a process with privileges may do worse. The copy of a Go guest takes
	// about 8 MB of the disk as long as it is loaded, and a load takes as long as the disk takes
	// to write it. Where the kernel or the disk has no place for it, the copy is in memory.
	CacheCopy bool
	// CacheError, unless it is nil, is called with the reason why CacheDir cannot be used, and the
	// Runtime has no cache then: a program starts, and compiles its modules each time. If it is
	// nil, [NewRuntime] fails. It is called once more, from a load, when a module cannot be kept in
	// the cache for the first time.
	CacheError func(error)
	// KeepModules lets a plugin begin with the module that it loaded last, in this process or an
	// earlier one, if its source is away or holds a module that is refused: it is [Stale] until the
	// source has one that can be loaded. Modules from files, URLs and objects are kept in CacheDir,
	// in up to a quarter of CacheBytes in addition; a registry with a cache keeps its own. It is for servers,
	// and not for tools, whose users want to see the error.
	KeepModules bool
	// MemoryBytes is the maximum linear memory of the instances of all plugins and their snapshots
	// together. A guest that grows beyond it gets -1 from memory.grow. An instance that does not
	// fit is an [ErrMemory], unless the plugin has others to wait for. An instance counts by the
	// length that its guest sees, although instances share most of it. A snapshot counts by the
	// part that it does not share with those of other plugins and that is not zero. This memory is
	// not in Go's heap, and GOMEMLIMIT does not include it.
	//
	// 0 means half of the memory of the machine or of the process's cgroup, so that no plugin can
	// have the process killed for its memory. If that is unknown, there is no limit. math.MaxUint64
	// means no limit.
	MemoryBytes uint64
	// IdleAfter is the minimum time that an instance is idle before it is closed and its memory
	// freed; the maximum is twice that. The next call makes an instance from the snapshot, which
	// takes half a millisecond for a Go guest. Held instances, those of plugins with [ResetNever],
	// and those with state outside of a snapshot stay. 0 means 5 minutes; less than 0 means that
	// all stay.
	IdleAfter time.Duration
	// Sources open the modules that configurations name, of plugins and of their shadows.
	// [Runtime.AddSources] adds to them.
	Sources Sources
	// Engine runs the guests. Default the compiler where it can run, see [Engine].
	Engine Engine
	// MinimumIsolation is the level of plugins whose configuration has none. A plugin with a lower
	// one is refused.
	MinimumIsolation Isolation
	// DisableGoPass leaves the code of Go's compiler in guests unchanged. The pass removes three
	// detours from it, which makes guests of Go up to a third faster and changes nothing that they
	// can see. Without it their calls use other fuel, mostly about a tenth more. The option is for
	// a fault in the pass.
	DisableGoPass bool
}

// maxCompilations is the maximum number of concurrent compilations, if there are as many
// processors. Each may take hundreds of megabytes, and uses one processor. More at once would take
// more memory and no less time.
const maxCompilations = 4

// defaultIdleAfter is the default of RuntimeConfig.IdleAfter.
const defaultIdleAfter = 5 * time.Minute

// NewRuntime makes a Runtime. Close it when no plugin is needed any more.
func NewRuntime(cfg RuntimeConfig) (*Runtime, error) {
	guard, isolated, err := debugs()
	if err != nil {
		return nil, err
	}
	if isolated {
		cfg.MinimumIsolation = IsolationProcess
	}
	if err := cfg.MinimumIsolation.check("MinimumIsolation"); err != nil {
		return nil, fmt.Errorf("make runtime: %w", err)
	}
	rt := &Runtime{
		plugins:   map[*Plugin]struct{}{},
		recorders: map[recorderKey]*recorder{},
		compiled:  map[compiledKey]*compiled{},
		compiling: make(chan struct{}, min(maxCompilations, runtime.GOMAXPROCS(0))),
		memory:    snapmem.Allocator{Budget: snapmem.NewBudget(cmp.Or(cfg.MemoryBytes, snapmem.Available(os.DirFS("/"))/2)), Guard: guard},
		goPass:    !cfg.DisableGoPass, minimum: cfg.MinimumIsolation, keepModules: cfg.KeepModules,
		sources:  &registry{known: cfg.Sources},
		mappings: processMappings(),
	}
	if rt.idleAfter = cmp.Or(cfg.IdleAfter, defaultIdleAfter); rt.idleAfter < 0 {
		rt.idleAfter = math.MaxInt64
	}
	if rt.engine, rt.engineName, rt.noCompiler, err = chooseEngine(cfg.Engine); err != nil {
		return nil, err
	}
	if cfg.CacheBytes < 0 {
		return nil, fmt.Errorf("make runtime: CacheBytes is %d, less than 0", cfg.CacheBytes)
	}
	var failing sync.Once
	rt.cacheFailed = func(err error) {
		if cfg.CacheError != nil {
			failing.Do(func() { cfg.CacheError(err) })
		}
	}
	if cfg.CacheDir != "" {
		bytes := cmp.Or(cfg.CacheBytes, defaultCacheBytes)
		rt.modules, err = newModuleCache(cfg.CacheDir, bytes)
		if err == nil && cfg.KeepModules {
			rt.last, err = newLastModules(cfg.CacheDir, bytes)
		}
		switch {
		case err == nil:
			rt.modules.copies = cfg.CacheCopy
		case cfg.CacheError != nil:
			rt.modules, rt.last = moduleCache{}, lastModules{}
			cfg.CacheError(err)
		default:
			return nil, err
		}
	}
	rt.shared = wazero.NewCompilationCache()
	return rt, nil
}

// Beside makes a Runtime for plugins that must not compete with those of rt: it has separate
// memory, and compiles one module at a time. It shares the compiled modules with rt, and must be
// closed before rt.
func (rt *Runtime) Beside(memoryBytes uint64) *Runtime {
	return &Runtime{
		plugins: map[*Plugin]struct{}{}, recorders: map[recorderKey]*recorder{}, compiled: map[compiledKey]*compiled{},
		compiling: make(chan struct{}, 1), memory: snapmem.Allocator{Budget: snapmem.NewBudget(memoryBytes), Guard: rt.memory.Guard},
		engine: rt.engine, engineName: rt.engineName, noCompiler: rt.noCompiler, goPass: rt.goPass, minimum: rt.minimum, sources: rt.sources, mappings: rt.mappings, modules: rt.modules, last: rt.last, shared: rt.shared, idleAfter: rt.idleAfter, borrowed: true,
	}
}

// Close closes the plugins that are still open, waiting for their calls and for compilations until
// ctx ends, and then the compilation cache. Load fails afterwards. When ctx ends first, Close may
// be called again to go on waiting.
func (rt *Runtime) Close(ctx context.Context) error {
	rt.mu.Lock()
	rt.closed = true
	open := make([]*Plugin, 0, len(rt.plugins))
	for p := range rt.plugins {
		open = append(open, p)
	}
	rt.mu.Unlock()

	var errs []error
	for _, p := range open {
		errs = append(errs, p.Close(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		return err // The cache holds code that still runs.
	}
	built := make(chan struct{})
	go func() {
		rt.building.Wait()
		close(built)
	}()
	select {
	case <-built:
		if rt.borrowed {
			return nil
		}
		return rt.shared.Close(ctx)
	case <-ctx.Done():
		return fmt.Errorf("close runtime: wait for builds: %w", ctx.Err())
	}
}

// begin counts a version that is being built. The caller calls rt.building.Done
// in the end.
func (rt *Runtime) begin(plugin string) error {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.closed {
		return fmt.Errorf("plugin %q: load module: runtime is closed", plugin)
	}
	rt.building.Add(1)
	return nil
}

// add registers a plugin, so that Close finds it.
func (rt *Runtime) add(p *Plugin) error {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.closed {
		return fmt.Errorf("plugin %q: load module: runtime is closed", p.cfg.Name)
	}
	rt.plugins[p] = struct{}{}
	if rt.sweeper == nil {
		rt.sweeper = time.AfterFunc(rt.idleAfter, rt.sweep)
	}
	return nil
}

// sweep closes the instances of all plugins that serve no calls.
func (rt *Runtime) sweep() {
	rt.mu.Lock()
	plugins := slices.Collect(maps.Keys(rt.plugins))
	rt.mu.Unlock()
	for _, p := range plugins {
		if v := p.current.Load(); v.snapshot != nil {
			v.pool.sweep(func(inst *Instance) bool {
				// Parts of the machine code that only the start needed stay out of memory.
				v.compiled.rest()
				was := inst.swept
				inst.swept = true
				return was
			})
		}
	}
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.sweeper != nil {
		rt.sweeper.Reset(rt.idleAfter)
	}
}

func (rt *Runtime) remove(p *Plugin) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	delete(rt.plugins, p)
	if len(rt.plugins) == 0 && rt.sweeper != nil {
		rt.sweeper.Stop()
		rt.sweeper = nil
	}
}
