package objects

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
)

// TestFieldsComeInOrder holds what the ABI promises (SPEC.md, 4.9), for any
// FieldSet: guests stop reading where a field would have been.
func TestFieldsComeInOrder(t *testing.T) {
	all := slices.Concat(leaves("node", kinds["node"], 6), leaves("pod", kinds["pod"], 6))
	r := rand.New(rand.NewPCG(3, 3))
	for seed := range int64(200) {
		var node corev1.Node
		var pod corev1.Pod
		filler(seed).NilChance(0.1).Fill(&node)
		filler(seed).NilChance(0.1).Fill(&pod)
		paths := make([]string, r.IntN(30))
		for i := range paths {
			paths[i] = all[r.IntN(len(all))]
		}
		p := fieldSet(t, paths...)
		for _, object := range []struct {
			kind  string
			bytes []byte
		}{
			{"node", nodeBytes(p, &node)},
			{"pod", podBytes(p, &pod)},
		} {
			if err := inOrder(object.bytes, kinds[object.kind]); err != nil {
				t.Fatalf("seed %d: %s with %s: %v", seed, object.kind, p, err)
			}
		}
	}
}

// inOrder checks the order of the fields of a message, and of the messages in it.
func inOrder(b []byte, t reflect.Type) error {
	types := map[protowire.Number]reflect.Type{}
	for i := range t.NumField() {
		if f := t.Field(i); f.Tag.Get("protobuf") != "" {
			types[fieldNumber(f)] = f.Type
		}
	}
	last := protowire.Number(0)
	for len(b) > 0 {
		number, typ, n := protowire.ConsumeField(b)
		if n < 0 {
			return fmt.Errorf("%s: %w", t.Name(), protowire.ParseError(n))
		}
		field, of := b[:n], types[number]
		b = b[n:]
		if number < last || of == nil {
			return fmt.Errorf("%s: field %d comes after field %d", t.Name(), number, last)
		}
		last = number
		if typ != protowire.BytesType {
			continue
		}
		_, _, n = protowire.ConsumeTag(field)
		value, _ := protowire.ConsumeBytes(field[n:])
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
			of = of.Elem()
		}
		switch {
		case of.Kind() == reflect.Map:
			key, _, n := protowire.ConsumeField(value)
			second, _, m := protowire.ConsumeField(value[max(n, 0):])
			if key != 1 || second != 2 || n+m != len(value) {
				return fmt.Errorf("%s: an entry of field %d is %x", t.Name(), number, value)
			}
		case nested(of):
			if err := inOrder(value, of); err != nil {
				return fmt.Errorf("%s.%w", t.Name(), err)
			}
		}
	}
	return nil
}
