//go:build !wasip1

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/codec/hookpb"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/wasmbin"
	"github.com/kubewasm/kubewasm/sched"
)

// examination is what a module is, wants and exports.
type examination struct {
	File   string `json:"file,omitempty"`
	Bytes  int    `json:"bytes"`
	SHA256 string `json:"sha256"`
	// Kinds and Functions are what the guest said when it ran, and empty if it
	// could not; Problems then says why.
	Kinds     []string           `json:"kinds"`
	Functions []string           `json:"functions"`
	Metadata  *metadata.Metadata `json:"metadata,omitempty"`
	Imports   []imported         `json:"imports"`
	Exports   []exported         `json:"exports"`
	Memory    memory             `json:"memory"`
	// StartFuel is how many instructions the start took, configuration included.
	StartFuel int64 `json:"startFuel"`
	// Problems are what keeps the module from being loaded as it is.
	Problems []string `json:"problems,omitempty"`

	mask abi.Mask
	err  error
}

type imported struct {
	Module    string `json:"module"`
	Name      string `json:"name"`
	Signature string `json:"signature"`
	// Grant is what the configuration must grant; Optional says that the guest
	// gets a fake without it.
	Grant    string `json:"grant,omitempty"`
	Optional bool   `json:"optional,omitempty"`
}

type exported struct {
	Name      string `json:"name"`
	Signature string `json:"signature"`
}

// memory is in bytes.
type memory struct {
	Initial uint64 `json:"initialBytes"`
	// Maximum is what the module itself allows, 0 if it does not say.
	Maximum uint64 `json:"maximumBytes,omitempty"`
	// Started is what an instance has when it is ready to be called.
	Started uint64 `json:"startedBytes,omitempty"`
}

const pageBytes = 64 << 10

func inspect(ctx context.Context, t *tool, args []string) error {
	flags := t.flags("inspect")
	format := flags.String("o", "text", "`FORMAT` to print, text or json")
	config := flags.String("config", "", "`FILE` with the configuration to start the guest with, YAML or JSON")
	path, err := parse(flags, args, "")
	if err != nil {
		return err
	}
	if *format != "text" && *format != "json" {
		return fmt.Errorf("inspect: -o is %q, want text or json", *format)
	}
	guest, err := readConfig(*config)
	if err != nil {
		return err
	}
	file, err := t.module(ctx, path)
	if err != nil {
		return err
	}
	bytes, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	r, err := examine(ctx, bytes, guest)
	if err != nil {
		return fmt.Errorf("inspect %s: %w", file, err)
	}
	r.File = file
	if *format == "json" {
		e := json.NewEncoder(t.out)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	return r.print(t.out)
}

// readConfig reads a plugin's configuration as JSON; "" is none.
func readConfig(file string) ([]byte, error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if data, err = yaml.YAMLToJSONStrict(data); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return data, nil
}

// examine decodes a module and runs it in the host. The error is that of bytes
// that are no module; what else is wrong with it is in the examination.
func examine(ctx context.Context, module, config []byte) (*examination, error) {
	decoded, err := wasmbin.Decode(module)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(module)
	r := &examination{Bytes: len(module), SHA256: hex.EncodeToString(sum[:]), Kinds: []string{}, Functions: []string{}}
	if r.Metadata, err = metadata.Find(module); err != nil {
		r.problem(err)
	}
	r.describe(decoded)
	rt, err := newRuntime()
	if err != nil {
		return nil, err
	}
	err = r.start(ctx, rt, decoded, module, config)
	if err == nil {
		err = r.offer(ctx, rt, module, config)
	}
	if err != nil {
		r.err = err
		r.problem(err)
	}
	return r, rt.Close(context.WithoutCancel(ctx))
}

// problem notes each error that err joins.
func (r *examination) problem(err error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			r.problem(err)
		}
		return
	}
	text := strings.TrimPrefix(err.Error(), `plugin "`+pluginName+`": `)
	if !slices.Contains(r.Problems, text) {
		r.Problems = append(r.Problems, text)
	}
}

