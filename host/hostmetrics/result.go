package hostmetrics

import (
	"context"
	"errors"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/loading"
)

// callResult is the result of a call: the index of its label.
type callResult int

const (
	callOK callResult = iota
	callTrap
	callFuel
	callStack
	callTimeout
	callCanceled
	callABI
)

var callLabels = [...]string{"ok", "trap", "fuel", "stack", "timeout", "canceled", "abi"}

func callResultOf(err error) callResult {
	switch {
	case err == nil:
		return callOK
	case is[*host.ABIError](err):
		return callABI
	case errors.Is(err, host.ErrFuel):
		return callFuel
	case errors.Is(err, host.ErrStack):
		return callStack
	case errors.Is(err, context.DeadlineExceeded):
		return callTimeout
	case errors.Is(err, context.Canceled):
		return callCanceled
	default:
		return callTrap
	}
}

// refusal is the reason why a caller got no instance: the index of its label.
type refusal int

const (
	refusedSaturated refusal = iota
	refusedDisabled
	refusedMemory
	refusedClosed
	refusedUnavailable
	refusedQuota
	refusedOther
)

var refusalLabels = [...]string{"saturated", "disabled", "memory", "closed", "unavailable", "quota", "other"}

func refusalOf(err error) refusal {
	var unavailable *host.UnavailableError
	switch {
	case errors.As(err, &unavailable):
		return refusedUnavailable
	// A caller that waited because there was no memory counts as one that got
	// none.
	case errors.Is(err, host.ErrMemory):
		return refusedMemory
	case errors.Is(err, host.ErrSaturated):
		return refusedSaturated
	case errors.Is(err, host.ErrDisabled):
		return refusedDisabled
	case errors.Is(err, host.ErrClosed):
		return refusedClosed
	case errors.Is(err, loading.ErrQuota):
		return refusedQuota
	default:
		return refusedOther
	}
}

// buildResult is the result of a build: the index of its label.
type buildResult int

const (
	buildOK buildResult = iota
	buildDigest
	buildModule
	buildABI
	buildTrap
	buildStatus
	buildOther
)

var buildLabels = [...]string{"ok", "digest", "module", "abi", "trap", "status", "other"}

func buildResultOf(err error) buildResult {
	switch {
	case err == nil:
		return buildOK
	case is[*host.DigestError](err):
		return buildDigest
	case is[*host.ModuleError](err):
		return buildModule
	case is[*host.ExportError](err), is[*host.ImportError](err):
		return buildABI
	case is[*host.TrapError](err):
		return buildTrap
	case is[*host.StatusError](err):
		return buildStatus
	default:
		return buildOther
	}
}

// kind is the purpose of building a version: the index of its label.
type kind int

const (
	kindLoad kind = iota
	kindSwap
)

var kindLabels = [...]string{"load", "swap"}

// how is the way in which an instance began anew: the index of its label.
type how int

const (
	howReset how = iota
	howReplaced
)

var restartLabels = [...]string{"reset", "replaced"}

// is reports whether an error of type E is in err's tree.
func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
