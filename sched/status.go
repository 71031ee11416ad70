package sched

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
)

// Status is the answer of a plugin at an extension point; nil is success. It does not change, so
// repeated answers may share one.
type Status struct {
	code    abi.Code
	reasons []string
	err     error
}

// NewStatus returns a status with a code, nil for [abi.Success].
func NewStatus(code abi.Code, reasons ...string) *Status {
	if code == abi.Success {
		return nil
	}
	return &Status{code: code, reasons: slices.Clip(reasons)}
}

// Code returns the code, which is one that the framework knows.
func (s *Status) Code() abi.Code {
	if s == nil {
		return abi.Success
	}
	return s.code
}

// Err returns the reason why the guest did not answer, nil if it did. The code is [abi.Error] then.
func (s *Status) Err() error {
	if s == nil {
		return nil
	}
	return s.err
}

// Reasons returns the guest's reasons or, for a guest that did not answer, the text beside Err. It
// must not be changed; appending to it does not write into its memory.
func (s *Status) Reasons() []string {
	if s == nil {
		return nil
	}
	return s.reasons
}

// Message returns the error and the reasons, with ", " between them.
func (s *Status) Message() string {
	if s.Err() != nil {
		return strings.Join(append([]string{s.err.Error()}, s.reasons...), ", ")
	}
	return strings.Join(s.Reasons(), ", ")
}

// AsError returns Err, or an error of the message. It is nil for success, Wait and Skip.
func (s *Status) AsError() error {
	switch s.Code() {
	case abi.Success, abi.Wait, abi.Skip:
		return nil
	}
	if s.err != nil {
		return s.err
	}
	return errors.New(s.Message())
}

// The answers of a plugin that leave everything as it is.
var (
	skip          = NewStatus(abi.Skip)
	unschedulable = NewStatus(abi.Unschedulable)
	unsigned      = NewStatus(abi.Unschedulable, "the plugin signs no Pods")
	noNode        = NewStatus(abi.Error, "node not found")
)

// errorStatus is the status of a failure of the plugin.
func errorStatus(err error, reasons ...string) *Status {
	return &Status{code: abi.Error, reasons: reasons, err: err}
}

// failed decides on a request whose guest did not answer. neutral is the status that leaves
// everything as it is.
func (p *Plugin) failed(f abi.Function, err error, neutral *Status) *Status {
	if p.policy == host.Ignore {
		p.callLogger.Error("ignored a failure", "plugin", p.guest.Name(), "function", f.String(), "err", err)
		return neutral
	}
	return trapStatus(err)
}

// trapStatus returns the status of an error, with the place in the guest if it is a trap.
func trapStatus(err error) *Status {
	var trap *host.TrapError
	if errors.As(err, &trap) && trap.Stack != "" {
		return errorStatus(err, "at "+strings.ReplaceAll(trap.Frames(statusFrames), "\n", " < "))
	}
	return errorStatus(err)
}

// statusFrames is the number of functions of a guest's stack in a status.
const statusFrames = 8

// status returns the status of the code that a guest returned: nil for success, even with a reason;
// an error for a code that the framework does not know, since it panics on those.
func status(code abi.Code, inst *host.Instance) *Status {
	i, reason := inst.State().(*instance), inst.Reason()
	if i.peer.Reason != "" {
		reason = i.peer.Reason
	}
	switch {
	case code == abi.Success:
		return nil
	case !code.Known():
		return NewStatus(abi.Error, fmt.Sprintf("plugin %q: guest returned the unknown status code %d: %s", inst.Plugin().Name(), int32(code), reason))
	case reason == "":
		return NewStatus(code)
	case i.last == nil || i.last.code != code || i.lastOf != reason:
		i.last, i.lastOf = NewStatus(code, strings.Split(reason, "\x00")...), reason
	}
	return i.last
}
