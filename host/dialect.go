package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/recording"
)

// Dialect describes an ABI other than that of package abi, for guests that are
// older than it. Such a guest has no marker: it is recognised by its imports
// and exports. A module that exports [abi.Marker] is never of a dialect.
type Dialect struct {
	// Name names the dialect in messages, and for [Plugin.Dialect].
	Name string
	// Detect reports whether a module is of the dialect. If several dialects
	// match, the first is used.
	Detect func(m *Module) bool
	// Inspect examines the bytes of a module of the dialect before it is compiled.
	// [Module.Inspected] returns its result; an error refuses the module. The
	// bytes must not be kept. nil skips the step.
	Inspect func(module []byte) (any, error)
	// Exports are the functions that the caller calls by their index here, 64 at
	// most. All but the optional ones must be there.
	Exports []Export
	// Imports are the functions that guests may import, beside WASI. They
	// replace those of the Adapter and the common ones.
	Imports []Import
	// Start names the functions () -> () that start an instance, in this order.
	// Those that the guest does not export are skipped. nil means _initialize
	// or, if there is none, _start.
	Start []string
	// Command is set if guests are programs: each call of [DialectInstance.Run]
	// runs one from beginning to end.
	Command bool
	// DefineMemory is set if guests import their memory. The rewriter gives each a defined memory
	// instead, exported as "memory".
	DefineMemory bool
	// Defaults are the limits of the dialect where Config.Limits is zero.
	Defaults Limits
}

// Export is a function that guests export for an [Adapter] or a [Dialect]. It has at most
// 8 parameters and one result.
type Export struct {
	Name            string
	Params, Results []abi.ValueType
	// Optional is set if a guest need not export the function. For guests of a dialect, a swap
	// cannot change the set of exported optional functions.
	Optional bool
}

// maxParams is the maximum number of parameters of a guest's function.
const maxParams = 8

// check returns an error if the dialect is not valid.
func (d *Dialect) check() error {
	var errs []error
	if d.Name == "" || d.Detect == nil {
		errs = append(errs, errors.New("has no name or no Detect"))
	}
	errs = append(errs, checkExports(d.Exports)...)
	if d.Command && (len(d.Exports) > 0 || len(d.Start) > 0) {
		errs = append(errs, errors.New("is a dialect of commands, but has exports or start functions"))
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("dialect %q: %w", d.Name, errors.Join(errs...))
}

// checkExports returns an error for each mistake in a list of exports.
func checkExports(exports []Export) (errs []error) {
	if len(exports) > 64 {
		errs = append(errs, fmt.Errorf("has %d exports, more than 64", len(exports)))
	}
	for _, e := range exports {
		if len(e.Params) > maxParams || len(e.Results) > 1 {
			errs = append(errs, fmt.Errorf("export %q is %s, which is more than %d parameters and a result",
				e.Name, abi.Signature{Params: e.Params, Results: e.Results}.Type(), maxParams))
		}
	}
	return errs
}

// Dialect returns the name of the dialect of the module that serves new calls,
// empty for a guest of package abi. It is the same for every version.
func (p *Plugin) Dialect() string {
	if d := p.current.Load().dialect; d != nil {
		return d.Name
	}
	return ""
}

// Exports reports whether the guest has the function of Dialect.Exports, or of Adapter.Exports,
// with that index. For a guest of a dialect it is the same for every version.
func (p *Plugin) Exports(export ExportIndex) bool {
	return p.current.Load().exports&(1<<export) != 0
}

// Module returns the description of the module that serves new calls.
func (p *Plugin) Module() *Module { return p.current.Load().about }

// Module returns the description of the instance's module.
func (i *Instance) Module() *Module { return i.version.about }

// DialectInstance is an [Instance] with the methods that only guests of a [Dialect] need:
// their exports are called by index, and their host functions write to the guest's memory.
type DialectInstance struct{ *Instance }

// ExportIndex is the index of a function in Adapter.Exports or Dialect.Exports.
type ExportIndex int

// Dialect returns the instance with the methods for guests of a [Dialect].
func (i *Instance) Dialect() DialectInstance { return DialectInstance{i} }

// Exports reports whether the guest has the function of Adapter.Exports, or of
// Dialect.Exports, with that index.
func (i *Instance) Exports(export ExportIndex) bool { return i.version.exports&(1<<export) != 0 }

// CallExport calls the function of Adapter.Exports, or of Dialect.Exports, with that
// index. It behaves as [Instance.Call] otherwise.
func (i *Instance) CallExport(ctx context.Context, export ExportIndex, args ...uint64) (uint64, error) {
	fn, sig, err := i.export(export, args)
	if err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("plugin %q: call %s: %w", i.plugin.cfg.Name, sig.Name, err)
	}
	copy(i.stack[:], args)
	return i.run(ctx, fn, sig.Name, recording.ByExport, len(args), sig.Results)
}

