package rego

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/internal/testkit/race"
)

// list is a list of n strings that differ.
func list(n int) []any {
	items := make([]any, n)
	for i := range items {
		items[i] = strings.Repeat("a", i%7) + string(rune('a'+i%26))
	}
	return items
}

// errFuel stands for the end of a call that has no fuel left.
var errFuel = errors.New("out of fuel")

// pay calls a builtin with a budget of fuel, and returns what it took of it and how
// many bytes were allocated.
func pay(name string, args []any, budget int64) (result []byte, fuel int64, allocated uint64, err error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	defer func() {
		runtime.ReadMemStats(&after)
		allocated = after.TotalAlloc - before.TotalAlloc
		if r := recover(); r == any(errFuel) {
			err = errFuel
		} else if r != nil {
			panic(r)
		}
	}()
	c := &call{limit: 8 << 20, evaluation: &evaluation{clock: true}, spend: func(n int64) {
		if fuel += n; n < 0 || fuel > budget {
			panic(errFuel)
		}
	}}
	value, err := builtins[name](c, args)
	if err == nil {
		result, err = encodeValue(value, c.limit)
	}
	return result, fuel, allocated, err
}

// nestedToken is a token in a token.
func nestedToken(depth int) string {
	text := "e30.e30."
	for range depth {
		text = "eyJjdHkiOiJKV1QifQ." + base64.RawURLEncoding.EncodeToString([]byte(text)) + "."
		if len(text) > maxTokenBytes/2 {
			break
		}
	}
	return text
}

// numberList is a list of n numbers.
func numberList(n int) []any {
	items := make([]any, n)
	for i := range items {
		items[i] = number(fmt.Sprint(i))
	}
	return items
}

// clique is a graph of n nodes that are all neighbours.
func clique(n int) object {
	nodes := numberList(n)
	var g object
	for _, node := range nodes {
		g = append(g, entry{node, nodes})
	}
	return newObject(g)
}

// doubling is an object in a key in a key: its quotes double at each level when keys
// become strings.
func doubling(depth int) any {
	var v any = "a"
	for range depth {
		v = object{{v, number("1")}}
	}
	return v
}

