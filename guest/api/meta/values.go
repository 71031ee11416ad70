package meta

import (
	"strings"

	"github.com/kubewasm/kubewasm/guest/view"
	"github.com/kubewasm/kubewasm/internal/json"
)

// StringMap is a view of a map of strings to strings, such as labels.
type StringMap = view.StringMap

// ReadRaw reads a RawExtension or a FieldsV1: an object in an encoding that Kubernetes does not
// interpret, mostly JSON. It is for generated code.
func ReadRaw(v view.Value) []byte {
	raw := v.Raw
	if !v.JSON {
		_, raw = v.Field(1)
	} else if json.Value(raw).IsNull() {
		raw = nil
	}
	if raw == nil {
		return nil
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
			list = append(list, view.Text(view.Value{Raw: it.Value(), JSON: true, Kept: v.Kept}))
		}
		return list
	}
	v.Each(1, func(item []byte) { list = append(list, v.Text(item)) })
	return list
}

// GroupVersion names a version of an API group, the empty group for that of Pods.
type GroupVersion struct{ Group, Version string }

// ReadGroupVersion reads a GroupVersion, which in JSON is a string. It is for
// generated code.
func ReadGroupVersion(v view.Value) GroupVersion {
	if !v.JSON {
		_, group := v.Field(1)
		_, version := v.Field(2)
		return GroupVersion{v.Text(group), v.Text(version)}
	}
	group, version, ok := strings.Cut(view.Text(v), "/")
	if !ok {
		group, version = "", group
	}
	return GroupVersion{group, version}
}
