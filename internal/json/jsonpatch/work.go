package jsonpatch

import (
	"errors"
	"math"
)

// Pay bounds an operation from outside. It receives the work done since the last call, once in a
// while and at the end. If it returns an error, the operation ends and returns that error. The unit
// is the time that it takes to read a byte, about a nanosecond. A nil Pay never ends an operation.
type Pay func(work int) error

// payAfter is the work after which a Pay is called: about a millisecond.
const payAfter = 1 << 20

// ErrTooMuch is the error of a patch that exceeds a limit of this package, rather than one that
// does not fit the document.
var ErrTooMuch = errors.New("patch is beyond the limits")

// limitError is the reason why a patch exceeds the limits. It is an ErrTooMuch.
type limitError string

func (e limitError) Error() string        { return string(e) }
func (e limitError) Is(target error) bool { return target == ErrTooMuch }

// errWork is the error of an operation that exceeds its work.
const errWork = limitError("the patch is too much work")

// unlimited is the work of an operation that only its caller bounds: that of a guest has its fuel.
const unlimited = math.MaxInt

// work counts the work of an operation. The first error stays.
type work struct {
	left int
	pay  Pay
	// due is the work not yet reported to pay.
	due int
	err error
}

// do deducts n from the remaining work, and reports whether the operation may go on.
func (w *work) do(n int) bool {
	if w.err != nil {
		return false
	}
	if w.due += n; w.due >= payAfter {
		w.settle()
	}
	if w.left != unlimited {
		if w.left -= n; w.left < 0 && w.err == nil {
			w.err = errWork
		}
	}
	return w.err == nil
}

// settle reports the due work to pay.
func (w *work) settle() {
	if w.pay != nil && w.due > 0 {
		if err := w.pay(w.due); err != nil {
			w.err = err
		}
	}
	w.due = 0
}
