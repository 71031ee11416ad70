package status

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAKeyThatWaitsIsNotAddedAgain(t *testing.T) {
	var w Waiting[string]
	got := []bool{w.Add("a"), w.Add("a"), w.Add("b")}
	w.Taken("a")
	w.Taken("nobody")
	got = append(got, w.Add("b"), w.Add("a"), w.Add("a"))
	if diff := cmp.Diff([]bool{true, false, true, false, true, false}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
