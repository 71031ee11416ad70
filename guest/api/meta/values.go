package meta

import (
	"github.com/kubewasm/kubewasm/guest/view"
	"github.com/kubewasm/kubewasm/internal/json"
)

// StringMap is a view of a map of strings to strings, such as labels.
type StringMap = view.StringMap

// ReadRaw reads a RawExtension or a FieldsV1: an object in an encoding that
// Kubernetes does not look at, JSON for the most part. It is for generated code.
func ReadRaw(v view.Value) []byte {
	if v.Raw == nil {
		return nil
	}
	raw := v.Raw
	if !v.JSON {
		if _, raw = v.Field(1); raw == nil {
			return nil
		}
	}
	if v.Kept {
		return raw[:len(raw):len(raw)]
	}
	return append([]byte{}, raw...)
}

// ReadStrings reads a message that is a list of strings in JSON, such as Verbs.
// It is for generated code.
func ReadStrings(v view.Value) []string {
	var list []string
	if v.JSON {
		for it := json.Array(v.Raw); it.Next(); {
			list = append(list, it.Value().String())
		}
		return list
	}
	v.Each(1, func(item []byte) { list = append(list, v.Text(item)) })
	return list
}
