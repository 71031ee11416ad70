package main

import (
	"testing"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/examples/hooks/batch-resource/batch"
	"github.com/kubewasm/kubewasm/guest/hooks"
	"github.com/kubewasm/kubewasm/host/cases"
)

// The ratio is the Node's, if it has one.
func TestTheRatioOfANode(t *testing.T) {
	for _, c := range []struct {
		name, annotation string
		percent          int64
		want             int64
	}{
		{"no ratio", "", 0, 150_000},
		{"that of the configuration", "", 125, 120_000},
		{"that of the node", "1.20", 0, 125_000},
		{"that of the node before the configuration's", "1.20", 150, 125_000},
		{"one that does not divide evenly", "1.30", 0, 115_385},
		{"a ratio of 1 undoes a larger one", "1.00", 150, 150_000},
		{"one below 1", "0.50", 0, 150_000},
		{"no number", "fast", 150, 150_000},
	} {
		f := hooks.Fields{
			Level: abi.LevelContainer, ContainerName: "worker", PodLabels: map[string]string{batch.QOSLabel: "BE"},
			PodAnnotations: map[string]string{batch.SpecAnnotation: `{"containers": {"worker": {"limits": {"kubernetes.io/batch-cpu": "1500"}}}}`},
		}
		if c.annotation != "" {
			f.NodeAnnotations = map[string]string{batch.RatioAnnotation: c.annotation}
		}
		var d hooks.Decision
		err := (&batch.Config{RatioPercent: c.percent}).Decide(hooks.NewRequest(f), &d)
		if got, _ := d.CFSQuota(); err != nil || got != c.want {
			t.Errorf("%s: got %d, error %v; want %d", c.name, got, err, c.want)
		}
	}
}

// TestCases holds the guest in each language against the same cases.
func TestCases(t *testing.T) {
	cases.Test(t, "cases.yaml",
		".",
		"as",
		"c",
		"rust",
	)
}
