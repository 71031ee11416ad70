package kubewarden

import (
	"fmt"
	"strings"

	"github.com/kubewasm/kubewasm/internal/json"
)

// fieldMask selects the fields of an object that a policy wants. An empty mask selects everything
// below it.
type fieldMask map[string]fieldMask

// maxMaskFields is the maximum number of fields in a mask.
const maxMaskFields = 1000

// newFieldMask reads paths such as "spec.containers.image", which go through lists. The mask always
// includes apiVersion, kind and metadata.name, which identify an object. Without paths it selects
// the whole object.
func newFieldMask(paths []string) (fieldMask, error) {
	if len(paths) == 0 {
		return nil, nil
	}
	mask, fields := fieldMask{}, 0
	for _, path := range append(paths, "apiVersion", "kind", "metadata.name") {
		if fields += strings.Count(path, ".") + 1; fields > maxMaskFields {
			return nil, fmt.Errorf("field_masks name more than %d fields", maxMaskFields)
		}
		mask.add(path)
	}
	return mask, nil
}

func (m fieldMask) add(path string) {
	for part := range strings.SplitSeq(path, ".") {
		if m[part] == nil {
			m[part] = fieldMask{}
		}
		m = m[part]
	}
}

// appendTo appends the selected parts of a value to dst. The value must be valid JSON. It is read
// once for each level that the mask reaches, at the cost of b.
func (m fieldMask) appendTo(dst []byte, value json.Value, b *budget) []byte {
	b.work(len(value))
	kind := value.Kind()
	switch {
	case len(m) == 0:
	case kind == json.KindObject:
		dst = append(dst, '{')
		first := true
		for member := json.Object(value); member.Next(); {
			inner, ok := m[member.Key()]
			if !ok {
				continue
			}
			if !first {
				dst = append(dst, ',')
			}
			first = false
			dst = append(json.AppendString(dst, member.Key()), ':')
			dst = inner.appendTo(dst, member.Value(), b)
		}
		return append(dst, '}')
	case kind == json.KindArray:
		dst = append(dst, '[')
		first := true
		for e := json.Array(value); e.Next(); first = false {
			if !first {
				dst = append(dst, ',')
			}
			dst = m.appendTo(dst, e.Value(), b)
		}
		return append(dst, ']')
	}
	return append(dst, value...)
}
