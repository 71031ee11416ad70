// Package yamlsize bounds the length of a YAML document after its aliases are replaced by
// their values.
//
// The parser itself bounds how many values the aliases of a document may become, but
// not how long: a thousand aliases of a text of a megabyte are a gigabyte when they
// are written as JSON, which is the first thing that sigs.k8s.io/yaml does.
package yamlsize

import (
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v2"
)

// ErrTooLong is returned for a document that is too long after its aliases are replaced.
var ErrTooLong = errors.New("too long with its aliases replaced")

// Check returns an error that is [ErrTooLong] if the document has more than limit bytes, or
// very many values, after its aliases are replaced, and another error if it is no YAML. The
// parser is that of sigs.k8s.io/yaml.
func Check(document []byte, limit int) error {
	var v any
	if err := yaml.Unmarshal(document, &v); err != nil {
		if strings.Contains(err.Error(), "excessive aliasing") {
			return fmt.Errorf("%w: %w", ErrTooLong, err)
		}
		return err
	}
	if size(v, limit) < 0 {
		return fmt.Errorf("document of %d bytes is %w: more than %d bytes", len(document), ErrTooLong, limit)
	}
	return nil
}

// size returns room less the length of a value.
func size(v any, room int) int {
	room-- // What separates values.
	switch v := v.(type) {
	case string:
		room -= len(v)
	case []any:
		for i := 0; i < len(v) && room >= 0; i++ {
			room = size(v[i], room)
		}
	case map[any]any:
		for key, value := range v {
			if room = size(value, size(key, room)); room < 0 {
				break
			}
		}
	}
	return room
}
