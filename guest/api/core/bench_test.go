package core_test

import (
	"fmt"
	"testing"

	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/internal/wire"
)

// benchNode is a Node with 23 labels, 2 taints and 50 images, as protobuf.
func benchNode() []byte {
	var meta, spec, status []byte
	meta = wire.AppendBytes(meta, 1, "ip-10-0-1-17.eu-central-1.compute.internal")
	for i := range 22 {
		meta = wire.AppendMapEntry(meta, 11, fmt.Sprintf("example.com/label-number-%d", i), "the value of a label")
	}
	meta = wire.AppendMapEntry(meta, 11, "topology.kubernetes.io/zone", "eu-central-1a")
	taint := func(key, effect string) []byte {
		return wire.AppendBytes(wire.AppendBytes(wire.AppendBytes(nil, 1, key), 2, "shop"), 3, effect)
	}
	spec = wire.AppendBytes(spec, 1, "10.0.1.0/24")
	spec = wire.AppendBytes(spec, 5, taint("example.com/maintenance", "PreferNoSchedule"))
	spec = wire.AppendBytes(spec, 5, taint("example.com/dedicated", "NoSchedule"))
	for i := range 50 {
		image := wire.AppendBytes(nil, 1, fmt.Sprintf("123456789012.dkr.ecr.eu-central-1.amazonaws.com/service-%02d@sha256:0a0a0a0a0a0a0a0a", i))
		image = wire.AppendBytes(image, 1, fmt.Sprintf("123456789012.dkr.ecr.eu-central-1.amazonaws.com/service-%02d:1.4", i))
		status = wire.AppendBytes(status, 8, wire.AppendVarint(image, 2, 123456789))
	}
	node := wire.AppendBytes(nil, 1, meta)
	node = wire.AppendBytes(node, 2, spec)
	return wire.AppendBytes(node, 3, status)
}

func benchPod() []byte {
	var spec []byte
	for _, key := range []string{"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "example.com/dedicated"} {
		t := wire.AppendBytes(wire.AppendBytes(nil, 1, key), 2, "Exists")
		spec = wire.AppendBytes(spec, 22, t)
	}
	return wire.AppendBytes(nil, 2, spec)
}

func check(b *testing.B, node core.Node, pod core.Pod) {
	if node.Metadata().Labels().Get("topology.kubernetes.io/zone") != "eu-central-1a" {
		b.Fatal("no zone")
	}
	if taint, found := core.FindUntolerated(node.Spec().Taints(), pod.Spec().Tolerations()); found {
		b.Fatal(taint)
	}
}

// BenchmarkLabelAndTaints is what the least of scheduler plugins does. Run it in
// wasm as well: that is where it counts.
func BenchmarkLabelAndTaints(b *testing.B) {
	raw := benchNode()
	pod := core.PodFromProto(benchPod())
	b.Run("first", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			check(b, core.NodeFromProto(raw), pod)
		}
	})
	b.Run("again", func(b *testing.B) {
		b.ReportAllocs()
		node := core.NodeFromProto(raw)
		for b.Loop() {
			check(b, node, pod)
		}
	})
}

// BenchmarkAllLabels is what a plugin does that looks at every label.
func BenchmarkAllLabels(b *testing.B) {
	raw := benchNode()
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for key, value := range core.NodeFromProto(raw).Metadata().Labels().All {
			n += len(key) + len(value)
		}
		if n == 0 {
			b.Fatal("no labels")
		}
	}
}