// Nothing stops a builtin but what it pays, so that none may take more than that, in
// time or memory, whatever a guest asks for.
func TestBuiltinsPayForWhatTheyTake(t *testing.T) {
	long := strings.Repeat("a", 1<<20)
	digits := number(strings.Repeat("9", 1<<20))
	anyError := errors.New("any error, or none")
	tests := []struct {
		name string
		args []any
		want error // errTooMuch, errFuel, or whatever comes at once.
	}{
		{"sprintf", []any{strings.Repeat("%[1]s", 1000), []any{long}}, errTooMuch},
		{"sprintf", []any{"%9999d", []any{number("1")}}, nil},
		{"sprintf", []any{"%*d", []any{number("1000000"), number("1")}}, nil},
		{"sprintf", []any{"%[1000000]d", []any{number("1")}}, nil},
		{"sprintf", []any{"%1.1000000f", []any{number("1")}}, nil},
		{"sprintf", []any{"%d%-+ 0#10000x", []any{number("1")}}, nil},
		{"sprintf", []any{"%% %%%10000d", []any{number("1")}}, nil},
		{"sprintf", []any{"%ä10000d", []any{number("1")}}, nil},
		{"sprintf", []any{strings.Repeat("%999d", 1<<16), []any{}}, errTooMuch},
		{"sprintf", []any{strings.Repeat("%", 4<<20), []any{}}, errTooMuch},
		{"sprintf", []any{"%d", []any{digits}}, errTooMuch},
		{"sprintf", []any{"%d", []any{digits[:20_000]}}, nil},
		{"sprintf", []any{strings.Repeat("%1000000d", 20), []any{number("1")}}, errTooMuch},
		{"sprintf", []any{strings.Repeat("%*d", 20), slices.Repeat([]any{number("1000000")}, 40)}, errTooMuch},
		{"sprintf", []any{strings.Repeat("%.*f", 20), slices.Repeat([]any{number("-1000000")}, 40)}, errTooMuch},
		{"sprintf", []any{strings.Repeat("%[1]*.[1]*d", 20), []any{number("1000000")}}, errTooMuch},
		{"sprintf", []any{strings.Repeat("%.1000000f", 8), slices.Repeat([]any{number("1e300")}, 8)}, nil},
		{"sprintf", []any{"%d", []any{number("1e999999999")}}, nil},
		{"sprintf", []any{"%s: 100%%, 3 * 4, 10000", []any{long}}, nil},
		{"sprintf", []any{"%v", []any{strings.Repeat("\x00", 4<<20)}}, anyError},
		{"sprintf", []any{"%v", []any{[]any{strings.Repeat("\x00", 4<<20)}}}, errTooMuch},
		{"indexof_n", []any{long, strings.Repeat("a", 1<<19)}, errTooMuch},
		{"strings.any_prefix_match", []any{list(1 << 14), list(1 << 14)}, errTooMuch},
		{"strings.any_suffix_match", []any{list(1 << 14), list(1 << 14)}, errTooMuch},
		{"strings.any_prefix_match", []any{slices.Repeat([]any{long[:1<<12]}, 1<<11), slices.Repeat([]any{long[:1<<11] + "b"}, 1<<10)}, errTooMuch},
		{"strings.split_n", []any{strings.Repeat("a", 8<<20), "", number("1")}, errTooMuch},
		{"strings.split_n", []any{strings.Repeat("a", 8<<20), "a", number("-1")}, errTooMuch},
		{"strings.count", []any{strings.Repeat("a", 4<<20), strings.Repeat("a", 1<<20) + "b"}, nil},
		{"object.subset", []any{list(1 << 14), list(1 << 14)}, errTooMuch},
		{"object.subset", []any{object{{"a", list(1 << 14)}}, object{{"a", list(1 << 14)}}}, errTooMuch},
		{"object.subset", []any{slices.Repeat([]any{long}, 100), slices.Repeat([]any{long + "b"}, 10)}, errTooMuch},
		{"object.subset", []any{object{{long, nil}}, object{{long, nil}}}, errTooMuch},
		{"numbers.range_step", []any{number("0"), number("9000000000000000000"), number("1")}, errTooMuch},
		{"numbers.range_step", []any{number("0"), number("1000000000"), number("1")}, errTooMuch},
		{"numbers.range_step", []any{number("0"), number("1e18"), number("1")}, errTooMuch},
		{"numbers.range_step", []any{number("0"), number("1e999999999"), number("1")}, errTooMuch},
		{"numbers.range_step", []any{number("0"), number("10"), number("-1")}, errArguments},
		{"net.cidr_expand", []any{"10.0.0.0/8"}, errTooMuch},
		{"net.cidr_expand", []any{"::/0"}, errTooMuch},
		{"net.cidr_expand", []any{"255.255.0.0/16"}, nil},
		{"units.parse", []any{strings.Repeat("9", 1<<20)}, errTooMuch},
		{"units.parse", []any{"1e999999999"}, errTooMuch},
		{"units.parse", []any{"1e999999"}, errTooMuch},
		{"units.parse", []any{"1e-9999Ei"}, nil},
		{"units.parse", []any{strings.Repeat("1e9999", 100)}, errTooMuch},
		{"units.parse_bytes", []any{strings.Repeat("9", 1<<20) + "Ki"}, errTooMuch},
		{"units.parse_bytes", []any{"1e9999"}, nil},
		{"time.date", []any{digits}, errArguments},
		{"time.weekday", []any{[]any{number("1e999999999"), "UTC"}}, errArguments},
		{"time.diff", []any{number("1"), number("1e-999999999")}, errArguments},
		{"time.add_date", []any{number("0"), number("1e999999999"), number("1"), number("1")}, errArguments},
		{"net.cidr_merge", []any{[]any{digits}}, errTooMuch},
		{"net.cidr_merge", []any{[]any{number("1e999999999")}}, errTooMuch},
		{"io.jwt.decode", []any{nestedToken(29)}, nil},
		{"io.jwt.decode", []any{"eyJjdHkiOjF9.e30."}, errFault}, // {"cty": 1}
		{"io.jwt.decode_verify", []any{"eyJhbGciOiJIUzI1NiJ9.eyJleHAiOjFlOTk5OTk5OTk5fQ.AAAA", object{{"secret", "s"}, {"time", number("1")}}}, nil},
		{"io.jwt.decode_verify", []any{"e30.e30.", object{{"cert", `{"kty": "RSA", "e": "AQAB", "n": "` + long[:40_000] + `"}`}}}, errTooMuch},
		{"time.clock", []any{[]any{number("1"), "../../" + long}}, errArguments},
		{"time.format", []any{[]any{number("1"), "UTC", strings.Repeat("Monday January 2 2006 ", 1<<18)}}, nil},
		{"time.parse_ns", []any{strings.Repeat("2006-01-02", 1<<17), strings.Repeat("2006-01-02", 1<<17)}, nil},
		{"time.add_date", []any{number("0"), number("1e6"), number("1e6"), number("1e6")}, anyError},
		{"regex.split", []any{strings.Repeat("(a{1000}){1000}", 10), long}, anyError},
		{"regex.split", []any{strings.Repeat("(a{30}){30}", 30), long}, errTooMuch},
		{"regex.split", []any{strings.Repeat("()", 2000), long}, errTooMuch},
		{"regex.split", []any{long, long}, errTooMuch},
		{"regex.split", []any{"", strings.Repeat("a", 8<<20)}, errFuel},
		{"regex.find_n", []any{"(?i)[" + strings.Repeat(`a-\x{10ffff}`, 300) + "]", "a", number("1")}, errTooMuch},
		{"regex.find_n", []any{"(?i)[" + strings.Repeat("a-\U0010fff0", 300) + "]", "a", number("1")}, errTooMuch},
		{"regex.find_n", []any{strings.Repeat(`\pL`, 1365), "a", number("1")}, errTooMuch},
		{"regex.find_n", []any{"a.*b|a", long, number("-1")}, errFuel},
		{"regex.find_n", []any{"a*?$|a", long, number("-1")}, nil},
		{"regex.find_n", []any{"(a{0,30}){30}b", long, number("1")}, errFuel},
		{"regex.replace", []any{long, "(a*)*b", "x"}, nil},
		{"regex.replace", []any{long, "a", long}, errTooMuch},
		{"regex.replace", []any{long, "a*", strings.Repeat("$0", 1<<10)}, errTooMuch},
		{"regex.replace", []any{long, "(?P<n>a*)", strings.Repeat("${n}", 1<<10)}, errTooMuch},
		{"json.patch", []any{object{{"a", list(1 << 12)}}, list(1 << 12)}, anyError},
		{"json.patch", []any{object{{"a", long}}, slices.Repeat([]any{object{{"from", "/a"}, {"op", "copy"}, {"path", "/b"}}}, 100)}, errTooMuch},
		{"json.patch", []any{doubling(100), []any{}}, nil},
		{"json.patch", []any{object{}, doubling(40)}, errArguments},
		{"json.patch", []any{object{{"a", "b"}}, slices.Repeat([]any{object{{"from", "/a"}, {"op", "copy"}, {"path", "/a/-"}}}, 1000)}, errPatch},
		{"json.patch", []any{[]any{}, slices.Repeat([]any{object{{"from", ""}, {"op", "copy"}, {"path", "/-"}}}, 100)}, errTooMuch},
		{"json.patch", []any{[]any{}, slices.Repeat([]any{object{{"from", ""}, {"op", "copy"}, {"path", "/0"}}}, 12)}, nil},
		{"json.patch", []any{list(1 << 14), slices.Repeat([]any{object{{"op", "add"}, {"path", "/0"}, {"value", nil}}}, 1<<14)}, errFuel},
		{"json.patch", []any{newSet(numberList(1 << 14)), slices.Repeat([]any{object{{"op", "add"}, {"path", "/x"}, {"value", "x"}}}, 1<<14)}, errFuel},
		{"json.patch", []any{object{}, []any{object{{"op", "add"}, {"path", strings.Repeat("/a", 1<<20)}, {"value", nil}}}}, errTooMuch},
		{"net.cidr_merge", []any{slices.Repeat([]any{"10.0.0.0/8"}, 1<<17)}, errTooMuch},
		{"net.cidr_merge", []any{[]any{"::1/128", "::2/127", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe/128", "::/1"}}, nil},
		{"net.cidr_contains_matches", []any{slices.Repeat([]any{"::/0"}, 1<<10), slices.Repeat([]any{"::/0"}, 1<<10)}, errTooMuch},
		{"graph.reachable_paths", []any{clique(12), []any{number("0")}}, errTooMuch},
		{"graph.reachable_paths", []any{clique(3), []any{number("0")}}, nil},
		{"json.marshal_with_options", []any{slices.Repeat([]any{"a"}, 1<<18), object{{"indent", long}}}, errTooMuch},
		{"json.marshal_with_options", []any{doubling(100), object{{"pretty", true}}}, errTooMuch},
		{"regex.template_match", []any{"{" + strings.Repeat("(a{30}){30}", 30) + "}", long, "{", "}"}, errTooMuch},
		{"regex.template_match", []any{"{(a|aa)*}b{.*}", long, "{", "}"}, anyError},
		{"regex.template_match", []any{strings.Repeat("{", 4096), "", "{", "}"}, errArguments},
		{"json.match_schema", []any{"{}", `{"$ref": "#"}`}, errTooMuch},
		{"json.match_schema", []any{"{}", `{"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}`}, errTooMuch},
		{"json.match_schema", []any{"{}", `{"definitions": {"a": ` + strings.Repeat(`{"allOf": [true, `, 300) + "true" + strings.Repeat("]}", 300) + `}}`}, nil},
		{"json.match_schema", []any{slices.Repeat([]any{"a"}, 1<<15), `{"items": ` + strings.Repeat(`{"allOf": [`, 200) + "true" + strings.Repeat("]}", 200) + `}`}, errFuel},
		{"json.match_schema", []any{numberList(1 << 14), object{{"items", false}}}, errTooMuch},
		{"json.match_schema", []any{numberList(1 << 15), object{{"items", object{{"enum", list(26)}}}}}, errTooMuch},
		{"json.match_schema", []any{numberList(1 << 10), object{{"items", object{{"enum", []any{long}}}}}}, anyError},
		{"json.match_schema", []any{"{}", object{{"required", list(1 << 16)}}}, errSchema},
		{"json.match_schema", []any{[]any{long}, `{"items": {"pattern": "(a{0,30}){30}b"}}`}, errFuel},
		{"json.match_schema", []any{[]any{long}, `{"items": {"format": "uri-template"}}`}, errTooMuch},
		{"json.match_schema", []any{"{}", `{"multipleOf": 1e999999999}`}, errTooMuch},
		{"json.match_schema", []any{"[1e999999999]", `{"items": {"maximum": 1}}`}, errTooMuch},
		{"json.match_schema", []any{"{}", `{"$ref": "https://example.com/schema.json"}`}, errElsewhere},
		{"json.verify_schema", []any{`{"$ref": "file:///etc/passwd"}`}, errElsewhere},
		{"json.verify_schema", []any{`{"pattern": "` + strings.Repeat("(a{30}){30}", 30) + `"}`}, errTooMuch},
		{"io.jwt.decode", []any{long + "." + long + "."}, errTooMuch},
		{"io.jwt.decode", []any{nestedToken(100)}, nil},
		{"io.jwt.decode", []any{nestedToken(5)}, nil},
		{"io.jwt.verify_rs256", []any{"e30.e30.", `{"kty": "RSA", "e": "AQAB", "n": "` + long[:40_000] + `"}`}, errTooMuch},
		{"io.jwt.verify_rs256", []any{"e30.e30.", `{"kty": "RSA", "e": "AQAB", "n": "` + long + `"}`}, errTooMuch},
		{"io.jwt.verify_rs256", []any{"e30.e30.", `{"keys": [{"kty": "RSA", "e": "AQAB", "n": "` + long[:40_000] + `"}], "KEYS": [], "keys": []}`}, errTooMuch},
		{"io.jwt.verify_rs256", []any{"e30.e30.", `{"a": ["n", "x"], "kty": "RSA", "e": "AQAB", "n": "` + long[:40_000] + `"}`}, errTooMuch},
		{"io.jwt.verify_es256", []any{"e30.e30.", `{"keys": [` + strings.Repeat(`{"kty": "oct", "k": "aaaa"},`, 100) + `{}]}`}, errTooMuch},
		{"io.jwt.verify_hs256", []any{long + ".e30.", "secret"}, nil},
		{"crypto.x509.parse_certificates", []any{long}, errTooMuch},
		{"crypto.x509.parse_certificate_request", []any{long}, errTooMuch},
		{"crypto.x509.parse_and_verify_certificates", []any{long}, errTooMuch},
		{"crypto.x509.parse_keypair", []any{"", long}, errTooMuch},
		{"crypto.x509.parse_rsa_private_key", []any{"-----BEGIN " + long}, errTooMuch},
		{"crypto.parse_private_keys", []any{long}, errTooMuch},
		{"uuid.parse", []any{long}, errArguments},
		{"rand.intn", []any{long, number("7")}, errTooMuch},
		{"uuid.rfc4122", []any{long}, errTooMuch},
		{"time.parse_duration_ns", []any{strings.Repeat("1d", 1<<20)}, errArguments},
		{"json.patch", []any{object{}, []any{object{{"op", "add"}, {"path", "/a"}, {"value", number("1e")}}}}, anyError},
		{"yaml.marshal", []any{doubling(60)}, errTooMuch},
		{"yaml.marshal", []any{strings.Repeat("a: ", 1<<20)}, errTooMuch},
		{"yaml.marshal", []any{strings.Repeat("\x00\n: ", 1<<16)}, nil},
		{"yaml.unmarshal", []any{"a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e]\ng: [*f,*f,*f,*f,*f,*f,*f,*f]"}, errTooMuch},
		{"yaml.unmarshal", []any{"a: &a " + long[:1<<19] + "\nb: [" + strings.Repeat("*a,", 1<<15) + "*a]"}, errTooMuch},
		{"yaml.is_valid", []any{"a: &a " + long[:1<<19] + "\nb: [" + strings.Repeat("*a,", 1<<15) + "*a]"}, errTooMuch},
		{"yaml.unmarshal", []any{strings.Repeat("[", 1<<19)}, anyError},
		{"yaml.unmarshal", []any{strings.Repeat("[", 5000) + strings.Repeat("]", 5000)}, errTooMuch},
		{"yaml.unmarshal", []any{strings.Repeat("- ", 1<<18)}, anyError},
		{"yaml.unmarshal", []any{strings.Repeat("a: 1e999999999\n", 1<<12)}, anyError},
		{"hex.decode", []any{strings.Repeat("ff", 3<<20)}, errTooMuch}, // Three bytes for each that is none of UTF-8.
		{"urlquery.decode_object", []any{strings.Repeat("a&", 1<<20)}, anyError},
		{"semver.compare", []any{"1.0.0-" + strings.Repeat("1.", 1<<20) + "1", "1.0.0-" + strings.Repeat("1.", 1<<20) + "2"}, errTooMuch},
		{"semver.is_valid", []any{"1.0.0-" + strings.Repeat("1.", 1<<20) + "1"}, errTooMuch},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			const budget = 700_000_000 // A third of the default of Limits.Fuel.
			result, fuel, allocated, err := pay(test.name, test.args, budget)
			if test.want != anyError && !errors.Is(err, test.want) {
				t.Errorf("error is %v, want %v", err, test.want)
			}
			if err == nil && len(result) > 8<<20 {
				t.Errorf("the result has %d bytes", len(result))
			}
			// The race detector throws pools away, of which package regexp has one.
			if limit := uint64(512 << 20); allocated > limit && !race.Enabled {
				t.Errorf("%d bytes were allocated, more than %d, for %d of fuel", allocated, limit, fuel)
			}
		})
	}
}

// Values that guests hand over are as deep, as many and as dear to compare as they
// like to make them.
func TestHostileValues(t *testing.T) {
	numbers := func(n int, f func(i int) string) string {
		list := make([]string, n)
		for i := range list {
			list[i] = f(i)
		}
		return "{" + strings.Join(list, ",") + "}"
	}
	tests := []struct {
		name, text string
		want       error
	}{
		{"brackets without end", strings.Repeat("[", 8<<20), errTooMuch},
		{"sets in sets", strings.Repeat("{", 8<<20), errTooMuch},
		{"keys in keys", strings.Repeat("{", 900) + "1" + strings.Repeat(":1}", 900), nil},
		{"very many values", "[" + strings.Repeat("0,", 4<<20) + "0]", errTooMuch},
		{"many values", "[" + strings.Repeat("0,", 1<<19) + "0]", nil},
		{"a set of numbers that are dear to compute", numbers(1<<16, func(i int) string { return fmt.Sprintf("%de-400", i) }), nil},
		{"a set of numbers of absurd exponents", numbers(1<<16, func(i int) string { return fmt.Sprintf("1e%d999999999", i) }), nil},
		{"a set of long numbers", numbers(1<<10, func(i int) string { return strings.Repeat("7", 1<<12) + fmt.Sprint(i) }), nil},
		{"a set of texts that are alike for long", numbers(1<<10, func(i int) string { return `"` + strings.Repeat("a", 1<<12) + fmt.Sprint(i) + `"` }), nil},
		{"a text of escapes", `"` + strings.Repeat(`\u0000`, 1<<20) + `"`, nil},
		{"a text without end", `"` + strings.Repeat(`\"`, 4<<20), errSyntax},
		{"spaces", strings.Repeat(" ", 8<<20), errSyntax},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var fuel int64
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := parseValue(&call{limit: 8 << 20, spend: func(n int64) { fuel += n }}, test.text)
			runtime.ReadMemStats(&after)
			if !errors.Is(err, test.want) {
				t.Errorf("error is %v, want %v", err, test.want)
			}
			if fuel < int64(len(test.text)) {
				t.Errorf("%d bytes cost %d of fuel", len(test.text), fuel)
			}
			if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 256<<20 {
				t.Errorf("%d bytes were allocated", allocated)
			}
		})
	}
}

