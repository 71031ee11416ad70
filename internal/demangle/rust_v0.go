package demangle

import (
	"math/bits"
	"strconv"
	"strings"
	"unicode"
)

// The grammar is that of https://doc.rust-lang.org/rustc/symbol-mangling/v0.html. Constants
// other than numbers, characters and truth values are none of stable Rust's, and malformed here.

// v0 returns the path of what follows _R, without what LLVM appends after a dot.
func v0(s string) (path string, ok bool) {
	s, _, _ = strings.Cut(s, ".")
	for _, c := range []byte(s) {
		if !isDigit(c) && c != '_' && (c|0x20 < 'a' || c|0x20 > 'z') {
			return "", false
		}
	}
	p := parser{in: s}
	p.path(true)
	if !p.failed && p.at < len(s) {
		p.skipped(func() { p.path(true) }) // The crate that has the instance.
	}
	if p.failed || p.at < len(s) {
		return "", false
	}
	return string(p.out), true
}

const (
	// maxNesting bounds the recursion, and with it references in a circle.
	maxNesting = 100
	// maxSteps bounds the work: references to references double it.
	maxSteps = 1 << 10
)

// parser reads a symbol from left to right and writes the path. After a failure it reads
// nothing more.
type parser struct {
	in     string
	at     int
	out    []byte
	failed bool
	depth  int
	steps  int
	// lifetimes is the number of lifetimes that are bound around what is read.
	lifetimes uint64
}

func (p *parser) fail() { p.failed = true }

func (p *parser) write(s string) {
	if p.out = append(p.out, s...); len(p.out) > maxPath {
		p.fail()
	}
}

// next returns the next character, 0 at the end.
func (p *parser) next() byte {
	if p.failed || p.at >= len(p.in) {
		p.fail()
		return 0
	}
	p.at++
	return p.in[p.at-1]
}

// eat reports whether the next character is c, and skips it.
func (p *parser) eat(c byte) bool {
	if p.failed || p.at >= len(p.in) || p.in[p.at] != c {
		return false
	}
	p.at++
	return true
}

// step counts a step of the work.
func (p *parser) step() {
	if p.steps++; p.steps > maxSteps {
		p.fail()
	}
}

// nested runs f one level deeper.
func (p *parser) nested(f func()) {
	if p.depth++; p.depth > maxNesting {
		p.fail()
	}
	if p.step(); !p.failed {
		f()
	}
	p.depth--
}

// skipped runs f and drops what it writes.
func (p *parser) skipped(f func()) {
	n := len(p.out)
	f()
	p.out = p.out[:n]
}

// list runs f up to the E that ends a list, with what is between two elements before each but
// the first, and returns the number of elements.
func (p *parser) list(between string, f func()) (n int) {
	for ; !p.failed && !p.eat('E'); n++ {
		if n > 0 {
			p.write(between)
		}
		p.step()
		f()
	}
	return n
}

// referred runs f at the place that a reference, whose B was read, names.
func (p *parser) referred(f func()) {
	before := p.at - 1
	to := p.base62()
	if p.failed || to >= uint64(before) {
		p.fail()
		return
	}
	after := p.at
	p.at = int(to)
	f()
	p.at = after
}

// base62 reads a number, which _ ends.
func (p *parser) base62() (n uint64) {
	if p.eat('_') {
		return 0
	}
	for {
		c := p.next()
		var digit byte
		switch {
		case c == '_':
			return n + 1
		case isDigit(c):
			digit = c - '0'
		case 'a' <= c && c <= 'z':
			digit = c - 'a' + 10
		case 'A' <= c && c <= 'Z':
			digit = c - 'A' + 36
		}
		high, low := bits.Mul64(n, 62)
		sum, carry := bits.Add64(low, uint64(digit), 0)
		if high|carry != 0 {
			p.fail()
		}
		if p.failed {
			return 0
		}
		n = sum
	}
}

