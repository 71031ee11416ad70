// Package documents has texts that are JSON, and texts that nearly are. Readers of JSON in all
// languages are held to them.
package documents

import (
	"fmt"
	"strings"
)

// Depth is how deep arrays and objects may be nested, as in encoding/json.
const Depth = 10_000

// JSON returns the texts. They are what readers have been wrong about.
func JSON() []string {
	docs := []string{
		// Words.
		``, ` `, `null`, ` true `, `false`, `nul`, `truee`, `nullx`, `TRUE`, `Null`, `NaN`, `Infinity`, `-Infinity`, `-`, `+`, `n`, `t`, `f`,
		// Whole numbers.
		`0`, `-0`, `00`, `01`, `-01`, `+1`, `--1`, `1-2`, `1+2`, `0x1`, `1_0`, `1 2`, `7`, `-7`, `1a`, `1.`, `.5`, `-.5`, `1.2.3`, `1e`, `1e+`, `1ee3`, `e5`,
		`2147483647`, `2147483648`, `-2147483649`, `4294967295`, `4294967296`, `9007199254740991`, `9007199254740993`,
		`9223372036854775807`, `9223372036854775808`, `-9223372036854775808`, `-9223372036854775809`, `18446744073709551615`, `18446744073709551616`,
		`-18446744073709551615`, `184467440737095516150`, `123456789012345678901234567890`, `1.0`, `1e3`, `100e-2`,
		// Fractions: of the nearest two doubles, and of the largest and the smallest.
		`1e5`, `1E+05`, `1e-5`, `0.1`, `-1.5e-3`, `0.30000000000000004`, `3.14159265358979323846`, `1e22`, `1e23`, `8.5e-5`, `123456789.123456789e-10`, `-0.0`, `0e5`, `0.0e-99999999999999999999`,
		`9007199254740992.5`, `9007199254740993.0000000000000000000000000001`, `9007199254740992.9999999999999999999`, `1.00000000000000011102230246251565404`,
		`1.7976931348623157e308`, `1.7976931348623158e308`, `1.7976931348623159e308`, `1e308`, `1e309`, `1e999`, `-1e999`, `1e99999999999999999999`, `1e-99999999999999999999`,
		`2.2250738585072014e-308`, `2.2250738585072011e-308`, `2.225073858507201e-308`, `4.9406564584124654e-324`, `2.4703282292062327e-324`, `2.4703282292062328e-324`, `5e-324`, `1e-400`,
		`6.631236846766476e-316`, `0.000000000000000000000000000000000000000000000000000000000001`, `1` + strings.Repeat("0", 400), `0.` + strings.Repeat("0", 400) + `1`,
		strings.Repeat("9", 900), `9007199254740993.` + strings.Repeat("0", 900) + `1`, strings.Repeat("1", 400) + `e-400`, `1` + strings.Repeat("0", 400) + `e-400`,
		// Numbers in strings.
		`"7"`, `"-7"`, `"18446744073709551615"`, `"18446744073709551616"`, `"-9223372036854775808"`, `"+7"`, `"007"`, `" 7"`, `"7 "`, `"7x"`, `"0x10"`, `"1_0"`, `"1.5"`, `"1e3"`, `".5"`, `"5."`,
		`"NaN"`, `"nan"`, `"Infinity"`, `"-Infinity"`, `"+Infinity"`, `"inf"`, `"\u0031\u0032"`, `"-"`, `"true"`, `"null"`,
		// Strings.
		`""`, `"`, `"a`, `"a"b`, `"\"`, `"\\"`, `"\""`, `"\x"`, `"\'"`, `'a'`, `"\`, `"\u`, `"\u00`, `"\u00"`, `"\u00g0"`, `"\u0041"`, `"\u00e9\u20ac"`, `"\U0041"`, `"\u0000"`, `"\/\b\f\n\r\t"`,
		`"a long plain string of ASCII"`, `"12345678\n2345678"`, `"äöü€😀"`, `"` + strings.Repeat("long ", 100) + `\n` + strings.Repeat("é", 100) + `"`,
		// Pairs of surrogates, and halves.
		`"\ud83d\ude00"`, `"\uD83D\uDE00"`, `"\ud83d"`, `"\ude00"`, `"\ud83dx"`, `"\ud83d\n"`, `"\ude00\ud83d\u0041"`, `"\ud83d\ud83d\ude00"`, `"\ud83d\u00e9"`, `"\ud83d\u"`, `"\udbff\udfff"`,
		// Bytes that are no UTF-8: a lone one, too long, a half of a pair, beyond the last, cut off.
		"\"\xff\"", "\"\x80\"", "\"a\x80\xbfb\"", "\"\xc0\x80\"", "\"\xc1\xbf\"", "\"\xe0\x80\x80\"", "\"\xe0\x9f\xbf\"", "\"\xed\xa0\x80\"", "\"\xed\xa0\xbd\xed\xb8\x80\"", "\"\xf0\x80\x80\x80\"",
		"\"\xf4\x90\x80\x80\"", "\"\xf5\x80\x80\x80\"", "\"a\xc3\x28b\xe2\x82\"", "\"\xe2\x82\"", "\"\xf0\x9f\x98\"", "\"\xf0\x9f\x98x\"", "\"é\xffé\\u00e9\"", "\"\\\xff\"", "{\"\xff\":\"\xfe\"}", "\xff", "[\"a\"\xff]",
		// White space and what is none, and a byte order mark.
		" \t\r\n1\n\r\t ", "\v1", "1\f", "\u00a01", "\u20281", "1\x00", "\x001", "[1,\x0b2]", "\ufeff{}", "\"\ufeff\"", "\"tab\there\"", "\"\x7f\"",
		// Objects.
		`{}`, `{ }`, `{`, `}`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`, `{"a":1 "b":2}`, `{"a":1}x`, `{"a":1} `, `{"a":1}}`, `{a:1}`, `{"a"=1}`, `{1:2}`, `{null:1}`, `{"a":1,,"b":2}`, `{"a":1;"b":2}`,
		`{"a" : [ 1 , {"b" : null } ] , "c" : "d"}`, `{"":1}`, `{"a\"b":"\\"}`, `{"}":"{"}`, `{"a":{"b":{"c":["\\","\"",{}]}},"x":-1.5e-3}`, `{} {}`, `{}{}`, `{}//`, `/**/{}`, `{"a":1/**/}`,
		`{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `{"\u0061":1,"a":{"b":3}}`, `{"a":null,"b":1,"a":1}`, `{"a":1,"a":null}`, `{"A":1,"a":2}`, `{"\ud83d":1,"\ud83e":2}`,
		// Arrays.
		`[]`, `[ ]`, `[`, `]`, `[1,]`, `[,1]`, `[1,,2]`, `[1 2]`, `[1,2]`, `[[[]]]`, `[}`, `{]`, `[{]}`, `{"a":[}`, `["]"]`, `[1]]`, `[1:2]`, `["a":1]`, `[true,false,null,"",0,{},[]]`, `[01]`, `[1-2]`, `[+1]`, `["\x"]`,
	}
	for c := range 0x20 { // Control characters in a string, as an escape, in a key and around a value.
		docs = append(docs, fmt.Sprintf("\"a%cb\"", c), fmt.Sprintf(`"a\%cb"`, c), fmt.Sprintf("{\"%c\":1}", c), fmt.Sprintf("%c1%c", c, c))
	}
	for c := range 0x80 { // Every character behind a backslash, and a value that begins with it.
		docs = append(docs, fmt.Sprintf(`"\%c"`, c), fmt.Sprintf(`%c`, c), fmt.Sprintf(`[0%c]`, c))
	}
	for n := range 40 { // An end, an escape and a byte that is no UTF-8 at each place of a vector.
		plain := strings.Repeat("p", n)
		docs = append(docs, `"`+plain+`"`, `"`+plain+`\n"`, `"`+plain+"\x01\"", `"`+plain+"\xff\"", `["`+plain+`\\",["`+plain+`"]]`)
	}
	return docs
}

// Deep returns texts that are nested, also as deep as they may be and deeper.
func Deep() (docs []string) {
	for _, depth := range []int{2, 100, Depth - 1, Depth, Depth + 1} {
		for _, pair := range [][2]string{{`[`, `]`}, {`{"a":`, `}`}} {
			opened := strings.Repeat(pair[0], depth)
			docs = append(docs, opened, opened+"1"+strings.Repeat(pair[1], depth), opened+"1"+strings.Repeat(pair[1], depth-1))
		}
		docs = append(docs, strings.Repeat("[", depth)+strings.Repeat("]", depth))
	}
	return docs
}
