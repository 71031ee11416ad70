package hooks

import (
	"context"
	"time"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/host"
)

// Observer is told what an [Engine] decides and what an [Enforcer] finds. Its methods
// are called by several goroutines at a time, on their way: they must be quick, and
// keep nothing of what they are told.
type Observer interface {
	// Decided is told of a call of [Engine.Decide], how long it took and its result.
	Decided(ctx context.Context, req *hookmsg.Request, took time.Duration, d *hookmsg.Decision, err error)
	// Ignored is told of the failure of a plugin that its policy, Ignore or KeepLast,
	// or its being dry kept from failing the request.
	Ignored(ctx context.Context, req *hookmsg.Request, plugin string, policy host.FailurePolicy, err error)
	// Enforced is told of a pass over cgroups.
	Enforced(ctx context.Context, report Report)
}
