package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/objects"
)

// benchGuest measures what guests need for one label and the taints of a real
// Node, the host's part of the call included: with the SDK, in C from the
// specification alone, and with a decoder that reads the whole Node.
func benchGuest(b *bench) error {
	n, p := node(1, 41), pod()
	nodeBytes, err := codec.Encode(n)
	if err != nil {
		return err
	}
	podBytes, err := codec.Encode(p)
	if err != nil {
		return err
	}
	inGo, err := guestbuild.Build(b.ctx, source("guests/filter"))
	if err != nil {
		return err
	}
	filter, err := buildInC(b, "filter.c")
	if err != nil {
		return err
	}
	var inC host.Source
	if filter != nil {
		inC = host.Bytes(filter)
	}
	decoder, err := buildPlain(b.ctx, "guests/decode")
	if err != nil {
		return err
	}
	if err := benchColdLoad(b, inGo, decoder); err != nil {
		return err
	}

	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		return err
	}
	defer rt.Close(b.ctx)
	var failed error
	native := func(times int) {
		for range times {
			if !nativeFilter(p, n) {
				failed = fmt.Errorf("the native filter rejects the node")
			}
		}
	}
	decode := func(times int) {
		for range times {
			if err := new(corev1.Node).Unmarshal(nodeBytes); err != nil {
				failed = err
			}
		}
	}
	fields, err := objects.ParseFieldSet([]string{"node.metadata.labels[" + zoneLabel + "]", "node.spec.taints"})
	if err != nil {
		return err
	}
	nodes := fields.Node()
	projected := nodes.Append(nil, n)
	for _, g := range []struct {
		name         string
		source       host.Source
		node         []byte
		first, again time.Duration
	}{
		{"Go guest", host.File(inGo), nodeBytes, 1500, 200},
		{"Go guest that declares what it reads", host.File(inGo), projected, 0, 0},
		{"C guest", inC, nodeBytes, 400, 80},
		{"Go guest that decodes the whole Node with k8s.io/api", host.Bytes(decoder), nodeBytes, 0, 0},
	} {
		if g.source == nil {
			b.add(what(nodeBytes)+g.name, "there is no clang", "-", "-", 0, "", false)
			continue
		}
		filter, release, err := loadFilter(b, rt, g.source, podBytes, g.node)
		if err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
		version := uint32(1)
		first := func(times int) {
			for range times {
				version++
				if err := filter(version); err != nil {
					failed = err
				}
			}
		}
		b.compare(what(nodeBytes)+g.name+", first time in a version", target{time: g.first}, first, "native check", native)
		b.compare(what(nodeBytes)+g.name+", again", target{time: g.again}, func(times int) {
			for range times {
				if err := filter(version); err != nil {
					failed = err
				}
			}
		}, "native check", native)
		b.compare(what(nodeBytes)+g.name+", first time in a version", target{}, first, "native decode of the whole Node", decode)
		release()
		if failed != nil {
			return fmt.Errorf("%s: %w", g.name, failed)
		}
	}
	return nil
}

func what(node []byte) string {
	return fmt.Sprintf("label and taints of a %.1f KB Node, ", float64(len(node))/1e3)
}

// loadFilter loads a guest that filters. filter calls it with the node in the
// given version, and fails if the guest does not let the Pod pass.
func loadFilter(b *bench, rt *host.Runtime, module host.Source, pod, node []byte) (filter func(version uint32) error, release func(), err error) {
	return loadProfiledFilter(b, rt, module, nil, pod, node)
}

// loadProfiledFilter is loadFilter with a profiler, which may be nil.
func loadProfiledFilter(b *bench, rt *host.Runtime, module host.Source, profiler *host.Profiler, pod, node []byte) (filter func(version uint32) error, release func(), err error) {
	podRef := abi.MakeRef(1, 0)
	plugin, err := rt.Load(b.ctx, host.Config{Name: "filter", Module: host.ModuleConfig{Source: module}, Profiler: profiler}, host.Adapter{
		Kind: abi.KindScheduler,
		Imports: schedulerImports(func(ref abi.Ref) []byte {
			if ref == podRef {
				return pod
			}
			return node
		}),
	})
	if err != nil {
		return nil, nil, err
	}
	inst, err := plugin.Acquire(b.ctx)
	if err != nil {
		return nil, nil, errors.Join(err, plugin.Close(b.ctx))
	}
	filter = func(version uint32) error {
		code, err := inst.Call(b.ctx, abi.Filter, uint64(abi.MakeRef(1, 0)), uint64(podRef), uint64(abi.MakeRef(version, 1)))
		if err == nil && abi.Code(code) != abi.Success {
			err = fmt.Errorf("filter returned %s: %s", abi.Code(code), inst.Reason())
		}
		return err
	}
	return filter, func() {
		inst.Release()
		plugin.Close(b.ctx)
	}, nil
}

