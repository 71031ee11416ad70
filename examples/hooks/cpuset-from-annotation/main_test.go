package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/guest/hooks"
)

func TestDecide(t *testing.T) {
	type decision struct {
		CPUs  string
		Quota int64 // Zero is untouched.
	}
	for _, c := range []struct {
		name, annotation string
		level            hooks.Level
		want             decision
		err              string
	}{
		{name: "a container", annotation: "0-3,8", level: hooks.LevelContainer, want: decision{"0-3,8", -1}},
		{name: "its pod is not bound, but must have room", annotation: "0-3,8", level: hooks.LevelPod, want: decision{"", -1}},
		{name: "no annotation", level: hooks.LevelContainer},
		{name: "a class has no annotation", annotation: "1", level: hooks.LevelQOS},
		{name: "not CPUs", annotation: "all", level: hooks.LevelContainer, err: `annotation kubewasm.dev/cpuset is "all"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := hooks.Fields{Level: c.level, PodAnnotations: map[string]string{"kubewasm.dev/cpuset": c.annotation}}
			var d hooks.Decision
			err := (&cpuset{Annotation: "kubewasm.dev/cpuset"}).Decide(hooks.RequestOf(f), &d)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("got error %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got decision
			got.CPUs, _ = d.CPUSet()
			got.Quota, _ = d.CFSQuota()
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
