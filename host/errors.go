package host

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/codes"
	"github.com/kubewasm/kubewasm/internal/cut"
	"github.com/kubewasm/kubewasm/internal/demangle"
)

// ErrClosed is the error of a call to a plugin that was closed before or during the call.
var ErrClosed = errors.New("plugin is closed")

// ErrSaturated is the error of a caller whose context ended before an instance
// of the plugin became free. The context's own error is wrapped beside it.
var ErrSaturated = errors.New("all instances of the plugin are in use")

// ErrHostFault is wrapped by the error with which a host function ends a call, by [Instance.Abort],
// because of a fault in the host and not in the guest. No circuit breaker counts it.
var ErrHostFault = errors.New("the host has failed")

// ErrFuel is the error of a call that used up Limits.Fuel. It is wrapped by a
// *[TrapError].
var ErrFuel = errors.New("out of fuel")

// ErrStack is the error of a call whose nested functions used up Limits.StackBytes.
// It is wrapped by a *[TrapError].
var ErrStack = errors.New("out of stack")

// LoadError is the error of a module that [Runtime.Load] could not fetch, or has refused: another
// attempt may succeed. Mistakes of the configuration are other errors.
type LoadError struct {
	Plugin string
	// SHA256 is the digest of the module, in lower-case hexadecimal, if it was refused: as long as
	// the source has it, another attempt is futile. It is empty if the module could not be fetched,
	// or there was no memory for it.
	SHA256 string
	// Reference is the source of the module, and Duration the time that the attempt took.
	Reference string
	Duration  time.Duration
	Err       error
}

func (e *LoadError) Error() string { return e.Err.Error() }

func (e *LoadError) Unwrap() error { return e.Err }

// DigestError is the error of a module whose digest differs from that of the configuration.
type DigestError struct {
	Plugin    string
	Want, Got string // SHA-256 in lower-case hexadecimal.
}

func (e *DigestError) Error() string {
	return fmt.Sprintf("plugin %q: sha256 of the module is %s, want %s", e.Plugin, e.Got, e.Want)
}

// ModuleError is the error of bytes that are not a module for this host: malformed, with an
// unsupported feature, with a start function that fails, or over a limit.
type ModuleError struct {
	Plugin string
	Err    error
}

func (e *ModuleError) Error() string {
	return fmt.Sprintf("plugin %q: load module: %v", e.Plugin, e.Err)
}

func (e *ModuleError) Unwrap() error { return e.Err }

// ExportError is the error of an export that is missing, or whose signature differs from that of
// the ABI.
type ExportError struct {
	Plugin string
	Export string
	// Got is the signature of the module's export, empty if the export is missing; Want is the
	// required one. Both are as in abi.Signature.Type.
	Got, Want string
}

func (e *ExportError) Error() string {
	if e.Got == "" {
		return fmt.Sprintf("plugin %q: export %q is missing, want %s", e.Plugin, e.Export, e.Want)
	}
	return fmt.Sprintf("plugin %q: export %q is %s, want %s", e.Plugin, e.Export, e.Got, e.Want)
}

// ImportError is the error of an import that this host does not provide or
// grant.
type ImportError struct {
	Plugin       string
	Module, Name string
	// Got is the signature of the module's import, Want that of the host's function; Want is empty
	// when there is no such function.
	Got, Want string
	// Grant is the grant that the configuration lacks, if that is the mistake.
	Grant string
	// kind is that of the plugin, if it is not the host's. Its further imports have no errors.
	kind abi.Kind
}

func (e *ImportError) Error() string {
	if e.kind != abi.KindCommon {
		return fmt.Sprintf("plugin %q: it is a plugin of kind %s: import %s.%.200s is not provided by this host", e.Plugin, e.kind, e.Module, e.Name)
	}
	if e.Want == "" {
		return fmt.Sprintf("plugin %q: import %.200s.%.200s is not provided by this host", e.Plugin, e.Module, e.Name)
	}
	if e.Grant != "" {
		return fmt.Sprintf("plugin %q: import %s.%s needs the grant %q, which the configuration does not give", e.Plugin, e.Module, e.Name, e.Grant)
	}
	return fmt.Sprintf("plugin %q: import %s.%s is %s, want %s", e.Plugin, e.Module, e.Name, e.Got, e.Want)
}

