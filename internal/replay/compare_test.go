package replay_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/record"
	"github.com/kubewasm/kubewasm/internal/recording"
	"github.com/kubewasm/kubewasm/internal/replay"
)

func wasm(t testing.TB, name string) []byte {
	t.Helper()
	module, err := os.ReadFile(filepath.Join("testdata", name+".wasm"))
	if err != nil {
		t.Fatal(err)
	}
	return module
}

// recordAsks records what testdata/asks.wasm is asked about Nodes with a long name and with a
// long second field, in turn.
func recordAsks(t testing.TB) *recording.Recording {
	t.Helper()
	field := func(b []byte, n protowire.Number, text string) []byte {
		return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), text)
	}
	objects := host.Import{
		Module: abi.ModuleObjects, Name: "object_part", Memory: 0b11000,
		Params: []abi.ValueType{abi.I64, abi.I32, abi.I64, abi.I32, abi.I32}, Results: []abi.ValueType{abi.I32},
		Func: func(inst *host.Instance, stack []uint64) {
			names := [2]string{"long name", ""}
			if stack[0]%2 == 1 {
				names = [2]string{"", "long text"}
			}
			message := field(field(nil, 0+1, names[1]), 2, names[0])
			stack[0] = uint64(inst.Write(uint32(stack[3]), uint32(stack[4]), message))
		},
	}
	return recordCalls(t, "asks", 10, objects)
}

