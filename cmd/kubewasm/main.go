//go:build !wasip1

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/nearest"
)

// command is a subcommand.
type command struct {
	name string
	run  func(ctx context.Context, t *tool, args []string) error
}

var commands = []command{{"build", build}, {"inspect", inspect}, {"run", run}}

// usage is what the commands take.
var usage = map[string]string{
	"build":   "build [-o FILE] [-name NAME] [-version VERSION] [-check=false] [DIR]",
	"inspect": "inspect [-config FILE] [-gatekeeper] [-o text|json] DIR|FILE.wasm",
	"run":     "run -f MANIFESTS [-config FILE] [-objects FILE] [-grant NAME]... [-log] [FLAGS OF REQUESTS] DIR|FILE.wasm",
}

// tool is where a command writes to.
type tool struct{ out, err io.Writer }

// errRefused says that a plugin said no to something, or that no host takes a module: the
// exit code tells.
var errRefused = errors.New("refused")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	os.Exit(dispatch(ctx, &tool{os.Stdout, os.Stderr}, os.Args[1:]))
}

// dispatch runs a command and returns the exit code: 0, 1 after an error, 2 if
// the plugin refuses something, or is refused itself.
func dispatch(ctx context.Context, t *tool, args []string) int {
	for _, c := range commands {
		if len(args) == 0 || args[0] != c.name {
			continue
		}
		switch err := c.run(ctx, t, args[1:]); {
		case err == nil, errors.Is(err, flag.ErrHelp):
			return 0
		case errors.Is(err, errRefused):
			return 2
		default:
			report(t.err, err)
			return 1
		}
	}
	if len(args) > 0 && slices.Contains([]string{"help", "-h", "-help", "--help"}, args[0]) {
		printUsage(t.out)
		return 0
	}
	if len(args) > 0 {
		var names []string
		for _, c := range commands {
			names = append(names, c.name)
		}
		fmt.Fprintf(t.err, "kubewasm: there is no command %q%s\n", args[0], nearest.Hint("; ", args[0], names))
	}
	printUsage(t.err)
	return 1
}

func printUsage(w io.Writer) {
	fmt.Fprintln(w, "usage:")
	for _, c := range commands {
		fmt.Fprintln(w, "  kubewasm", usage[c.name])
	}
}

// report writes an error. What the compiler says about a package stands as it
// came, so that editors find the lines.
func report(w io.Writer, err error) {
	var compile *guestbuild.CompileError
	if errors.As(err, &compile) {
		fmt.Fprintln(w, compile.Output)
		fmt.Fprintf(w, "kubewasm: %s does not compile\n", compile.Dir)
		return
	}
	fmt.Fprintln(w, "kubewasm:", err)
	if errors.As(err, new(*failure)) {
		return // It has its frames.
	}
	for _, line := range frames(err) {
		fmt.Fprintln(w, line)
	}
}

// flags returns the flags of a command.
func (t *tool) flags(c string) *flag.FlagSet {
	flags := flag.NewFlagSet(c, flag.ContinueOnError)
	flags.SetOutput(t.err)
	flags.Usage = func() {
		fmt.Fprintln(t.err, "usage: kubewasm", usage[c])
		flags.PrintDefaults()
	}
	return flags
}

// parse reads flags, which may stand on both sides of the only argument, and returns
// that; or other if there is none.
func parse(flags *flag.FlagSet, args []string, other string) (string, error) {
	if err := flags.Parse(args); err != nil {
		return "", err
	}
	argument := other
	if flags.NArg() > 0 {
		argument = flags.Arg(0)
		if err := flags.Parse(flags.Args()[1:]); err != nil {
			return "", err
		}
	}
	switch {
	case flags.NArg() > 0:
		return "", fmt.Errorf("%s: unexpected argument %q", flags.Name(), flags.Arg(0))
	case argument == "":
		return "", fmt.Errorf("%s: name a module or the directory of a guest", flags.Name())
	}
	return argument, nil
}

// module returns the file of a module: path itself or, for a directory, what is
// built of it.
func (t *tool) module(ctx context.Context, path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return path, nil
	}
	file, err := guestbuild.Build(ctx, path)
	if err != nil {
		return "", err
	}
	return file, t.check(ctx, path)
}

// check prints what build warns of about the guest in a directory that compiles, and
// returns what it refuses.
func (t *tool) check(ctx context.Context, dir string) error {
	warnings, err := guestbuild.Check(ctx, dir)
	for _, warning := range warnings {
		fmt.Fprintln(t.err, "kubewasm: warning:", warning)
	}
	return err
}

// newRuntime keeps compiled guests in the user's cache directory, so that only
// the first command compiles them.
func newRuntime() (*host.Runtime, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return host.NewRuntime(host.RuntimeConfig{})
	}
	return host.NewRuntime(host.RuntimeConfig{CacheDir: filepath.Join(dir, "kubewasm", "compiled")})
}
