// Command quickstart shows kubewasm at work on one machine, without a cluster: it
// compiles three guests from plain Go and lets them decide about Kubernetes
// manifests. The first runs in a scheduler, the second in an admission webhook, the
// third in a node agent that writes cgroup files.
//
//	go run ./examples/quickstart [-f FILE]
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"unicode"

	"github.com/kubewasm/kubewasm/host"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], printable{os.Stdout}); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(printable{os.Stderr}, "quickstart:", err)
		}
		stop()
		os.Exit(1)
	}
}

// printable writes text that manifests and guests have a part of: a terminal acts upon no character
// of it but the ends of lines and tabs.
type printable struct{ w io.Writer }

func (p printable) Write(b []byte) (int, error) {
	_, err := p.w.Write(bytes.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, b))
	return len(b), err
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	flags := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	file := flags.String("f", "", "YAML `FILE` with Nodes and Pods, several documents in any order")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; name a file with -f", flags.Arg(0))
	}
	objects, err := readManifests(*file)
	if err != nil {
		return err
	}
	rt, err := newRuntime()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rt.Close(context.WithoutCancel(ctx))) }()

	dir, err := os.MkdirTemp("", "kubewasm-quickstart")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	built, err := build(ctx, out, dir)
	if err != nil {
		return err
	}
	for _, show := range []func(context.Context, io.Writer, *host.Runtime, *guests, *manifests) error{
		showScheduler, showAdmission, showHooks,
	} {
		if err := show(ctx, out, rt, built, objects); err != nil {
			return err
		}
	}
	return nil
}

// newRuntime keeps compiled guests in the user's cache directory, so that only
// the first run compiles them.
func newRuntime() (*host.Runtime, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return host.NewRuntime(host.RuntimeConfig{})
	}
	return host.NewRuntime(host.RuntimeConfig{CacheDir: filepath.Join(dir, "kubewasm", "compiled")})
}
