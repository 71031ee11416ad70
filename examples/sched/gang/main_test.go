package main

import (
	"testing"

	"github.com/kubewasm/kubewasm/guest/api/meta"
	"github.com/kubewasm/kubewasm/guest/guesttest"
	"github.com/kubewasm/kubewasm/guest/sched"
)

// Natively no Pod waits: a gang of one passes, any other waits.
func TestPermit(t *testing.T) {
	tests := map[string]struct {
		manifest string
		want     string
		timeout  meta.Duration
	}{
		"no gang":       {`metadata: {name: p}`, "Success", 0},
		"gang of one":   {`metadata: {name: p, annotations: {kubewasm.dev/gang: g, kubewasm.dev/gang-size: "1"}}`, "Success", 0},
		"gang of three": {`metadata: {name: p, annotations: {kubewasm.dev/gang: g, kubewasm.dev/gang-size: "3"}}`, "Wait: the gang is not complete", 5 * meta.Second},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			status, timeout := (&gang{Timeout: "5s"}).Permit(sched.NewCycleState(), guesttest.Pod(t, test.manifest), "n1")
			if status.String() != test.want || timeout != test.timeout {
				t.Errorf("got %s for %s, want %s for %s", status, timeout, test.want, test.timeout)
			}
		})
	}
}

func TestPreFilter(t *testing.T) {
	pod := guesttest.Pod(t, `metadata: {name: p, annotations: {kubewasm.dev/gang: g, kubewasm.dev/gang-size: many}}`)
	_, status := (&gang{}).PreFilter(sched.NewCycleState(), pod)
	if want := `UnschedulableAndUnresolvable: annotation kubewasm.dev/gang-size is "many", not a number above 0`; status.String() != want {
		t.Errorf("got %s, want %s", status, want)
	}
	if _, status := (&gang{Timeout: "soon"}).PreFilter(sched.NewCycleState(), pod); status.Code() != sched.CodeError {
		t.Errorf("got %s, want an error", status)
	}
}
