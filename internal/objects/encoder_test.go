package objects

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubewasm/kubewasm/abi"
)

// TestOnlyHasWhatIsSelected compares what is encoded of some fields with what the paths of the
// same fields encode.
func TestOnlyHasWhatIsSelected(t *testing.T) {
	tests := map[string]struct {
		masks   []uint64
		entries []EntryKey
		paths   []string
	}{
		"nothing":                   {nil, nil, nil},
		"fields of a part":          {[]uint64{0, 0, 1<<5 | 1<<4}, nil, []string{"node.spec.unschedulable", "node.spec.taints"}},
		"a part":                    {[]uint64{0, 0, abi.AllFields}, nil, []string{"node.spec"}},
		"labels and annotations":    {nil, []EntryKey{{LabelsField, "b"}, {AnnotationsField, "a"}, {LabelsField, "a"}}, []string{"node.metadata.labels[b]", "node.metadata.labels[a]", "node.metadata.annotations[a]"}},
		"all labels, and one twice": {[]uint64{0, 1 << LabelsField}, []EntryKey{{LabelsField, "a"}}, []string{"node.metadata.labels"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			all := (*FieldSet)(nil).Node()
			only := all.Only(test.masks, test.entries)
			paths := Paths[corev1.Node](test.masks, test.entries)
			if diff := cmp.Diff(test.paths, paths, cmpopts.SortSlices(strings.Compare)); diff != "" {
				t.Errorf("paths (-want +got):\n%s", diff)
			}
			for seed := range int64(20) {
				var node corev1.Node
				filler(seed).Fill(&node)
				node.Labels, node.Annotations = map[string]string{"a": "1", "b": "2"}, map[string]string{"a": "3", "b": "4"}
				var got, want corev1.Node
				if err := got.Unmarshal(only.Append(nil, &node)); err != nil {
					t.Fatal(err)
				}
				if len(test.paths) != 0 {
					if err := want.Unmarshal(nodeBytes(fieldSet(t, test.paths...), &node)); err != nil {
						t.Fatal(err)
					}
				}
				want.Name, want.Namespace, want.UID = "", "", "" // They are in every FieldSet.
				if diff := cmp.Diff(want, got, equate); diff != "" {
					t.Errorf("seed %d (-want +got):\n%s", seed, diff)
				}
			}
		})
	}
}
