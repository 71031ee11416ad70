package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/spf13/pflag"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/manifest"
)

// trial is a run of a plugin on objects.
type trial struct {
	tool    *tool
	rt      *host.Runtime
	cfg     host.Config
	try     trying
	objects *manifest.Objects
	// cluster has the objects that an admission plugin may look up. If it is nil they
	// are those that it reviews.
	cluster  *manifest.Cluster
	requests requests
	// matches are the requests that the module's metadata declare.
	matches []metadata.Rule
	fuel    fuelCounter
	// warn prints warnings about the objects.
	warn func(warnings []string)
	// onLoad, unless it is nil, is called by loaded.
	onLoad func()
	// state is set if the state that the plugin's instances share is printed in the end.
	state bool
	// mask are the functions that the plugin implements.
	mask abi.Mask
	// verdicts are printed when the run ends.
	verdicts verdicts
	// refusals is the number of objects that the plugin refused. failures are the errors
	// of calls without an answer.
	refusals int
	failures []error
}

// runFlags are the flags for the input and the configuration of a plugin's run.
type runFlags struct {
	config, answers    string
	logged, gatekeeper bool
	state              bool
	files, lookups     []string
	grants, sees       []string
	from               *pullFlags
	requests           requests
}

// runFlags declares the flags.
func (t *tool) runFlags(flags *pflag.FlagSet) *runFlags {
	f := &runFlags{}
	flags.StringArrayVarP(&f.files, "filename", "f", nil, "")
	flags.StringVar(&f.config, "config", "", "")
	flags.StringArrayVar(&f.lookups, "objects", nil, "")
	flags.BoolVar(&f.logged, "log", false, "")
	flags.StringArrayVar(&f.grants, "grant", nil, "")
	flags.StringArrayVar(&f.sees, "see", nil, "")
	flags.BoolVar(&f.gatekeeper, "gatekeeper", false, "")
	f.from = t.pullFlags(flags)
	f.requests.flags(flags)
	return f
}

func run(t *tool, flags *pflag.FlagSet) action {
	f := t.runFlags(flags)
	flags.StringVar(&f.answers, "answers", "", "")
	flags.BoolVar(&f.state, "state", false, "")
	printed := outputFlags(flags, "junit")
	return func(ctx context.Context, args []string) error {
		arguments, err := atMost(flags, args, 2)
		if err != nil {
			return err
		}
		if len(arguments) == 0 {
			return &usageError{errors.New("run: an argument is missing")}
		}
		t.named = true
		path := arguments[0]
		if len(f.files) == 0 {
			return &usageError{errors.New("run: name a file of objects with -f")}
		}
		if len(arguments) == 2 {
			return t.runMethod(ctx, path, arguments[1], f, printed)
		}
		trial, err := t.trial(ctx, flags, f, path)
		if err != nil {
			return err
		}
		err = trial.run(ctx)
		v := &trial.verdicts
		if err == nil || len(v.Verdicts) != 0 { // Print the verdicts before an error.
			err = errors.Join(err, printed.print(t, result{value: v, text: v.writeText, other: map[string]func(io.Writer) error{"junit": v.writeJUnit}}))
		}
		switch {
		case err != nil:
			return err
		case len(trial.failures) != 0:
			return fmt.Errorf("run %s: %w", path, trial.failure())
		case trial.refusals > 0:
			return errRefused
		case !v.asked():
			t.warn("the module was asked about no object")
			return errUnasked
		}
		return nil
	}
}

