package runtimehook_test

import (
	"context"
	"os/signal"
	"syscall"

	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/hooks/runtime/runtimehook"
	"github.com/kubewasm/kubewasm/host"
)

// serveHooks answers Koordinator's runtime proxy until the process is told to end.
// The engine, the state and the enforcer are those of the other modes.
func serveHooks(engine *hooks.Engine, state *cgroup.State, enforcer *cgroup.Enforcer) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	server, err := runtimehook.New(runtimehook.Config{
		Engine: engine, State: state, Enforcer: enforcer,
		Socket:        "/var/run/kubewasm/hooks.sock",
		Registration:  "/etc/runtime/hookserver.d/kubewasm.json",
		FailurePolicy: host.Ignore,
	})
	if err != nil {
		return err
	}
	return server.Run(ctx)
}

func Example() { _ = serveHooks }
