package conformance_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec"
	"github.com/kubewasm/kubewasm/guest/conformance"
	"github.com/kubewasm/kubewasm/host"
)

// TestCrossings holds that the guest in each language asks for an object once for
// each of its versions, however often and in whatever order it is called.
func TestCrossings(t *testing.T) {
	run(t, "scheduler", func(t *testing.T, rt *host.Runtime, guest string) {
		objects, crossed := map[abi.Ref][]byte{}, map[abi.Ref]int{}
		plugin, err := rt.Load(t.Context(), host.Config{
			Name: "guest", Source: host.File(guest), Kind: abi.KindScheduler, Guest: []byte(`{"label":"zone"}`),
			Imports: countingImports(objects, crossed),
		})
		if err != nil {
			t.Fatal(err)
		}
		inst, err := plugin.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer inst.Release()
		call := func(f abi.Function, args ...uint64) abi.Code {
			t.Helper()
			code, err := inst.Call(t.Context(), f, args...)
			if err != nil {
				t.Fatal(err)
			}
			return abi.Code(int32(uint32(code)))
		}

		const pod, nodes = 0, 5
		for version := uint32(1); version <= 3; version++ {
			zone := fmt.Sprint("zone-", version)
			podRef := abi.MakeRef(version, pod)
			p := &corev1.Pod{ObjectMeta: meta(conformance.Object{Name: "p", Labels: map[string]string{"zone": zone}, Pad: int(version) * 1000})}
			if objects[podRef], err = codec.Pod(p); err != nil {
				t.Fatal(err)
			}
			for slot := uint32(1); slot <= nodes; slot++ {
				n := &corev1.Node{ObjectMeta: meta(conformance.Object{Name: "n", Labels: map[string]string{"zone": zone}, Pad: int(version*slot) * 700})}
				if objects[abi.MakeRef(version, slot)], err = codec.Node(n); err != nil {
					t.Fatal(err)
				}
			}
			cycle := uint64(abi.MakeRef(version, 0))
			if code := call(abi.PreFilter, cycle, uint64(podRef)); code != abi.Success {
				t.Fatalf("prefilter: %s: %s", code, inst.Reason())
			}
			for range 3 {
				for slot := uint32(1); slot <= nodes; slot++ {
					node := uint64(abi.MakeRef(version, slot))
					if code := call(abi.Filter, cycle, uint64(podRef), node); code != abi.Success {
						t.Fatalf("filter: %s: %s", code, inst.Reason())
					}
					call(abi.Score, cycle, uint64(podRef), node)
				}
			}
		}
		if len(crossed) != len(objects) {
			t.Errorf("%d objects crossed, want %d", len(crossed), len(objects))
		}
		for ref, n := range crossed {
			if n != 1 {
				t.Errorf("version %d of slot %d crossed %d times, want once", ref.Version(), ref.Slot(), n)
			}
		}
	})
}

// countingImports are the host functions of a scheduler guest, of which the one
// for objects counts how often each was written.
func countingImports(objects map[abi.Ref][]byte, crossed map[abi.Ref]int) []host.Import {
	list := []host.Import{{
		Module: abi.ModuleObjects, Name: abi.ImportObject,
		Params: []abi.ValueType{abi.I64, abi.I32, abi.I32}, Results: []abi.ValueType{abi.I32},
		Func: func(inst *host.Instance, stack []uint64) {
			ref := abi.Ref(stack[0])
			n := inst.Write(uint32(stack[1]), uint32(stack[2]), objects[ref])
			if n <= uint32(stack[2]) { // Otherwise nothing was written.
				crossed[ref]++
			}
			stack[0] = uint64(n)
		},
	}}
	for _, name := range []string{
		abi.ImportNodeScores, abi.ImportNodeNames, abi.ImportNodeName, abi.ImportNodeStatuses, abi.ImportPodGroup, abi.ImportPlacement,
	} {
		list = append(list, host.GuestReads(abi.ModuleScheduler, name, func(*host.Instance) []byte { return nil }))
	}
	for _, name := range []string{
		abi.ImportResultScores, abi.ImportResultNodeNames, abi.ImportResultClusterEvents, abi.ImportResultNominatedNodeName,
		abi.ImportResultSignFragments, abi.ImportResultNominations, abi.ImportResultPlacements,
	} {
		list = append(list, host.GuestWrites(abi.ModuleScheduler, name, func(*host.Instance, []byte) {}))
	}
	return list
}
