package main

import (
	"testing"

	"github.com/kubewasm/kubewasm/guest/hooks"
)

func TestDecide(t *testing.T) {
	const none = 99
	for _, c := range []struct {
		name  string
		level hooks.Level
		class hooks.QOSClass
		label string
		want  int64
	}{
		{"the background's class", hooks.LevelQOS, hooks.QOSBestEffort, "", -1},
		{"the class of most", hooks.LevelQOS, hooks.QOSBurstable, "", 2},
		{"the class above all", hooks.LevelQOS, hooks.QOSGuaranteed, "", 0},
		{"a pod of a class", hooks.LevelPod, hooks.QOSBestEffort, "", -1},
		{"a pod that says what it is", hooks.LevelPod, hooks.QOSGuaranteed, "LSR", 2},
		{"background in another class", hooks.LevelPod, hooks.QOSBurstable, "BE", -1},
		{"a word that is none", hooks.LevelPod, hooks.QOSBurstable, "fast", 2},
		{"a container has its pod's", hooks.LevelContainer, hooks.QOSBestEffort, "BE", none},
		{"no class", hooks.LevelPod, hooks.QOSUnspecified, "", none},
	} {
		f := hooks.Fields{Level: c.level, QOSClass: c.class}
		if c.label != "" {
			f.PodLabels = map[string]string{label: c.label}
		}
		var d hooks.Decision
		if err := (&groupIdentity{LatencySensitive: 2, Background: -1}).Decide(hooks.RequestOf(f), &d); err != nil {
			t.Fatal(err)
		}
		got, ok := d.CPUBvt()
		if !ok {
			got = none
		}
		if got != c.want {
			t.Errorf("%s: got %d, want %d", c.name, got, c.want)
		}
	}
}
