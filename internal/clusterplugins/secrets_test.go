package clusterplugins

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestSecretsThatChange holds that a Secret that changes all the time does not add up, and that the
// former texts of other namespaces stay masked.
func TestSecretsThatChange(t *testing.T) {
	s, now := new(Secrets), time.Unix(1_785_000_000, 0)
	s.set([]secretText{{"bank", "the former text"}, {"shop", "text-0"}}, now)
	for i := range 1000 {
		now = now.Add(time.Millisecond)
		s.set([]secretText{{"bank", "the present text"}, {"shop", fmt.Sprintf("text-%d.", i)}}, now)
	}
	want := "(secret), (secret), (secret), (secret), text-100."
	if got := s.Mask("the former text, the present text, text-999., text-990., text-100."); got != want {
		t.Errorf("masked: %s, want %s", got, want)
	}
	if n := len(s.seen); n > 3+formerSecrets {
		t.Errorf("%d texts are kept", n)
	}
}

// TestQuotedSecrets holds that a text is masked where a message quotes it.
func TestQuotedSecrets(t *testing.T) {
	for _, text := range []string{`pass"word\`, "päss<word>&", "a\tb\x01\u2028c"} {
		s := new(Secrets)
		s.set([]secretText{{"shop", text}}, time.Unix(1_785_000_000, 0))
		encoded, err := json.Marshal(map[string]string{"password": text})
		if err != nil {
			t.Fatal(err)
		}
		for _, message := range []string{text, fmt.Sprintf("%q", text), fmt.Sprintf("%+q", text), string(encoded)} {
			want := strings.Replace(message, strings.Trim(strings.TrimPrefix(message, `{"password":`), `"}`), "(secret)", 1)
			if message == text {
				want = "(secret)"
			}
			if got := s.Mask(message); got != want {
				t.Errorf("%s is masked as %s, want %s", message, got, want)
			}
		}
	}
}
