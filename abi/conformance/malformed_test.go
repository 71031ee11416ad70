package conformance_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/objects"
)

// malformed returns a variant of a message: cut off, with bytes changed or put in, with lengths
// and numbers that are too long, with other wire types, or deep.
func malformed(r *rand.Rand, message []byte) []byte {
	b := bytes.Clone(message)
	at := func() int { return r.IntN(len(b) + 1) }
	insert := func(i int, more ...byte) { b = append(b[:i:i], append(more, b[i:]...)...) }
	for range 1 + r.IntN(3) {
		switch r.IntN(7) {
		case 0:
			b = b[:at()]
		case 1:
			if len(b) != 0 {
				b[r.IntN(len(b))] = byte(r.Uint32())
			}
		case 2: // A length beyond the end.
			insert(at(), append([]byte{11<<3 | 2}, binary.AppendUvarint(nil, r.Uint64()>>r.IntN(64))...)...)
		case 3: // A number of more than ten bytes.
			insert(at(), bytes.Repeat([]byte{0xff}, 9+r.IntN(4))...)
		case 4: // Another wire type, those that there are not among them.
			if len(b) != 0 {
				b[0] = b[0]&^7 | byte(r.IntN(8))
			}
		case 5: // Messages in messages.
			for range 200 {
				b = append(binary.AppendUvarint([]byte{11<<3 | 2}, uint64(len(b))), b...)
			}
		default: // The number 0, and one that is too large.
			insert(at(), [][]byte{{0x02, 0x00}, {0xff, 0xff, 0xff, 0xff, 0x7f, 0x00}}[r.IntN(2)]...)
		}
	}
	return b
}

// TestMalformedObjects holds for the readers of each language: a guest answers the same about
// malformed bytes, whatever lay in its memory after them, and never traps on a valid object. An
// object before that is longer leaves its end there.
func TestMalformedObjects(t *testing.T) {
	run(t, "scheduler", func(t *testing.T, rt *host.Runtime, guest string) {
		byRef, answers := map[abi.Ref][3][]byte{}, map[abi.Ref]map[string]string{}
		imports := countingImports(map[abi.Ref]*objects.Object{}, map[question]int{})
		for i := range imports {
			switch imports[i].Name {
			case "object":
				imports[i].Func = func(inst *host.Instance, stack []uint64) {
					stack[0] = uint64(inst.Write(uint32(stack[1]), uint32(stack[2]), byRef[abi.Ref(stack[0])][0]))
				}
			case "object_part":
				imports[i].Func = func(inst *host.Instance, stack []uint64) {
					part := []byte(nil)
					if n := uint32(stack[1]); n == 1 || n == 2 { // The upper half of an i32 is anything.
						part = byRef[abi.Ref(stack[0])][n]
					}
					stack[0] = uint64(inst.Write(uint32(stack[3]), uint32(stack[4]), part))
				}
			case "object_entry":
				imports[i].Func = func(inst *host.Instance, stack []uint64) {
					value, ok := answers[abi.Ref(stack[0])][fmt.Sprint(uint32(stack[1]), " ", string(inst.Read(uint32(stack[2]), uint32(stack[3]))))]
					if !ok {
						stack[0] = abi.NoEntry
						return
					}
					stack[0] = uint64(inst.Write(uint32(stack[4]), uint32(stack[5]), []byte(value)))
				}
			}
		}
		load := func() *host.Instance {
			plugin, err := rt.Load(t.Context(), host.Config{Name: "guest", Module: host.ModuleConfig{File: guest}, GuestConfig: []byte(`{"label":"zone"}`)}, host.Adapter{Kind: abi.KindScheduler, Imports: imports})
			if err != nil {
				t.Fatal(err)
			}
			inst, err := plugin.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				inst.Release()
				plugin.Close(context.Background())
			})
			return inst
		}
		parts := func(o Object) [3][]byte {
			whole, err := codec.Encode(nodeObject(o))
			if err != nil {
				t.Fatal(err)
			}
			object := objects.NewStore().Node(nodeObject(o))
			return [3][]byte{whole, object.AppendPart(nil, 1, abi.AllFields), object.AppendPart(nil, 2, abi.AllFields)}
		}
		pod, err := codec.Encode(&corev1.Pod{ObjectMeta: meta(Object{Name: "p", Labels: map[string]string{"zone": "a"}})})
		if err != nil {
			t.Fatal(err)
		}
		valid := parts(Object{Name: "n", Labels: map[string]string{"zone": "a", "x": "y"}, Taints: []string{"k"}, Pad: 40})
		long := parts(Object{Name: "evil", Labels: map[string]string{"zone": "evil", "w": "z", "v": "u"}, Taints: []string{"evil", "more-evil"}, Pad: 3000})
		empty := parts(Object{})
		r := rand.New(rand.NewPCG(1, 2))
		version := uint32(1)
		ask := func(inst *host.Instance, before, node [3][]byte) (answer string) {
			var trap error
			call := func(f abi.Function, args ...uint64) string {
				result, err := inst.Call(t.Context(), f, args...)
				if err != nil {
					trap = err
					return "trap: " + err.Error()
				}
				if f != abi.Score {
					result = uint64(uint32(result))
				}
				return fmt.Sprint(result, " ", inst.Reason())
			}
			version++
			podRef := abi.MakeRef(version, 0)
			byRef[podRef] = [3][]byte{pod, pod[2:], nil}
			answers[podRef] = map[string]string{"11 zone": "a"}
			cycle := uint64(abi.MakeRef(version, 0))
			if got := call(abi.PreFilter, cycle, uint64(podRef)); got != "0 " {
				t.Fatalf("prefilter: %s %v", got, trap)
			}
			for _, n := range [][3][]byte{before, node} {
				version++
				ref := abi.MakeRef(version, 1)
				byRef[ref] = n
				answer = call(abi.Score, cycle, uint64(podRef), uint64(ref)) + ", " + call(abi.Filter, cycle, uint64(podRef), uint64(ref))
			}
			return answer
		}
		one, other := load(), load()
		for i := range 400 {
			node := valid
			if i != 0 {
				for p := range node {
					node[p] = malformed(r, valid[p])
				}
			}
			got, want := ask(one, long, node), ask(other, empty, node)
			if got != want {
				t.Fatalf("%x after a longer object: %s, want %s", node, got, want)
			}
			if i == 0 && bytes.Contains([]byte(got), []byte("trap")) {
				t.Fatalf("a valid object: %s", got)
			}
		}
	})
}
