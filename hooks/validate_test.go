package hooks

import (
	"testing"

	"github.com/kubewasm/kubewasm/codec/hookpb"
)

func TestNumbersAreInTheOrderOfTheirFields(t *testing.T) {
	for i := range numberFields {
		var r hookpb.Resources
		*numberFields[i].in(&r) = new(int64(7))
		for j, v := range numbersOf(&r) {
			if (v != nil) != (i == j) {
				t.Errorf("with %s set, number %d is %v", numberFields[i].name, j, v)
			}
		}
	}
}
