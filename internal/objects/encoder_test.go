package objects

import (
	"strings"
	"testing"
	"unsafe"

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

// TestTouchReadsEachString adds up the beginnings of the strings of some fields, and touches
// objects of any form.
func TestTouchReadsEachString(t *testing.T) {
	some := (*FieldSet)(nil).Node().Only([]uint64{2: 1<<1 | 1<<5}, []EntryKey{{LabelsField, "b"}, {AnnotationsField, "none"}})
	node := func(taints int) *corev1.Node {
		n := &corev1.Node{}
		n.Labels = map[string]string{"a": "unread", "b": "\x01"}
		n.Spec.PodCIDR, n.Spec.ProviderID = "\x02", "unread"
		for range taints {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "\x04", Effect: "\x08"})
		}
		return n
	}
	for name, test := range map[string]struct {
		nodes []*corev1.Node
		want  int
	}{
		"none":              {nil, 0},
		"an empty one":      {[]*corev1.Node{{}}, 0},
		"two":               {[]*corev1.Node{node(1), node(2)}, 2*(1+2) + 3*(4+8)},
		"too many elements": {[]*corev1.Node{node(2 * maxTouched), node(1)}, 2*(1+2) + maxTouched*(4+8)},
	} {
		var structs []unsafe.Pointer
		for _, n := range test.nodes {
			structs = append(structs, unsafe.Pointer(n))
		}
		if got := some.fields.touch(structs, 0); got != byte(test.want) {
			t.Errorf("%s: sum %d, want %d", name, got, byte(test.want))
		}
	}
	for seed := range int64(100) {
		var node corev1.Node
		var pod corev1.Pod
		filler(seed).Fill(&node)
		filler(seed).Fill(&pod)
		(*FieldSet)(nil).Node().Touch([]*corev1.Node{&node, {}, &node})
		(*FieldSet)(nil).Pod().Touch([]*corev1.Pod{&pod, {}, &pod})
	}
}
