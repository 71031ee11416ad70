package nri_test

import (
	"context"
	"log/slog"
	"os/signal"
	"syscall"

	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/hooks/runtime/nri"
)

// serveNRI answers containerd until the process is told to end. The engine, the
// state and the enforcer are those of the other modes.
func serveNRI(engine *hooks.Engine, state *cgroup.State, enforcer *cgroup.Enforcer) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	plugin, err := nri.New(nri.Config{
		Engine: engine, State: state, Enforcer: enforcer,
		Layout: cgroup.Layout{Driver: cgroup.Systemd},
		Index:  "50",
		Logger: slog.Default(),
	})
	if err != nil {
		return err
	}
	return plugin.Run(ctx)
}

func Example() { _ = serveNRI }