// tagged reads a number that a letter begins, 0 if there is none.
func (p *parser) tagged(letter byte) uint64 {
	if !p.eat(letter) {
		return 0
	}
	return p.base62() + 1
}

// name reads an identifier without the number that tells it apart.
func (p *parser) name() string {
	encoded := p.eat('u')
	n := 0
	for first := p.at; p.at < len(p.in) && isDigit(p.in[p.at]) && n <= len(p.in); p.at++ {
		if p.at > first && n == 0 {
			break // No number begins with 0.
		}
		n = 10*n + int(p.in[p.at]-'0')
	}
	p.eat('_')
	if p.failed || n > len(p.in)-p.at {
		p.fail()
		return ""
	}
	s := p.in[p.at : p.at+n]
	p.at += n
	if encoded {
		return "punycode{" + s + "}"
	}
	return s
}

// path reads a path. The generic arguments of one that names a value have :: before them.
func (p *parser) path(isValue bool) {
	if p.openPath(isValue) {
		p.write(">")
	}
}

// openPath is path without the end of generic arguments: it reports whether they are open.
func (p *parser) openPath(isValue bool) (isOpen bool) {
	p.nested(func() {
		switch p.next() {
		case 'C':
			p.tagged('s')
			p.write(p.name())
		case 'M':
			p.implementation()
			p.write("<")
			p.typ()
			p.write(">")
		case 'X':
			p.implementation()
			p.traitOf()
		case 'Y':
			p.traitOf()
		case 'N':
			p.member(isValue)
		case 'I':
			p.path(isValue)
			if isValue {
				p.write("::")
			}
			p.write("<")
			p.list(", ", p.argument)
			isOpen = true
		case 'B':
			p.referred(func() { isOpen = p.openPath(isValue) })
		default:
			p.fail()
		}
	})
	return isOpen
}

// implementation reads where an impl is.
func (p *parser) implementation() {
	p.tagged('s')
	p.skipped(func() { p.path(false) })
}

func (p *parser) traitOf() {
	p.write("<")
	p.typ()
	p.write(" as ")
	p.path(false)
	p.write(">")
}

// member reads what is in a path: upper case is what has no name in the source.
func (p *parser) member(isValue bool) {
	space := p.next()
	p.path(isValue)
	number := p.tagged('s')
	name := p.name()
	if space|0x20 < 'a' {
		p.fail()
		return
	}
	if space >= 'a' {
		if name != "" {
			p.write("::" + name)
		}
		return
	}
	kind := string(space)
	switch space {
	case 'C':
		kind = "closure"
	case 'S':
		kind = "shim"
	}
	if name != "" {
		kind += ":" + name
	}
	p.write("::{" + kind + "#" + strconv.FormatUint(number, 10) + "}")
}

// argument reads a generic argument.
func (p *parser) argument() {
	switch {
	case p.eat('L'):
		p.lifetime(p.base62())
	case p.eat('K'):
		p.constant()
	default:
		p.typ()
	}
}

// lifetime writes the lifetime that is bound n-1 lifetimes before the innermost.
func (p *parser) lifetime(n uint64) {
	switch {
	case n == 0:
		p.write("'_")
	case n > p.lifetimes:
		p.fail()
	case p.lifetimes-n < 26:
		p.write("'" + string(rune('a'+p.lifetimes-n)))
	default:
		p.write("'z" + strconv.FormatUint(p.lifetimes-n-25, 10))
	}
}

// bound runs f with the lifetimes that a binder binds, which it writes.
func (p *parser) bound(f func()) {
	outer := p.lifetimes
	if n := p.tagged('G'); n > uint64(len(p.in)) {
		p.fail()
	} else if n > 0 {
		p.write("for<")
		for i := range n {
			if i > 0 {
				p.write(", ")
			}
			p.lifetimes++
			p.lifetime(1)
		}
		p.write("> ")
	}
	f()
	p.lifetimes = outer
}