func TestNumbersAreComparedByTheirValue(t *testing.T) {
	inOrder := []string{
		"-1e999999999999999999999", "-1e400", "-12345678901234567890123", "-2", "-1.5", "-1", "-1e-400", "0", "1e-999999999999999999999", "1e-400", "0.09", "0.1", "0.11", "1", "1.0000000000000000000000001",
		"9.9", "10", "1.2e1", "9223372036854775807", "9223372036854775808", "1e400", "1e401", "1e999999999999999999999",
	}
	for i, a := range inOrder {
		for j, b := range inOrder {
			if got, want := compareNumbers(number(a), number(b)), cmp.Compare(i, j); got != want {
				t.Errorf("%s and %s: %d, want %d", a, b, got, want)
			}
		}
	}
	for _, same := range [][2]string{{"0", "-0.0e7"}, {"1", "1.0"}, {"100", "1e2"}, {"0.001", "1E-3"}, {"-12.50", "-1.25e1"}} {
		if compareNumbers(number(same[0]), number(same[1])) != 0 {
			t.Errorf("%s is not %s", same[0], same[1])
		}
	}
	for text, want := range map[string]int64{"0": 0, "-0.0": 0, "1e2": 100, "12.0": 12, "9223372036854775807": 1<<63 - 1, "-9223372036854775808": -1 << 63} {
		if got, err := number(text).int64(); err != nil || got != want {
			t.Errorf("%s is %d, %v", text, got, err)
		}
	}
	for _, none := range []string{"0.5", "1e-400", "9223372036854775808", "1e999999999", "e", "--1", "1e5e5", "+", "."} {
		if got, err := number(none).int64(); err == nil {
			t.Errorf("%s is %d", none, got)
		}
	}
}

