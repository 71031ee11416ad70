package replay

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/recording"
)

// The names of fields are those of the definitions.
func TestFieldsAreThoseOfTheDefinitions(t *testing.T) {
	fields := map[string]message{}
	declaration := regexp.MustCompile(`^  (repeated |optional )?(map<string, string>|[A-Za-z0-9]+) ([A-Za-z_]+) = ([0-9]+);`)
	for _, file := range []string{"sched", "admission", "hook"} {
		data, err := os.ReadFile(filepath.Join("..", "..", "abi", file+".proto"))
		if err != nil {
			t.Fatal(err)
		}
		name := ""
		for line := range strings.Lines(string(data)) {
			if rest, ok := strings.CutPrefix(line, "message "); ok {
				name, _, _ = strings.Cut(rest, " ")
				fields[name] = message{}
			}
			if f := declaration.FindStringSubmatch(line); f != nil {
				number, err := strconv.Atoi(f[4])
				if err != nil {
					t.Fatal(err)
				}
				fields[name][protowire.Number(number)] = member{name: f[3], many: f[1] == "repeated ", entries: strings.HasPrefix(f[2], "map")}
			}
		}
	}
	for name, known := range map[string]message{
		"ObjectReference": objectReference, "Event": event, "Assignment": assignment, "Placement": placement, "Placements": placements, "Nominations": nominations,
		"FieldError": fieldError, "Result": result, "Resources": resources, "Mount": mount, "Device": device, "Decision": decision,
	} {
		flat := message{}
		for number, f := range known {
			f.of = nil
			flat[number] = f
		}
		if diff := cmp.Diff(fields[name], flat, cmp.AllowUnexported(member{})); diff != "" {
			t.Errorf("%s (-definition +here):\n%s", name, diff)
		}
	}
}

