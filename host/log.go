package host

import (
	"log/slog"
	"strings"
)

// maxAttributes is the maximum number of attributes kept of a line.
const maxAttributes = 64

// splitLine splits a line that a guest logs into its text and attributes. Keys
// and values follow the text in turn, a NUL before each. They are in a group,
// so that a guest cannot set an attribute of the host and pass for another
// plugin.
func splitLine(line string) (msg string, attributes []any) {
	msg, rest, found := strings.Cut(line, "\x00")
	var group []any
	for found && len(group) < maxAttributes {
		var key, value string
		key, rest, found = strings.Cut(rest, "\x00")
		if found {
			value, rest, found = strings.Cut(rest, "\x00")
		}
		group = append(group, slog.String(key, value))
	}
	if len(group) == 0 {
		return msg, nil
	}
	return msg, []any{slog.Group("guest", group...)}
}
