package hooks

import (
	"context"
	"time"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/host"
)

// Observer receives what an [Engine] decides. Several goroutines call its methods, in
// the middle of their work: they must be quick and keep none of their arguments.
type Observer interface {
	// Decided is called after [Engine.Decide] with its duration and its result.
	Decided(ctx context.Context, req *hookmsg.Request, took time.Duration, d *hookmsg.Decision, err error)
	// Failed is called with each failure of a plugin; [CauseOf] classes it. It has failed the
	// request if refused is set: the plugin's policy is Fail, and its mode is not Monitor. The text of
	// err repeats nothing confidential of the request.
	Failed(ctx context.Context, req *hookmsg.Request, plugin string, policy host.FailurePolicy, refused bool, err error)
	// Monitored is called with each decision of a plugin in the mode [host.Monitor] that sets
	// any field. It must not keep the request.
	Monitored(ctx context.Context, req *hookmsg.Request, plugin string, d *hookmsg.Decision)
}
