package replay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/loading"
	"github.com/kubewasm/kubewasm/internal/recording"
	"github.com/kubewasm/kubewasm/internal/wasmbin"
)

// Player repeats recorded calls on a module. It is not safe for use by several goroutines.
type Player struct {
	version *recording.Version
	// plugin is the module, loaded with the recorded configuration.
	plugin *host.Plugin
	digest string
	// inst is the instance of the sequence that is repeated; nil before the first.
	inst *host.Instance
	// imports are those of the recording by their names, by index in version.Imports.
	imports map[[2]string]int
	// functions are those of package abi that the guest implements, by name.
	functions map[string]abi.Function

	script script
	// got are the calls that have ended since they were taken.
	got []*recording.Call
}

// Options change the loading of a module.
type Options struct {
	// Configure is called with the configuration before the module is loaded, to set an
	// Observer or limits. nil changes nothing.
	Configure func(cfg *host.Config)
	// Closely has a host function answered only as the recording has it at this place. It is for
	// the recorded module. Otherwise questions are matched by their content.
	Closely bool
}

// errUnrecorded is the error of a guest that asks a question without an answer in the recording.
var errUnrecorded = errors.New("the recording has no answer")

// Load loads a module with the recorded data of a version of a plugin: with its configuration, its
// grants and limits, and host functions that answer from the recording. start are the calls of
// [recording.Recording.Start]. Close the Player before the Runtime.
func Load(ctx context.Context, rt *host.Runtime, v *recording.Version, start []*recording.Call, module []byte, opts Options) (*Player, error) {
	p := &Player{version: v, imports: map[[2]string]int{}, functions: map[string]abi.Function{}}
	p.script.closely = opts.Closely
	cfg := host.Config{
		Name: v.Plugin, Module: host.ModuleConfig{Bytes: module}, GuestConfig: v.Config, Args: v.Args, Reset: host.ResetPolicy(v.Reset),
	}
	if len(v.Limits) != 0 {
		if err := json.Unmarshal(v.Limits, &cfg.Limits); err != nil {
			return nil, fmt.Errorf("replay plugin %q: limits: %w", v.Plugin, err)
		}
	}
	// A call ends by its fuel, as recorded, however slow this machine is.
	cfg.Limits.Timeout, cfg.Limits.BuildTimeout, cfg.Limits.Instances = maxTime, maxTime, 1
	for _, grant := range v.Grants {
		if grant == host.GrantClock || grant == host.GrantRandom {
			cfg.Grants = append(cfg.Grants, grant)
		}
	}
	if opts.Configure != nil {
		opts.Configure(&cfg)
	}
	adapter, err := p.adapter(module)
	if err != nil {
		return nil, fmt.Errorf("replay plugin %q: %w", v.Plugin, err)
	}
	p.script.begin(p, startEvents(start))
	ctx = loading.With(ctx, loading.Settings{
		Recorder: recording.Tap(func(c *recording.Call) { p.got = append(p.got, c) }), Outside: outside{p},
	})
	if p.plugin, err = rt.Load(ctx, cfg, adapter); err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	p.got, p.digest = nil, p.plugin.Digest()
	for _, f := range p.plugin.Functions().Functions() {
		p.functions[f.String()] = f
	}
	return p, nil
}

// Recorded reports whether the module is the one that was recorded.
func (p *Player) Recorded() bool { return p.digest == p.version.SHA256 }

// Plugin returns the loaded module.
func (p *Player) Plugin() *host.Plugin { return p.plugin }

// Instance returns the instance that repeats the sequence, nil before [Player.Begin].
func (p *Player) Instance() *host.Instance { return p.inst }

// Close frees the module.
func (p *Player) Close(ctx context.Context) error {
	if p.inst != nil {
		p.inst.Discard()
		p.inst = nil
	}
	return p.plugin.Close(ctx)
}

// startEvents returns the events of several calls.
func startEvents(calls []*recording.Call) (events []recording.Event) {
	for _, c := range calls {
		events = append(events, c.Events...)
	}
	return events
}

