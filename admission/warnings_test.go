package admission

import (
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation"
)

func TestWarningsStayWithinTheLimits(t *testing.T) {
	long := strings.Repeat("ä", 300)
	tests := []struct {
		name     string
		in, want []string
	}{
		{"empty ones are dropped", []string{"", " \t\n"}, nil},
		{"the same is said once", []string{"a", "b", "a", "a\n"}, []string{"a", "b"}},
		{"control characters become spaces", []string{"a\r\n\tb\x00c\u0085d  e"}, []string{"a b c d e"}},
		{"long ones are cut at 256 runes", []string{long}, []string{strings.Repeat("ä", 255) + "…"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var w warnings
			for _, text := range test.in {
				w.add(text)
			}
			if diff := cmp.Diff(test.want, w.list()); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("all together have at most 4096 runes", func(t *testing.T) {
		var w warnings
		for i := range 40 {
			w.add(strings.Repeat(string(rune('a'+i%26))+string(rune('a'+i/26)), 100))
		}
		list, runes := w.list(), 0
		for _, text := range list {
			runes += utf8.RuneCountInString(text)
		}
		if last := list[len(list)-1]; runes > warningsRunes || last != "20 more warnings are not shown" {
			t.Errorf("%d runes, the last warning is %q", runes, last)
		}
	})
}

// Each warning is compared once, however many a guest gives.
func TestManyWarningsAreLookedUp(t *testing.T) {
	var w warnings
	for i := range 1 << 18 {
		w.add(string(rune(0x10000 + i%(1<<17))))
	}
	if want := fmt.Sprintf("%d more warnings are not shown", 1<<17-(warningsRunes-reservedRunes)); w.list()[len(w.list())-1] != want || len(w.seen) != 1<<17 {
		t.Errorf("the last warning is %q, %d were seen", w.list()[len(w.list())-1], len(w.seen))
	}
}

func TestAnnotationKeysAreQualifiedNames(t *testing.T) {
	tests := []struct{ name, plugin, key, want string }{
		{"a key gets the plugin's name", "labels", "image", "labels.image"},
		{"what a key may not have is replaced", "my/plugin", "äb c", "my_plugin._b_c"},
		{"both ends are letters or digits", "-p", "key.", "p.key"},
		{"a long key is cut and told apart", "plugin", strings.Repeat("k", 80), "plugin." + strings.Repeat("k", 47) + "-ebf6722c"},
		{"nothing but punctuation", "-", "_", "plugin"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := annotationKey(test.plugin, test.key); got != test.want {
				t.Errorf("annotationKey(%q, %q) = %q, want %q", test.plugin, test.key, got, test.want)
			}
		})
	}
}

func TestFirstOfTwoAnnotationsWithOneKeyIsKept(t *testing.T) {
	var a annotations
	a.add("p", map[string]string{"a_b": "second", "a/b": "first"})
	a.add("p", map[string]string{"a b": "third"})
	if diff := cmp.Diff(annotations{"p.a_b": "first"}, a); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
}

// The API server takes whatever comes out.
func FuzzLimits(f *testing.F) {
	f.Add("plugin", "key", "text")
	f.Add("", "", "\x00\u2028\ufeff\u200b\xff")
	f.Fuzz(func(t *testing.T, plugin, key, text string) {
		got := "webhook.example.com/" + annotationKey(plugin, key)
		if msgs := validation.IsQualifiedName(got); len(msgs) != 0 {
			t.Fatalf("%q is no qualified name: %v", got, msgs)
		}
		var w warnings
		w.add(text)
		for _, text := range w.list() {
			if text == "" || strings.ContainsFunc(text, unicode.IsControl) || utf8.RuneCountInString(text) > warningRunes {
				t.Fatalf("warning is %q", text)
			}
		}
	})
}
