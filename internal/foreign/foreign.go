// Package foreign handles text that others wrote: modules, recordings, registries, clusters
// and their users. [Line] and [Writer] make it safe to print. Package cut bounds it.
package foreign

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Line returns text as one line that a terminal shows as it is: control characters, line
// breaks, format characters such as bidirectional overrides, and bytes that are not UTF-8
// become escapes such as \n, \u001b and \xff.
func Line(text string) string { return string(escape(nil, text, "")) }

// Lines is [Line] for text of several lines. Each but the first begins with a tab, if it does
// not already, so none looks like a line of the program's own.
func Lines(text string) string {
	return strings.NewReplacer("\n\t", "\n\t", "\n", "\n\t").Replace(string(escape(nil, text, "\n\t")))
}

// escape appends text to out, with every character escaped that is not printable and not in
// plain. A character has the escape that JSON has for it.
func escape(out []byte, text, plain string) []byte {
	for len(text) != 0 {
		r, n := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && n == 1:
			out = fmt.Appendf(out, `\x%02x`, text[0])
		case unicode.IsPrint(r) || strings.ContainsRune(plain, r):
			out = append(out, text[:n]...)
		case r == '\n' || r == '\r' || r == '\t':
			quoted := strconv.QuoteRune(r)
			out = append(out, quoted[1:len(quoted)-1]...)
		default:
			for _, unit := range utf16.Encode([]rune{r}) {
				out = fmt.Appendf(out, `\u%04x`, unit)
			}
		}
		text = text[n:]
	}
	return out
}

// argument formats as its value does, in one line without control characters.
type argument struct{ value any }

// Format implements [fmt.Formatter].
func (a argument) Format(s fmt.State, verb rune) {
	_, _ = io.WriteString(s, Line(fmt.Sprintf(fmt.FormatString(s, verb), a.value)))
}

// Fprintf is [fmt.Fprintf] with each argument escaped as by [Line]. Line breaks and tabs of
// the format stay.
func Fprintf(w io.Writer, format string, args ...any) (int, error) {
	if false {
		_ = fmt.Sprintf(format, args...) // Makes go vet check the calls.
	}
	escaped := make([]any, len(args))
	for i, arg := range args {
		escaped[i] = argument{arg}
	}
	return fmt.Fprintf(w, format, escaped...)
}

// Writer escapes what is written as [Line] does, except for line breaks and tabs. JSON stays
// the same JSON. It is what a program writes to instead of a terminal or a log.
type Writer struct {
	w  io.Writer
	mu sync.Mutex
	// begun is the beginning of a character whose rest was not written yet.
	begun []byte
}

// NewWriter returns a Writer that writes to w, by a call of Write for each of its own.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write implements [io.Writer]. It is safe for concurrent use.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	whole := p
	if len(w.begun) != 0 {
		whole = append(w.begun, p...)
	}
	end := len(whole)
	for n := 1; n < utf8.UTFMax && n <= len(whole); n++ {
		if last := whole[len(whole)-n:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				end -= n
			}
			break
		}
	}
	out := whole[:end]
	if bytes.IndexFunc(out, func(r rune) bool { return r == utf8.RuneError || r != '\n' && r != '\t' && !unicode.IsPrint(r) }) >= 0 {
		out = escape(make([]byte, 0, len(out)+len(out)/8), string(out), "\n\t")
	}
	w.begun = append([]byte(nil), whole[end:]...)
	if len(out) == 0 {
		return len(p), nil
	}
	if _, err := w.w.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}
