// Package answers records the answers that guests got in a call, and repeats them for shadows.
package answers

import (
	"context"
	"errors"
	"fmt"

	"github.com/kubewasm/kubewasm/host/confidential"
)

// Answers holds the answers that a guest got in a call beyond its request: objects of the cluster,
// and answers of host capabilities. They are recorded while the serving version decides, and then
// given to a candidate for the same request. They belong to one call at a time.
type Answers struct {
	given map[string]answer
	bytes int
	// TooMany is set if the answers exceeded the limit.
	TooMany bool

	repeated bool
	// Unknown is the first question of a candidate without an answer here, empty if there was none.
	Unknown string
}

type answer struct {
	value any
	err   error
}

// maxAnswerBytes bounds the questions and answers kept for a call, in bytes. Objects that a cluster
// keeps anyway do not count.
const maxAnswerBytes = 1 << 20

// ErrUnknown is the error of a question without an answer.
var ErrUnknown = errors.New("a shadow uses only the recorded answers of the serving version")

// Repeat returns the answers for a candidate.
func (a *Answers) Repeat() *Answers { return &Answers{given: a.given, bytes: a.bytes, repeated: true} }

// Bytes returns the size of the kept questions and answers.
func (a *Answers) Bytes() int { return a.bytes }

// Find records the confidential values in the answers.
func (a *Answers) Find(rule *confidential.Rule, s *confidential.Stain) {
	for _, known := range a.given {
		if s.Sealed() {
			return
		}
		if b, ok := known.value.([]byte); ok {
			rule.Find("", "", b, s)
		}
	}
}

type key struct{}

// With returns a context for a call that records answers in a, or gets them from a.
func With(ctx context.Context, a *Answers) context.Context {
	return context.WithValue(ctx, key{}, a)
}

// Ask returns the answer of ask to a question, or the answer that the serving version got. Neither
// may be changed afterwards.
func Ask[T any](ctx context.Context, question string, ask func() (T, error)) (T, error) {
	a, _ := ctx.Value(key{}).(*Answers)
	if a == nil {
		return ask()
	}
	if known, ok := a.given[question]; ok && a.repeated {
		value, _ := known.value.(T)
		return value, known.err
	}
	if a.repeated {
		if a.Unknown == "" {
			a.Unknown = fmt.Sprintf("%.200q", question)
		}
		var none T
		return none, ErrUnknown
	}
	value, err := ask()
	n := len(question)
	if b, ok := any(value).([]byte); ok {
		n += len(b)
	}
	if a.bytes += n; a.bytes > maxAnswerBytes {
		a.TooMany = true
		return value, err
	}
	if a.given == nil {
		a.given = map[string]answer{}
	}
	a.given[question] = answer{value, err}
	return value, err
}
