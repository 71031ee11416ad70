package log

import (
	"strconv"
	"strings"

	"github.com/kubewasm/kubewasm/guest/internal/hostcall"
)

// Debug writes a line at the level debug. args are keys and values in turn, as
// for the functions of the same name in log/slog: a key is a string, a value a
// string, a bool, a number, an error, a []string, or has a method String. A
// value of any other type is written as "!BADVALUE", a key without a value as
// the value of "!BADKEY".
func Debug(msg string, args ...any) { write(levelDebug, msg, args) }

// Info writes a line at the level info, as [Debug] does at its own.
func Info(msg string, args ...any) { write(levelInfo, msg, args) }

// Warn writes a line at the level warning, as [Debug] does at its own.
func Warn(msg string, args ...any) { write(levelWarn, msg, args) }

// Error writes a line at the level error, as [Debug] does at its own.
func Error(msg string, args ...any) { write(levelError, msg, args) }

// The levels, with the numbers of log/slog.
const (
	levelDebug = -4
	levelInfo  = 0
	levelWarn  = 4
	levelError = 8
)

// separator stands between the parts of a line: abi/SPEC.md, section 6.
const separator = 0

// line is the buffer of lines. One call runs at a time.
var line []byte

func write(level int32, msg string, args []any) {
	line = appendText(line[:0], msg)
	for len(args) != 0 {
		key, ok := args[0].(string)
		switch {
		case ok && len(args) > 1:
			line = appendValue(appendKey(line, key), args[1])
			args = args[2:]
		default:
			line = appendValue(appendKey(line, "!BADKEY"), args[0])
			args = args[1:]
		}
	}
	hostcall.Log(level, string(line))
}

func appendKey(b []byte, key string) []byte {
	return append(appendText(append(b, separator), key), separator)
}

// appendText appends text that is no separator.
func appendText(b []byte, s string) []byte {
	if strings.IndexByte(s, separator) >= 0 {
		s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	}
	return append(b, s...)
}

func appendValue(b []byte, value any) []byte {
	switch v := value.(type) {
	case string:
		return appendText(b, v)
	case bool:
		return strconv.AppendBool(b, v)
	case int:
		return strconv.AppendInt(b, int64(v), 10)
	case int8:
		return strconv.AppendInt(b, int64(v), 10)
	case int16:
		return strconv.AppendInt(b, int64(v), 10)
	case int32:
		return strconv.AppendInt(b, int64(v), 10)
	case int64:
		return strconv.AppendInt(b, v, 10)
	case uint:
		return strconv.AppendUint(b, uint64(v), 10)
	case uint8:
		return strconv.AppendUint(b, uint64(v), 10)
	case uint16:
		return strconv.AppendUint(b, uint64(v), 10)
	case uint32:
		return strconv.AppendUint(b, uint64(v), 10)
	case uint64:
		return strconv.AppendUint(b, v, 10)
	case float32:
		return strconv.AppendFloat(b, float64(v), 'g', -1, 32)
	case float64:
		return strconv.AppendFloat(b, v, 'g', -1, 64)
	case []string:
		return appendText(b, strings.Join(v, ","))
	case error:
		return appendText(b, v.Error())
	case interface{ String() string }:
		return appendText(b, v.String())
	case nil:
		return append(b, "nil"...)
	}
	return append(b, "!BADVALUE"...)
}
