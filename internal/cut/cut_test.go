package cut

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestCut(t *testing.T) {
	for _, test := range []struct {
		name, text string
		limit      int
		cut        string
		shortened  string
	}{
		{"a text within the limit stays", "zoné", 5, "zoné", "zoné"},
		{"a character that crosses the limit is left out", "zonéé", 6, "zoné", "zon…"},
		{"a character of four bytes is left out whole", "ab😀", 5, "ab", "ab…"},
		{"a text of one character beyond the limit becomes empty", "😀", 3, "", "…"},
		{"bytes that are not UTF-8 are replaced", "a\xffb", 5, "a\uFFFDb", "a\uFFFDb"},
		{"the replacement of a byte counts", "a\xffb", 3, "a", "…"},
		{"the replacement of many bytes counts", "a\xffb\xffc", 6, "a\uFFFDb", "a…"},
		{"a text that breaks off is completed", "abc\xc3", 6, "abc\uFFFD", "abc\uFFFD"},
		{"continuation bytes alone are replaced", "\x80\x80\x80\x80\x80", 3, "\uFFFD", "…"},
		{"no limit leaves nothing", "abc", 0, "", "…"},
		{"a limit below zero leaves nothing", "abc", -1, "", "…"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.cut, Text(test.text, test.limit)); diff != "" {
				t.Errorf("Text of a string (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.cut, Text([]byte(test.text), test.limit)); diff != "" {
				t.Errorf("Text of bytes (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.shortened, Marked(test.text, test.limit)); diff != "" {
				t.Errorf("Marked (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRunes(t *testing.T) {
	got := []string{Runes("éé\xffé", 3), Runes("éé", 2), Runes("éé", 0), Runes("abc", 5)}
	if diff := cmp.Diff([]string{"éé\uFFFD", "éé", "", "abc"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func FuzzText(f *testing.F) {
	f.Add("zoné\xff😀", 6)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		limit &= 0xffff
		got := Text(text, limit)
		if len(got) > limit || !utf8.ValidString(got) {
			t.Errorf("Text(%q, %d) is %q", text, limit, got)
		}
		if utf8.ValidString(text) && !strings.HasPrefix(text, got) {
			t.Errorf("Text(%q, %d) is %q, no beginning of it", text, limit, got)
		}
		if short := Marked(text, limit); len(short) > max(limit, len(ellipsis)) || !utf8.ValidString(short) {
			t.Errorf("Marked(%q, %d) is %q", text, limit, short)
		}
	})
}
