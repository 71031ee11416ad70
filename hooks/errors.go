package hooks

import (
	"context"
	"errors"
	"fmt"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/cut"
)

// CauseOf returns the cause of a plugin's failure in one word:
//
//   - "status": the guest returned an error.
//   - "decision": its decision is malformed, out of range or sets fields of another plugin.
//   - "grant": its decision has a part that is not granted.
//   - "conflict": an earlier plugin has decided otherwise.
//   - "trap", "fuel", "stack", "timeout": the call did not return.
//   - "memory", "saturated", "disabled", "closed": there was no instance for it.
//   - "unavailable": it could not be loaded yet.
//   - "node": it reads the node, which is still unknown.
//   - "other": any other error.
func CauseOf(err error) string {
	var status *host.StatusError
	var decision *DecisionError
	var grant *GrantError
	var conflict *ConflictError
	var unavailable *host.UnavailableError
	switch {
	case errors.As(err, &unavailable):
		return "unavailable"
	case errors.As(err, &grant):
		return "grant"
	case errors.As(err, &decision):
		return "decision"
	case errors.As(err, &conflict):
		return "conflict"
	case errors.As(err, &status):
		return "status"
	case errors.Is(err, errNodeUnknown):
		return "node"
	case errors.Is(err, host.ErrMemory):
		return "memory"
	case errors.Is(err, host.ErrSaturated):
		return "saturated"
	case errors.Is(err, host.ErrDisabled):
		return "disabled"
	case errors.Is(err, host.ErrClosed):
		return "closed"
	case errors.Is(err, host.ErrFuel):
		return "fuel"
	case errors.Is(err, host.ErrStack):
		return "stack"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	}
	var trap *host.TrapError
	if errors.As(err, &trap) {
		return "trap"
	}
	return "other"
}

// DecisionError reports an invalid decision of a guest: malformed, with values out of range, or
// with parts that the plugin does not own or has no grant for.
type DecisionError struct {
	Plugin string
	Err    error
}

// maxErrorText bounds the message of a DecisionError, in bytes. The message has keys chosen by the
// guest, and logs and the kubelet's events keep it.
const maxErrorText = 4 << 10

func (e *DecisionError) Error() string {
	text := e.Err.Error()
	if more := len(text) - maxErrorText; more > 0 {
		text = fmt.Sprintf("%s (%d bytes more)", cut.Marked(text, maxErrorText), more)
	}
	return fmt.Sprintf("plugin %q: decision: %s", e.Plugin, text)
}

func (e *DecisionError) Unwrap() error { return e.Err }

// ConflictError reports a field of a request that two plugins decide differently.
type ConflictError struct {
	// Field is the name in hook.proto, with the key of a map:
	// "cpu_shares", "unified[io.weight]".
	Field string
	// Plugins are the earlier and the later plugin, and Values their decisions.
	Plugins, Values [2]string
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("plugins %q and %q decide %s differently: %s and %s", e.Plugins[0], e.Plugins[1], e.Field, e.Values[0], e.Values[1])
}

// ownerError reports a field owned by one plugin that another also owns, in the configuration, or
// sets, in a decision.
type ownerError struct {
	// Field is the name in hook.proto, with the key of a map.
	Field string
	// Plugins are the owner, or the first of two owners, and the other plugin.
	Plugins [2]string
}

func (e *ownerError) Error() string {
	return fmt.Sprintf("%s is owned by plugin %q and claimed by plugin %q", e.Field, e.Plugins[0], e.Plugins[1])
}