// describe reads what stands in the module.
func (r *examination) describe(m *wasmbin.Module) {
	var types []wasmbin.FuncType
	for _, group := range m.Types {
		types = append(types, group.Types...)
	}
	signature := func(index uint32) string {
		if int(index) < len(types) {
			return types[index].String()
		}
		return "?"
	}
	var functions []uint32 // The type of each, imported or not.
	for _, i := range m.Imports {
		s := i.Kind.String()
		if i.Kind == wasmbin.ExternFunc {
			s = signature(i.Type)
			functions = append(functions, i.Type)
		}
		im := imported{Module: i.Module, Name: i.Name, Signature: s}
		switch {
		case i.Module != "wasi_snapshot_preview1":
		case i.Name == "clock_time_get":
			im.Grant, im.Optional = host.GrantClock, true
		case i.Name == "random_get":
			im.Grant, im.Optional = host.GrantRandom, true
		}
		r.Imports = append(r.Imports, im)
	}
	functions = append(functions, m.Functions...)
	for _, e := range m.Exports {
		s := e.Kind.String()
		if e.Kind == wasmbin.ExternFunc && int(e.Index) < len(functions) {
			s = signature(functions[e.Index])
		}
		r.Exports = append(r.Exports, exported{e.Name, s})
	}
	for _, memory := range m.Memories {
		r.Memory.Initial = uint64(memory.Min) * pageBytes
		if memory.HasMax {
			r.Memory.Maximum = uint64(memory.Max) * pageBytes
		}
	}
}

// pluginName stands in the host's messages.
const pluginName = "guest"

// extensionKinds are the kinds of plugins.
var extensionKinds = []abi.Kind{abi.KindScheduler, abi.KindAdmission, abi.KindHook}

// start loads the module into a host that offers whatever it imports, to hear
// what it implements.
func (r *examination) start(ctx context.Context, rt *host.Runtime, m *wasmbin.Module, module, config []byte) error {
	var types []wasmbin.FuncType
	for _, group := range m.Types {
		types = append(types, group.Types...)
	}
	var offered []host.Import
	for _, i := range m.Imports {
		if i.Kind != wasmbin.ExternFunc || int(i.Type) >= len(types) || i.Module == "wasi_snapshot_preview1" || i.Module == abi.ModuleCommon {
			continue
		}
		codes := func(types []wasmbin.ValType) []abi.ValueType {
			var list []abi.ValueType
			for _, t := range types {
				list = append(list, abi.ValueType(t))
			}
			return list
		}
		offered = append(offered, host.Import{
			Module: i.Module, Name: i.Name, Params: codes(types[i.Type].Params), Results: codes(types[i.Type].Results),
			Func: func(inst *host.Instance, _ []uint64) {
				inst.Violate(errors.New("a guest that starts must not ask for what its calls are about"))
			},
		})
	}
	fuel := &fuelCounter{}
	var last error
	for _, kind := range extensionKinds {
		*fuel = fuelCounter{}
		p, err := rt.Load(ctx, host.Config{
			Name: pluginName, Source: host.Bytes(module), Guest: config, Kind: kind, Imports: offered, Observer: fuel,
			Limits: host.Limits{Instances: 1},
		})
		if err == nil {
			r.implements(p.Functions())
			r.Memory.Started, r.StartFuel = p.Stats().MemoryBytes, fuel.total
			return p.Close(ctx)
		}
		var status *host.StatusError
		if errors.As(err, &status) {
			r.implements(status.Functions)
			r.StartFuel = fuel.total
			return err
		}
		if last = err; !strings.Contains(err.Error(), "the guest implements no ") {
			return err
		}
	}
	if strings.HasSuffix(last.Error(), ": ") || strings.HasSuffix(last.Error(), abi.Configure.String()) {
		return errNothingRegistered
	}
	return last
}

var errNothingRegistered = errors.New("the guest registers no plugin: call Register of guest/sched, guest/admission or guest/hooks in func init")

// registered returns why the guest is no plugin, nil if it is one. A guest that
// refuses to start without a configuration is one.
func (r *examination) registered() error {
	var status *host.StatusError
	if r.mask != 0 || errors.As(r.err, &status) {
		return nil
	}
	return r.err
}

func (r *examination) implements(mask abi.Mask) {
	r.mask = mask
	for _, kind := range extensionKinds {
		if of := mask.Of(kind); of != 0 {
			r.Kinds = append(r.Kinds, kind.String())
		}
	}
	for _, f := range mask.Functions() {
		r.Functions = append(r.Functions, f.String())
	}
}

