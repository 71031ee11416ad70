package rego

import (
	"fmt"
	"io"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"
)

// Limits of regular expressions.
const (
	// maxPattern is the maximum length of a pattern.
	maxPattern = 4 << 10
	// maxProgram is the maximum number of instructions, and maxCaptures the maximum of instructions
	// times groups: the matcher records the position of each group for each instruction.
	maxProgram  = 10_000
	maxCaptures = 1 << 20
)

// Costs of regular expressions: reading a byte of a pattern, a class of Unicode, and a folded
// range, each of whose characters is looked up; and a step, which is one instruction at one
// character.
const (
	patternWork = 1000
	classWork   = 200_000
	foldWork    = 15_000_000
	stepWork    = 5
	stepsPaid   = 1 << 12
)

// expression is a regular expression that is matched step by step, with a payment for each. The
// matcher cannot be stopped otherwise, and finding all matches in a text takes the square of its
// length in the worst case.
type expression struct {
	call *call
	*regexp.Regexp
	// later finds matches after a character, which is the first one it reads. It is created on
	// demand.
	later   *regexp.Regexp
	pattern string
	// steps is the number of steps for a character.
	steps int
}

// compile reads a pattern. An invalid pattern is an ordinary error.
func compile(c *call, pattern string) (*expression, error) {
	if len(pattern) > maxPattern {
		return nil, errTooMuch
	}
	work := len(pattern)*patternWork + (strings.Count(pattern, `\p`)+strings.Count(pattern, `\P`))*classWork
	if strings.Contains(pattern, "(?") {
		work += wideRanges(pattern) * foldWork
	}
	if work > 20*maxWork {
		return nil, errTooMuch
	}
	c.work(work)
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, err
	}
	program, groups := programSize(parsed), parsed.MaxCap()+1
	if program > maxProgram || program*groups > maxCaptures {
		return nil, errTooMuch
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, err
	}
	return &expression{call: c, Regexp: re, pattern: pattern, steps: (program + 1) * (1 + groups/8)}, nil
}

// wideRanges counts the possible ranges that end beyond ASCII.
func wideRanges(pattern string) int {
	n := 0
	for i := 1; i < len(pattern); i++ {
		if pattern[i-1] == '-' && (pattern[i] == '\\' || pattern[i] >= utf8.RuneSelf) {
			n++
		}
	}
	return n
}

// programSize returns the approximate number of instructions of an expression.
func programSize(re *syntax.Regexp) int {
	n := 2
	for _, sub := range re.Sub {
		n += programSize(sub)
	}
	switch re.Op {
	case syntax.OpLiteral:
		n += len(re.Rune)
	case syntax.OpRepeat:
		n *= max(re.Min, re.Max, 0) + 1
	}
	return min(n, maxProgram+1) // The cap prevents an overflow: a repetition multiplies by at most about a thousand.
}

// paidReader is a text that is paid for while it is read.
type paidReader struct {
	text  *strings.Reader
	call  *call
	steps int
	due   int
}

func (r *paidReader) ReadRune() (rune, int, error) {
	if r.due += r.steps; r.due >= stepsPaid {
		r.call.work(r.due * stepWork)
		r.due = 0
	}
	return r.text.ReadRune()
}

var _ io.RuneReader = (*paidReader)(nil)

// find returns the position of the first match from pos on, and of its groups, as
// FindStringSubmatchIndex does; nil if there is none.
func (e *expression) find(text string, pos int) ([]int, error) {
	if pos == 0 {
		return e.FindReaderSubmatchIndex(e.reader(text)), nil
	}
	// The character before pos decides about ^ and \b.
	_, width := utf8.DecodeLastRuneInString(text[:pos])
	if e.later == nil {
		e.call.work(2 * len(e.pattern) * patternWork)
		const behind = `\A(?s:.)(?s:.*?)(`
		var err error
		if e.later, err = regexp.Compile(behind + e.pattern + `)`); err != nil {
			// The pattern has a \Q without an end.
			if e.later, err = regexp.Compile(behind + e.pattern + `\E)`); err != nil {
				return nil, fmt.Errorf("%w: %w", errTooMuch, err)
			}
		}
	}
	at := e.later.FindReaderSubmatchIndex(e.reader(text[pos-width:]))
	if at == nil {
		return nil, nil
	}
	at = at[2:]
	for i := range at {
		if at[i] >= 0 {
			at[i] += pos - width
		}
	}
	return at, nil
}

