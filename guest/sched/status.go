package sched

import (
	"strings"

	"github.com/kubewasm/kubewasm/abi"
)

// Code is the code of a Status.
type Code = abi.Code

// The codes of the scheduler framework. Functions of the same names make the
// most common statuses.
const (
	CodeSuccess                      = abi.Success
	CodeError                        = abi.Error
	CodeUnschedulable                = abi.Unschedulable
	CodeUnschedulableAndUnresolvable = abi.UnschedulableAndUnresolvable
	CodeWait                         = abi.Wait
	CodeSkip                         = abi.Skip
	CodePending                      = abi.Pending
)

// Status is the result of a plugin: a code and, unless it is CodeSuccess, the reason
// for it. A nil *Status is a success.
type Status struct {
	code   Code
	reason string
}

// NewStatus returns a Status with the code and a reason, the concatenation of
// its parts.
func NewStatus(code Code, reason ...string) *Status {
	return &Status{code: code, reason: strings.Join(reason, "")}
}

// Unschedulable returns the Status of a Pod that does not fit, but might after
// other Pods were preempted. The reason is the concatenation of its parts;
// users find it in the conditions of the Pod.
func Unschedulable(reason ...string) *Status { return NewStatus(CodeUnschedulable, reason...) }

// UnschedulableAndUnresolvable returns the Status of a Pod that does not fit,
// also after any preemption. The reason is the concatenation of its parts.
func UnschedulableAndUnresolvable(reason ...string) *Status {
	return NewStatus(CodeUnschedulableAndUnresolvable, reason...)
}

// Skip returns a Status with the code CodeSkip. If PreFilter returns it, Filter
// is not called in this cycle.
func Skip() *Status { return &Status{code: CodeSkip} }

// AppendReason adds another reason. In a Pod's condition, the scheduler counts
// the nodes with each reason.
func (s *Status) AppendReason(reason string) {
	if s.reason != "" {
		s.reason += "\x00"
	}
	s.reason += reason
}

// AsStatus returns a Status with the code CodeError and the text of err, nil if err
// is nil.
func AsStatus(err error) *Status {
	if err == nil {
		return nil
	}
	return &Status{code: CodeError, reason: err.Error()}
}

// Code returns the code, CodeSuccess for nil.
func (s *Status) Code() Code {
	if s == nil {
		return CodeSuccess
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

// IsSuccess reports whether the code is CodeSuccess.
func (s *Status) IsSuccess() bool { return s.Code() == CodeSuccess }
