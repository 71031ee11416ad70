package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/internal/foreign"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/nearest"
	"github.com/kubewasm/kubewasm/internal/wasmbin"
	"github.com/kubewasm/kubewasm/internal/wasmlayer"
)

// action runs a command with its arguments, when the flags are read.
type action func(ctx context.Context, args []string) error

// command is a subcommand. Its help is a section of doc.go.
type command struct {
	name    string
	summary string
	// declare declares the flags.
	declare func(t *tool, flags *pflag.FlagSet) action
}

var commands = []command{
	{"new", "write a plugin with its test", newPlugin},
	{"build", "compile a guest", build},
	{"gen", "generate views of objects", gen},
	{"inspect", "describe a module", inspect},
	{"run", "run a module on objects", run},
	{"profile", "show where a module spends its fuel", profileModule},
	{"test", "test a module by cases in YAML", test},
	{"replay", "repeat recorded calls on a module", replayCalls},
	{"audit", "ask policies about objects that exist", auditObjects},
	{"manifests", "write what a cluster needs for modules", writeManifests},
	{"policies", "list and change the policies of a server", policies},
	{"export", "turn configuration into objects of a cluster", exportObjects},
	{"diff", "compare objects of files with those of a cluster", diffObjects},
	{"status", "show the plugins that a cluster declares", clusterStatus},
	{"push", "push a module to a registry", push},
	{"pull", "pull a module from a registry", pull},
	{"copy", "copy an artifact to another registry or a layout", copyArtifact},
	{"sign", "sign an artifact", sign},
	{"version", "print the version and the ABI", version},
}

// tool is the state of a run of the program.
type tool struct {
	out, err io.Writer
	// terminal is the destination of progress, nil unless that is a terminal, and every the time
	// between two states of a line.
	terminal *screen
	every    time.Duration
	// uncached is set once the lack of a cache was reported.
	uncached bool
	// named is set to build with the names of functions, for stacks.
	named bool
}

// The exit codes, which doc.go describes.
const (
	exitError       = 1
	exitRefused     = 2
	exitUnasked     = 3
	exitInterrupted = 130 // As shells have it for a program that SIGINT ends.
)

// errRefused is the error of a command that worked, with a negative answer: a plugin refused
// something, or no host runs a module. The printed output contains the details.
var errRefused = errors.New("refused")

// errUnasked is the error of a command that asked nothing: its rules match no object. The printed
// output contains the details.
var errUnasked = errors.New("nothing was asked")

// errPrinted is the error of a command that has already printed the error.
var errPrinted = errors.New("printed")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // A second signal ends the program at once.
	t := &tool{out: os.Stdout, err: os.Stderr}
	if term.IsTerminal(int(os.Stderr.Fd())) && os.Getenv("TERM") != "dumb" {
		t.terminal, t.every = &screen{w: os.Stderr}, progressInterval
		t.err = t.terminal
	}
	os.Exit(dispatch(ctx, t, os.Args[1:]))
}

// dispatch runs a command and returns the exit code.
func dispatch(ctx context.Context, t *tool, args []string) int {
	// Modules, recordings, registries and clusters choose much of the output.
	t.out, t.err = foreign.NewWriter(t.out), foreign.NewWriter(t.err)
	root := t.root()
	root.SetArgs(args)
	root.SetContext(ctx)
	ran, err := oneDash(root, args)
	if err == nil {
		ran, err = root.ExecuteC()
	}
	if why := guestbuild.RemoveTemporary(); why != nil {
		t.warn(why)
	}
	var usage *usageError
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errRefused):
		return exitRefused
	case errors.Is(err, errUnasked):
		return exitUnasked
	case errors.Is(err, errPrinted):
		return exitError
	case ctx.Err() != nil:
		fmt.Fprintln(t.err, "kubewasm: interrupted")
		return exitInterrupted
	case errors.As(err, &usage):
		topic := "help " + ran.Name()
		if ran == root {
			topic = "help"
		}
		foreign.Fprintf(t.err, "kubewasm: %v\n", err)
		if line := helpOf(ran.Name()).usage; line != "" {
			fmt.Fprintln(t.err, "usage:", line)
		}
		foreign.Fprintf(t.err, "%q describes the flags.\n", "kubewasm "+topic)
		return exitError
	default:
		report(t.err, err)
		return exitError
	}
}

