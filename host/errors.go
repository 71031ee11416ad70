package host

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kubewasm/kubewasm/abi"
)

// ErrClosed says that a plugin was closed before or during the call.
var ErrClosed = errors.New("plugin is closed")

// ErrSaturated says that no instance of a plugin became free before the
// caller's context ended. The context's own error is wrapped beside it.
var ErrSaturated = errors.New("every instance of the plugin is in use")

// ErrFuel says that a call used up Limits.Fuel. It is wrapped by a *[TrapError].
var ErrFuel = errors.New("out of fuel")

// ErrStack says that functions of a guest called one another until Limits.StackBytes
// were used up. It is wrapped by a *[TrapError].
var ErrStack = errors.New("out of stack")

// DigestError says that a module is not the one that the configuration names.
type DigestError struct {
	Plugin    string
	Want, Got string // SHA-256 in lower-case hexadecimal.
}

func (e *DigestError) Error() string {
	return fmt.Sprintf("plugin %q: sha256 of the module is %s, want %s", e.Plugin, e.Got, e.Want)
}

// ModuleError says that bytes are not a module that can run here: malformed, of
// an unsupported feature, with a start function that fails, or over a limit.
type ModuleError struct {
	Plugin string
	Err    error
}

func (e *ModuleError) Error() string {
	return fmt.Sprintf("plugin %q: load module: %v", e.Plugin, e.Err)
}

func (e *ModuleError) Unwrap() error { return e.Err }

// ExportError says that an export is missing or has another signature than the
// ABI asks for.
type ExportError struct {
	Plugin string
	Export string
	// Got is the signature that the module has, empty if the export is
	// missing; Want the one that it should have. Both as in
	// abi.FormatSignature.
	Got, Want string
}

func (e *ExportError) Error() string {
	if e.Got == "" {
		return fmt.Sprintf("plugin %q: export %q is missing, want %s", e.Plugin, e.Export, e.Want)
	}
	return fmt.Sprintf("plugin %q: export %q is %s, want %s", e.Plugin, e.Export, e.Got, e.Want)
}

// ImportError says that a module imports what this host does not provide or
// grant.
type ImportError struct {
	Plugin       string
	Module, Name string
	// Got is the signature that the module imports, Want the one that the host
	// provides; Want is empty when there is no such function.
	Got, Want string
	// Grant is what the configuration does not grant, if that is the mistake.
	Grant string
}

func (e *ImportError) Error() string {
	if e.Want == "" {
		return fmt.Sprintf("plugin %q: import %.200s.%.200s is not provided by this host", e.Plugin, e.Module, e.Name)
	}
	if e.Grant != "" {
		return fmt.Sprintf("plugin %q: import %s.%s needs the grant %q, which the configuration does not give", e.Plugin, e.Module, e.Name, e.Grant)
	}
	return fmt.Sprintf("plugin %q: import %s.%s is %s, want %s", e.Plugin, e.Module, e.Name, e.Got, e.Want)
}

// TrapError says that a guest did not return from a call: it executed a
// trapping instruction, exited, exhausted its stack, or broke a rule of the ABI
// (then errors.As finds an *ABIError too). A call that was stopped is one as
// well: errors.Is finds [ErrFuel], [ErrStack], context.DeadlineExceeded for Limits.Timeout
// or the caller's deadline, or context.Canceled.
type TrapError struct {
	Plugin string
	// Function is the export that was called.
	Function string
	// Reason is the runtime's word for what happened: "wasm error:
	// unreachable", "exit code 2".
	Reason string
	// Output is what the guest printed to standard output and standard error
	// during the call, cut to Limits.OutputBytes. A Go guest's panic and its
	// Go stack stand here.
	Output string
	// Stack is the stack of WebAssembly functions, innermost first, one to a
	// line, cut to 64 KiB.
	Stack string
	// Err is the runtime's error.
	Err error
}

// Error is one line: the first line that the guest printed is usually the text
// of its panic.
func (e *TrapError) Error() string {
	msg := fmt.Sprintf("plugin %q: %s trapped: %s", e.Plugin, e.Function, e.Reason)
	if line, _, _ := strings.Cut(strings.TrimSpace(e.Output), "\n"); line != "" {
		msg += ": " + line
	}
	return msg
}

func (e *TrapError) Unwrap() error { return e.Err }

// maxLoggedFrames is how much of a stack is written to the log.
const maxLoggedFrames = 32

// frameBytes is how long a line of Frames may be on average.
const frameBytes = 256

// Frames returns the first n lines of Stack, cut to 256 bytes for each: a guest chooses the
// names of its functions.
func (e *TrapError) Frames(n int) string {
	end := 0
	for range n {
		next := strings.IndexByte(e.Stack[end:], '\n')
		if next < 0 {
			end = len(e.Stack) + 1
			break
		}
		end += next + 1
	}
	return text([]byte(e.Stack[:max(0, end-1)]), frameBytes*n)
}

// ABIError says that a guest broke a rule of the ABI in a call to the host.
type ABIError struct {
	// Function is the host function that the guest called, with its module.
	Function string
	Err      error
}

func (e *ABIError) Error() string { return fmt.Sprintf("call %s: %v", e.Function, e.Err) }

func (e *ABIError) Unwrap() error { return e.Err }

// StatusError says that a guest returned a status code other than success from
// a function whose only other answer is failure, such as configure.
type StatusError struct {
	Plugin   string
	Function string
	Code     abi.Code
	Reason   string
	// Functions are those that the guest said that it implements.
	Functions abi.Mask
}

func (e *StatusError) Error() string {
	reason := e.Reason
	if reason == "" {
		reason = "no reason given"
	}
	return fmt.Sprintf("plugin %q: %s returned %s: %s", e.Plugin, e.Function, e.Code, reason)
}

// maxErrorBytes is how much of an error of wazero about a module is kept.
const maxErrorBytes = 4 << 10

// shorten cuts the text of an error short that is made of what a module has: a
// mistake at a branch names the type of every operand, of which there may be
// millions.
func shorten(err error) error {
	if err == nil {
		return nil
	}
	s := err.Error()
	if len(s) <= maxErrorBytes {
		return err
	}
	return errors.New(text([]byte(s), maxErrorBytes) + " ...")
}

// maxStackBytes is how much of a stack trace is kept: some hundred functions.
const maxStackBytes = 64 << 10

// newTrapError takes wazero's error apart: the reason stands before its stack
// trace.
func newTrapError(plugin, function, output string, err error) *TrapError {
	reason, stack, _ := strings.Cut(err.Error(), "\nwasm stack trace:\n")
	reason = strings.TrimSuffix(reason, " (recovered by wazero)")
	if len(stack) > maxStackBytes {
		stack = stack[:maxStackBytes] // A guest chooses the names of its functions.
	}
	lines := strings.Split(strings.TrimRight(stack, "\n"), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, "\t")
	}
	return &TrapError{
		Plugin:   plugin,
		Function: function,
		Reason:   reason,
		Output:   output,
		Stack:    strings.Join(lines, "\n"),
		Err:      err,
	}
}
