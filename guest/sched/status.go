package sched

import (
	"strings"

	"github.com/kubewasm/kubewasm/abi"
)

// Status is the result of a plugin: a code and, unless it is abi.Success, the reason
// for it. A nil *Status is a success.
type Status struct {
	code   abi.Code
	reason string
}

// NewStatus returns a Status with the code and a reason, the concatenation of
// its parts.
func NewStatus(code abi.Code, reason ...string) *Status {
	s := newStatus()
	s.code = code
	if len(reason) != 0 {
		s.reason = strings.Join(reason, "")
	}
	return s
}

// Unschedulable returns the Status of a Pod that does not fit, but might after
// other Pods were preempted. The reason is the concatenation of its parts;
// users find it in the conditions of the Pod.
func Unschedulable(reason ...string) *Status { return NewStatus(abi.Unschedulable, reason...) }

// UnschedulableAndUnresolvable returns the Status of a Pod that does not fit, even after any
// preemption. The reason is the concatenation of its parts.
func UnschedulableAndUnresolvable(reason ...string) *Status {
	return NewStatus(abi.UnschedulableAndUnresolvable, reason...)
}

// Skip returns a Status with the code abi.Skip. If PreFilter returns it, Filter
// is not called in this cycle.
func Skip() *Status { return &Status{code: abi.Skip} }

// AppendReason adds another reason. In a Pod's condition, the scheduler counts
// the nodes with each reason.
func (s *Status) AppendReason(reason string) {
	if s.reason == "" {
		s.reason = reason
		return
	}
	s.reason += "\x00" + reason
}

// AsStatus returns a Status with the code abi.Error and the text of err, nil if err
// is nil.
func AsStatus(err error) *Status {
	if err == nil {
		return nil
	}
	return &Status{code: abi.Error, reason: err.Error()}
}

// Code returns the code, abi.Success for nil.
func (s *Status) Code() abi.Code {
	if s == nil {
		return abi.Success
	}
	return s.code
}

// Reason returns the reason, empty for nil; several with a comma between them.
func (s *Status) Reason() string {
	if s == nil {
		return ""
	}
	return strings.ReplaceAll(s.reason, "\x00", ", ")
}

// String returns "Unschedulable: node is outside zone a".
func (s *Status) String() string {
	if reason := s.Reason(); reason != "" {
		return s.Code().String() + ": " + reason
	}
	return s.Code().String()
}

// IsSuccess reports whether the code is abi.Success.
func (s *Status) IsSuccess() bool { return s.Code() == abi.Success }