// export returns the handle of a function for arguments.
func (i *Instance) export(export ExportIndex, args []uint64) (*api.Function, *Export, error) {
	exports := i.version.exportList()
	if export < 0 || int(export) >= len(exports) {
		return nil, nil, fmt.Errorf("plugin %q: call export %d: there are %d", i.plugin.cfg.Name, export, len(exports))
	}
	e := &exports[export]
	if i.exports[export] == nil {
		return nil, nil, fmt.Errorf("plugin %q: call %s: the guest does not export it", i.plugin.cfg.Name, e.Name)
	}
	if len(args) != len(e.Params) {
		return nil, nil, fmt.Errorf("plugin %q: call %s: %d arguments, want %d", i.plugin.cfg.Name, e.Name, len(args), len(e.Params))
	}
	return &i.exports[export], e, nil
}

// Do runs f as one call of the guest, which messages and metrics call name. All
// functions that f calls by [DialectInstance.Invoke] share the fuel and the time of one
// call. f may use everything that a host function may use.
//
// The error is that of f, or a *[TrapError] if the guest trapped, was stopped or
// broke a rule.
func (i DialectInstance) Do(ctx context.Context, name string, f func() error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("plugin %q: call %s: %w", i.plugin.cfg.Name, name, err)
	}
	start, err := i.begin(ctx, name, recording.BySteps, 0, nil)
	if err != nil {
		return err
	}
	var failed error
	err = func() (err error) {
		// As in wazero's host functions, a panic that the guest caused ends
		// here.
		defer func() {
			if r := recover(); r != nil {
				if err, _ = r.(error); err == nil {
					err = fmt.Errorf("panic: %v", r)
				}
			}
		}()
		failed = f()
		return nil
	}()
	if err := i.end(ctx, name, start, err); err != nil {
		return err
	}
	return failed
}

// maxNested is the maximum depth of nested calls between the host and a guest. Each level uses the
// host's stack as well.
const maxNested = 16

// Invoke calls the function of Dialect.Exports with that index within the running call. It may be
// used only in host functions and in the function that [DialectInstance.Do] runs. It does not
// return if the guest does not.
func (i DialectInstance) Invoke(export ExportIndex, args ...uint64) uint64 {
	if i.calling == "" {
		panic(fmt.Sprintf("plugin %q: Invoke outside of a call", i.plugin.cfg.Name))
	}
	fn, e, err := i.export(export, args)
	if err != nil {
		panic(err)
	}
	level := i.nested
	if level > maxNested {
		i.Abort(fmt.Errorf("%s: the guest and the host call each other more than %d times in turn", e.Name, maxNested))
	}
	// A handle whose function runs cannot be called again, but another handle of
	// the function can.
	if level > 0 {
		fn = i.handle(level, export)
	}
	hostCall := i.hostCall
	i.nested++
	defer func() { i.nested = level }()
	if i.tape != nil {
		i.tape.Invoke(int(export), args)
	}
	var stack [maxParams]uint64
	copy(stack[:], args)
	if err := (*fn).CallWithStack(&i.ctx, stack[:]); err != nil {
		i.failed = err
		panic(err)
	}
	i.shrink(fn, e.Name)
	i.hostCall = hostCall
	if i.tape != nil {
		i.tape.Result(recording.Invoked, stack[:], e.Results)
	}
	return stack[0]
}

