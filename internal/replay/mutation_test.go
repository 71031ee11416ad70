package replay_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/record"
	"github.com/kubewasm/kubewasm/internal/recording"
	"github.com/kubewasm/kubewasm/internal/replay"
	"github.com/kubewasm/kubewasm/internal/wasmbin"
)

const conformance = "../../abi/conformance/testdata"

// limits end a guest that loops, as a changed one may, after a moment.
var limits = host.Limits{Fuel: 20_000_000, Instances: 1}

// recordPolicy records what the conformance suite asks the policy. If it is to be small, nothing
// is larger than the guest's buffer.
func recordPolicy(t testing.TB, module []byte, dir string, small bool) {
	t.Helper()
	p, err := admission.Load(t.Context(), newRuntime(t), admission.PluginConfig{
		Config:          host.Config{Name: "policy", Module: host.ModuleConfig{Bytes: module}, Limits: limits, Record: &record.Config{Path: dir}},
		AllowedToMutate: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	object := func(name string, labels map[string]string, pad int) runtime.RawExtension {
		meta := map[string]any{"name": name}
		if labels != nil {
			meta["labels"] = labels
		}
		if pad != 0 {
			meta["annotations"] = map[string]string{"pad": strings.Repeat("x", pad)}
		}
		raw, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": meta})
		if err != nil {
			t.Fatal(err)
		}
		return runtime.RawExtension{Raw: raw}
	}
	type label = map[string]string
	var requests []*admissionv1.AdmissionRequest
	add := func(operation admissionv1.Operation, old, object runtime.RawExtension, options string) {
		requests = append(requests, &admissionv1.AdmissionRequest{
			UID: "1", Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
			Namespace: "shop", Name: nameOf(t, object, old), Operation: operation, Object: object, OldObject: old, Options: runtime.RawExtension{Raw: []byte(options)},
		})
	}
	none, long := runtime.RawExtension{}, 90_000
	for _, name := range []string{"web", "bad", "busy", "field", "warn", "fail", "trap", "web", "empty", "patch", "whole"} {
		add(admissionv1.Create, none, object(name, nil, 0), "")
	}
	add(admissionv1.Delete, object("empty", nil, 0), none, "")
	if small {
		long = 2000
	}
	add(admissionv1.Create, none, object("web", nil, long), "")
	if !small {
		add(admissionv1.Create, none, object("web", nil, 110_000), "")
	}
	add(admissionv1.Update, object("same", label{"a": "b"}, 0), object("same", label{"a": "b"}, 0), "")
	add(admissionv1.Update, object("same", label{"a": "b"}, 0), object("same", label{"a": "c"}, 0), "")
	add(admissionv1.Update, object("same", nil, long), object("same", nil, long+1), "")
	add(admissionv1.Update, object("same", nil, long), object("same", nil, long), "")
	add(admissionv1.Update, object("relabelled", label{"app": "db", "b": "c"}, long/2), object("relabelled", label{"a": "b", "app": "web"}, 0), "")
	add(admissionv1.Update, object("relabelled", label{"app": "db"}, 0), object("relabelled", nil, 0), "")
	add(admissionv1.Create, none, object("options", nil, 0), `{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1","fieldManager":"kubectl"}`)
	e := admission.NewEngine(p)
	for _, r := range requests {
		e.Validate(t.Context(), r)
		e.Mutate(t.Context(), r)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// nameOf returns the name of the first object.
func nameOf(t testing.TB, objects ...runtime.RawExtension) string {
	t.Helper()
	for _, o := range objects {
		if o.Raw == nil {
			continue
		}
		var named metav1.PartialObjectMetadata
		if err := json.Unmarshal(o.Raw, &named); err != nil {
			t.Fatal(err)
		}
		return named.Name
	}
	return ""
}

// recordHook records what the conformance suite asks the hook.
func recordHook(t testing.TB, module []byte, dir string, small bool) {
	t.Helper()
	e, err := hooks.NewEngine(t.Context(), newRuntime(t), hooks.Config{Plugins: []hooks.PluginConfig{{
		Config: host.Config{Name: "hook", Module: host.ModuleConfig{Bytes: module}, Limits: limits, Record: &record.Config{Path: dir}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	long := 200_000
	if small {
		long = 2000
	}
	for _, labels := range []map[string]string{
		nil, {"app": "web", "tier": "prod"}, {"app": "web", "tier": "batch"}, {"tier": "idle"}, {"tier": "wrong"},
		{"tier": "batch", "pad": strings.Repeat("x", long)}, {"tier": "idle"},
	} {
		_, _ = e.Decide(t.Context(), &hookmsg.Request{ // An error is one of the guest.
			Stage: abi.Reconcile, Level: abi.LevelContainer,
			Pod: hookmsg.PodMeta{Namespace: "shop", Name: "web"}, PodLabels: labels, Container: hookmsg.ContainerMeta{Name: "nginx"},
		})
	}
	if err := e.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// site is an instruction that a test changes.
type site struct {
	at, end int
	to      []byte
	what    string
	// decides is set for a condition by which the guest branches at once. The value of any
	// other instruction may be of no consequence: a constant with which nothing in the
	// recording is equal, a result that the caller drops.
	decides bool
}

// negated are the opposites of comparisons.
var negated = map[byte]byte{0x46: 0x47, 0x47: 0x46, 0x48: 0x4e, 0x4e: 0x48, 0x49: 0x4f, 0x4f: 0x49, 0x4a: 0x4c, 0x4c: 0x4a, 0x4b: 0x4d, 0x4d: 0x4b,
	0x51: 0x52, 0x52: 0x51, 0x53: 0x59, 0x59: 0x53, 0x54: 0x5a, 0x5a: 0x54, 0x55: 0x57, 0x57: 0x55, 0x56: 0x58, 0x58: 0x56}

// sites returns the conditions and the small constants of a module, each with its change.
func sites(t testing.TB, module []byte) (list []site) {
	t.Helper()
	m, err := wasmbin.Decode(module)
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range m.Codes {
		for i := range wasmbin.Instructions(code.Body) {
			at, end := code.Offset+i.At, code.Offset+i.End
			op := module[at]
			branches := module[end] == 0x04 || module[end] == 0x0d // if, br_if
			switch {
			case negated[op] != 0:
				list = append(list, site{at, end, []byte{negated[op]}, fmt.Sprintf("comparison %#x negated", op), branches})
			case op == 0x45: // i32.eqz
				list = append(list, site{at, end, []byte{0x01}, "eqz removed", branches})
			case op == 0x41 && end == at+2 && module[at+1] < 0x3f: // i32.const
				list = append(list, site{at, end, []byte{0x41, module[at+1] + 1}, fmt.Sprintf("constant %d plus 1", module[at+1]), false})
			}
		}
	}
	return list
}

func (s site) change(module []byte, to []byte) []byte {
	changed := bytes.Clone(module)
	copy(changed[s.at:s.end], to)
	return changed
}

// Each change of a condition by which a guest branches is told apart from the original, if the
// recording covers it; so are more than fifty changes in all. Whether the recording covers an
// instruction shows a version that traps there.
func TestChangedGuestsAreToldApart(t *testing.T) {
	told, inside, same := 0, 0, 0
	for _, guest := range []struct {
		file   string
		record func(t testing.TB, module []byte, dir string, small bool)
	}{{"admission.wasm", recordPolicy}, {"hook.wasm", recordHook}} {
		module, err := os.ReadFile(filepath.Join(conformance, guest.file))
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		guest.record(t, module, dir, false)
		recorded, err := recording.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		rt := newRuntime(t)
		// differs reports whether a module crosses otherwise than recorded, and whether it answers
		// otherwise.
		differs := func(changed []byte) (crosses, answers bool) {
			c, err := replay.Compare(t.Context(), rt, recorded, module, changed, "")
			if err != nil {
				return true, true // It does not even start.
			}
			return strictly(t, rt, recorded, changed), c.Different != 0
		}
		if crosses, answers := differs(module); crosses || answers {
			t.Fatalf("%s differs from itself", guest.file)
		}
		for _, s := range sites(t, module) {
			trap := []byte{0x00, 0x01}[:s.end-s.at]
			if crosses, _ := differs(s.change(module, trap)); !crosses {
				continue // Nothing covers it.
			}
			switch crosses, answers := differs(s.change(module, s.to)); {
			case answers:
				told++
			case crosses:
				told++
				inside++
			case s.decides:
				t.Errorf("%s at byte %#x, %s: nothing shows it", guest.file, s.at, s.what)
			default:
				same++
				t.Logf("%s at byte %#x, %s: nothing shows it", guest.file, s.at, s.what)
			}
		}
	}
	t.Logf("%d changed versions are told apart, %d of them by their fuel, addresses or questions alone; %d are not", told, inside, same)
	if told < 50 {
		t.Errorf("%d changed versions are told apart, want 50", told)
	}
}

// strictly reports whether a module crosses otherwise than recorded in any number or byte.
func strictly(t testing.TB, rt *host.Runtime, recorded *recording.Recording, module []byte) bool {
	p, err := replay.Load(t.Context(), rt, recorded.Versions()[0], nil, module, replay.Options{Closely: true})
	if err != nil {
		return true
	}
	defer p.Close(context.WithoutCancel(t.Context()))
	for _, s := range recorded.Sequences() {
		if _, err := p.Begin(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		for c, err := range s.Calls() {
			if err != nil {
				t.Fatal(err)
			}
			played, err := p.Play(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if played.Call == nil || replay.Difference(c, played.Call) != "" {
				return true
			}
		}
	}
	return false
}