// benchColdLoad measures how long a guest that uses Pod and Node takes to load
// where it was never compiled, beside one that decodes them with k8s.io/api.
func benchColdLoad(b *bench, file string, decoder []byte) error {
	module, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	const times = 3
	took := [2][]float64{}
	for range times {
		for i, module := range [][]byte{module, decoder} {
			rt, err := host.NewRuntime(host.RuntimeConfig{})
			if err != nil {
				return err
			}
			start := time.Now()
			_, err = rt.Load(b.ctx, host.Config{Name: "cold", Module: host.ModuleConfig{Bytes: module}}, host.Adapter{Kind: abi.KindScheduler, Imports: schedulerImports(nil)})
			took[i] = append(took[i], float64(time.Since(start)))
			if err := errors.Join(err, rt.Close(b.ctx)); err != nil {
				return err
			}
		}
	}
	const limit = 1500 * time.Millisecond
	ours, theirs := time.Duration(median(took[0])), time.Duration(median(took[1]))
	b.add(fmt.Sprintf("load from a cold cache, Go guest of %.2f MB with Pod and Node", float64(len(module))/1e6), short(ours),
		fmt.Sprintf("Go guest of %.1f MB with k8s.io/api", float64(len(decoder))/1e6), short(theirs), float64(ours)/float64(theirs), "<= "+short(limit), ours <= limit)
	return nil
}

// buildPlain builds a guest that stands on the ABI alone: guestbuild is for those
// with the SDK.
func buildPlain(ctx context.Context, name string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "kubewasm-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "guest.wasm")
	cmd := exec.CommandContext(ctx, "go", "build", "-buildmode=c-shared", "-trimpath", "-ldflags=-s -w", "-o", file, ".")
	cmd.Dir = source(name)
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	if output, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build guest %s: %w: %s", cmd.Dir, err, output)
	}
	return os.ReadFile(file)
}

// buildInC compiles a guest in C of the directory guests, or returns nothing where there is no
// compiler.
func buildInC(b *bench, name string) ([]byte, error) {
	if _, err := exec.LookPath("clang"); err != nil {
		return nil, nil
	}
	dir, err := os.MkdirTemp("", "kubewasm-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "guest.wasm")
	out, err := exec.CommandContext(b.ctx, "clang", "--target=wasm32", "-O3", "-fno-builtin", "-nostdlib", "-Wl,--no-entry",
		"-o", file, source("guests/"+name)).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("build the guest %s: %w: %s", name, err, out)
	}
	return os.ReadFile(file)
}

// nativeFilter does what the filter guest does.
func nativeFilter(p *corev1.Pod, n *corev1.Node) bool {
	if n.Labels[zoneLabel] == "" {
		return false
	}
next:
	for i := range n.Spec.Taints {
		t := &n.Spec.Taints[i]
		if t.Effect != corev1.TaintEffectNoSchedule && t.Effect != corev1.TaintEffectNoExecute {
			continue
		}
		for j := range p.Spec.Tolerations {
			if p.Spec.Tolerations[j].ToleratesTaint(klog.Background(), t, true) {
				continue next
			}
		}
		return false
	}
	return true
}

// schedulerImports are the host functions of a scheduler guest that does no more
// than to ask for objects.
func schedulerImports(encoded func(abi.Ref) []byte) []host.Import {
	object := func(stack []uint64) *objects.Object { return objects.FromBytes(encoded(abi.Ref(stack[0]))) }
	refuse := func(inst *host.Instance) []byte {
		inst.Abort(fmt.Errorf("the benchmark does not offer it"))
		return nil
	}
	list := []host.Import{
		{
			Module: abi.ModuleObjects, Name: "object",
			Params: []abi.ValueType{abi.I64, abi.I32, abi.I32}, Results: []abi.ValueType{abi.I32},
			Func: func(inst *host.Instance, stack []uint64) {
				stack[0] = uint64(inst.Write(uint32(stack[1]), uint32(stack[2]), object(stack).Bytes()))
			},
		},
		{
			Module: abi.ModuleObjects, Name: "object_part",
			Params: []abi.ValueType{abi.I64, abi.I32, abi.I64, abi.I32, abi.I32}, Results: []abi.ValueType{abi.I32},
			Func: func(inst *host.Instance, stack []uint64) {
				part := object(stack).AppendPart(nil, uint32(stack[1]), stack[2])
				stack[0] = uint64(inst.Write(uint32(stack[3]), uint32(stack[4]), part))
			},
		},
		{
			Module: abi.ModuleObjects, Name: "object_entry",
			Params:  []abi.ValueType{abi.I64, abi.I32, abi.I32, abi.I32, abi.I32, abi.I32},
			Results: []abi.ValueType{abi.I32},
			Func: func(inst *host.Instance, stack []uint64) {
				value, ok := object(stack).Entry(uint32(stack[1]), string(inst.Read(uint32(stack[2]), uint32(stack[3]))))
				n := inst.Write(uint32(stack[4]), uint32(stack[5]), []byte(value))
				if stack[0] = uint64(n); !ok {
					stack[0] = abi.NoEntry
				}
			},
		},
	}
	for _, name := range []string{
		"node_scores", "node_names", "node_name", "node_statuses", "pod_group", "placement",
	} {
		list = append(list, host.ToGuest(abi.KindScheduler.Module(), name, refuse))
	}
	for _, name := range []string{
		"result_scores", "result_node_names", "result_cluster_events", "result_nominated_node_name",
		"result_sign_fragments", "result_nominations", "result_placements", "result_victims", "result_pods",
	} {
		list = append(list, host.FromGuest(abi.KindScheduler.Module(), name, func(*host.Instance, []byte) {}))
	}
	list = append(list, host.Import{
		Module: abi.KindScheduler.Module(), Name: "result_score", Params: []abi.ValueType{abi.I64}, Func: func(*host.Instance, []uint64) {},
	})
	return list
}