// handle returns the handle of an export for a call that is nested in level
// others.
func (i *Instance) handle(level int, export ExportIndex) *api.Function {
	for len(i.handles) < level {
		i.handles = append(i.handles, make([]api.Function, len(i.exports)))
	}
	fn := &i.handles[level-1][export]
	if *fn == nil {
		*fn = i.module.ExportedFunction(i.version.exportList()[export].Name)
	}
	return fn
}

// Put copies data to the guest's memory at ptr, in host functions and in the function of
// [DialectInstance.Do]; the guest pays fuel for that. It returns an error, and writes nothing, if
// the bytes would not lie in the guest's memory.
func (i DialectInstance) Put(ptr uint32, data []byte) error {
	if _, err := abi.Read(i.space(), ptr, uint32(len(data))); err != nil {
		return err
	}
	if i.tape != nil {
		i.tape.Bytes(recording.Put, data, uint64(ptr))
	}
	i.meter.chargeBytes(len(data))
	if len(data) != 0 {
		i.put(ptr, data)
	}
	return nil
}

// Look returns bytes of the guest's memory free of charge, and without a trace in a recording. They
// are lent.
func (i DialectInstance) Look(ptr, length uint32) ([]byte, error) {
	return i.lend(ptr, length)
}

// Peek is [Instance.Read], except that bytes outside of the guest's memory are an error.
func (i DialectInstance) Peek(ptr, length uint32) ([]byte, error) {
	if _, err := abi.Read(i.space(), ptr, length); err != nil {
		return nil, err
	}
	return i.Read(ptr, length), nil
}

// Text returns the NUL-terminated text at ptr. Its bytes are lent from the guest's memory, as those
// of [Instance.Read] are, and the guest pays fuel for them. A text longer than Limits.ResultBytes
// ends the call.
func (i DialectInstance) Text(ptr uint32) []byte {
	size := len(i.space())
	if uint64(ptr) >= uint64(size) {
		i.Abort(fmt.Errorf("address %d is out of bounds of the guest's memory of %d bytes", ptr, size))
	}
	limit := i.version.limits.ResultBytes
	most := min(size-int(ptr), limit+1)
	// Pieces of a memory in another process are copied.
	n, text := -1, []byte(nil)
	for piece := min(most, 512); n < 0; piece = min(most, 8*piece) {
		text, _ = i.lend(ptr, uint32(piece))
		if n = bytes.IndexByte(text, 0); n < 0 && piece == most {
			i.Abort(fmt.Errorf("text at %d does not end within %d bytes", ptr, limit))
		}
	}
	text = text[:n]
	if i.tape != nil {
		i.tape.Bytes(recording.Text, text, uint64(ptr))
	}
	i.meter.chargeBytes(n)
	return text
}

// MayLog reports whether the host may write n more bytes to its log for the guest: the limits are
// Limits.OutputBytes for one call and Limits.LogBytes. A host function that logs calls MayLog
// first, and drops the line if it returns false. The log reports once that lines were dropped.
func (i DialectInstance) MayLog(n int) bool { return i.mayLog(n) }

// Charge deducts the price of moving n bytes from the fuel of the running call.
func (i DialectInstance) Charge(n int) {
	if i.tape != nil {
		i.tape.Numbers(recording.Charge, uint64(n))
	}
	i.meter.chargeBytes(n)
}

// Spend deducts fuel for work that the host does on behalf of the guest: two units are about a
// nanosecond. It does not return if the fuel or the time of the call is used up, or if the caller's
// context has ended. A long-running host function calls Spend before its work, and again about
// every millisecond: nothing else stops it.
func (i *Instance) Spend(fuel int64) {
	if i.tape != nil {
		i.tape.Numbers(recording.Spend, uint64(fuel))
	}
	m := &i.meter
	m.set(m.get() - min(max(fuel, 0), 1<<62)) // The rest would overflow.
	if m.get() < 0 {
		i.look()
	}
}

