package host

import (
	"log/slog"
	"strings"
)

// maxAttributes is how many attributes of a line are kept.
const maxAttributes = 64

// splitLine takes a line that a guest logs apart: its text and, behind a NUL
// each, keys and values in turn. They are in a group, so that a guest cannot
// pass for another plugin by an attribute of the host's.
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
