package host

import (
	"log/slog"
	"strings"
	"testing"
)

func TestLinesOfGuestsHaveAttributes(t *testing.T) {
	tests := map[string]struct{ line, want string }{
		"text alone":             {"hello world", `level=INFO msg="hello world"`},
		"two attributes":         {"hello\x00a\x001\x00b\x00x y", `level=INFO msg=hello guest.a=1 guest.b="x y"`},
		"a key without a value":  {"hello\x00a", `level=INFO msg=hello guest.a=""`},
		"an empty value":         {"hello\x00a\x00", `level=INFO msg=hello guest.a=""`},
		"the name of the plugin": {"hello\x00plugin\x00other", `level=INFO msg=hello guest.plugin=other`},
		"nothing but separators": {"\x00\x00\x00", `level=INFO msg="" "guest."="" "guest."=""`},
		"more than are kept":     {"hello" + strings.Repeat("\x00k\x00v", 1000), `level=INFO msg=hello` + strings.Repeat(" guest.k=v", maxAttributes)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			logger := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			}}))
			msg, attributes := splitLine(test.line)
			logger.Info(msg, attributes...)
			if got := strings.TrimSpace(out.String()); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}
