package policyjson

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	strictjson "sigs.k8s.io/json"

	"github.com/kubewasm/kubewasm/internal/json"
)

// Decode decodes a guest's answer into a struct as serde does in the hosts that the guests were
// written for. Names of fields are case-sensitive, and a field that occurs twice is an error, as is
// text that is not UTF-8. Unknown fields are ignored.
func Decode(raw []byte, into any) error {
	if !utf8.Valid(raw) {
		return errors.New("the text is not UTF-8")
	}
	mistakes, err := strictjson.UnmarshalStrict(raw, into, strictjson.DisallowDuplicateFields)
	if err == nil && len(mistakes) != 0 {
		err = mistakes[0]
	}
	return err
}

// Field is a field whose value, if present, must not be null.
type Field[T any] struct {
	Value T
	// Present reports whether the field is present.
	Present bool
}

// UnmarshalJSON implements json.Unmarshaler.
func (f *Field[T]) UnmarshalJSON(raw []byte) error {
	if json.Value(raw).IsNull() {
		return errors.New("null where a value is required")
	}
	f.Present = true
	return Decode(raw, &f.Value)
}

// Text is a string. null is an error, and so is half of a surrogate pair.
type Text string

// UnmarshalJSON implements json.Unmarshaler.
func (t *Text) UnmarshalJSON(raw []byte) error {
	text, ok := json.Value(raw).Text()
	if !ok {
		return fmt.Errorf("%s where a string is required", json.Value(raw).Kind())
	}
	// Half of a pair becomes U+FFFD, which the text may also contain itself.
	if bytes.Contains(raw, []byte(`\u`)) && hasHalfPair(raw) {
		return errors.New(`half of a surrogate pair in a string`)
	}
	*t = Text(bytes.Clone([]byte(text)))
	return nil
}

// hasHalfPair reports whether a string of JSON has an escaped surrogate without its
// other half.
func hasHalfPair(raw []byte) bool {
	high := false // The previous escape was the first half of a pair.
	for i := 0; i < len(raw); i++ {
		first, second := false, false
		if raw[i] == '\\' && i+1 < len(raw) {
			if i++; raw[i] == 'u' && i+4 < len(raw) {
				top, next := raw[i+1]|0x20, raw[i+2]|0x20
				first = top == 'd' && (next == '8' || next == '9' || next == 'a' || next == 'b')
				second = top == 'd' && next >= 'c' && next <= 'f'
				i += 4
			}
		}
		if high != second {
			return true
		}
		high = first
	}
	return high
}

// Texts returns the strings of a list.
func Texts(list []Text) []string {
	if list == nil {
		return nil
	}
	texts := make([]string, len(list))
	for i, text := range list {
		texts[i] = string(text)
	}
	return texts
}

// TextMap maps strings to strings. Of equal keys the last one counts, as in the maps of those
// hosts.
type TextMap map[string]string

// UnmarshalJSON implements json.Unmarshaler.
func (m *TextMap) UnmarshalJSON(raw []byte) error {
	var texts map[string]Text
	if err := stdjson.Unmarshal(raw, &texts); err != nil {
		return err
	}
	if texts != nil {
		*m = make(TextMap, len(texts))
	}
	for key, text := range texts {
		(*m)[key] = string(text)
	}
	return nil
}