// trial returns the run of a module, for the flags of a command.
func (t *tool) trial(ctx context.Context, flags *pflag.FlagSet, f *runFlags, path string) (*trial, error) {
	command := flags.Name()
	trial := &trial{tool: t, requests: f.requests}
	if err := trial.requests.read(ctx, t, flags); err != nil {
		return nil, err
	}
	var err error
	if f.requests.raw {
		trial.objects, err = &manifest.Objects{}, trial.requests.readRaw(ctx, f.files)
	} else {
		trial.objects, err = trial.requests.objects(ctx, t, f.files)
	}
	if err != nil {
		if r, _ := t.inspected(ctx, path, f); r != nil && r.mask.Of(abi.KindService) != 0 {
			return nil, errMethod(command, path, r) // The file has a message.
		}
		return nil, err
	}
	var kinds []schema.GroupVersionKind
	trial.warn = func(warnings []string) { t.warnAll(strings.Join(f.files, ", "), warnings) }
	if len(f.lookups) != 0 {
		cluster, there, err := t.clusterIn(ctx, f.lookups)
		if err != nil {
			return nil, err
		}
		trial.cluster = cluster
		for _, o := range there.All {
			kinds = append(kinds, o.GroupVersionKind())
		}
	}
	guest, err := readConfig(f.config)
	if err != nil {
		return nil, err
	}
	wasm, bytes, err := t.module(ctx, path, f.from)
	if err != nil {
		return nil, err
	}
	trial.try = trying{module: bytes, config: guest, gatekeeper: f.gatekeeper, there: kinds}
	for _, kind := range f.sees {
		gvk, err := parseKind(kind)
		if err != nil {
			return nil, fmt.Errorf("%s: --see: %w", command, err)
		}
		trial.try.sees = append(trial.try.sees, gvk)
	}
	r, err := t.examine(ctx, trial.try)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", command, path, err)
	}
	if r.mask == 0 {
		return nil, fmt.Errorf("%s %s: %w", command, path, r.err)
	}
	if r.mask.Of(abi.KindService) != 0 {
		return nil, errMethod(command, path, r)
	}
	if given := trial.requests.given; len(given) != 0 && r.mask.Of(abi.KindAdmission) == 0 {
		return nil, fmt.Errorf("%s %s: %s is for admission plugins, and this is one of kind %s", command, path, strings.Join(given, ", "), strings.Join(r.Kinds, " and "))
	}
	trial.mask, trial.state = r.mask, f.state
	name, _, _ := strings.Cut(strings.TrimSuffix(filepath.Base(wasm), ".wasm"), "@")
	if r.Metadata != nil {
		name, trial.matches = cmp.Or(r.Metadata.Name, name), r.Metadata.Matches
	}
	trial.verdicts = verdicts{Plugin: name, Verdicts: []verdict{}}
	trial.cfg = host.Config{
		Name: name, Module: host.ModuleConfig{Bytes: bytes}, GuestConfig: guest, Grants: f.grants, Observer: &trial.fuel, Limits: host.Limits{Instances: 1},
	}
	if f.logged {
		trial.cfg.Logger = slog.New(slog.NewTextHandler(t.err, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return trial, nil
}

// inspected returns what a module is, whatever its configuration.
func (t *tool) inspected(ctx context.Context, path string, f *runFlags) (*examination, error) {
	_, module, err := t.module(ctx, path, f.from)
	if err != nil {
		return nil, err
	}
	return t.examine(ctx, trying{module: module, gatekeeper: f.gatekeeper})
}

// errMethod returns the error for a plugin of a service that is run without a method.
func errMethod(command, path string, r *examination) error {
	if command != "run" {
		return fmt.Errorf("%s %s: it is a plugin of a service, which only run calls", command, path)
	}
	return fmt.Errorf("run %s: name a method, one of %s", path, strings.Join(r.methods(), ", "))
}

// run runs the plugin, as each of its kinds.
func (t *trial) run(ctx context.Context) (err error) {
	if t.rt, err = t.tool.newRuntime(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.rt.Close(context.WithoutCancel(ctx))) }()
	t.verdicts.progress = t.tool.progress("verdicts")
	defer t.verdicts.progress.end()
	for _, kind := range []struct {
		kind abi.Kind
		run  func(context.Context) error
	}{{abi.KindScheduler, t.schedule}, {abi.KindAdmission, t.admit}, {abi.KindHook, t.hook}} {
		if t.mask.Of(kind.kind) == 0 {
			continue
		}
		if err := kind.run(ctx); err != nil {
			return errors.Join(t.failure(), granting(err))
		}
	}
	return nil
}

// loaded is called when a plugin is loaded and before its first call.
func (t *trial) loaded() {
	t.fuel.take()
	if t.cfg.Profiler != nil {
		t.cfg.Profiler.Reset()
	}
	if t.onLoad != nil {
		t.onLoad()
	}
}

// granting adds the flags that give missing grants to an error.
func granting(err error) error {
	var flags []string
	for _, missing := range importErrors(err) {
		if flag := "--grant " + missing.Grant; missing.Grant != "" && !slices.Contains(flags, flag) {
			flags = append(flags, flag)
		}
	}
	if len(flags) == 0 {
		return err
	}
	return fmt.Errorf("%w\nrun gives what is missing by %s", err, strings.Join(flags, " "))
}

// parseKind reads a kind with its group and version, as in v1/Namespace or
// apps/v1/Deployment.
func parseKind(text string) (schema.GroupVersionKind, error) {
	i := strings.LastIndexByte(text, '/')
	gv, err := schema.ParseGroupVersion(text[:max(i, 0)])
	if i <= 0 || err != nil || text[i+1:] == "" {
		return schema.GroupVersionKind{}, fmt.Errorf("%q is no kind with its version, such as v1/Namespace or apps/v1/Deployment", text)
	}
	return gv.WithKind(text[i+1:]), nil
}

// warnAll prints the warnings about the objects of a file.
func (t *tool) warnAll(file string, warnings []string) {
	for i, warning := range warnings {
		if i == maxFailures {
			t.warn(fmt.Sprintf("%s: and %d more", file, len(warnings)-i))
			return
		}
		t.warn(file + ": " + warning)
	}
}

// cost returns the cost of the calls since the last cost.
func (t *trial) cost() *callCost {
	fuel, took := t.fuel.take()
	return &callCost{took, fuel}
}

// maxFailures is the number of failures that are printed.
const maxFailures = 20

// failed records the error of a call without an answer. format names the call, and is empty
// if err does.
func (t *trial) failed(err error, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if text != "" {
		err = fmt.Errorf("%s: %w", text, err)
	}
	t.failures = append(t.failures, err)
}

// failure returns the failures as one error, nil if there are none.
func (t *trial) failure() error {
	if len(t.failures) == 0 {
		return nil
	}
	printed, before := t.failures[:min(len(t.failures), maxFailures)], ""
	var errs []error
	for _, err := range printed {
		stack := strings.Join(frames(err), "\n")
		if stack != "" && stack != before {
			err = fmt.Errorf("%w\n%s", err, stack)
		}
		errs, before = append(errs, err), stack
	}
	if more := len(t.failures) - len(printed); more > 0 {
		errs = append(errs, fmt.Errorf("and %d more", more))
	}
	return &failure{errors.Join(errs...)}
}

// failure is an error whose text has the stack of the guest.
type failure struct{ error }

func (f *failure) Unwrap() error { return f.error }
