package boolexpr_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/internal/boolexpr"
)

func TestEval(t *testing.T) {
	tests := []struct {
		text  string
		true_ []string // The members that answer true.
		want  bool
		asked []string
	}{
		{"a()", []string{"a"}, true, []string{"a"}},
		{"!a()", []string{"a"}, false, []string{"a"}},
		{"a() && b()", nil, false, []string{"a"}},
		{"a() && b()", []string{"a", "b"}, true, []string{"a", "b"}},
		{"a() || b()", []string{"a"}, true, []string{"a"}},
		{"a() || b() && c()", []string{"b"}, false, []string{"a", "b", "c"}},
		{"(a() || b()) && c()", []string{"b", "c"}, true, []string{"a", "b", "c"}},
		{" a ( ) || ( ! b() && ! ( c() ) ) ", nil, true, []string{"a", "b", "c"}},
		{"false || !!a()", []string{"a"}, true, []string{"a"}},
		{"true || a()", nil, true, nil},
		{"a() == b()", nil, true, []string{"a", "b"}},
		{"a() != b() && !c()", []string{"b"}, true, []string{"a", "b", "c"}},
		{"!a() == true != b()", nil, true, []string{"a", "b"}},
	}
	for _, test := range tests {
		t.Run(test.text, func(t *testing.T) {
			var names []string
			for _, name := range []string{"a", "b", "c"} {
				if strings.Contains(test.text, name+"()") || strings.Contains(test.text, name+" ( )") {
					names = append(names, name)
				}
			}
			e, err := boolexpr.Parse(test.text, names)
			if err != nil {
				t.Fatal(err)
			}
			var asked []string
			got := e.Eval(func(i int) bool {
				asked = append(asked, e.Names()[i])
				return strings.Contains(strings.Join(test.true_, ","), e.Names()[i])
			})
			if got != test.want {
				t.Errorf("got %t", got)
			}
			if diff := cmp.Diff(test.asked, asked); diff != "" {
				t.Errorf("members that were asked (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	tests := []struct{ text, want string }{
		{"", `at "the end": want a member, true, false, ! or (`},
		{"a() &&", `at "the end": want a member, true, false, ! or (`},
		{"a() b()", `at "b()": want &&, ||, == or !=`},
		{"(a()", `at "the end": want )`},
		{"a", `at "the end": want a()`},
		{"c()", `at "c()": there is no member of that name`},
		{"a()", "member b is not called"},
		{"a() & b()", `at "& b()": want &&, ||, == or !=`},
		{"a() && b() // no", `at "// no": want &&, ||, == or !=`},
		{strings.Repeat("!", 300) + "a()", `at "` + strings.Repeat("!", 40) + `": nested too deeply`},
	}
	for _, test := range tests {
		t.Run(test.text, func(t *testing.T) {
			e, err := boolexpr.Parse(test.text, []string{"a", "b"})
			if err == nil || err.Error() != test.want {
				t.Errorf("Parse = %v, %v\nwant %s", e, err, test.want)
			}
		})
	}
	if _, err := boolexpr.Parse("true", []string{"a-b"}); err == nil || !strings.Contains(err.Error(), `member "a-b" is not a name of letters, digits and _`) {
		t.Errorf("error is %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("a() || (b() && !a())")
	f.Add("((((!true")
	f.Fuzz(func(t *testing.T, text string) {
		e, err := boolexpr.Parse(text, []string{"a", "b"})
		if err != nil {
			return
		}
		both := e.Eval(func(int) bool { return true })
		if none := e.Eval(func(int) bool { return false }); both == none && !strings.ContainsAny(text, "!tf|&=") {
			t.Fatalf("%q does not depend on its members", text)
		}
	})
}
