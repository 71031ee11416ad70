package jsonpatch

import (
	"errors"
	"math"
)

// Pay bounds an operation from outside. It is told the work that was done since the
// last time, once in a while and at the end, and an error of it ends the operation,
// which returns that error. The unit is the time that it takes to read a byte, about
// a nanosecond. A nil Pay never ends an operation.
type Pay func(work int) error

// payAfter is the work after which a Pay is told: about a millisecond.
const payAfter = 1 << 20

// ErrTooMuch says that a patch goes beyond a limit of this package, rather than that
// it does not fit the document.
var ErrTooMuch = errors.New("patch is beyond the limits")

// limitError is why a patch goes beyond the limits. It is an ErrTooMuch.
type limitError string

func (e limitError) Error() string        { return string(e) }
func (e limitError) Is(target error) bool { return target == ErrTooMuch }

// errWork says that the work that an operation may be is used up.
const errWork = limitError("the patch is too much work")

// unlimited is the work of an operation that nothing bounds but its caller: that of
// a guest has its fuel.
const unlimited = math.MaxInt

// work counts what an operation does. The first error stays.
type work struct {
	left int
	pay  Pay
	// due is what pay was not told yet.
	due int
	err error
}

// do takes n off what is left, and reports whether the operation may go on.
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

// settle tells pay what is due.
func (w *work) settle() {
	if w.pay != nil && w.due > 0 {
		if err := w.pay(w.due); err != nil {
			w.err = err
		}
	}
	w.due = 0
}
