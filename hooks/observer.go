package hooks

import (
	"context"
	"time"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/host"
)

// Observer receives the decisions of an [Engine]. Several goroutines call its methods during their
// work, so they must be fast and must not keep their arguments.
type Observer interface {
	// Decided is called after [Engine.Decide] with its duration and its result.
	Decided(ctx context.Context, req *hookmsg.Request, took time.Duration, d *hookmsg.Decision, err error)
	// Failed is called with each failure of a plugin; [CauseOf] classifies it. If refused is set,
	// it has failed the request: the plugin's policy is Fail, and its mode is not Monitor. The text
	// of err contains no confidential value of the request.
	Failed(ctx context.Context, req *hookmsg.Request, plugin string, policy host.FailurePolicy, refused bool, err error)
	// Monitored is called with each decision of a plugin in the mode [host.Monitor] that sets
	// any field. It must not keep the request.
	Monitored(ctx context.Context, req *hookmsg.Request, plugin string, d *hookmsg.Decision)
}