// FuzzRegex: expressions that are matched step by step find what those of package
// regexp find.
func FuzzRegex(f *testing.F) {
	for _, seed := range [][3]string{
		{"a*", "baaac", "<$0>"}, {`\b`, "one two", "|"}, {"(?m)^x?$", "x\n\ny", "-"}, {"(a)|(?P<n>b)", "abba", "$n$1"}, {"", "äö", "."}, {`\Qa.`, "xa.a.", "_"}, {`(?i)K|\B`, "kK\xffK", "$"}, {"^a", "aaa", ""}, {"a$|", "aaa", "x"},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, pattern, text, template string) {
		if len(pattern) > 100 || len(text) > 100 || len(template) > 100 {
			return
		}
		re, err := regexp.Compile(pattern)
		c := &call{limit: 1 << 20, spend: func(int64) {}}
		for _, test := range []struct {
			name string
			got  func() (any, error)
			want func() any
		}{
			{"find", func() (any, error) { return regexFindN(c, []any{pattern, text, number("-1")}) }, func() any { return append([]string{}, re.FindAllString(text, -1)...) }},
			{"find 2", func() (any, error) { return regexFindN(c, []any{pattern, text, number("2")}) }, func() any { return append([]string{}, re.FindAllString(text, 2)...) }},
			{"split", func() (any, error) { return regexSplit(c, []any{pattern, text}) }, func() any { return append([]string{}, re.Split(text, -1)...) }},
			{"replace", func() (any, error) { return regexReplace(c, []any{text, pattern, template}) }, func() any { return re.ReplaceAllString(text, template) }},
		} {
			got, gotErr := test.got()
			switch {
			case errors.Is(gotErr, errTooMuch):
			case (gotErr == nil) != (err == nil):
				t.Errorf("%s: error is %v, want %v", test.name, gotErr, err)
			case err == nil && !reflect.DeepEqual(got, test.want()):
				t.Errorf("%s of %q in %q: %q, want %q", test.name, pattern, text, got, test.want())
			}
		}
	})
}