var basicTypes = map[byte]string{
	'a': "i8", 'b': "bool", 'c': "char", 'd': "f64", 'e': "str", 'f': "f32", 'h': "u8", 'i': "isize", 'j': "usize", 'l': "i32", 'm': "u32",
	'n': "i128", 'o': "u128", 'p': "_", 's': "i16", 't': "u16", 'u': "()", 'v': "...", 'x': "i64", 'y': "u64", 'z': "!",
}

func (p *parser) typ() {
	p.nested(func() {
		c := p.next()
		switch c {
		case 'A':
			p.write("[")
			p.typ()
			p.write("; ")
			p.constant()
			p.write("]")
		case 'S':
			p.write("[")
			p.typ()
			p.write("]")
		case 'T':
			p.write("(")
			if p.list(", ", p.typ) == 1 {
				p.write(",")
			}
			p.write(")")
		case 'R', 'Q':
			p.write("&")
			if p.eat('L') {
				if n := p.base62(); n > 0 {
					p.lifetime(n)
					p.write(" ")
				}
			}
			if c == 'Q' {
				p.write("mut ")
			}
			p.typ()
		case 'P':
			p.write("*const ")
			p.typ()
		case 'O':
			p.write("*mut ")
			p.typ()
		case 'F':
			p.bound(p.function)
		case 'D':
			p.write("dyn ")
			p.bound(func() { p.list(" + ", p.object) })
			if !p.eat('L') {
				p.fail()
			} else if n := p.base62(); n > 0 {
				p.write(" + ")
				p.lifetime(n)
			}
		case 'B':
			p.referred(p.typ)
		default:
			if name, ok := basicTypes[c]; ok {
				p.write(name)
				return
			}
			p.at-- // It is the first of a path.
			p.path(false)
		}
	})
}

// function reads the type of a function.
func (p *parser) function() {
	if p.eat('U') {
		p.write("unsafe ")
	}
	if p.eat('K') {
		abi := "C"
		if !p.eat('C') {
			abi = strings.ReplaceAll(p.name(), "_", "-")
		}
		p.write(`extern "` + abi + `" `)
	}
	p.write("fn(")
	p.list(", ", p.typ)
	p.write(")")
	if !p.eat('u') {
		p.write(" -> ")
		p.typ()
	}
}

// object reads a trait of a dyn type, with its associated types.
func (p *parser) object() {
	isOpen := p.openPath(false)
	for p.eat('p') {
		if isOpen {
			p.write(", ")
		} else {
			p.write("<")
		}
		isOpen = true
		p.write(p.name() + " = ")
		p.typ()
	}
	if isOpen {
		p.write(">")
	}
}

// constant reads a number, a truth value, a character, or what is not known.
func (p *parser) constant() {
	p.nested(func() {
		c := p.next()
		switch c {
		case 'p':
			p.write("_")
		case 'B':
			p.referred(p.constant)
		case 'b', 'c':
			n, err := strconv.ParseUint(p.digits(), 16, 21)
			switch {
			case err != nil:
				p.fail()
			case c == 'c' && unicode.IsPrint(rune(n)):
				p.write(strconv.QuoteRune(rune(n)))
			case c == 'b' && n <= 1:
				p.write(strconv.FormatBool(n == 1))
			default:
				p.fail()
			}
		case 'a', 'i', 'l', 'n', 's', 'x', 'h', 'j', 'm', 'o', 't', 'y':
			if p.eat('n') {
				p.write("-")
			}
			digits := p.digits()
			if n, err := strconv.ParseUint(digits, 16, 64); err == nil {
				p.write(strconv.FormatUint(n, 10))
			} else {
				p.write("0x" + digits)
			}
		default:
			p.fail()
		}
	})
}

// digits reads hexadecimal digits, which _ ends.
func (p *parser) digits() string {
	from := p.at
	for {
		switch c := p.next(); {
		case c == '_' && p.at > from+1:
			return p.in[from : p.at-1]
		case !isDigit(c) && (c < 'a' || c > 'f'):
			p.fail()
			return ""
		}
	}
}
