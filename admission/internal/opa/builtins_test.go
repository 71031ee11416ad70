package opa

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// list is a list of n strings that differ.
func list(n int) []any {
	items := make([]any, n)
	for i := range items {
		items[i] = strings.Repeat("a", i%7) + string(rune('a'+i%26))
	}
	return items
}

// Nobody can stop a builtin, so none may take long, whatever a guest asks for.
func TestBuiltinsDoNotTakeLong(t *testing.T) {
	long := strings.Repeat("a", 1<<20)
	digits := number(strings.Repeat("9", 1<<20))
	tests := []struct {
		name string
		args []any
		want error // errTooMuch, or whatever comes at once.
	}{
		{"sprintf", []any{strings.Repeat("%[1]s", 1000), []any{long}}, errTooMuch},
		{"sprintf", []any{"%9999d", []any{number("1")}}, errTooMuch},
		{"sprintf", []any{"%*d", []any{number("1000000"), number("1")}}, errTooMuch},
		{"sprintf", []any{"%[1000000]d", []any{number("1")}}, errTooMuch},
		{"sprintf", []any{strings.Repeat("%999d", 1<<16), []any{}}, errTooMuch},
		{"sprintf", []any{"%d", []any{digits}}, nil},
		{"sprintf", []any{"%s: 100%%, 3 * 4", []any{long}}, nil},
		{"indexof_n", []any{long, strings.Repeat("a", 1<<19)}, errTooMuch},
		{"strings.any_prefix_match", []any{list(1 << 14), list(1 << 14)}, errTooMuch},
		{"strings.any_suffix_match", []any{list(1 << 14), list(1 << 14)}, errTooMuch},
		{"object.subset", []any{list(1 << 14), list(1 << 14)}, errTooMuch},
		{"object.subset", []any{object{{"a", list(1 << 14)}}, object{{"a", list(1 << 14)}}}, errTooMuch},
		{"numbers.range_step", []any{number("0"), number("9000000000000000000"), number("1")}, errTooMuch},
		{"numbers.range_step", []any{number("0"), number("1000000000"), number("1")}, errTooMuch},
		{"numbers.range_step", []any{number("0"), number("10"), number("-1")}, errArguments},
		{"net.cidr_expand", []any{"10.0.0.0/8"}, errTooMuch},
		{"net.cidr_expand", []any{"::/0"}, errTooMuch},
		{"net.cidr_expand", []any{"255.255.0.0/16"}, nil},
		{"units.parse", []any{strings.Repeat("9", 1<<20)}, errArguments},
		{"units.parse_bytes", []any{strings.Repeat("9", 1<<20) + "Ki"}, errArguments},
		{"time.date", []any{digits}, nil},
		{"regex.split", []any{strings.Repeat("(a{1000}){1000}", 10), long}, nil},
		{"regex.replace", []any{long, "(a*)*b", "x"}, nil},
		{"json.patch", []any{object{{"a", list(1 << 12)}}, list(1 << 12)}, nil},
		{"yaml.unmarshal", []any{"a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e]\ng: [*f,*f,*f,*f,*f,*f,*f,*f]"}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			begin := time.Now()
			_, err := builtins[test.name](test.args)
			if took := time.Since(begin); took > 30*time.Second {
				t.Errorf("it took %s", took)
			}
			if test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("error is %v, want %v", err, test.want)
			}
		})
	}
}

// FuzzParseValue: what a guest hands over is read or refused, and what was read
// comes out as it went in.
func FuzzParseValue(f *testing.F) {
	for _, text := range []string{`{1, "a", set()}`, `{[1]: {"b": null}, 1e5: -0.5}`, `[true,false,{}]`, `"\u00e4\ud800"`, `{1:2,3}`, `1e999999999`, `{"a","a"}`, strings.Repeat("[", 2000)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, err := parseValue(text)
		if err != nil {
			return
		}
		encoded := encodeValue(v)
		again, err := parseValue(encoded)
		if err != nil {
			t.Fatalf("%q is written as %q: %v", text, encoded, err)
		}
		if compare(v, again) != 0 || encodeValue(again) != encoded {
			t.Fatalf("%q is written as %q, and read as %q", text, encoded, encodeValue(again))
		}
		toJSON(v)
		formatValue(v)
	})
}