// root returns the command kubewasm with its subcommands.
func (t *tool) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "kubewasm",
		Short:         "plugins of Kubernetes components that run as WebAssembly modules",
		Version:       versionLine(),
		SilenceErrors: true, SilenceUsage: true,
		Args: cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				overview(t.err)
				return errPrinted
			}
			return t.unknown(args[0])
		},
	}
	root.SetOut(t.out)
	root.SetErr(t.err)
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	root.SetHelpFunc(func(c *cobra.Command, _ []string) {
		if h := helpOf(c.Name()); h.text != "" {
			fmt.Fprint(t.out, h.text)
			return
		}
		overview(t.out)
	})
	root.SetHelpCommand(&cobra.Command{
		Use: "help [COMMAND]", Short: "describe a command",
		RunE: func(_ *cobra.Command, args []string) error { return t.help(args) },
	})
	for _, c := range commands {
		root.AddCommand(t.subcommand(c))
	}
	root.InitDefaultCompletionCmd()
	return root
}

// subcommand returns a command of cobra. The texts of its flags, which completion prints, are
// those of doc.go.
func (t *tool) subcommand(c command) *cobra.Command {
	h := helpOf(c.name)
	sub := &cobra.Command{Use: strings.TrimPrefix(h.usage, "kubewasm "), Short: c.summary, Long: h.text, DisableFlagsInUseLine: true}
	flags := sub.Flags()
	flags.SortFlags = true
	run := c.declare(t, flags)
	texts := h.flags()
	flags.VisitAll(func(f *pflag.Flag) {
		f.Usage = texts[f.Name]
		switch f.Value.(type) {
		case pflag.SliceValue, pairs: // They may be repeated.
		default:
			f.Value = &once{Value: f.Value}
		}
		if values := valuesOf(f); values != nil {
			// The flag exists, so this does not fail.
			_ = sub.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
		}
	})
	sub.RunE = func(cmd *cobra.Command, args []string) error { return run(cmd.Context(), args) }
	return sub
}

// oneDash returns an error for the first flag with one dash instead of two, as in -config. As -o
// and its value, -objects would mean something else.
func oneDash(root *cobra.Command, args []string) (*cobra.Command, error) {
	c, rest, err := root.Find(args)
	if err != nil {
		return root, nil
	}
	for _, arg := range rest {
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "-"), "=")
		switch {
		case arg == "--":
			return c, nil
		case strings.HasPrefix(arg, "-") && len(name) > 1 && c.Flags().Lookup(name) != nil:
			return c, &usageError{fmt.Errorf("%s: there is no flag -%s; did you mean --%s?", c.Name(), name, name)}
		}
	}
	return c, nil
}

// annotationValues is the annotation of a flag that has the values for completion.
const annotationValues = "kubewasm_values"

// oneOf names the values of a flag, for completion.
func oneOf(flags *pflag.FlagSet, name string, values ...string) {
	_ = flags.SetAnnotation(name, annotationValues, values) // The flag exists.
}

func valuesOf(f *pflag.Flag) []string { return f.Annotations[annotationValues] }

// once is the value of a flag that is given at most once.
type once struct {
	pflag.Value
	given bool
}

// Set implements [pflag.Value].
func (o *once) Set(text string) error {
	if o.given {
		return errors.New("the flag is given twice")
	}
	o.given = true
	return o.Value.Set(text)
}

// report prints an error. The output of the compiler is printed unchanged, so that editors find the
// lines.
func report(w io.Writer, err error) {
	var compile *guestbuild.CompileError
	if errors.As(err, &compile) {
		fmt.Fprintln(w, compile.Output)
		foreign.Fprintf(w, "kubewasm: %s does not compile\n", compile.Dir)
		return
	}
	fmt.Fprintln(w, "kubewasm:", foreign.Lines(err.Error()))
	if errors.As(err, new(*failure)) {
		return // Its text has the stack.
	}
	for _, line := range frames(err) {
		fmt.Fprintln(w, line)
	}
}

// warn prints a warning, which may contain text from others.
func (t *tool) warn(warning any) {
	fmt.Fprintln(t.err, "kubewasm: warning:", foreign.Lines(fmt.Sprint(warning)))
}

// usageError is a mistake in the arguments of a command.
type usageError struct{ error }

func (e *usageError) Unwrap() error { return e.error }

// argument returns the only argument of a command, or other if there is none. The error is a
// *usageError.
func argument(flags *pflag.FlagSet, args []string, other string) (string, error) {
	args, err := atMost(flags, args, 1)
	if err != nil {
		return "", err
	}
	if args = append(slices.Clone(args), other); args[0] == "" {
		return "", &usageError{fmt.Errorf("%s: an argument is missing", flags.Name())}
	}
	return args[0], nil
}

// atMost returns the arguments, of which there are at most n.
func atMost(flags *pflag.FlagSet, args []string, n int) ([]string, error) {
	if len(args) > n {
		return nil, &usageError{fmt.Errorf("%s: unexpected argument %q", flags.Name(), args[n])}
	}
	return args, nil
}

