// Package boolexpr implements the language of groups of policies: calls of members, joined by &&
// and ||, compared by == and !=, negated by !, with parentheses, true and false.
//
//	signed() || (reviewed() && !experimental())
//
// It is the language of the boolean expressions in Kubewarden's policy groups.
package boolexpr

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Expression is an expression in parsed form.
type Expression struct {
	root  node
	names []string
}

// Names returns the members that the expression may call.
func (e *Expression) Names() []string { return e.names }

// Eval returns the value of the expression. It calls member from left to right for the members
// needed to determine the value, by their index in Names. A member that occurs twice is called
// twice.
func (e *Expression) Eval(member func(i int) bool) bool { return e.root(member) }

type node func(member func(i int) bool) bool

// maxDepth bounds the nesting, and so the stack.
const maxDepth = 200

// Parse parses an expression that may call the members in names. It must call every member: a
// missing one shows that a different expression was meant.
func Parse(text string, names []string) (*Expression, error) {
	p, root, errs := parse(text, names)
	if len(errs) == 0 {
		for i, called := range p.called {
			if !called {
				errs = append(errs, fmt.Errorf("member %s is not called", names[i]))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &Expression{root, names}, nil
}

// Called returns the elements of names that an expression calls, in the order of names.
func Called(text string, names []string) ([]string, error) {
	p, _, errs := parse(text, names)
	var called []string
	for i, name := range names {
		if p.called[i] {
			called = append(called, name)
		}
	}
	return called, errors.Join(errs...)
}

func parse(text string, names []string) (p *parser, root node, errs []error) {
	for _, name := range names {
		if i := strings.IndexFunc(name, func(r rune) bool { return !isNameRune(r) }); name == "" || i >= 0 || isDigit(rune(name[0])) || name == "true" || name == "false" {
			errs = append(errs, fmt.Errorf("member %q is not a name of letters, digits and _", name))
		}
	}
	p = &parser{text: text, names: names, called: make([]bool, len(names))}
	root = p.or(0)
	if p.err == nil && p.peek() != "" {
		p.fail("want &&, ||, == or !=")
	}
	if p.err != nil {
		errs = append(errs, p.err)
	}
	return p, root, errs
}

type parser struct {
	text   string
	pos    int
	names  []string
	called []bool
	err    error
}

func (p *parser) fail(format string, args ...any) node {
	if p.err == nil {
		rest := p.text[p.pos:]
		if rest == "" {
			rest = "the end"
		}
		p.err = fmt.Errorf("at %.40q: %s", rest, fmt.Sprintf(format, args...))
	}
	return nil
}

func isDigit(r rune) bool { return '0' <= r && r <= '9' }

func isNameRune(r rune) bool {
	return r == '_' || isDigit(r) || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
}

// peek returns the next token, empty at the end.
func (p *parser) peek() string {
	p.pos = len(p.text) - len(strings.TrimLeft(p.text[p.pos:], " \t\r\n"))
	rest := p.text[p.pos:]
	for _, op := range []string{"&&", "||", "==", "!="} {
		if strings.HasPrefix(rest, op) {
			return op
		}
	}
	n := 0
	for n < len(rest) && isNameRune(rune(rest[n])) {
		n++
	}
	return rest[:min(max(n, 1), len(rest))]
}

func (p *parser) accept(token string) bool {
	if p.err != nil || p.peek() != token {
		return false
	}
	p.pos += len(token)
	return true
}

func (p *parser) or(depth int) node {
	left := p.and(depth)
	for p.accept("||") {
		a, b := left, p.and(depth)
		left = func(m func(int) bool) bool { return a(m) || b(m) }
	}
	return left
}

func (p *parser) and(depth int) node {
	left := p.equal(depth)
	for p.accept("&&") {
		a, b := left, p.equal(depth)
		left = func(m func(int) bool) bool { return a(m) && b(m) }
	}
	return left
}

func (p *parser) equal(depth int) node {
	left := p.not(depth)
	for {
		a := left
		switch {
		case p.accept("=="):
			b := p.not(depth)
			left = func(m func(int) bool) bool { x, y := a(m), b(m); return x == y }
		case p.accept("!="):
			b := p.not(depth)
			left = func(m func(int) bool) bool { x, y := a(m), b(m); return x != y }
		default:
			return left
		}
	}
}

func (p *parser) not(depth int) node {
	if depth > maxDepth {
		return p.fail("nested too deeply")
	}
	if p.accept("!") {
		a := p.not(depth + 1)
		return func(m func(int) bool) bool { return !a(m) }
	}
	if p.accept("(") {
		a := p.or(depth + 1)
		if p.err == nil && !p.accept(")") {
			return p.fail("want )")
		}
		return a
	}
	if p.err != nil {
		return nil
	}
	switch name := p.peek(); {
	case p.accept("true"):
		return func(func(int) bool) bool { return true }
	case p.accept("false"):
		return func(func(int) bool) bool { return false }
	case name != "" && isNameRune(rune(name[0])):
		i := slices.Index(p.names, name)
		if i < 0 {
			return p.fail("there is no member of that name")
		}
		p.pos += len(name)
		if !p.accept("(") || !p.accept(")") {
			return p.fail("want %s()", name)
		}
		p.called[i] = true
		return func(m func(int) bool) bool { return m(i) }
	}
	return p.fail("want a member, true, false, ! or (")
}
