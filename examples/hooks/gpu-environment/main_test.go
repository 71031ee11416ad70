package main

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/hooks"
)

func TestDecide(t *testing.T) {
	const half = `{"gpu": [{"minor": 2, "resources": {"koordinator.sh/gpu-core": "60", "koordinator.sh/gpu-memory": "16Gi", "koordinator.sh/gpu-memory-ratio": "50"}}]}`
	visible := func(minors string) map[string]string {
		return map[string]string{"NVIDIA_VISIBLE_DEVICES": minors}
	}
	for _, c := range []struct {
		name, annotation, provider string
		stage                      abi.Stage
		level                      abi.Level
		want                       map[string]string
		mounts                     int
	}{
		{name: "one", annotation: `{"gpu": [{"minor": 0}]}`, want: visible("0")},
		{name: "several", annotation: `{"gpu": [{"minor": 1}, {"minor": 3}], "rdma": [{"minor": 7}]}`, want: visible("1,3")},
		{name: "none", annotation: `{"gpu": []}`},
		{name: "another device", annotation: `{"rdma": [{"minor": 7}]}`},
		{name: "no annotation"},
		{name: "a pod", annotation: half, level: abi.LevelPod},
		{name: "after the creation", annotation: half, stage: abi.PostStartContainer},
		{name: "a part without isolation", annotation: half, want: visible("2")},
		{name: "isolation by another", annotation: half, provider: "other", want: visible("2")},
		{name: "a part", annotation: half, provider: "HAMi-core", mounts: 2, want: map[string]string{
			"NVIDIA_VISIBLE_DEVICES": "2", "CUDA_DEVICE_MEMORY_LIMIT": "17179869184", "CUDA_DEVICE_SM_LIMIT": "60", "LD_PRELOAD": "/usr/local/vgpu/libvgpu.so",
		}},
		{name: "a part of its memory", annotation: strings.Replace(half, "gpu-core", "gpu-other", 1), provider: "HAMi-core", mounts: 2, want: map[string]string{
			"NVIDIA_VISIBLE_DEVICES": "2", "CUDA_DEVICE_MEMORY_LIMIT": "17179869184", "LD_PRELOAD": "/usr/local/vgpu/libvgpu.so",
		}},
		{name: "all of it", annotation: strings.Replace(half, `"50"`, `"100"`, 1), provider: "HAMi-core", want: visible("2")},
		{name: "a part of unknown size", annotation: `{"gpu": [{"minor": 2}]}`, provider: "HAMi-core", want: visible("2")},
		{name: "a part without memory", annotation: strings.Replace(half, "gpu-memory\"", "gpu-other\"", 1), provider: "HAMi-core", want: visible("2")},
		{name: "not an amount", annotation: strings.Replace(half, `"50"`, `"half"`, 1), provider: "HAMi-core"},
		{name: "not JSON", annotation: `{`},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := hooks.Fields{Stage: c.stage, Level: c.level, PodAnnotations: map[string]string{}, PodLabels: map[string]string{isolationLabel: c.provider}}
			if f.Stage == 0 {
				f.Stage = abi.PreCreateContainer
			}
			if f.Level == 0 {
				f.Level = abi.LevelContainer
			}
			if c.annotation != "" {
				f.PodAnnotations[allocatedAnnotation] = c.annotation
			}
			var d hooks.Decision
			err := (&gpu{Library: "/usr/local/vgpu/libvgpu.so", Lock: "/tmp/vgpulock"}).Decide(hooks.NewRequest(f), &d)
			if err != nil {
				t.Fatal(err)
			}
			got := maps.Collect(d.ContainerEnvs().All())
			if len(got) == 0 {
				got = nil
			}
			if diff := cmp.Diff(c.want, got); diff != "" || len(d.ContainerMounts()) != c.mounts {
				t.Errorf("%s\nwith the mounts %v", diff, d.ContainerMounts())
			}
		})
	}
}
