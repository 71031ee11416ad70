package policyjson

import (
	stdjson "encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzText: a string is read as encoding/json reads it, or refused where that puts
// U+FFFD in the place of what is no text.
func FuzzText(f *testing.F) {
	for _, text := range []string{`"a"`, `""`, `null`, `"\ud83d\ude00"`, `"\uD83D"`, `"\ude00\ud83d"`, `"\\ud83d"`, `"\ud83d\n\ude00"`, `"\ufffd"`, "\"\xff\"", `"a`, `7`, ` "a" `} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		var got Field[Text]
		err := Decode([]byte(raw), &got)
		var want *string
		wantErr := stdjson.Unmarshal([]byte(raw), &want)
		if want == nil || wantErr != nil || !utf8.ValidString(raw) {
			if err == nil {
				t.Errorf("%q is read as %q", raw, got.Value)
			}
			return
		}
		if strings.Contains(raw, "\uFFFD") || strings.Contains(strings.ToLower(raw), `\ufffd`) {
			return // What was said cannot be told from what was put in its place.
		}
		if broken := strings.Contains(*want, "\uFFFD"); broken != (err != nil) {
			t.Errorf("%q: error is %v", raw, err)
		} else if err == nil && (string(got.Value) != *want || !got.Present) {
			t.Errorf("%q is read as %q", raw, got.Value)
		}
	})
}