// offer loads the module into the real hosts of its kinds, to hear which grants
// it needs and what they do not offer.
func (r *examination) offer(ctx context.Context, rt *host.Runtime, module, config []byte) error {
	var errs []error
	for _, kind := range extensionKinds {
		if r.mask.Of(kind) == 0 {
			continue
		}
		var grants []string
		for {
			err := load(ctx, rt, kind, host.Config{Name: pluginName, Source: host.Bytes(module), Guest: config, Grants: grants, Limits: host.Limits{Instances: 1}})
			wanted := len(grants)
			for _, missing := range importErrors(err) {
				if missing.Grant == "" || slices.Contains(grants, missing.Grant) {
					continue
				}
				grants = append(grants, missing.Grant)
			}
			for _, missing := range importErrors(err) {
				for i := range r.Imports {
					if r.Imports[i].Module == missing.Module && r.Imports[i].Name == missing.Name {
						r.Imports[i].Grant = missing.Grant
					}
				}
			}
			if len(grants) == wanted { // Nothing more that a grant could help with.
				if err != nil {
					errs = append(errs, err)
				}
				break
			}
		}
	}
	return errors.Join(errs...)
}

// importErrors returns the imports among what err joins.
func importErrors(err error) []*host.ImportError {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []*host.ImportError
		for _, err := range joined.Unwrap() {
			all = append(all, importErrors(err)...)
		}
		return all
	}
	var e *host.ImportError
	if errors.As(err, &e) {
		return []*host.ImportError{e}
	}
	return nil
}

// load loads a module into the host of a kind, and closes it.
func load(ctx context.Context, rt *host.Runtime, kind abi.Kind, cfg host.Config) error {
	var p interface{ Close(context.Context) error }
	var err error
	switch kind {
	case abi.KindScheduler:
		p, err = sched.Load(ctx, rt, cfg)
	case abi.KindAdmission:
		p, err = admission.Load(ctx, rt, admission.PluginConfig{Module: cfg})
	default:
		p, err = hooks.NewEngine(ctx, rt, hooks.Config{
			Plugins: []hooks.PluginConfig{{Module: cfg}},
			// What it declares is printed, and granted or not where it runs.
			Audit: func(context.Context, *hookpb.Request, string, *hooks.GrantError) {},
		})
	}
	if err != nil {
		return err
	}
	return p.Close(ctx)
}

// print writes the examination for people.
func (r *examination) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name string, values ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprint(values...)) }
	line("file", r.File)
	line("size", r.Bytes, " bytes")
	line("sha256", r.SHA256)
	if m := r.Metadata; m != nil {
		line("name", m.Name)
		line("version", m.Version)
		line("sdk", m.SDK)
		reads := "everything"
		if len(m.Projection) != 0 {
			reads = strings.Join(m.Projection, ", ")
		}
		line("reads", reads)
		if len(m.Decides) != 0 {
			line("decides", strings.Join(m.Decides, ", "))
		}
	} else {
		line("metadata", "none")
	}
	line("kinds", strings.Join(r.Kinds, ", "))
	line("functions", strings.Join(r.Functions, ", "))
	most := "what the limits allow"
	if r.Memory.Maximum != 0 {
		most = fmt.Sprint(r.Memory.Maximum>>10, " KiB")
	}
	line("memory", r.Memory.Started>>10, " KiB once started, ", r.Memory.Initial>>10, " KiB declared, at most ", most)
	line("start", r.StartFuel, " instructions")
	for _, problem := range r.Problems {
		line("problem", problem)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nIMPORT\tSIGNATURE\tGRANT")
	for _, i := range r.Imports {
		grant := i.Grant
		if i.Optional {
			grant += " (a fake without it)"
		}
		fmt.Fprintf(w, "%s.%s\t%s\t%s\n", i.Module, i.Name, i.Signature, grant)
	}
	fmt.Fprintln(w, "\nEXPORT\tSIGNATURE")
	for _, e := range r.Exports {
		fmt.Fprintf(w, "%s\t%s\n", e.Name, e.Signature)
	}
	return w.Flush()
}