// live reports whether the host answers calls of a function by itself.
func live(module, name string, dialect bool) bool {
	if module == "wasi_snapshot_preview1" {
		return true
	}
	return !dialect && module == abi.KindCommon.Module() && slices.Contains([]string{"config", "status_reason", "log"}, name)
}

// answersItself reports whether the host answers calls of an import of a recording by itself.
func answersItself(v *recording.Version, index int) bool {
	if index >= len(v.Imports) {
		return false
	}
	im := &v.Imports[index]
	return live(im.Module, im.Name, v.Dialect != "")
}

// adapter returns the component as described by the recording.
func (p *Player) adapter(module []byte) (host.Adapter, error) {
	v := p.version
	imports, err := p.hostFunctions(module)
	if err != nil {
		return host.Adapter{}, err
	}
	var exports []host.Export
	for _, e := range v.Exports {
		exports = append(exports, host.Export{Name: e.Name, Params: e.Params, Results: e.Results, Optional: true})
	}
	a := host.Adapter{Kind: v.Kind}
	if v.Dialect == "" {
		a.Imports, a.Exports = imports, exports
		return a, nil
	}
	a.Dialects = []host.Dialect{{
		Name: v.Dialect, Detect: func(*host.Module) bool { return true }, Exports: exports, Imports: imports,
		Start: v.Start, Command: v.Command, DefineMemory: v.DefineMemory,
	}}
	return a, nil
}

// hostFunctions returns the functions of the recording, and those that the module imports
// beside them.
func (p *Player) hostFunctions(module []byte) ([]host.Import, error) {
	var list []host.Import
	dialect := p.version.Dialect != ""
	for n, im := range p.version.Imports {
		p.imports[[2]string{im.Module, im.Name}] = n
		if !live(im.Module, im.Name, dialect) {
			list = append(list, host.Import{
				Module: im.Module, Name: im.Name, Params: im.Params, Results: im.Results, Memory: im.Memory,
				Func: func(inst *host.Instance, stack []uint64) { p.script.host(inst, n, stack) },
			})
		}
	}
	described, _, _, err := wasmbin.Describe(module)
	if err != nil {
		return nil, err
	}
	for _, im := range described {
		if _, known := p.imports[[2]string{im.Module, im.Name}]; known || im.Kind != wasmbin.ExternFunc || live(im.Module, im.Name, dialect) {
			continue
		}
		n := host.Import{Module: im.Module, Name: im.Name, Func: func(inst *host.Instance, stack []uint64) {
			p.script.unknown(inst, im.Module+"."+im.Name)
		}}
		for _, t := range im.Func.Params {
			n.Params = append(n.Params, abi.ValueType(t))
		}
		for _, t := range im.Func.Results {
			n.Results = append(n.Results, abi.ValueType(t))
		}
		list = append(list, n)
	}
	return list, nil
}

// outside gives a guest the times and random numbers that it got before.
type outside struct{ p *Player }

func (o outside) Time() int64 {
	s := o.p.script.scope()
	if len(s.values) > 0 {
		o.p.script.last, s.values = s.values[0], s.values[1:]
	} else { // Go takes a clock that stands still at 0 for a broken one.
		o.p.script.last++
	}
	return int64(o.p.script.last)
}

func (o outside) Random(b []byte) {
	s := o.p.script.scope()
	n := copy(b, s.random)
	s.random = s.random[n:]
	clear(b[n:])
}

// Begin begins a sequence on an instance in the state before its first call. It returns the first
// calls, if they are those of the start.
func (p *Player) Begin(ctx context.Context, s *recording.Sequence) (started []*recording.Call, err error) {
	var start []*recording.Call
	for c, err := range s.Calls() {
		if err != nil {
			return nil, err
		}
		if c.Kind != recording.ByStart && c.Function != abi.Configure.String() {
			break
		}
		start = append(start, c)
	}
	return p.begin(ctx, start)
}

