// Command kubewasm-agent runs runtime hooks on a node, in both running modes at once. It answers the
// container runtime, by NRI or Koordinator's runtime proxy, and keeps the cgroups at the decided
// values.
//
//	kubewasm-agent -config /etc/kubewasm/agent.yaml
//	kubewasm-agent -config /etc/kubewasm/agent.yaml -restore
//	kubewasm-agent -config /etc/kubewasm/agent.yaml -state shop/web
//
// The second form restores the fields decided by the plugins of the configuration, before they or
// the agent are removed from a node: stop the agent first. The third queries the running agent for
// the decisions on a pod and the values in force.
//
// The directory deploy has a configuration with four plugins and a systemd unit; charts/kubewasm
// installs a DaemonSet.
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

	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks/runtime/standalone"
	"github.com/kubewasm/kubewasm/internal/clusterplugins"
	"github.com/kubewasm/kubewasm/internal/foreign"
	"github.com/kubewasm/kubewasm/internal/program"
	"github.com/kubewasm/kubewasm/internal/program/statusz"
)

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50) // Trades the agent's time for memory of the node.
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "kubewasm-agent:", foreign.Lines(err.Error()))
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("kubewasm-agent", flag.ContinueOnError)
	file := flags.String("config", "/etc/kubewasm/agent.yaml", "the configuration `file`")
	check := flags.Bool("check", false, "load the configuration and the plugins, check the cgroups and the list of pods, and report mistakes")
	dryRun := flags.Bool("dry-run", false, "log intended writes without writing")
	restore := flags.Bool("restore", false, "restore the kubelet's values of the fields owned by plugins, and exit; stop the agent first")
	state := flags.String("state", "", "ask the running agent about `namespace/pod[/container]`, or about all, and print its answer in JSON")
	version := flags.Bool("version", false, "print the version, and exit")
	log := new(program.Log)
	log.Flags(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *version {
		fmt.Println("kubewasm-agent", program.ThisBuild())
		return nil
	}
	cfg, err := readConfig(*file)
	if err != nil {
		return err
	}
	if *state != "" {
		return printState(ctx, cfg, *state, foreign.NewWriter(os.Stdout))
	}
	logger := slog.New(log.Handler(os.Stderr))
	if !*check && !*restore {
		return start(ctx, *file, *dryRun, &log.Level, logger)
	}
	cfg.secrets = new(clusterplugins.Secrets)
	logger = slog.New(cfg.secrets.Handler(logger.Handler()))
	cfg.DryRun = cfg.DryRun || *dryRun
	build := func() (*agent, error) { return newAgent(ctx, cfg, logger) }
	if cfg.Cluster != nil {
		hooks, unfollow, err := followHooks(ctx, cfg, logger)
		if err != nil {
			return err
		}
		defer unfollow()
		build = func() (*agent, error) { return hooks.build(ctx, cfg, false, logger) }
	}
	a, err := build()
	if err != nil {
		return err
	}
	defer a.close()
	if *check {
		if err := a.check(ctx, logger); err != nil {
			return err
		}
		fmt.Printf("ok: %d plugins\n", len(a.plugins))
		return nil
	}
	return a.alone(func() error { return a.restore(ctx) })
}

// start runs the agents of a file, one after the other. An agent ends after a change of the
// configuration, once the next one has loaded its plugins.
func start(ctx context.Context, file string, dryRun bool, level *slog.LevelVar, logger *slog.Logger) error {
	secrets := new(clusterplugins.Secrets)
	logger = slog.New(secrets.Handler(logger.Handler()))
	logger.Info("the agent starts", "program", "kubewasm-agent", "version", program.ThisBuild().String())
	var build func([]byte, bool) (*agent, error)
	started, flagged, status := false, level.Level(), new(statusz.Collector)
	var hooks *nodeHooks
	unfollow := func() {}
	defer func() { unfollow() }()
	build = func(text []byte, again bool) (*agent, error) {
		cfg, err := parseConfig(file, text)
		if err != nil {
			return nil, err
		}
		cfg.DryRun, cfg.standIn, cfg.status, cfg.secrets = cfg.DryRun || dryRun, !started, status, secrets
		if hooks != nil && (cfg.Cluster == nil || *cfg.Cluster != hooks.cfg) {
			unfollow()
			hooks, unfollow = nil, func() {}
		}
		if cfg.Cluster != nil && hooks == nil {
			if hooks, unfollow, err = followHooks(ctx, cfg, logger); err != nil {
				hooks, unfollow = nil, func() {}
				return nil, err
			}
		}
		var a *agent
		if hooks != nil {
			a, err = hooks.build(ctx, cfg, again, logger)
		} else {
			a, err = newAgent(ctx, cfg, logger)
		}
		if err != nil {
			return nil, err
		}
		started = true
		level.Set(flagged)
		if cfg.LogLevel != nil {
			level.Set(*cfg.LogLevel)
		}
		follow := cfg.Follow == nil || *cfg.Follow
		if follow || cfg.selectsNodes() || hooks != nil {
			a.setReload(&reload{file: file, text: text, follow: follow, hooks: hooks, build: build, logger: logger})
		}
		return a, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	a, err := build(text, false)
	if err != nil {
		return err
	}
	for {
		var next *agent
		if hooks != nil {
			hooks.agent.Store(a)
		}
		err := a.alone(func() error {
			err := a.run(ctx)
			if a.reload != nil && a.reload.next != nil {
				next = a.reload.next
				logger.Info("a new configuration or selection of plugins replaces the old one")
				a.handOver(ctx, next, logger)
			}
			return err
		})
		a.close()
		if next == nil {
			return err
		}
		a = next
	}
}

// alone calls f while no other agent serves the node. A dry run does not need that.
func (a *agent) alone(f func() error) error {
	if !a.dryRun {
		unlock, err := a.applier.Lock()
		if err != nil {
			return fmt.Errorf("another agent serves this node: %w", err)
		}
		defer unlock()
	}
	return f()
}

// restore restores the fields decided by the plugins.
func (a *agent) restore(ctx context.Context) error {
	for _, mode := range a.modes {
		m, ok := mode.(*standalone.Reconciler)
		if !ok {
			continue
		}
		owned := a.engine.Owned() | hookmsg.FieldUnified // Those files of it that a plugin owns.
		changes, err := m.Restore(ctx, owned, a.engine.OwnsFile)
		for _, c := range changes {
			fmt.Println(c)
		}
		if kept := a.engine.Owned().OfResources() &^ standalone.Restorable; kept != 0 {
			fmt.Printf("not restored: %s\n", kept)
		}
		return err
	}
	return errors.New("restore: the configuration has no standalone mode, whose list of pods is needed")
}

// run runs the modes until ctx ends or one of them fails.
func (a *agent) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for _, mode := range a.modes {
		all.Go(func() {
			a.await(ctx, mode)
			cancel(mode.Run(ctx))
		})
	}
	all.Wait()
	return context.Cause(ctx)
}
