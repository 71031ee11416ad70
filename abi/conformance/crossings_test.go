package conformance_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/objects"
)

// question is what a guest asks about an object: for all of it, for a part, or for
// the entry of a key in a field.
type question struct {
	ref         abi.Ref
	part, field uint32
	fields      uint64
	key         string
}

// TestCrossings holds that the guest in each language asks the same about an object
// once for each of its versions, however often and in whatever order it is called.
func TestCrossings(t *testing.T) {
	run(t, "scheduler", crossings)
}

func crossings(t *testing.T, rt *host.Runtime, guest string) {
	byRef, crossed := map[abi.Ref]*objects.Object{}, map[question]int{}
	plugin, err := rt.Load(t.Context(), host.Config{Name: "guest", Module: host.ModuleConfig{File: guest}, GuestConfig: []byte(`{"label":"zone"}`)}, host.Adapter{
		Kind:    abi.KindScheduler,
		Imports: countingImports(byRef, crossed),
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
		p := &corev1.Pod{ObjectMeta: meta(Object{Name: "p", Labels: map[string]string{"zone": zone}, Pad: int(version) * 1000})}
		byRef[podRef] = objects.NewStore().Pod(p)
		for slot := uint32(1); slot <= nodes; slot++ {
			n := nodeObject(Object{Name: "n", Labels: map[string]string{"zone": zone}, Pad: int(version*slot) * 700})
			byRef[abi.MakeRef(version, slot)] = objects.NewStore().Node(n)
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
	asked := map[abi.Ref]bool{}
	for q, n := range crossed {
		asked[q.ref] = true
		if n != 1 {
			t.Errorf("version %d of slot %d: fields %x of part %d, field %d, key %q crossed %d times, want once", q.ref.Version(), q.ref.Slot(), q.fields, q.part, q.field, q.key, n)
		}
	}
	if len(asked) != len(byRef) {
		t.Errorf("%d objects crossed, want %d", len(asked), len(byRef))
	}
}

// countingImports are the host functions of a scheduler guest, of which those for
// objects count how often each answer was written.
func countingImports(byRef map[abi.Ref]*objects.Object, crossed map[question]int) []host.Import {
	write := func(inst *host.Instance, q question, buf, limit uint64, b []byte) uint64 {
		n := inst.Write(uint32(buf), uint32(limit), b)
		if n <= uint32(limit) { // Otherwise nothing was written.
			crossed[q]++
		}
		return uint64(n)
	}
	list := []host.Import{
		{
			Module: abi.ModuleObjects, Name: "object",
			Params: []abi.ValueType{abi.I64, abi.I32, abi.I32}, Results: []abi.ValueType{abi.I32},
			Func: func(inst *host.Instance, stack []uint64) {
				q := question{ref: abi.Ref(stack[0])}
				stack[0] = write(inst, q, stack[1], stack[2], byRef[q.ref].Bytes())
			},
		},
		{
			Module: abi.ModuleObjects, Name: "object_part",
			Params: []abi.ValueType{abi.I64, abi.I32, abi.I64, abi.I32, abi.I32}, Results: []abi.ValueType{abi.I32},
			Func: func(inst *host.Instance, stack []uint64) {
				q := question{ref: abi.Ref(stack[0]), part: uint32(stack[1]), fields: stack[2]}
				stack[0] = write(inst, q, stack[3], stack[4], byRef[q.ref].AppendPart(nil, q.part, q.fields))
			},
		},
		{
			Module: abi.ModuleObjects, Name: "object_entry",
			Params:  []abi.ValueType{abi.I64, abi.I32, abi.I32, abi.I32, abi.I32, abi.I32},
			Results: []abi.ValueType{abi.I32},
			Func: func(inst *host.Instance, stack []uint64) {
				q := question{ref: abi.Ref(stack[0]), field: uint32(stack[1]), key: string(inst.Read(uint32(stack[2]), uint32(stack[3])))}
				value, ok := byRef[q.ref].Entry(q.field, q.key)
				if !ok {
					crossed[q]++
					stack[0] = abi.NoEntry
					return
				}
				stack[0] = write(inst, q, stack[4], stack[5], []byte(value))
			},
		},
	}
	for _, name := range []string{
		"node_scores", "node_names", "node_name", "node_statuses", "pod_group", "placement",
	} {
		list = append(list, host.ToGuest(abi.KindScheduler.Module(), name, func(*host.Instance) []byte { return nil }))
	}
	for _, name := range []string{
		"result_scores", "result_node_names", "result_cluster_events", "result_nominated_node_name",
		"result_pods", "result_sign_fragments", "result_nominations", "result_placements", "result_victims",
	} {
		list = append(list, host.FromGuest(abi.KindScheduler.Module(), name, func(*host.Instance, []byte) {}))
	}
	list = append(list, host.Import{
		Module: abi.KindScheduler.Module(), Name: "result_score", Params: []abi.ValueType{abi.I64}, Func: func(*host.Instance, []uint64) {},
	})
	return list
}
