package codec

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubewasm/kubewasm/abi"
)

// TestEqualIsEqualBytes compares objects of which some field differs, or none.
func TestEqualIsEqualBytes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	all := leaves("node", kinds["node"], 6)
	var equal, unequal int
	for seed := range int64(400) {
		var a, other corev1.Node
		filler(seed % 40).NilChance(0.2).Fill(&a)
		filler(seed%40 + 50).NilChance(0.2).Fill(&other)
		b := a.DeepCopy()
		// Some parts are another Node's.
		for _, change := range []func(){
			func() { b.Labels = other.Labels }, func() { b.Annotations = other.Annotations }, func() { b.Spec.Taints = other.Spec.Taints },
			func() { b.Status.Conditions = other.Status.Conditions }, func() { b.Status.Allocatable = other.Status.Allocatable },
			func() { b.Spec.Unschedulable = !b.Spec.Unschedulable }, func() { b.Status.Images = slices.Clip(b.Status.Images)[:len(b.Status.Images)/2] },
			func() { b.CreationTimestamp = other.CreationTimestamp }, func() { b.DeletionGracePeriodSeconds = other.DeletionGracePeriodSeconds },
			func() { b.Labels = map[string]string{} }, func() { b.Spec.Taints = append([]corev1.Taint{}, b.Spec.Taints...) },
		} {
			if seed > 20 && r.IntN(6) == 0 {
				change()
			}
		}
		paths := make([]string, r.IntN(6))
		for i := range paths {
			paths[i] = all[r.IntN(len(all))]
		}
		p := fieldSet(t, paths...)
		nodes := p.Node()
		x, y := nodes.Append(nil, &a), nodes.Append(nil, b)
		want := bytes.Equal(x, y)
		if got := nodes.Equal(&a, b); got != want {
			t.Fatalf("seed %d, %v: equal is %t, and the bytes differ:\n%s", seed, p, got, cmp.Diff(x, y))
		}
		if want {
			equal++
		} else {
			unequal++
		}
	}
	if equal < 20 || unequal < 20 {
		t.Errorf("%d were equal and %d not", equal, unequal)
	}
}

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
