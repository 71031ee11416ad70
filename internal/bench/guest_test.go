package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/objects"
)

// TestFilterGuestsAgree holds that the measured guests are correct: they let the
// same Pods pass as the native check, on Nodes with everything that bytes can
// look like.
func TestFilterGuestsAgree(t *testing.T) {
	b := &bench{ctx: t.Context()}
	inGo, err := guestbuild.Build(b.ctx, source("guests/filter"))
	if err != nil {
		t.Fatal(err)
	}
	filter, err := buildInC(b, "filter.c")
	if err != nil {
		t.Fatal(err)
	}
	var inC host.Source
	if filter != nil {
		inC = host.Bytes(filter)
	}
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(b.ctx)
	fields, err := objects.ParseFieldSet([]string{"node.metadata.labels[" + zoneLabel + "]", "node.spec.taints", "node.spec.podCIDRs"})
	if err != nil {
		t.Fatal(err)
	}
	for name, module := range map[string]host.Source{"Go": host.File(inGo), "C": inC} {
		t.Run(name, func(t *testing.T) {
			if module == nil {
				t.Skip("there is no clang")
			}
			var sent [2][]byte
			plugin, err := rt.Load(t.Context(), host.Config{Name: "filter", Module: host.ModuleConfig{Source: module}}, host.Adapter{
				Kind:    abi.KindScheduler,
				Imports: schedulerImports(func(ref abi.Ref) []byte { return sent[ref.Slot()] }),
			})
			if err != nil {
				t.Fatal(err)
			}
			inst, err := plugin.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer inst.Release()
			r := rand.New(rand.NewPCG(1, 2))
			passed := 0
			for i := range 2000 {
				p, n := randomPod(r), randomNode(r)
				nodes := fields.Node()
				if i%2 == 1 {
					nodes = (*objects.FieldSet)(nil).Node()
				}
				if sent[0], err = codec.Encode(p); err != nil {
					t.Fatal(err)
				}
				sent[1] = nodes.Append(nil, n)
				version := uint32(i + 1)
				want := abi.Unschedulable
				if nativeFilter(p, n) {
					want, passed = abi.Success, passed+1
				}
				for range 2 { // The second time from what the guest remembers.
					got, err := inst.Call(t.Context(), abi.Filter, uint64(abi.MakeRef(1, 0)), uint64(abi.MakeRef(version, 0)), uint64(abi.MakeRef(version, 1)))
					if err != nil || abi.Code(got) != want {
						t.Fatalf("got %s, error %v, want %s, of\n%v\n%v\n%v", abi.Code(got), err, want, n.ObjectMeta, n.Spec, p.Spec.Tolerations)
					}
				}
			}
			if passed < 100 || passed > 1900 {
				t.Errorf("%d of 2000 pass: that says little", passed)
			}
		})
	}
}

// word returns one of a few texts, short ones and long ones among them.
func word(r *rand.Rand) string {
	words := []string{"", "a", "kv", "shop", "soon", "example.com/dedicated", "example.com/dedicate", "example.com/dedicatee", "example.com/maintenance"}
	switch i := r.IntN(len(words) + 1); i {
	case len(words):
		return strings.Repeat("x", r.IntN(300))
	default:
		return words[i]
	}
}

// sometimes returns s, or the zero value.
func sometimes[T any](r *rand.Rand, v T) T {
	if r.IntN(2) == 0 {
		return *new(T)
	}
	return v
}

func randomNode(r *rand.Rand) *corev1.Node {
	n := node(r.IntN(100), r.IntN(3))
	n.GenerateName, n.Namespace, n.Generation = sometimes(r, word(r)), sometimes(r, word(r)), sometimes(r, r.Int64N(1<<uint(1+r.IntN(62))))
	n.Finalizers = sometimes(r, []string{word(r)})
	if r.IntN(4) == 0 {
		n.Name = strings.Repeat("n", 1+r.IntN(250))
	}
	if r.IntN(4) == 0 {
		n.Labels = map[string]string{}
	}
	for k := range n.Labels {
		if k != zoneLabel && r.IntN(3) == 0 {
			delete(n.Labels, k)
		}
	}
	for range r.IntN(4) {
		n.Labels[word(r)] = word(r)
	}
	// Keys that are nearly the one that is asked for.
	for _, key := range []string{zoneLabel[:4], zoneLabel[:26] + "f", "u" + zoneLabel[1:], zoneLabel + "s", zoneLabel[:26]} {
		if r.IntN(3) == 0 {
			n.Labels[key] = word(r)
		}
	}
	switch r.IntN(6) {
	case 0:
		delete(n.Labels, zoneLabel)
	case 1:
		n.Labels[zoneLabel] = ""
	case 2:
		n.Labels[zoneLabel] = strings.Repeat("z", r.IntN(300))
	}
	n.Annotations[word(r)] = strings.Repeat("{", r.IntN(1000))
	n.Spec.ProviderID, n.Spec.Unschedulable = sometimes(r, word(r)), r.IntN(2) == 0
	n.Spec.Taints = nil
	for range r.IntN(4) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: word(r), Value: word(r), Effect: effect(r)})
		if r.IntN(3) == 0 {
			added := metav1.NewTime(time.Unix(r.Int64N(1<<32), 0))
			n.Spec.Taints[len(n.Spec.Taints)-1].TimeAdded = &added
		}
	}
	return n
}

func effect(r *rand.Rand) corev1.TaintEffect {
	return []corev1.TaintEffect{"", corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute, corev1.TaintEffectPreferNoSchedule, "NoSchedul", "NoExecutes"}[r.IntN(6)]
}

func randomPod(r *rand.Rand) *corev1.Pod {
	p := pod()
	p.Spec.Tolerations = nil
	for range r.IntN(5) {
		p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{
			Key: word(r), Value: word(r), Effect: effect(r),
			Operator: []corev1.TolerationOperator{"", corev1.TolerationOpEqual, corev1.TolerationOpExists, "Exist"}[r.IntN(4)],
		})
		if r.IntN(3) == 0 {
			seconds := r.Int64N(1 << 40)
			p.Spec.Tolerations[len(p.Spec.Tolerations)-1].TolerationSeconds = &seconds
		}
	}
	p.Spec.NodeName = fmt.Sprint(sometimes(r, word(r)))
	return p
}