// begin brings an instance into the state before its first call. It is started anew if the
// recording has calls of the start.
func (p *Player) begin(ctx context.Context, start []*recording.Call) ([]*recording.Call, error) {
	p.got = nil
	p.script.forget()
	p.script.begin(p, startEvents(start))
	if p.inst != nil {
		if len(start) == 0 && p.inst.Rewind() {
			return nil, nil
		}
		p.inst.Discard()
		p.inst = nil
	}
	inst, err := p.plugin.Fresh(ctx)
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	p.inst = inst
	started := p.got
	p.got = nil
	return started, nil
}

// Play repeats one call, after those before it in its sequence. It returns the data that crossed
// this time, and the kinds of the host functions' answers. The error is one of the recording or of
// the Player; faults of the guest are in the call.
func (p *Player) Play(ctx context.Context, c *recording.Call) (*Played, error) {
	p.got = nil
	p.script.begin(p, c.Events)
	p.script.masked = c.Marks&(recording.Secret|recording.Redacted) != 0
	if err := p.call(ctx, c); err != nil {
		return nil, fmt.Errorf("replay call %d of sequence %d: %w", c.Number, c.Sequence, err)
	}
	played := &Played{Missing: p.script.missing, Elsewhere: p.script.elsewhere}
	if len(p.got) != 0 {
		played.Call = p.got[len(p.got)-1]
	}
	return played, nil
}

// Played is a call that was repeated.
type Played struct {
	// Call is the repeated call with everything that crossed; nil if the guest was not called.
	Call *recording.Call
	// Missing is the guest's question that the recording cannot answer, empty if it answers all.
	// The call fails because of it.
	Missing string
	// Elsewhere is the number of questions that the guest asked in a different place of the call
	// than recorded, or that another call answers.
	Elsewhere int
}

// call calls the guest.
func (p *Player) call(ctx context.Context, c *recording.Call) error {
	inst := p.inst
	p.script.stops = c.End == recording.Stopped
	if c.End == recording.Stopped {
		ctx = &stopping{Context: ctx, inst: inst, fuel: c.Fuel}
	}
	var err error
	switch c.Kind {
	case recording.ByFunction:
		f, ok := p.functions[c.Function]
		if !ok {
			p.script.missing = "the call of " + c.Function + ", which the guest does not implement"
			return nil
		}
		_, err = inst.Call(ctx, f, c.Args...)
	case recording.ByExport:
		index := slices.IndexFunc(p.version.Exports, func(e recording.Export) bool { return e.Name == c.Function })
		if index < 0 || !inst.Exports(host.ExportIndex(index)) {
			p.script.missing = "the call of " + c.Function + ", which the guest does not export"
			return nil
		}
		_, err = inst.CallExport(ctx, host.ExportIndex(index), c.Args...)
	case recording.BySteps:
		err = inst.Dialect().Do(ctx, c.Function, func() error { p.script.steps(inst); return nil })
	case recording.AsProgram:
		var args []string
		var input []byte
		for i := range c.Events {
			if e := &c.Events[i]; e.Kind == recording.Argument {
				args = append(args, string(e.Data))
			} else {
				input = e.Data
				break
			}
		}
		_, err = inst.Dialect().Run(ctx, args, input)
	default:
		return fmt.Errorf("%s is a call of the start in the middle of the sequence", c.Function)
	}
	if err != nil && len(p.got) == 0 {
		return err
	}
	return nil
}

// stopping is a context that ends when a call has used as much fuel as the recorded one when it was
// stopped. The host checks it at the same instructions each time.
type stopping struct {
	context.Context
	inst *host.Instance
	fuel int64
	// begun is set by the first look, which is before the call.
	begun bool
}

func (s *stopping) Err() error {
	if !s.begun {
		s.begun = true
		return s.Context.Err()
	}
	if s.inst.FuelUsed() >= s.fuel {
		return context.DeadlineExceeded
	}
	return s.Context.Err()
}

// name returns the name of an import in the recording.
func (p *Player) name(index int) string {
	if index < len(p.version.Imports) {
		return p.version.Imports[index].String()
	}
	return "function ?"
}