func (e *expression) reader(text string) io.RuneReader {
	e.call.work(1000)
	return &paidReader{text: strings.NewReader(text), call: e.call, steps: e.steps}
}

// each calls f with each match and its groups, at most n times unless n is negative. The order is
// that of package regexp: an empty match right after another match does not count.
func (e *expression) each(text string, n int, f func(at []int) error) error {
	for pos, last := 0, -1; n != 0 && pos <= len(text); {
		at, err := e.find(text, pos)
		if at == nil {
			return err
		}
		empty := at[1] == pos
		if !empty || at[0] != last {
			if err := f(at); err != nil {
				return err
			}
			n--
		}
		if last = at[1]; empty {
			_, width := utf8.DecodeRuneInString(text[pos:])
			pos += max(width, 1)
		} else {
			pos = at[1]
		}
	}
	return nil
}

func regexSplit(c *call, args []any) (any, error) {
	list, err := stringsOf(args)
	if err != nil {
		return nil, err
	}
	e, err := compile(c, list[0])
	if err != nil {
		return nil, err
	}
	text := list[1]
	if list[0] != "" && text == "" {
		return []string{""}, nil
	}
	parts, start, end := []string{}, 0, 0
	err = e.each(text, -1, func(at []int) error {
		if len(parts) == maxValues {
			return errTooMuch
		}
		if end = at[0]; at[1] != 0 {
			parts = append(parts, text[start:end])
		}
		start = at[1]
		return nil
	})
	if end != len(text) {
		parts = append(parts, text[start:])
	}
	return parts, err
}

func regexReplace(c *call, args []any) (any, error) {
	list, err := stringsOf(args)
	if err != nil {
		return nil, err
	}
	e, err := compile(c, list[1])
	if err != nil {
		return nil, err
	}
	text, template := list[0], list[2]
	references := strings.Count(template, "$")
	var out []byte
	end := 0
	err = e.each(text, -1, func(at []int) error {
		out = append(out, text[end:at[0]]...)
		end = at[1]
		// A reference is at most as long as the match.
		if more := len(template) + references*(at[1]-at[0]); more > c.limit-len(out) {
			return errTooMuch
		}
		c.work(len(template) + 100*references)
		out = e.ExpandString(out, template, text, at)
		return nil
	})
	return string(append(out, text[end:]...)), err
}

func regexFindN(c *call, args []any) (any, error) {
	pattern, ok := args[0].(string)
	text, ok2 := args[1].(string)
	n, ok3 := args[2].(number)
	if !ok || !ok2 || !ok3 {
		return nil, errArguments
	}
	count, err := n.int64()
	if err != nil {
		return nil, err
	}
	e, err := compile(c, pattern)
	if err != nil {
		return nil, err
	}
	found := []string{}
	err = e.each(text, int(count), func(at []int) error {
		if len(found) == maxValues {
			return errTooMuch
		}
		found = append(found, text[at[0]:at[1]])
		return nil
	})
	return found, err
}

// regexTemplateMatch matches a text with a template: expressions between delimiters, and literal
// text around them.
func regexTemplateMatch(c *call, args []any) (any, error) {
	list, err := stringsOf(args)
	if err != nil {
		return nil, err
	}
	template, text, start, end := list[0], list[1], list[2], list[3]
	if len(start) != 1 || len(end) != 1 {
		return nil, errArguments
	}
	if len(template) > maxPattern {
		return nil, errTooMuch
	}
	pattern := []byte("^")
	level, from := 0, 0
	for i := range len(template) {
		switch template[i] {
		case start[0]:
			if level++; level == 1 {
				pattern = append(pattern, regexp.QuoteMeta(template[from:i])...)
				from = i + 1
			}
		case end[0]:
			if level--; level < 0 {
				return nil, errArguments
			} else if level == 0 {
				part := template[from:i]
				if _, err := compile(c, "^"+part+"$"); err != nil {
					return nil, err
				}
				pattern = append(append(append(pattern, '('), part...), ')')
				from = i + 1
			}
		}
	}
	if level != 0 {
		return nil, errArguments
	}
	pattern = append(append(pattern, regexp.QuoteMeta(template[from:])...), '$')
	e, err := compile(c, string(pattern))
	if err != nil {
		return nil, err
	}
	at, err := e.find(text, 0)
	return at != nil, err
}