func TestDifferencesAreShown(t *testing.T) {
	long := strings.Repeat("x", 5000)
	quota := func(n uint64) string {
		r := protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.VarintType), n)
		return string(protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), r))
	}
	for _, test := range []struct {
		name             string
		kind             abi.Kind
		by, old, new     string
		detail, was, now string
	}{
		{"a patch", abi.KindAdmission, "patch",
			`[{"op":"add","path":"/metadata/labels/team","value":"a"},{"op":"replace","path":"/spec/containers/0/image","value":"x"}]`,
			`[{"op":"add","path":"/metadata/labels/team","value":"a"},{"op":"replace","path":"/spec/containers/0/image","value":"y"}]`,
			"patch [/spec/containers/*/image]",
			`[{"op":"add","path":"/metadata/labels/team","value":"a"},{"op":"replace","path":"/spec/containers/0/image","value":"x"}]`,
			`[{"op":"add","path":"/metadata/labels/team","value":"a"},{"op":"replace","path":"/spec/containers/0/image","value":"y"}]`},
		{"a field error", abi.KindAdmission, "result", "\x12\x0c\x0a\x0aspec.x[12]", "\x12\x0c\x0a\x0aspec.y[12]",
			"result fieldErrors.[spec.x[*]]", `{"fieldErrors":[{"field":"spec.x[12]"}]}`, `{"fieldErrors":[{"field":"spec.y[12]"}]}`},
		{"a decision", abi.KindHook, "decision", quota(1000), quota(1 << 63),
			"decision resources.cfs_quota_us", `{"resources":{"cfs_quota_us":1000}}`, `{"resources":{"cfs_quota_us":-9223372036854775808}}`},
		{"scores", abi.KindScheduler, "result_scores", "\x01\x00\x00\x00\x00\x00\x00\x00", "\xff\xff\xff\xff\xff\xff\xff\xff", "result_scores []", "[1]", "[-1]"},
		{"names", abi.KindScheduler, "result_node_names", "a\x00b\x00", "a\x00c\x00", "result_node_names []", `["a","b"]`, `["a","c"]`},
		{"a word behind a long text", abi.KindAdmission, "patch", `{"a":"` + long + `","b":"old"}`, `{"a":"` + long + `","b":"new"}`, "patch b",
			"…" + strings.Repeat("x", 288) + `","b":"old"}`, "…" + strings.Repeat("x", 288) + `","b":"new"}`},
		{"a message without a definition", abi.KindService, "response", "\x0a\x03web\x10\x05", "\x0a\x03web\x10\x06", "response 2", `{"1":"web","2":5}`, `{"1":"web","2":6}`},
		{"no message", abi.KindHook, "decision", "\xff\x01", "\xff\x02", "decision", `"\xff\x01"`, `"\xff\x02"`},
		{"JSON with more behind it", abi.KindAdmission, "patch", `[] x`, `[] y`, "patch", "[] x", "[] y"},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, b := &answer{kind: test.kind, outputs: map[string]taken{}}, &answer{kind: test.kind, outputs: map[string]taken{}}
			a.outputs[test.by] = taken{by: test.by, data: []byte(test.old)}
			b.outputs[test.by] = taken{by: test.by, data: []byte(test.new)}
			want := &answersDiffer{Output, test.detail, test.was, test.now}
			if diff := cmp.Diff(want, a.differs(b), cmp.AllowUnexported(answersDiffer{})); diff != "" {
				t.Errorf("difference (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatACallIsAbout(t *testing.T) {
	str := func(n protowire.Number, s string) string {
		return string(protowire.AppendString(protowire.AppendTag(nil, n, protowire.BytesType), s))
	}
	wrote := func(data string) []recording.Event {
		return []recording.Event{{Kind: recording.Write, Data: []byte(data)}}
	}
	for _, test := range []struct {
		name string
		call recording.Call
		want string
	}{
		{"a request of admission", recording.Call{Version: &recording.Version{Kind: abi.KindAdmission},
			Events: wrote(str(1, "uid") + str(2, str(3, "Pod")) + str(5, "web") + str(6, "shop"))}, "Pod shop/web"},
		{"a request of a hook", recording.Call{Version: &recording.Version{Kind: abi.KindHook},
			Events: wrote(str(3, str(1, "shop")+str(2, "web")) + str(4, str(1, "nginx")))}, "Pod shop/web, container nginx"},
		{"a request in JSON", recording.Call{Version: &recording.Version{Kind: abi.KindAdmission, Dialect: "kubewarden"},
			Events: wrote(`{"settings":{"name":"x"},"request":{"uid":"1","kind":{"kind":"Pod"},"name":"web","namespace":"shop","object":{"metadata":{"name":"other"}}}}`)}, "Pod shop/web"},
		{"an object without a name of its own in the request", recording.Call{Version: &recording.Version{Kind: abi.KindAdmission, Dialect: "kubewarden"},
			Events: wrote(`{"request":{"kind":{"kind":"Pod"},"object":{"kind":"Pod","metadata":{"name":"web"}}}}`)}, "Pod web"},
		{"no object", recording.Call{Version: &recording.Version{Kind: abi.KindService}, Events: wrote("text")}, ""},
		{"no message", recording.Call{Version: &recording.Version{Kind: abi.KindHook}, Events: wrote("\xff\xff")}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			var n names
			if got := n.of(&test.call); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
	t.Run("a Pod and a Node by their refs", func(t *testing.T) {
		v := &recording.Version{Kind: abi.KindScheduler, Imports: []recording.Import{{Module: abi.ModuleObjects, Name: "object_part", Memory: 0b11000}}}
		asks := func(ref uint64, metadata string) []recording.Event {
			return []recording.Event{{Kind: recording.Host, Args: []uint64{ref, 1, ^uint64(0), 0, 0}}, {Kind: recording.Write, Data: []byte(metadata)}, {Kind: recording.HostReturned}}
		}
		var n names
		n.learn(&recording.Call{Version: v, Events: asks(7, str(1, "web")+str(3, "shop"))})
		n.learn(&recording.Call{Version: v, Events: asks(8, str(1, "node-1"))})
		if got, want := n.of(&recording.Call{Version: v, Args: []uint64{1, 7, 8, 0}}), "shop/web, node-1"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// FuzzShown: what a guest hands over is shown whatever it is, and to itself it has no difference.
func FuzzShown(f *testing.F) {
	f.Add([]byte(`[{"op":"add","path":"/a/0"}]`), []byte("\x0a\x03web"))
	f.Fuzz(func(t *testing.T, x, y []byte) {
		for _, kind := range []abi.Kind{abi.KindAdmission, abi.KindHook, abi.KindScheduler, abi.KindService} {
			for _, by := range []string{"result", "decision", "event", "result_scores", "patch"} {
				a, b := &answer{kind: kind, outputs: map[string]taken{by: {by: by, data: x}}}, &answer{kind: kind, outputs: map[string]taken{by: {by: by, data: y}}}
				if d := a.differs(a); d != nil {
					t.Errorf("%+v", d)
				}
				if d := a.differs(b); d != nil && (len(d.old) > 4*maxExample || len(d.new) > 4*maxExample || len(d.detail) > 2*maxDetail) {
					t.Errorf("%d, %d and %d bytes", len(d.old), len(d.new), len(d.detail))
				}
			}
		}
	})
}

// Fuel that another version of the metering counted is no difference of the guest.
func TestOtherFuelOfAnotherEngine(t *testing.T) {
	here, other := &recording.Version{Engine: 2}, &recording.Version{Engine: 1}
	for _, test := range []struct {
		name      string
		want, got recording.Call
		sum       Verification
	}{
		{"the same engine", recording.Call{Version: here, Fuel: 5}, recording.Call{Version: here, Fuel: 6}, Verification{Calls: 1, Different: 1, Fuel: 6}},
		{"another engine", recording.Call{Version: other, Fuel: 5}, recording.Call{Version: here, Fuel: 6}, Verification{Calls: 1, FuelOnly: 1, Fuel: 6, OtherEngine: true}},
		{"another result, too", recording.Call{Version: other, Fuel: 5}, recording.Call{Version: here, Fuel: 6, Result: 1}, Verification{Calls: 1, Different: 1, Fuel: 6, OtherEngine: true}},
		{"the same fuel", recording.Call{Version: other, Fuel: 5}, recording.Call{Version: here, Fuel: 5}, Verification{Calls: 1, Exact: 1, Fuel: 5, OtherEngine: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var v Verification
			v.add(&test.want, &test.got)
			v.Differences = nil
			if diff := cmp.Diff(test.sum, v); diff != "" {
				t.Errorf("verification (-want +got):\n%s", diff)
			}
		})
	}
}