// FuzzParseValue: what a guest hands over is read or refused, and what was read
// comes out as it went in.
func FuzzParseValue(f *testing.F) {
	for _, text := range []string{`{1, "a", set()}`, `{[1]: {"b": null}, 1e5: -0.5}`, `[true,false,{}]`, `"\u00e4\ud800"`, `{1:2,3}`, `1e999999999`, `{"a","a"}`, strings.Repeat("[", 2000)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c := &call{limit: 1 << 20, spend: func(int64) {}}
		v, err := parseValue(c, text)
		if err != nil {
			return
		}
		encoded, err := encodeValue(v, c.limit)
		if err != nil {
			return
		}
		again, err := parseValue(c, string(encoded))
		if err != nil {
			t.Fatalf("%q is written as %q: %v", text, encoded, err)
		}
		if twice, err := encodeValue(again, c.limit); compare(v, again) != 0 || err != nil || string(twice) != string(encoded) {
			t.Fatalf("%q is written as %q, and read as %q, %v", text, encoded, twice, err)
		}
		if raw, err := toJSON(v, c.limit); err == nil && len(raw) > c.limit {
			t.Errorf("%q has %d bytes of JSON", text, len(raw))
		}
		if shown, err := formatValue(v, c.limit); err == nil && len(shown) > c.limit {
			t.Errorf("%q has %d bytes", text, len(shown))
		}
	})
}
