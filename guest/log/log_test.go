package log

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestLogLines(t *testing.T) {
	type named string
	tests := map[string]struct {
		msg  string
		args []any
		want string
	}{
		"text":                   {"hello", nil, "hello"},
		"every type":             {"m", []any{"s", "x", "b", true, "i", -1, "i8", int8(-8), "i16", int16(16), "i32", int32(32), "i64", int64(64), "u", uint(1), "u8", uint8(8), "u16", uint16(16), "u32", uint32(32), "u64", uint64(64), "f32", float32(0.5), "f64", 1.25, "l", []string{"a", "b"}, "e", errors.New("bad"), "d", time.Second, "n", nil}, "m|s|x|b|true|i|-1|i8|-8|i16|16|i32|32|i64|64|u|1|u8|8|u16|16|u32|32|u64|64|f32|0.5|f64|1.25|l|a,b|e|bad|d|1s|n|nil"},
		"a type without text":    {"m", []any{"k", named("x")}, "m|k|!BADVALUE"},
		"a key without a value":  {"m", []any{"a", 1, "k"}, "m|a|1|!BADKEY|k"},
		"a key that is no text":  {"m", []any{7, "k", 2}, "m|!BADKEY|7|k|2"},
		"separators in the text": {"a\x00b", []any{"k\x00", "\x00v"}, "a\uFFFDb|k\uFFFD|\uFFFDv"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			write(levelDebug, test.msg, test.args)
			if got := strings.ReplaceAll(string(line), "\x00", "|"); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}