// arguments returns an argument for each of what, which are the names in messages.
func arguments(flags *pflag.FlagSet, args []string, what ...string) ([]string, error) {
	args, err := atMost(flags, args, len(what))
	if err == nil && len(args) < len(what) {
		err = &usageError{fmt.Errorf("%s: %s is missing", flags.Name(), what[len(args)])}
	}
	return args, err
}

// flagError adds the flag that was probably meant to the error of an unknown flag.
func flagError(c *cobra.Command, err error) error {
	hint := ""
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		var names []string
		c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		name := unknown.GetSpecifiedName()
		if shorthands := unknown.GetSpecifiedShortnames(); shorthands != "" {
			name = shorthands // Of -confg, all the letters.
		}
		meant := nearest.Name(name, names)
		if i := slices.IndexFunc(names, func(n string) bool { return strings.HasPrefix(n, name) }); meant == "" && len(name) > 2 && i >= 0 {
			meant = names[i]
		}
		if meant != "" {
			hint = "; did you mean --" + meant + "?"
		}
	}
	return &usageError{fmt.Errorf("%s: %w%s", c.Name(), err, hint)}
}

// module returns a module and its origin. argument is a file, a directory to build it from or, if
// there is neither, a reference to an artifact.
func (t *tool) module(ctx context.Context, argument string, from *pullFlags) (name string, module []byte, err error) {
	if _, err := os.Stat(argument); !errors.Is(err, fs.ErrNotExist) || !mayBeReference(argument) {
		file, err := t.file(ctx, argument)
		if err != nil {
			return "", nil, err
		}
		module, err = readModule(file)
		return file, module, err
	}
	ref, err := oci.ParseReference(argument)
	if err != nil {
		return "", nil, fmt.Errorf("there is no file of this name: %w", err)
	}
	fetching := t.working("fetching " + argument)
	a, by, err := from.fetch(ctx, ref)
	fetching.end()
	if err != nil {
		return "", nil, err
	}
	name = ref.Name() + "@" + a.Digest
	foreign.Fprintf(t.err, "kubewasm: %s is %s\n", name, by)
	return name, a.Module, nil
}

// readModule reads a module from its file, or from the bundle of opa build.
func readModule(file string) ([]byte, error) {
	module, err := os.ReadFile(file)
	if err != nil || !bytes.HasPrefix(module, []byte{0x1f, 0x8b}) {
		return module, err
	}
	if module, err = wasmlayer.Unpack(module, wasmbin.MaxModuleBytes); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return module, nil
}

// mayBeReference reports whether text was meant as a reference, if there is no file of this
// name: it has a colon, as before a tag, or begins with a host and has no tag.
func mayBeReference(text string) bool {
	host, _, ok := strings.Cut(text, "/")
	return strings.Contains(text, ":") || ok && strings.Contains(strings.Trim(host, "."), ".") && !strings.HasSuffix(text, ".wasm")
}

// file returns the file of a module: path itself or, for a directory, the module built from it.
func (t *tool) file(ctx context.Context, path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return path, nil
	}
	building := t.working("building " + path)
	file, err := guestbuild.BuildWith(ctx, path, t.named, t.err)
	building.end()
	if err != nil {
		return "", err
	}
	return file, t.check(ctx, path)
}

// check checks the guest in a directory that compiles. It prints the warnings and returns the
// mistakes. For guests in languages other than Go the compilers find them.
func (t *tool) check(ctx context.Context, dir string) error {
	if guestbuild.LanguageOf(dir) != guestbuild.Go {
		return nil
	}
	warnings, err := guestbuild.Check(ctx, dir)
	for _, warning := range warnings {
		t.warn(warning)
	}
	return err
}

// newRuntime returns a runtime that keeps compiled modules in the user's cache directory, so that
// only the first command compiles a module. Without a writable directory, it warns and uses no
// cache.
func (t *tool) newRuntime() (*host.Runtime, error) {
	dir, err := os.UserCacheDir()
	if err == nil {
		var rt *host.Runtime
		if rt, err = host.NewRuntime(host.RuntimeConfig{CacheDir: filepath.Join(dir, "kubewasm", "compiled")}); err == nil {
			return rt, nil
		}
	}
	rt, failed := host.NewRuntime(host.RuntimeConfig{})
	if failed != nil {
		return nil, failed
	}
	if !t.uncached {
		t.uncached = true
		t.warn(fmt.Errorf("keep compiled modules in a cache: %w", err))
	}
	return rt, nil
}