// Waiting returns the context for the waits of a host function on behalf of the guest. It ends with
// the caller's context, or after nine tenths of the time left to the call, so that the guest can
// still answer. The guest pays no fuel meanwhile.
func (i *Instance) Waiting() (context.Context, context.CancelFunc) {
	m, now := &i.meter, time.Now()
	if m.deadline.IsZero() {
		m.deadline = now.Add(i.version.limits.Timeout)
	}
	end := m.deadline
	if d, ok := i.ctx.parent.Deadline(); ok && d.Before(end) {
		end = d
	}
	return context.WithDeadline(i.ctx.parent, now.Add(end.Sub(now)/10*9))
}

// Limits returns the limits of the plugin, with their defaults.
func (i *Instance) Limits() Limits { return i.version.limits }

// Run runs a program (Dialect.Command) to its end and returns its standard output, in bytes that
// the caller owns. args begin with the name of the program; stdin must not change meanwhile. An
// instance runs once, then it must be released.
//
// The error is a *[TrapError] as for [Instance.Call], even if the program exits with a code other
// than 0 or writes more than Limits.ResultBytes.
func (i DialectInstance) Run(ctx context.Context, args []string, stdin []byte) (stdout []byte, err error) {
	if i.command == nil {
		return nil, fmt.Errorf("plugin %q: run: the guest is no command", i.plugin.cfg.Name)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("plugin %q: run: %w", i.plugin.cfg.Name, err)
	}
	if i.spent {
		return nil, fmt.Errorf("plugin %q: run: the instance has already run", i.plugin.cfg.Name)
	}
	i.spent = true
	i.program = program{args: args, stdin: stdin, running: true}
	_, err = i.run(ctx, &i.command, commandStart, recording.AsProgram, 0, nil)
	stdout = i.program.stdout
	i.program = program{}
	return stdout, err
}

// WriteStdin appends data to the standard input of the running program, for host functions that
// answer there. data is copied, and the guest pays fuel for that. Until the program reads it, it
// counts as kept, see [Instance.Keep].
func (i DialectInstance) WriteStdin(data []byte) {
	if !i.program.running {
		return
	}
	i.Keep(len(data))
	i.program.appended += len(data)
	if !i.program.fed { // The bytes that Run was given are not ours to append to.
		i.program.stdin, i.program.fed = slices.Clip(i.program.stdin), true
	}
	if i.tape != nil {
		i.tape.Data(recording.Input, data)
	}
	i.meter.chargeBytes(len(data))
	i.program.stdin = append(i.program.stdin, data...)
}

// commandStart is the export that runs a program.
const commandStart = "_start"

// program is the standard streams and the arguments of a guest that runs as a
// program.
type program struct {
	args    []string
	stdin   []byte // The unread rest.
	fed     bool   // stdin is a slice of the host's own.
	stdout  []byte
	running bool
	// appended is the number of bytes of stdin that WriteStdin has added.
	appended int
}

// read takes n bytes from standard input.
func (p *program) read(inst *Instance, n int) {
	p.stdin = p.stdin[n:]
	if read := p.appended - len(p.stdin); read > 0 {
		p.appended -= read
		inst.Keep(-read)
	}
}

// startFunctions returns the functions that start an instance.
func (v *version) startFunctions() []string {
	switch d := v.dialect; {
	case d == nil || d.Start == nil && !d.Command:
		for _, name := range startFunctions {
			if v.about.Export(name) != "" {
				return []string{name}
			}
		}
		return nil
	default:
		return slices.DeleteFunc(slices.Clone(d.Start), func(name string) bool { return v.about.Export(name) == "" })
	}
}

// exportList returns the exports that are called by their index.
func (v *version) exportList() []Export {
	if v.dialect != nil {
		return v.dialect.Exports
	}
	return v.plugin.adapter.Exports
}

// checkExportList returns the errors of exports that are missing or of the wrong type, and records
// which exports exist.
func (v *version) checkExportList() []error {
	var errs []error
	for n, e := range v.exportList() {
		if e.Optional && v.about.Export(e.Name) == "" {
			continue
		}
		v.exports |= 1 << n
		errs = v.checkExport(errs, abi.Signature{Name: e.Name, Params: e.Params, Results: e.Results})
	}
	return errs
}
