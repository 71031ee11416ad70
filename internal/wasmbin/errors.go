package wasmbin

import (
	"errors"
	"fmt"
)

var (
	// ErrReserved is a guest that imports or exports a name which begins with
	// [ReservedPrefix].
	ErrReserved = errors.New("reserved name")
	// ErrMemoryLimit is a guest whose memory begins larger than
	// [Options.MaxMemoryPages].
	ErrMemoryLimit = errors.New("memory limit exceeded")
	// ErrTableLimit is a guest whose tables begin larger, together, than
	// [Options.MaxTableElements].
	ErrTableLimit = errors.New("table limit exceeded")
	// ErrElements is a guest with an element segment that lies beyond its table,
	// if [Options.CheckElements] is set.
	ErrElements = errors.New("element segment out of range")
	// ErrTooManyLocals is a guest that declares more local variables than
	// [MaxLocals] or [maxTotalLocals] allow.
	ErrTooManyLocals = errors.New("too many locals")
	// ErrTooComplex is a guest that wazero would take seconds to compile or
	// hundreds of megabytes to hold, beyond what its size justifies: it has
	// branches or values beyond a limit, or more entries of a kind than any guest
	// needs.
	ErrTooComplex = errors.New("too complex to compile")
	// ErrTooSlow is an ErrTooComplex that [Options.CompileTime] can allow.
	ErrTooSlow = fmt.Errorf("%w in the time allowed", ErrTooComplex)
	// ErrIndex is a guest that names a function, global, type or local which it
	// does not have.
	ErrIndex = errors.New("index out of range")
	// ErrInternal is a guest that shows a mistake of this package: it panicked, or would
	// have written other code than the guest's.
	ErrInternal = errors.New("internal error of the rewriter")
	// ErrUnsupported is a guest that needs a feature which wazero lacks, such as a second memory.
	ErrUnsupported = errors.New("unsupported feature")
)

// contain makes a panic an error: a module must not end the process that loads it.
func contain(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("%w: %v", ErrInternal, r)
	}
}

// DecodeError is a binary that is not a well-formed module.
type DecodeError struct {
	// Section is the section with the error.
	Section SectionID
	// Offset counts bytes from the start of the binary.
	Offset int
	// Err describes the expected and the found content.
	Err error
}

// Error names the section, the offset and the cause.
func (e *DecodeError) Error() string {
	return fmt.Sprintf("decode wasm: section %s, offset %#x: %v", e.Section, e.Offset, e.Err)
}

// Unwrap returns the cause.
func (e *DecodeError) Unwrap() error { return e.Err }