// recordCalls records calls of filter on a module of testdata.
func recordCalls(t testing.TB, module string, calls uint64, imports ...host.Import) *recording.Recording {
	t.Helper()
	dir := t.TempDir()
	p, err := newRuntime(t).Load(t.Context(), host.Config{
		Name: "recorded", Module: host.ModuleConfig{Bytes: wasm(t, module)}, Record: &record.Config{Path: dir},
	}, host.Adapter{Kind: abi.KindScheduler, Imports: imports})
	if err != nil {
		t.Fatal(err)
	}
	for n := range calls {
		inst, err := p.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := inst.Call(t.Context(), abi.Filter, 0, 0, n); err != nil {
			t.Fatal(err)
		}
		inst.Release()
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	recorded, err := recording.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return recorded
}

// A version that asks for a part of what was recorded is answered; one that asks for something
// else is told apart from one that answers otherwise.
func TestCompare(t *testing.T) {
	recorded := recordAsks(t)
	type difference struct {
		Class  replay.Class
		Detail string
		Calls  int
	}
	for _, test := range []struct {
		version string
		want    []difference
	}{
		{"asks", nil},
		{"fewer", []difference{{replay.Flipped, "answered → denied", 5}}},
		{"more", []difference{{replay.Unrecorded, "k8s.io/api.object_part", 10}}},
	} {
		t.Run(test.version, func(t *testing.T) {
			c, err := replay.Compare(t.Context(), newRuntime(t), recorded, wasm(t, "asks"), wasm(t, test.version), "")
			if err != nil {
				t.Fatal(err)
			}
			var got []difference
			for _, g := range c.Groups {
				got = append(got, difference{g.Class, g.Detail, g.Calls})
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("differences (-want +got):\n%s", diff)
			}
			if c.Calls != 10 || c.Drifted != 0 {
				t.Errorf("%d calls, %d drifted", c.Calls, c.Drifted)
			}
		})
	}
}

// FuzzReplay: a recording is not believed. Whatever its calls say, a replay ends without harm.
func FuzzReplay(f *testing.F) {
	recorded := recordAsks(f)
	for _, s := range recorded.Sequences() {
		for c, err := range s.Calls() {
			if err != nil {
				f.Fatal(err)
			}
			var b []byte
			for _, e := range c.Events {
				b = append(b, byte(e.Kind), byte(e.Index), byte(len(e.Args)))
				for _, a := range e.Args {
					b = append(b, byte(a))
				}
			}
			f.Add(byte(c.Kind), b)
		}
	}
	rt, version := newRuntime(f), *recorded.Versions()[0]
	module := wasm(f, "asks")
	f.Fuzz(func(t *testing.T, kind byte, data []byte) {
		c := &recording.Call{Version: &version, Kind: recording.CallKind(kind % 4), Function: "filter", Args: []uint64{0, 0, 1}}
		for len(data) >= 3 && len(c.Events) < 1000 {
			e := recording.Event{Kind: recording.EventKind(data[0]), Index: int(data[1]), Data: []byte("data")}
			n := min(int(data[2])%8, len(data)-3)
			for _, a := range data[3 : 3+n] {
				e.Args = append(e.Args, uint64(a)<<(a%57))
			}
			data = data[3+n:]
			c.Events = append(c.Events, e)
		}
		for _, closely := range []bool{false, true} {
			p, err := replay.Load(t.Context(), rt, &version, nil, module, replay.Options{Closely: closely, Configure: func(cfg *host.Config) { cfg.Limits.Fuel = 1_000_000 }})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Begin(t.Context(), &recording.Sequence{}); err != nil {
				t.Fatal(err)
			}
			_, _ = p.Play(t.Context(), c) // It may be a call that the guest does not have.
			if err := p.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// recordEffects records a guest that reports events, allows a Pod that waits and hands over a score.
func recordEffects(t testing.TB) *recording.Recording {
	t.Helper()
	pair := []abi.ValueType{abi.I32, abi.I32}
	read := func(inst *host.Instance, stack []uint64) { inst.Read(uint32(stack[0]), uint32(stack[1])) }
	imports := []host.Import{
		{Module: abi.KindScheduler.Module(), Name: "event", Memory: 0b11, Params: pair, Func: read},
		{Module: abi.KindScheduler.Module(), Name: "allow_waiting_pod", Memory: 0b11, Params: pair, Results: []abi.ValueType{abi.I32}, Func: func(inst *host.Instance, stack []uint64) {
			read(inst, stack)
			stack[0] = 1
		}},
		{Module: abi.KindScheduler.Module(), Name: "result_score", Params: []abi.ValueType{abi.I64}, Func: func(*host.Instance, []uint64) {}},
	}
	return recordCalls(t, "effects/base", 1, imports...)
}

// All that a guest does beside its answer is compared, in order, and not the last of each kind.
func TestCompareEffects(t *testing.T) {
	recorded := recordEffects(t)
	type difference struct {
		Class            replay.Class
		Detail, Old, New string
	}
	for _, test := range []struct {
		version string
		want    []difference
	}{
		{"base", nil},
		{"first", []difference{{replay.Effect, "event note", `effect 1 of 3: event {"note":"first"}`, `effect 1 of 3: event {"note":"third"}`}}},
		{"fewer", []difference{{replay.Effect, "event note", `effect 1 of 3: event {"note":"first"}`, `effect 1 of 2: event {"note":"second"}`}}},
		{"more", []difference{{replay.Effect, "allow_waiting_pod → event", `effect 3 of 3: allow_waiting_pod uid-aaaaaa`, `effect 3 of 4: event {"note":"third"}`}}},
		{"order", []difference{{replay.Effect, "event note", `effect 1 of 3: event {"note":"first"}`, `effect 1 of 3: event {"note":"second"}`}}},
		{"none", []difference{{replay.Effect, "fewer: allow_waiting_pod", `effect 3 of 3: allow_waiting_pod uid-aaaaaa`, `nothing after the 2 effects`}}},
		// Whether the other Pod waits is not known.
		{"waiting", []difference{{replay.Unrecorded, "k8s.io/scheduler.allow_waiting_pod", "answered, result 0x0", `asks k8s.io/scheduler.allow_waiting_pod "uid-bbbbbb"`}}},
		{"score", []difference{{replay.Output, "result_score", "5", "6"}}},
	} {
		t.Run(test.version, func(t *testing.T) {
			c, err := replay.Compare(t.Context(), newRuntime(t), recorded, wasm(t, "effects/base"), wasm(t, "effects/"+test.version), "")
			if err != nil {
				t.Fatal(err)
			}
			var got []difference
			for _, g := range c.Groups {
				got = append(got, difference{g.Class, g.Detail, g.Example.Old, g.Example.New})
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("differences (-want +got):\n%s", diff)
			}
		})
	}
}
