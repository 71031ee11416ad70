package foreign

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
)

// hostile has what a terminal acts upon: a cleared screen by C0 and C1, a title, a link, a line
// that replaces another, overrides of direction, invisible characters and a byte of no text.
const hostile = "a\x1b[2J\u009b2J\x1b]0;t\a\rb\nFORGED\t\u202egpj\u2066\u200b\u2028\U000e0041\xff\x7f"

func TestLine(t *testing.T) {
	want := `a\u001b[2J\u009b2J\u001b]0;t\u0007\rb\nFORGED\t\u202egpj\u2066\u200b\u2028\udb40\udc41\xff\u007f`
	if diff := cmp.Diff(want, Line(hostile)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff("zoné 世界 😀 \\n", Line("zoné 世界 😀 \\n")); diff != "" {
		t.Errorf("text of people (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff("one\n\tkubewasm: two\n\tthree\\u001b", Lines("one\nkubewasm: two\n\tthree\x1b")); diff != "" {
		t.Errorf("several lines (-want +got):\n%s", diff)
	}
}

func TestFprintfEscapesItsArgumentsOnly(t *testing.T) {
	var out bytes.Buffer
	if _, err := Fprintf(&out, "%s\t%v|%-4s|%4d|%q|%x|%v\n", "a\nb", errors.New("c\x1b"), "é", 7, "\x1b", []byte{1}, []string{"\t"}); err != nil {
		t.Fatal(err)
	}
	want := "a\\nb\tc\\u001b|é   |   7|\"\\x1b\"|01|[\\t]\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWriter(t *testing.T) {
	whole := "NAME\tzoné 😀 " + hostile + "\n"
	want := `NAME	zoné 😀 a\u001b[2J\u009b2J\u001b]0;t\u0007\rb
FORGED	\u202egpj\u2066\u200b\u2028\udb40\udc41\xff\u007f
`
	for size := 1; size <= len(whole); size++ {
		var out bytes.Buffer
		w := NewWriter(&out)
		for rest := whole; rest != ""; {
			n := min(size, len(rest))
			if got, err := w.Write([]byte(rest[:n])); got != n || err != nil {
				t.Fatalf("Write is %d, %v, want %d", got, err, n)
			}
			rest = rest[n:]
		}
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Fatalf("in pieces of %d bytes (-want +got):\n%s", size, diff)
		}
	}
}

func TestWriterKeepsJSON(t *testing.T) {
	var out bytes.Buffer
	want := map[string]string{"name": strings.ToValidUTF8(hostile, "\uFFFD")}
	if err := json.NewEncoder(NewWriter(&out)).Encode(want); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsFunc(strings.TrimSuffix(out.String(), "\n"), func(r rune) bool { return !unicode.IsPrint(r) }) {
		t.Errorf("a terminal acts upon %q", out.String())
	}
	var got map[string]string
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("the pipe is closed") }

func TestWriterReturnsErrors(t *testing.T) {
	if n, err := NewWriter(broken{}).Write([]byte("a")); n != 0 || err == nil {
		t.Errorf("Write is %d, %v, want an error", n, err)
	}
}