// TrapError is the error of a call from which the guest did not return: it executed a
// trapping instruction, exited, exhausted its stack, or broke a rule of the ABI (then
// errors.As also finds an *ABIError). It is also the error of a call that was stopped:
// errors.Is finds [ErrFuel], [ErrStack], context.DeadlineExceeded for Limits.Timeout or
// the caller's deadline, or context.Canceled.
type TrapError struct {
	Plugin string
	// Function is the export that was called.
	Function string
	// Reason is the runtime's text for the cause, such as "wasm error:
	// unreachable" or "exit code 2".
	Reason string
	// Output is the guest's standard output and standard error during the call, cut to
	// Limits.OutputBytes. It contains a Go guest's panic and its Go stack.
	Output string
	// Stack is the stack of WebAssembly functions, innermost first, one to a
	// line, cut to 64 KiB. A function of Rust is named by its path.
	Stack string
	// Err is the runtime's error.
	Err error
}

// Error returns one line. It includes the first line that the guest printed,
// usually the text of its panic.
func (e *TrapError) Error() string {
	msg := fmt.Sprintf("plugin %q: %s trapped: %s", e.Plugin, e.Function, e.Reason)
	if line, _, _ := strings.Cut(strings.TrimSpace(e.Output), "\n"); line != "" {
		msg += ": " + line
	}
	return msg
}

func (e *TrapError) Unwrap() error { return e.Err }

// ErrorCode returns codes.Uncoded: the guest has not answered. If a host function ended the call
// with an error, its code is not the guest's.
func (e *TrapError) ErrorCode() codes.Code { return codes.Uncoded }

// maxLoggedFrames is the number of frames of a stack that are written to the
// log.
const maxLoggedFrames = 32

// frameBytes is the maximum average length of a line of Frames.
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
	return cut.Text(e.Stack[:max(0, end-1)], frameBytes*n)
}

// ABIError is the error of a guest that broke a rule of the ABI in a call to
// the host.
type ABIError struct {
	// Function is the host function that the guest called, with its module.
	Function string
	Err      error
}

func (e *ABIError) Error() string { return fmt.Sprintf("call %s: %v", e.Function, e.Err) }

func (e *ABIError) Unwrap() error { return e.Err }

// StatusError is the error of a guest that returned a status code other than
// success from a function that can only succeed or fail, such as configure.
type StatusError struct {
	Plugin   string
	Function string
	// Code is the code of the error that a method of a service returned, and codes.Uncoded
	// otherwise. A guest may return any number.
	Code   codes.Code
	Reason string
	// Functions are the functions that the guest declared to implement.
	Functions abi.Mask
}

func (e *StatusError) Error() string {
	reason := e.Reason
	if reason == "" {
		reason = "no reason given"
	}
	return fmt.Sprintf("plugin %q: %s returned %s: %s", e.Plugin, e.Function, e.Code, reason)
}

// ErrorCode returns the code.
func (e *StatusError) ErrorCode() codes.Code { return e.Code }

// maxErrorBytes is the maximum number of bytes kept of wazero's error about a module.
const maxErrorBytes = 4 << 10

// shorten cuts the text of an error that repeats contents of a module. An error at a branch, for
// example, names the types of all operands, of which there may be millions.
func shorten(err error) error {
	if err == nil {
		return nil
	}
	s := err.Error()
	if len(s) <= maxErrorBytes {
		return err
	}
	return errors.New(cut.Marked(s, maxErrorBytes))
}

// maxStackBytes is the maximum number of bytes kept of a stack trace: some hundred functions.
const maxStackBytes = 64 << 10

// maxReadableFrames is the maximum number of lines in which names are made readable, more than the
// runtime writes: a guest can write lines into the name of a function.
const maxReadableFrames = 128

// newTrapError splits wazero's error into the reason and the stack trace that
// follows it.
func newTrapError(plugin, function, output string, err error) *TrapError {
	reason, stack, _ := strings.Cut(err.Error(), "\nwasm stack trace:\n")
	reason = strings.TrimSuffix(reason, " (recovered by wazero)")
	stack = cut.Text(stack, maxStackBytes) // A guest chooses the names of its functions.
	lines := strings.Split(strings.TrimRight(stack, "\n"), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, "\t")
		if i < maxReadableFrames {
			lines[i] = readableFrame(lines[i])
		}
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

// readableFrame returns a line of a stack with the path of a function of Rust instead of its
// mangled name, which is between the name of the module and the types.
func readableFrame(line string) string {
	for _, mangling := range []string{"._ZN", "._R"} {
		before, rest, ok := strings.Cut(line, mangling)
		if !ok {
			continue
		}
		name, types, ok := strings.Cut(mangling[1:]+rest, "(")
		if !ok {
			continue
		}
		if path := demangle.Rust(name); path != name {
			return before + "." + path + "(" + types
		}
	}
	return line
}
