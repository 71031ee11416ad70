// Package cut bounds texts that others wrote. A text that is cut elsewhere may end inside a
// character, and then metrics and protobuf refuse it. It is small: guests link it.
package cut

import (
	"strings"
	"unicode/utf8"
)

const ellipsis = "…"

// Text returns at most limit bytes of text, as valid UTF-8: a character that crosses the limit
// is left out, and bytes that are not UTF-8 become U+FFFD.
func Text[T ~string | ~[]byte](text T, limit int) string {
	if limit = max(limit, 0); len(text) > limit {
		text = text[:limit]
		for n := 1; n < utf8.UTFMax && n <= limit; n++ {
			if last := string(text[limit-n:]); utf8.RuneStart(last[0]) {
				if !utf8.FullRuneInString(last) {
					text = text[:limit-n]
				}
				break
			}
		}
	}
	whole := Valid(string(text))
	if len(whole) <= limit {
		return whole
	}
	end := limit
	for !utf8.RuneStart(whole[end]) {
		end--
	}
	return whole[:end]
}

// Marked returns at most limit bytes of text as [Text] does, with "…" as the last character
// if something is missing.
func Marked[T ~string | ~[]byte](text T, limit int) string {
	if len(text) <= limit {
		if whole := Valid(string(text)); len(whole) <= limit {
			return whole
		}
	}
	return Text(text, limit-len(ellipsis)) + ellipsis
}

// Runes returns at most limit characters of text, as valid UTF-8.
func Runes(text string, limit int) string {
	for i := range text {
		if limit--; limit < 0 {
			text = text[:i]
			break
		}
	}
	return Valid(text)
}

// Valid returns text with each run of bytes that are not UTF-8 replaced by U+FFFD.
func Valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }
