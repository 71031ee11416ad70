package abi

import "strconv"

// Code is the status code that a scheduler function returns: those of
// k8s.io/kube-scheduler/framework.Code, which wasm carries in an i32.
type Code int32

// The codes of the scheduler framework, v0.37.
const (
	Success Code = iota
	Error
	Unschedulable
	UnschedulableAndUnresolvable
	Wait
	Skip
	Pending
)

var codeNames = [...]string{"Success", "Error", "Unschedulable", "UnschedulableAndUnresolvable", "Wait", "Skip", "Pending"}

// Known reports whether c is a code of the framework. A host treats any other
// as Error: the framework itself panics on a code that it does not know.
func (c Code) Known() bool { return c >= Success && c <= Pending }

// String returns the framework's name of the code.
func (c Code) String() string {
	if c.Known() {
		return codeNames[c]
	}
	return "code(" + strconv.Itoa(int(c)) + ")"
}

// Verdict is the status code that an admission function returns.
type Verdict int32

// The verdicts of an admission plugin. Any other number counts as
// VerdictError.
const (
	// VerdictAllow admits the request.
	VerdictAllow Verdict = 0
	// VerdictError is returned when the plugin could not decide; its failure
	// policy then decides the request.
	VerdictError Verdict = 1
	// VerdictDeny refuses the request.
	VerdictDeny Verdict = 2
)
