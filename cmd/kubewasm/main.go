package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/internal/foreign"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/nearest"
)

// command is a subcommand. Its help is a section of doc.go.
type command struct {
	name    string
	summary string
	run     func(ctx context.Context, t *tool, args []string) error
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
	{"push", "push a module to a registry", push},
	{"pull", "pull a module from a registry", pull},
	{"copy", "copy an artifact to another registry or a layout", copyArtifact},
	{"sign", "sign an artifact", sign},
	{"version", "print the version and the ABI", version},
}

// tool is the state of a run of the program.
type tool struct {
	out, err io.Writer
	// set has the flags of the command that runs.
	set *flag.FlagSet
}

// errRefused is the error of a command that worked and whose answer is no: a plugin
// refused something, or no host runs a module. What was printed says the rest.
var errRefused = errors.New("refused")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	os.Exit(dispatch(ctx, &tool{out: os.Stdout, err: os.Stderr}, os.Args[1:]))
}

// dispatch runs a command and returns the exit code: 0, 1 after an error, 2 after
// errRefused.
func dispatch(ctx context.Context, t *tool, args []string) int {
	// Modules, recordings, registries and clusters choose much of what is printed.
	t.out, t.err = foreign.NewWriter(t.out), foreign.NewWriter(t.err)
	if len(args) == 0 {
		overview(t.err)
		return 1
	}
	if slices.Contains([]string{"help", "-h", "-help", "--help"}, args[0]) {
		return t.help(args[1:])
	}
	i := slices.IndexFunc(commands, func(c command) bool { return c.name == args[0] })
	if i < 0 {
		return t.unknown(args[0])
	}
	c := commands[i]
	var usage *usageError
	switch err := c.run(ctx, t, args[1:]); {
	case err == nil:
		return 0
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(t.out, helpOf(c.name).text)
		return 0
	case errors.Is(err, errRefused):
		return 2
	case errors.Is(err, errFailed):
		return 1
	case errors.As(err, &usage):
		foreign.Fprintf(t.err, "kubewasm: %v\nusage: %s\n\"kubewasm help %s\" prints the flags.\n", err, helpOf(c.name).usage, c.name)
		return 1
	default:
		report(t.err, err)
		return 1
	}
}

// report prints an error. The output of the compiler is printed as it is, so that editors
// find the lines.
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

// warn prints a warning, which may have text of others.
func (t *tool) warn(warning any) {
	fmt.Fprintln(t.err, "kubewasm: warning:", foreign.Lines(fmt.Sprint(warning)))
}

// flags returns an empty set of flags for a command. doc.go describes the flags, so they
// are declared without usage texts.
func (t *tool) flags(command string) *flag.FlagSet {
	t.set = flag.NewFlagSet(command, flag.ContinueOnError)
	t.set.SetOutput(io.Discard)
	t.set.Usage = func() {}
	return t.set
}

// usageError is a mistake in the arguments of a command.
type usageError struct{ error }

// parse reads the flags, which may stand on both sides of the only argument, and returns
// the argument, or other if there is none. The error is flag.ErrHelp or a *usageError.
func parse(flags *flag.FlagSet, args []string, other string) (string, error) {
	arguments, err := parseArguments(flags, args, 1)
	if err != nil {
		return "", err
	}
	if arguments = append(arguments, other); arguments[0] == "" {
		return "", &usageError{fmt.Errorf("%s: an argument is missing", flags.Name())}
	}
	return arguments[0], nil
}

// parseArguments is parse for n arguments at most.
func parseArguments(flags *flag.FlagSet, args []string, n int) (arguments []string, err error) {
	for {
		if err := flags.Parse(args); err != nil {
			return nil, flagError(flags, err)
		}
		if flags.NArg() == 0 {
			return arguments, nil
		}
		if len(arguments) == n {
			return nil, &usageError{fmt.Errorf("%s: unexpected argument %q", flags.Name(), flags.Arg(0))}
		}
		arguments, args = append(arguments, flags.Arg(0)), flags.Args()[1:]
	}
}

// parseAll is parse for an argument for each of what, which messages say.
func parseAll(flags *flag.FlagSet, args []string, what ...string) ([]string, error) {
	arguments, err := parseArguments(flags, args, len(what))
	if err == nil && len(arguments) < len(what) {
		err = &usageError{fmt.Errorf("%s: %s is missing", flags.Name(), what[len(arguments)])}
	}
	return arguments, err
}

// flagError adds the flag that was probably meant to the error of an unknown flag.
func flagError(flags *flag.FlagSet, err error) error {
	if errors.Is(err, flag.ErrHelp) {
		return err
	}
	hint := ""
	if unknown, ok := strings.CutPrefix(err.Error(), "flag provided but not defined: -"); ok {
		var names []string
		flags.VisitAll(func(f *flag.Flag) { names = append(names, f.Name) })
		if name := nearest.Name(unknown, names); name != "" {
			hint = "; did you mean -" + name + "?"
		}
	}
	return &usageError{fmt.Errorf("%s: %w%s", flags.Name(), err, hint)}
}

// module returns a module and where it is from. argument is a file, a directory that it is
// built from or, if there is neither, a reference to an artifact.
func (t *tool) module(ctx context.Context, argument string, from *pullFlags) (name string, module []byte, err error) {
	if _, err := os.Stat(argument); !errors.Is(err, fs.ErrNotExist) || !mayBeReference(argument) {
		file, err := t.file(ctx, argument)
		if err != nil {
			return "", nil, err
		}
		module, err = os.ReadFile(file)
		return file, module, err
	}
	ref, err := oci.ParseReference(argument)
	if err != nil {
		return "", nil, fmt.Errorf("there is no file of this name: %w", err)
	}
	a, by, err := from.fetch(ctx, ref)
	if err != nil {
		return "", nil, err
	}
	name = ref.Name() + "@" + a.Digest
	foreign.Fprintf(t.err, "kubewasm: %s is %s\n", name, by)
	return name, a.Module, nil
}

// mayBeReference reports whether text was meant as a reference, if there is no file of this
// name: it has a colon, as before a tag, or begins with a host and has no tag.
func mayBeReference(text string) bool {
	host, _, ok := strings.Cut(text, "/")
	return strings.Contains(text, ":") || ok && strings.Contains(strings.Trim(host, "."), ".") && !strings.HasSuffix(text, ".wasm")
}

// file returns the file of a module: path itself or, for a directory, the module that is
// built from it.
func (t *tool) file(ctx context.Context, path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return path, nil
	}
	file, err := guestbuild.BuildWith(ctx, path, t.err)
	if err != nil {
		return "", err
	}
	return file, t.check(ctx, path)
}

// check checks the guest in a directory that compiles. It prints the warnings and returns
// the mistakes. Of guests in other languages than Go the compilers find them.
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

// newRuntime returns a runtime that keeps compiled modules in the user's cache directory,
// so that only the first command compiles a module.
func newRuntime() (*host.Runtime, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return host.NewRuntime(host.RuntimeConfig{})
	}
	return host.NewRuntime(host.RuntimeConfig{CacheDir: filepath.Join(dir, "kubewasm", "compiled")})
}
