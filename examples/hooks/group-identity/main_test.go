package main

import (
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/examples/hooks/group-identity/identity"
	"github.com/kubewasm/kubewasm/guest/hooks"
)

func TestDecide(t *testing.T) {
	const none = 99
	all := groupIdentity{LSR: new(int64(1)), LS: new(int64(2)), BE: new(int64(-1))}
	noLSR := groupIdentity{LS: new(int64(2)), BE: new(int64(-1))}
	onlyBE := groupIdentity{BE: new(int64(-1))}
	for _, c := range []struct {
		name       string
		config     groupIdentity
		level      abi.Level
		class      abi.QOSClass
		label      string
		annotation string
		want       int64
		err        string
	}{
		{name: "the background's class", config: all, level: abi.LevelQOS, class: abi.QOSBestEffort, want: -1},
		{name: "the class of most", config: all, level: abi.LevelQOS, class: abi.QOSBurstable, want: 2},
		{name: "the class above all", config: all, level: abi.LevelQOS, class: abi.QOSGuaranteed, want: 0},
		{name: "a pod in the background's class", config: all, level: abi.LevelPod, class: abi.QOSBestEffort, want: -1},
		{name: "a pod in the class of most", config: all, level: abi.LevelPod, class: abi.QOSBurstable, want: 2},
		{name: "a guaranteed pod", config: all, level: abi.LevelPod, class: abi.QOSGuaranteed, want: 1},
		{name: "a guaranteed pod without lsr", config: noLSR, level: abi.LevelPod, class: abi.QOSGuaranteed, want: 2},
		{name: "a guaranteed pod without both", config: onlyBE, level: abi.LevelPod, class: abi.QOSGuaranteed, want: 0},
		{name: "a pod that says what it is", config: all, level: abi.LevelPod, class: abi.QOSBurstable, label: "LSR", want: 1},
		{name: "a pod with CPUs of its own", config: all, level: abi.LevelPod, class: abi.QOSBurstable, label: "LSE", want: 1},
		{name: "latency sensitive", config: all, level: abi.LevelPod, class: abi.QOSGuaranteed, label: "LS", want: 2},
		{name: "background in another class", config: all, level: abi.LevelPod, class: abi.QOSBurstable, label: "BE", want: -1},
		{name: "what is off is 0", config: noLSR, level: abi.LevelPod, class: abi.QOSGuaranteed, label: "LSR", want: 0},
		{name: "the system's", config: all, level: abi.LevelPod, class: abi.QOSGuaranteed, label: "SYSTEM", want: 1},
		{name: "a word that is none", config: all, level: abi.LevelPod, class: abi.QOSBurstable, label: "fast", want: 2},
		{name: "a container has its pod's", config: all, level: abi.LevelContainer, class: abi.QOSBestEffort, label: "BE", want: none},
		{name: "no class", config: all, level: abi.LevelPod, want: none},
		{name: "all off", level: abi.LevelPod, class: abi.QOSBestEffort, label: "BE", want: none},
		{name: "an identity of its own", config: all, level: abi.LevelPod, label: "LS", annotation: `{"enable": true, "groupIdentity": -1}`, want: -1},
		{name: "enabled without one", config: all, level: abi.LevelPod, label: "LS", annotation: `{"enable": true}`, want: 2},
		{name: "switched off", config: all, level: abi.LevelPod, label: "LS", annotation: `{"enable": false, "groupIdentity": -1}`, want: 0},
		{name: "not switched on", config: all, level: abi.LevelPod, label: "LS", annotation: `{"groupIdentity": -1}`, want: 0},
		{name: "background has none of its own", config: all, level: abi.LevelPod, label: "BE", annotation: `{"enable": true, "groupIdentity": 2}`, want: -1},
		{name: "out of range", config: all, level: abi.LevelPod, label: "LS", annotation: `{"enable": true, "groupIdentity": 3}`, err: "groupIdentity is 3"},
		{name: "not JSON", config: all, level: abi.LevelPod, label: "LS", annotation: `{`, err: "annotation koordinator.sh/cpuQOS: "},
	} {
		f := hooks.Fields{Level: c.level, QOSClass: c.class, PodLabels: map[string]string{}, PodAnnotations: map[string]string{}}
		if c.label != "" {
			f.PodLabels[identity.QOSLabel] = c.label
		}
		if c.annotation != "" {
			f.PodAnnotations[identity.CPUAnnotation] = c.annotation
		}
		var d hooks.Decision
		err := c.config.Decide(hooks.NewRequest(f), &d)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: got error %v", c.name, err)
			}
			continue
		}
		if err != nil {
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
