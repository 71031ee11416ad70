// Command node-agent runs runtime hooks on a node, in both running modes at once:
// it answers the container runtime, by NRI or Koordinator's runtime proxy, and
// keeps the cgroups at what was decided.
//
//	node-agent -config /etc/kubewasm/agent.yaml
//
// deploy has a configuration with four plugins, a systemd unit and a DaemonSet.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"

	"github.com/kubewasm/kubewasm/internal/foreign"
)

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50) // It has time to spare, and a node has other uses for memory.
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "node-agent:", foreign.Lines(err.Error()))
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("node-agent", flag.ContinueOnError)
	file := flags.String("config", "/etc/kubewasm/agent.yaml", "the configuration `file`")
	check := flags.Bool("check", false, "load the configuration and the plugins, and say what is wrong")
	dryRun := flags.Bool("dry-run", false, "log what would be written, and write nothing")
	if err := flags.Parse(args); err != nil {
		return err
	}
	cfg, err := readConfig(*file)
	if err != nil {
		return err
	}
	cfg.DryRun = cfg.DryRun || *dryRun
	a, err := newAgent(ctx, cfg, slog.New(slog.NewTextHandler(foreign.NewWriter(os.Stderr), nil)))
	if err != nil {
		return err
	}
	defer a.close()
	debug.FreeOSMemory() // What loading the plugins took.
	if *check {
		return nil
	}
	return a.run(ctx)
}

// run runs the modes until ctx ends or one of them fails.
func (a *agent) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for _, mode := range a.modes {
		all.Go(func() { cancel(mode.Run(ctx)) })
	}
	all.Wait()
	return context.Cause(ctx)
}
