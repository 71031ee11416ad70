package conformance_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/admissionmsg"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	walk "github.com/kubewasm/kubewasm/internal/json"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
	toolchains "github.com/kubewasm/kubewasm/internal/testkit/languages"
)

// asked is a request with its objects, as a guest gets them, and its result.
type asked struct{ envelope, object, old, result []byte }

// imports returns the functions for admission plugins.
func (a *asked) imports() []host.Import {
	module := abi.KindAdmission.Module()
	take := func(*host.Instance, []byte) {}
	none := func(*host.Instance) []byte { return nil }
	functions := []host.Import{
		host.ToGuest(module, "request", func(*host.Instance) []byte { return a.envelope }),
		host.ToGuest(module, "object", func(*host.Instance) []byte { return a.object }),
		host.ToGuest(module, "old_object", func(*host.Instance) []byte { return a.old }),
		host.FromGuest(module, "result", func(_ *host.Instance, data []byte) { a.result = append([]byte(nil), data...) }),
		host.FromGuest(module, "patch", take), host.FromGuest(module, "mutated_object", take),
	}
	for _, name := range []string{"options", "object_proto", "old_object_proto", "desired_api_version"} {
		functions = append(functions, host.ToGuest(module, name, none))
	}
	for _, name := range []string{"get_object", "list_objects"} {
		functions = append(functions, host.Import{
			Module: abi.ModuleObjects, Name: name, Params: []abi.ValueType{abi.I32, abi.I32, abi.I32, abi.I32}, Results: []abi.ValueType{abi.I32},
			Func: func(inst *host.Instance, _ []uint64) { inst.Abort(errors.New("the policy looks nothing up")) },
		})
	}
	return functions
}

// withIndexes returns an encoded request with fields of indexes at its end.
func withIndexes(envelope []byte, object, old []uint64) []byte {
	envelope = append([]byte(nil), envelope...)
	for i, places := range [][]uint64{object, old} {
		if len(places) == 0 {
			continue
		}
		envelope = protowire.AppendTag(envelope, protowire.Number(101+i), protowire.BytesType)
		envelope = protowire.AppendVarint(envelope, uint64(8*len(places)))
		for _, place := range places {
			envelope = binary.LittleEndian.AppendUint64(envelope, place)
		}
	}
	return envelope
}

// misleading returns an index of a document that is wrong, the one that is right given.
func misleading(r *rand.Rand, doc []byte, right []uint64) []uint64 {
	places := append([]uint64(nil), right...)
	for range 1 + r.IntN(8) {
		if len(places) == 0 {
			break
		}
		place := &places[r.IntN(len(places))]
		start, end := uint64(uint32(*place)), *place>>32
		switch r.IntN(7) {
		case 0: // The end of another one.
			end = places[r.IntN(len(places))] >> 32
		case 1: // Beyond the document, and beyond the memory.
			end = uint64(len(doc)) + r.Uint64N(200)
		case 2:
			end = r.Uint64() >> 32
		case 3: // Before the beginning.
			end = r.Uint64N(start + 1)
		case 4:
			start, end = r.Uint64N(uint64(len(doc))), r.Uint64N(uint64(len(doc)+2))
		case 5: // Not in order.
			*place, places[0] = places[0], *place
			continue
		default: // The next closing bracket of the same kind.
			for i := start + 1; i < uint64(len(doc)); i++ {
				if end = i + 1; doc[i] == doc[start]+2 {
					break
				}
			}
		}
		*place = end<<32 | start&0xffff_ffff
	}
	return places
}

// TestIndexes holds that a guest in each language decides the same about objects with the index of
// the host and without, with less fuel, and that a wrong index leads it to nothing but bytes of the
// object: what lies behind the object in its memory changes no answer, and no call traps.
func TestIndexes(t *testing.T) {
	const policy = "../../examples/admission/required-labels"
	if err := guestbuild.TrackSources(policy); err != nil {
		t.Fatal(err)
	}
	rt, err := host.NewRuntime(compiled.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rt.Close(context.Background()) })
	encode := func(v any) []byte {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	index := func(doc []byte) []uint64 {
		places := make([]uint64, 512)
		_, n := walk.ValidIndex(doc, places, 0)
		return places[:n]
	}
	for _, l := range guestbuild.Languages {
		dir := filepath.Join(policy, l.Name)
		if l == guestbuild.Go {
			dir = policy
		}
		t.Run(l.Title, func(t *testing.T) {
			file := toolchains.Build(t, dir)
			var fuel int64
			load := func() func(envelope, object, old []byte) string {
				a := &asked{}
				plugin, err := rt.Load(t.Context(), host.Config{
					Name: "policy", Module: host.ModuleConfig{File: file}, Limits: host.Limits{Instances: 1},
					GuestConfig: []byte(`{"labels": ["team", "example.com/tier"], "registries": ["registry.example.com/"]}`),
				}, host.Adapter{Kind: abi.KindAdmission, Imports: a.imports()})
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
				return func(envelope, object, old []byte) string {
					*a = asked{envelope: envelope, object: object, old: old}
					result, err := inst.Call(t.Context(), abi.Validate)
					if err != nil {
						t.Fatalf("%v\nof %s\nand %s\nwith %x", err, object, old, envelope)
					}
					fuel = inst.FuelUsed()
					return fmt.Sprintf("%#x %q %q", result, inst.Reason(), a.result)
				}
			}
			one, other := load(), load()
			r := rand.New(rand.NewPCG(20261130, 1))
			var walked, skipped int64
			for range 1500 {
				request := &admissionv1.AdmissionRequest{UID: "1", Name: "web", Operation: admissionv1.Update}
				kind := pick(r, "Pod", "Deployment", "CronJob")
				gvk, v := randomObject(kind, randomTemplate(r))
				_, w := randomObject(kind, randomTemplate(r))
				request.Kind = gvk
				object, old := encode(v), encode(w)
				envelope := admissionmsg.AppendRequest(nil, request)

				want := one(envelope, object, old)
				walked += fuel
				places, places2 := index(object), index(old)
				if got := one(withIndexes(envelope, places, places2), object, old); got != want {
					t.Fatalf("of %s\nand %s: %s with an index, %s without", object, old, got, want)
				}
				skipped += fuel

				wrong := withIndexes(envelope, misleading(r, object, places), misleading(r, old, places2))
				_, evil := randomObject(kind, randomTemplate(r))
				other(envelope, encode(evil), append(encode(evil), encode(evil)...))
				if got, again := one(wrong, object, old), other(wrong, object, old); got != again {
					t.Fatalf("of %s\nand %s with %x: %s, then %s", object, old, wrong, got, again)
				}
			}
			if skipped >= walked {
				t.Errorf("fuel is %d with an index and %d without", skipped, walked)
			}
		})
	}
}
