package bindgen

import (
	"fmt"
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Names, comments and strings of a source are data: who wrote a CustomResourceDefinition or a
// .proto file must not write code. This file has all functions by which they get into what is
// written, for each language: identifiers are checked, see [Package.check], comments are made
// of printable text on lines of their own, and strings are literals.

// plain returns text as printable words with single spaces between them. Characters that are not
// printed, or change the order of those around them, become U+202E and the like.
func plain(text string) string {
	var b strings.Builder
	for i, word := range strings.Fields(text) {
		if i > 0 {
			b.WriteByte(' ')
		}
		for _, r := range word {
			if unicode.IsPrint(r) {
				b.WriteRune(r)
			} else {
				fmt.Fprintf(&b, "U+%04X", r)
			}
		}
	}
	return b.String()
}

// wrap returns text as the lines of a comment. Each line has a space after its slashes, so that
// none is a directive of Go or of kubewasm.
func wrap(text string) string {
	var b strings.Builder
	column := 0
	for _, word := range strings.Fields(plain(text)) {
		if column == 0 || column+1+len(word) > 80 {
			if column > 0 {
				b.WriteByte('\n')
			}
			b.WriteString("//")
			column = 2
			word = notDirective(word)
		}
		b.WriteByte(' ')
		b.WriteString(word)
		column += 1 + len(word)
	}
	b.WriteByte('\n')
	return b.String()
}

var directiveRE = regexp.MustCompile(`(?i)^(kubewasm|\+)(:|build)`)

// notDirective returns a word at the beginning of a comment. Package format moves comments that
// begin with +build to the top of a file, where they are constraints, and kubewasm build refuses
// comments that look like a directive with a space.
func notDirective(word string) string {
	return directiveRE.ReplaceAllString(word, "$1 $2")
}

// header returns the first line of a file that is made from a source.
func header(source string) string { return Header + " from " + plain(source) + ". DO NOT EDIT.\n" }

// cLine returns a comment of C on one line. Neither a backslash at its end nor the trigraph of
// one continues it.
func cLine(text string) string {
	text = strings.ReplaceAll(plain(text), "??/", "?? /")
	return "// " + notDirective(strings.TrimRight(text, `\ `)) + "\n"
}

// asBlock returns a comment of AssemblyScript on one line.
func asBlock(text string) string {
	return "/** " + notDirective(strings.ReplaceAll(plain(text), "*/", "* /")) + " */"
}

// rustDoc returns lines of a comment on what follows in Rust.
func rustDoc(indent, text string) string {
	var b strings.Builder
	for line := range strings.Lines(wrap(text)) {
		// Braces and stars mean nothing, and brackets no link.
		line = strings.TrimPrefix(strings.TrimRight(line, "\n"), "//")
		line = strings.NewReplacer("[", `\[`, "]", `\]`, "<", `\<`).Replace(line)
		b.WriteString(indent + "///" + line + "\n")
	}
	return b.String()
}

// goTag returns the tag of a field of a struct, as a literal.
func goTag(tag string) string {
	if strconv.CanBackquote(tag) {
		return "`" + tag + "`"
	}
	return strconv.Quote(tag)
}

// escaped returns a literal of C and its relatives: escape writes a character that is neither
// printed nor plain.
func escaped(s string, escape func(b *strings.Builder, r rune)) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			escape(&b, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// rustString returns a literal of Rust.
func rustString(s string) string {
	return escaped(s, func(b *strings.Builder, r rune) { fmt.Fprintf(b, `\u{%x}`, r) })
}

// asString returns a literal of AssemblyScript.
func asString(s string) string {
	return escaped(s, func(b *strings.Builder, r rune) {
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(b, `\u%04x`, unit)
		}
	})
}

// cString returns a literal of C. It has no question marks, which begin trigraphs.
func cString(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c >= 0x7f || c == '?':
			fmt.Fprintf(&b, "\\%03o", c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// exported returns a name of protobuf or JSON as an exported one of Go: letters and digits of
// ASCII, of which the first is a capital. Other letters become their code points.
func exported(name string) string {
	var b strings.Builder
	upper := true
	for _, r := range name {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			upper = true
			continue
		case r >= utf8.RuneSelf:
			fmt.Fprintf(&b, "U%04X", r)
			upper = false
			continue
		case upper:
			if b.Len() == 0 && unicode.IsDigit(r) {
				b.WriteByte('X')
			}
			r = unicode.ToUpper(r)
			upper = false
		}
		b.WriteRune(r)
	}
	if b.Len() == 0 {
		return "X"
	}
	return b.String()
}

// lower returns a name as one that is not exported.
func lower(name string) string { return strings.ToLower(name[:1]) + name[1:] }

// local returns a name as that of a parameter of Go.
func local(name string) string {
	if name = lower(name); token.IsKeyword(name) {
		return name + "_"
	}
	return name
}

// goPredeclared are the names that Go declares itself and that generated code has.
var goPredeclared = strings.Fields("any append bool byte cap clear close comparable complex copy delete error false float32 float64 imag int int32 int64 iota len make max min new nil panic print println real recover rune string true uint32 uint64")

var identifierRE = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// importPathRE matches what an import path may consist of, that of a module of Rust or AssemblyScript
// among them: nothing of it is read as anything else, in a literal, a path of Rust, or as an
// argument of a command.
var importPathRE = regexp.MustCompile(`^[A-Za-z0-9_.~@/:][A-Za-z0-9_.~@/:+-]*$`)

// CheckImportPath returns an error if a text, which may be foreign, is no import path.
func CheckImportPath(path string) error {
	if !importPathRE.MatchString(path) || strings.Contains(path, "...") || strings.HasSuffix(path, ".go") || len(path) > 500 {
		return fmt.Errorf("%.60q is no import path", path)
	}
	return nil
}
