package kubewarden

import (
	"encoding/json"
	"fmt"
	"strings"
)

// fieldMask are the fields that a policy wants of an object; one without any is
// everything from there on.
type fieldMask map[string]fieldMask

// masked returns the object with nothing but the fields of paths such as
// "spec.containers.image", which go through lists, and apiVersion, kind and
// metadata.name, which say what it is. Without paths it is the whole object.
func masked(object []byte, paths []string) ([]byte, error) {
	if len(paths) == 0 {
		return object, nil
	}
	mask := fieldMask{"apiVersion": {}, "kind": {}}
	for _, path := range append(paths, "metadata.name") {
		mask.add(path)
	}
	var fields any
	if err := json.Unmarshal(object, &fields); err != nil {
		return nil, fmt.Errorf("mask fields: %w", err)
	}
	mask.prune(fields)
	return json.Marshal(fields)
}

func (m fieldMask) add(path string) {
	for part := range strings.SplitSeq(path, ".") {
		if m[part] == nil {
			m[part] = fieldMask{}
		}
		m = m[part]
	}
}

// prune takes away what is not wanted.
func (m fieldMask) prune(value any) {
	if len(m) == 0 {
		return
	}
	switch value := value.(type) {
	case map[string]any:
		for key, field := range value {
			if inner, ok := m[key]; ok {
				inner.prune(field)
			} else {
				delete(value, key)
			}
		}
	case []any:
		for _, item := range value {
			m.prune(item)
		}
	}
}
