package hookmsg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/bufbuild/protocompile"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/testkit/race"
	"github.com/kubewasm/kubewasm/internal/wire"
)

// definition compiles hook.proto.
func definition(t testing.TB) protoreflect.FileDescriptor {
	t.Helper()
	c := protocompile.Compiler{Resolver: &protocompile.SourceResolver{ImportPaths: []string{"../../abi"}}}
	files, err := c.Compile(context.Background(), "hook.proto")
	if err != nil {
		t.Fatal(err)
	}
	return files[0]
}

// fill sets every field of m, or a random part of them, to random values.
func fill(m protoreflect.Message, random *rand.Rand, all bool) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if !all && random.IntN(2) == 0 {
			continue
		}
		switch {
		case f.IsMap():
			entries := m.Mutable(f).Map()
			for range 1 + random.IntN(80) {
				entries.Set(protoreflect.ValueOfString(text(random)).MapKey(), protoreflect.ValueOfString(text(random)))
			}
		case f.IsList():
			list := m.Mutable(f).List()
			for range 1 + random.IntN(4) {
				if f.Kind() == protoreflect.StringKind {
					list.Append(protoreflect.ValueOfString(text(random)))
					continue
				}
				fill(list.AppendMutable().Message(), random, all)
			}
		case f.Kind() == protoreflect.MessageKind:
			// The Go structs do not tell an empty PodMeta from none.
			fill(m.Mutable(f).Message(), random, all || f.Name() != "resources")
		case f.Kind() == protoreflect.EnumKind:
			m.Set(f, protoreflect.ValueOfEnum(protoreflect.EnumNumber(1+random.IntN(f.Enum().Values().Len()))))
		case f.Kind() == protoreflect.StringKind && f.HasPresence():
			m.Set(f, protoreflect.ValueOfString(strings.Repeat("0-3,8,", random.IntN(40))))
		case f.Kind() == protoreflect.StringKind:
			m.Set(f, protoreflect.ValueOfString("x"+text(random)))
		case f.Kind() == protoreflect.Int64Kind:
			numbers := []int64{0, -1, 1, 127, 128, 100_000, math.MaxInt64, math.MinInt64, random.Int64()}
			m.Set(f, protoreflect.ValueOfInt64(numbers[random.IntN(len(numbers))]))
		default:
			panic(fmt.Sprintf("hook.proto: %s is of a kind that the codec does not have: %s", f.FullName(), f.Kind()))
		}
	}
}

func text(random *rand.Rand) string {
	return strings.Repeat([]string{"a", "kubewasm.dev/", "ü", "\x00"}[random.IntN(4)], random.IntN(60)) + fmt.Sprint(random.IntN(1000))
}

// The bytes of the codec are those of protobuf's own, in both directions, for
// every field.
func TestCodecAgreesWithTheProtoFile(t *testing.T) {
	file := definition(t)
	for _, c := range []struct {
		message protoreflect.Name
		again   func([]byte) ([]byte, error)
	}{
		{"Request", func(b []byte) ([]byte, error) {
			r, err := ParseRequest(b)
			if err != nil {
				return nil, err
			}
			return r.Append(nil), nil
		}},
		{"Decision", func(b []byte) ([]byte, error) {
			d, err := ParseDecision(b)
			if err != nil {
				return nil, err
			}
			return d.Append(nil), nil
		}},
	} {
		t.Run(string(c.message), func(t *testing.T) {
			for seed := range uint64(300) {
				random := rand.New(rand.NewPCG(seed, 0))
				m := dynamicpb.NewMessage(file.Messages().ByName(c.message))
				fill(m, random, seed == 0)
				want, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
				if err != nil {
					t.Fatal(err)
				}
				got, err := c.again(want)
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				if bytes.Equal(got, want) {
					continue
				}
				back := dynamicpb.NewMessage(m.Descriptor())
				if err := proto.Unmarshal(got, back); err != nil {
					t.Fatalf("seed %d: protobuf cannot read what the codec wrote: %v", seed, err)
				}
				t.Fatalf("seed %d: got %v\nwant %v", seed, back, m)
			}
		})
	}
}

func TestEnumsAgreeWithTheProtoFile(t *testing.T) {
	enums := definition(t).Enums()
	for _, c := range []struct {
		enum   protoreflect.Name
		prefix string
		name   func(int32) string
	}{
		{"Stage", "STAGE_", func(n int32) string { return abi.Stage(n).String() }},
		{"Level", "LEVEL_", func(n int32) string { return abi.Level(n).String() }},
		{"QOSClass", "QOS_CLASS_", func(n int32) string { return abi.QOSClass(n).String() }},
	} {
		values := enums.ByName(c.enum).Values()
		for i := range values.Len() {
			v := values.Get(i)
			want := strings.ReplaceAll(strings.TrimPrefix(string(v.Name()), c.prefix), "_", "")
			if got := c.name(int32(v.Number())); !strings.EqualFold(got, want) {
				t.Errorf("%s %d is %s, hook.proto calls it %s", c.enum, v.Number(), got, v.Name())
			}
		}
		if got := c.name(int32(values.Len())); !strings.Contains(got, "(") {
			t.Errorf("%s has %s, which hook.proto has not", c.enum, got)
		}
	}
}

func TestUnknownValuesHaveNamesToo(t *testing.T) {
	got := []string{abi.Stage(-1).String(), abi.Level(9).String(), abi.QOSClass(77).String()}
	if diff := cmp.Diff([]string{"stage(-1)", "level(9)", "qosClass(77)"}, got); diff != "" {
		t.Error(diff)
	}
	if abi.Stage(-1).Known() || abi.Stage(0).Known() || !abi.Reconcile.Known() || abi.Level(4).Known() || !abi.LevelQOS.Known() {
		t.Error("Known is wrong at an end of its range")
	}
}

// field is a field of type string, bytes or message.
func field(number protowire.Number, value string) string {
	return string(protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), value))
}

func number(n protowire.Number, value uint64) string {
	return string(protowire.AppendVarint(protowire.AppendTag(nil, n, protowire.VarintType), value))
}

func TestParseDecision(t *testing.T) {
	for _, c := range []struct {
		name  string
		bytes string
		want  *Decision
		err   string
	}{
		{name: "no bytes decide nothing", bytes: "", want: &Decision{}},
		{name: "empty resources are there", bytes: field(1, ""), want: &Decision{Resources: &Resources{}}},
		{name: "zero is not unset", bytes: field(1, number(7, 0)), want: &Decision{Resources: &Resources{CPUIdle: new(int64(0))}}},
		{name: "a negative number", bytes: field(1, number(2, math.MaxUint64)), want: &Decision{Resources: &Resources{CFSQuotaUS: new(int64(-1))}}},
		{name: "the last of two counts", bytes: field(1, number(1, 2)+number(1, 3)), want: &Decision{Resources: &Resources{CPUShares: new(int64(3))}}},
		{name: "messages are merged", bytes: field(1, number(1, 2)) + field(1, number(2, 5000)),
			want: &Decision{Resources: &Resources{CPUShares: new(int64(2)), CFSQuotaUS: new(int64(5000))}}},
		{name: "an entry without key and value", bytes: field(2, ""), want: &Decision{ContainerAnnotations: map[string]string{"": ""}}},
		{name: "mounts and devices are lists", bytes: field(4, field(1, "/a")+field(2, "/b")+field(3, "bind")+field(4, "ro")+field(4, "rbind")) + field(4, "") + field(5, field(1, "/dev/gpu")+field(2, "c")+number(3, 195)+number(5, 0)),
			want: &Decision{
				ContainerMounts:  []Mount{{Destination: "/a", Source: "/b", Type: "bind", Options: []string{"ro", "rbind"}}, {}},
				ContainerDevices: []Device{{Path: "/dev/gpu", Type: "c", Major: 195, FileMode: new(int64(0))}},
			}},
		{name: "unknown fields are skipped", bytes: number(15, 1) + field(16, "x") + field(1, number(999, 1)+"\xf9\x3f12345678"),
			want: &Decision{Resources: &Resources{}}},
		{name: "an unknown group is skipped", bytes: "\xa3\x06" + number(1, 1) + "\xa4\x06", want: &Decision{}},

		{name: "a tag that is cut off", bytes: "\x80", err: "unexpected EOF"},
		{name: "a length beyond the end", bytes: "\x0a\x05\x08", err: "field 1: unexpected EOF"},
		{name: "a length of 2^64-1", bytes: "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", err: "field 1: unexpected EOF"},
		{name: "a varint of eleven bytes", bytes: field(1, "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), err: "variable length integer overflow"},
		{name: "field number 0", bytes: "\x02\x00", err: "invalid field number"},
		{name: "an unknown wire type", bytes: "\x0f", err: "field 1: "},
		{name: "resources as a number", bytes: number(1, 7), err: "field resources has wire type 0, want 2"},
		{name: "shares as a string", bytes: field(1, field(1, "2")), err: "resources: field cpu_shares has wire type 2, want 0"},
		{name: "a cpuset as a number", bytes: field(1, number(4, 1)), err: "resources: field cpuset_cpus has wire type 0, want 2"},
		{name: "an annotation that is not UTF-8", bytes: field(2, field(1, "k")+field(2, "\xff")), err: "container_annotations: field value is not UTF-8"},
		{name: "a unified key that is a number", bytes: field(1, field(14, number(1, 1))), err: "resources: unified: field key has wire type 0, want 2"},
		{name: "a mount cut off", bytes: field(4, "\x0a\x05/"), err: "container_mounts: read field 1: unexpected EOF"},
		{name: "a device's number as a string", bytes: field(5, field(3, "1")), err: "container_devices: field major has wire type 2, want 0"},
		{name: "an end of a group that did not start", bytes: "\x0c", err: "field 1: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := ParseDecision([]byte(c.bytes))
			if c.err != "" {
				if !errors.Is(err, wire.ErrMalformed) || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("got error %v, want one with %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseRequestRefusesMalformedBytes(t *testing.T) {
	for name, c := range map[string]struct{ bytes, err string }{
		"stage as a string":                    {field(1, "x"), "field stage has wire type 2, want 0"},
		"pod cut off":                          {field(3, "\x0a\x05x"), "pod: read field 1: unexpected EOF"},
		"container name a number":              {field(4, number(1, 1)), "container: field name has wire type 0, want 2"},
		"parent not UTF-8":                     {field(8, "\xc0"), "field cgroup_parent is not UTF-8"},
		"envs not entries":                     {field(11, "\x0a"), "container_envs: read field 1: unexpected EOF"},
		"number of a field beyond the largest": {"\xf0\x9f\x98\x80\x30\x30", "field number is 1610662398, more than 536870911"},
		"resources a number":                   {number(10, 1), "field resources has wire type 0, want 2"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ParseRequest([]byte(c.bytes)); !errors.Is(err, wire.ErrMalformed) || !strings.Contains(err.Error(), c.err) {
				t.Errorf("got error %v, want one with %q", err, c.err)
			}
		})
	}
}

// The bytes that are parsed are a guest's memory: nothing may point to them.
func TestParseDecisionCopies(t *testing.T) {
	b := (&Decision{
		Resources:            &Resources{CPUSetCPUs: new("0-3"), Unified: map[string]string{"io.weight": "default 50"}},
		ContainerAnnotations: map[string]string{"key": "value"},
	}).Append(nil)
	got, err := ParseDecision(b)
	if err != nil {
		t.Fatal(err)
	}
	want, err := ParseDecision(bytes.Clone(b))
	if err != nil {
		t.Fatal(err)
	}
	clear(b)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestReads(t *testing.T) {
	r := benchmarkRequest()
	r.PodLabels["app"], r.PodLabels["tier"] = "web", "front"
	r.ContainerEnvs = []Env{{Name: "B", Value: "2"}, {Name: "A", Value: "1"}, {Name: "B", Value: "3"}}
	r.Node = &Node{
		Name: "n", Labels: map[string]string{"zone": "a"}, Annotations: map[string]string{"ratio": "1.20", "z": ""}, Capacity: map[string]string{"cpu": "8"}, Allocatable: map[string]string{"cpu": "7"},
	}
	head := Request{Stage: r.Stage, Level: r.Level, QOSClass: r.QOSClass}
	with := func(change func(*Request)) *Request {
		c := head
		change(&c)
		return &c
	}
	for _, c := range []struct {
		name  string
		names []string
		want  *Request
	}{
		{"no names are everything", nil, r},
		{"what always travels", []string{"container_annotations[none]"}, &head},
		{"fields", []string{"pod", "container", "cgroup_parent", "resources"}, with(func(c *Request) {
			c.Pod, c.Container, c.CgroupParent, c.Resources = r.Pod, r.Container, r.CgroupParent, r.Resources
		})},
		{"maps", []string{"pod_labels", "pod_annotations", "container_annotations"}, with(func(c *Request) {
			c.PodLabels, c.PodAnnotations, c.ContainerAnnotations = r.PodLabels, r.PodAnnotations, r.ContainerAnnotations
		})},
		{"entries", []string{"pod_labels[tier]", "pod_labels[app]", "pod_labels[app]", "pod_labels[none]"}, with(func(c *Request) {
			c.PodLabels = map[string]string{"app": "web", "tier": "front"}
		})},
		{"variables", []string{"container_envs[B]", "container_envs[none]"}, with(func(c *Request) {
			c.ContainerEnvs = []Env{{Name: "B", Value: "2"}, {Name: "B", Value: "3"}}
		})},
		{"the node", []string{"node_name", "node_labels", "node_capacity", "node_allocatable[cpu]"}, with(func(c *Request) {
			c.Node = &Node{Name: "n", Labels: r.Node.Labels, Capacity: r.Node.Capacity, Allocatable: r.Node.Allocatable}
		})},
		{"an annotation of the node", []string{"node_annotations[ratio]", "node_annotations[none]"}, with(func(c *Request) {
			c.Node = &Node{Annotations: map[string]string{"ratio": "1.20"}}
		})},
		{"a map beside its entries", []string{"pod_labels[tier]", "pod_labels"}, with(func(c *Request) { c.PodLabels = r.PodLabels })},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := ParseReads(c.names)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := p.AppendRequest(nil, r), c.want.Append(nil); !bytes.Equal(got, want) {
				t.Errorf("got %q\nwant %q", got, want)
			}
		})
	}
	_, err := ParseReads([]string{"pod", "", "podium", "stage", "pod[name]", "pod_labels[", "pod_labels[]", "pod_labels[a]b"})
	if err == nil || strings.Count(err.Error(), "is no field of a request; there are pod, container, pod_labels, ") != 7 {
		t.Errorf("got error %v, want one for each of seven names", err)
	}
	_, err = ParseReads([]string{"pod_label[app]"})
	if want := `reads: "pod_label[app]" is no field of a request; did you mean "pod_labels"?`; err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
}

// What the encoder knows of the maps before makes no difference.
func TestAppendRequestWhateverCameBefore(t *testing.T) {
	labels := map[string]string{"app": "web", "tier": "front", "zone": "a"}
	for _, c := range []struct {
		name   string
		before map[string]string
	}{
		{"nothing", nil},
		{"the same", labels},
		{"other values", map[string]string{"app": "db", "tier": "", "zone": "b"}},
		{"another key at the end", map[string]string{"app": "web", "tier": "front", "zzz": "a"}},
		{"another key at the beginning", map[string]string{"a": "web", "tier": "front", "zone": "a"}},
		{"one key fewer", map[string]string{"app": "web", "tier": "front"}},
		{"one key more", map[string]string{"app": "web", "tier": "front", "zone": "a", "zzz": ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var e encoder
			e.appendMap(nil, 5, 5, c.before)
			want := field(5, field(1, "app")+field(2, "web")) + field(5, field(1, "tier")+field(2, "front")) + field(5, field(1, "zone")+field(2, "a"))
			for range 2 {
				if got := e.appendMap([]byte("x"), 5, 5, labels); string(got) != "x"+want {
					t.Errorf("got %q\nwant %q", got, "x"+want)
				}
			}
		})
	}
}

func TestAppendRequestSortsManyKeys(t *testing.T) {
	r := &Request{PodLabels: map[string]string{}}
	for i := range 500 {
		r.PodLabels[fmt.Sprint(i)] = "x"
	}
	want := r.Append(nil)
	for range 10 {
		if !bytes.Equal(want, r.Append(nil)) {
			t.Fatal("equal requests are different bytes")
		}
	}
}

func TestAppendRequestDoesNotAllocate(t *testing.T) {
	r := benchmarkRequest()
	buf := r.Append(nil)
	if n := testing.AllocsPerRun(100, func() { buf = r.Append(buf[:0]) }); n != 0 && !race.Enabled {
		t.Errorf("%v allocations, want 0", n)
	}
}

func TestParseDecisionAllocatesOnce(t *testing.T) {
	b := (&Decision{Resources: &Resources{CPUShares: new(int64(1536)), CFSQuotaUS: new(int64(150_000)), CFSPeriodUS: new(int64(100_000))}}).Append(nil)
	n := func(b []byte) float64 {
		return testing.AllocsPerRun(100, func() {
			if _, err := ParseDecision(b); err != nil {
				t.Error(err)
			}
		})
	}
	if n := n(b); n > 1 {
		t.Errorf("%v allocations, want 1", n)
	}
	all := new(Resources)
	for _, v := range []**int64{
		&all.CPUShares, &all.CFSQuotaUS, &all.CFSPeriodUS, &all.CPUBvt, &all.CPUIdle, &all.CPUBurstUS,
		&all.MemoryLimitBytes, &all.MemoryMinBytes, &all.MemoryLowBytes, &all.MemoryHighBytes, &all.OOMScoreAdj,
	} {
		*v = new(int64(7))
	}
	if n := n((&Decision{Resources: all}).Append(nil)); n > 2 {
		t.Errorf("%v allocations for all numbers, want 2", n)
	}
}

func FuzzParseDecision(f *testing.F) {
	file := definition(f)
	for seed := range uint64(4) {
		m := dynamicpb.NewMessage(file.Messages().ByName("Decision"))
		fill(m, rand.New(rand.NewPCG(seed, 1)), seed == 0)
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b[:min(len(b), 2048)])
	}
	f.Add([]byte(field(1, number(1, 2)+field(14, field(1, "io.weight")+field(2, "default 50")))))
	f.Add([]byte("\x0a\xff\xff\xff\xff\x0f"))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := ParseDecision(b)
		if err != nil {
			if d != nil || !errors.Is(err, wire.ErrMalformed) {
				t.Fatalf("got %v and error %v", d, err)
			}
			return
		}
		// What parses, protobuf takes too, and it means the same.
		theirs := dynamicpb.NewMessage(file.Messages().ByName("Decision"))
		if err := proto.Unmarshal(b, theirs); err != nil {
			t.Fatalf("protobuf refuses what the codec takes: %v", err)
		}
		ours := dynamicpb.NewMessage(theirs.Descriptor())
		if err := proto.Unmarshal(d.Append(nil), ours); err != nil {
			t.Fatal(err)
		}
		discardUnknown(theirs)
		if !proto.Equal(theirs, ours) {
			t.Fatalf("protobuf reads %v, the codec %v", theirs, ours)
		}
	})
}

func discardUnknown(m protoreflect.Message) {
	m.SetUnknown(nil)
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Message() == nil || f.IsMap():
		case f.IsList():
			for i := range v.List().Len() {
				discardUnknown(v.List().Get(i).Message())
			}
		default:
			discardUnknown(v.Message())
		}
		return true
	})
}

func benchmarkRequest() *Request {
	r := &Request{
		Stage: abi.PreCreateContainer, Level: abi.LevelContainer, QOSClass: abi.QOSBurstable,
		Pod:                  PodMeta{Namespace: "shop", Name: "web-7d4b9c6f5d-x2lqp", UID: "8dbc5577-d0e2-4706-8787-57d52c03ddf2"},
		Container:            ContainerMeta{Name: "nginx", ID: "4b1f0c6a2f3e4d5c6b7a8990a1b2c3d4e5f60718293a4b5c6d7e8f9001122334"},
		CgroupParent:         "kubepods/burstable/pod8dbc5577-d0e2-4706-8787-57d52c03ddf2",
		Resources:            &Resources{CPUShares: new(int64(512)), CFSQuotaUS: new(int64(-1)), MemoryLimitBytes: new(int64(256 << 20))},
		PodLabels:            map[string]string{},
		PodAnnotations:       map[string]string{},
		ContainerAnnotations: map[string]string{},
	}
	for i, m := range []map[string]string{r.PodLabels, r.PodAnnotations, r.ContainerAnnotations} {
		for j := range 10 {
			m[fmt.Sprintf("app.kubernetes.io/key-%d-%d", i, j)] = strings.Repeat("v", 16+i*16)
		}
	}
	return r
}

func BenchmarkAppendRequest(b *testing.B) {
	r := benchmarkRequest()
	encoded := r.Append(nil)
	b.Run("codec", func(b *testing.B) {
		b.SetBytes(int64(len(encoded)))
		b.ReportAllocs()
		for b.Loop() {
			encoded = r.Append(encoded[:0])
		}
	})
	b.Run("dynamicpb", func(b *testing.B) {
		m := dynamicpb.NewMessage(definition(b).Messages().ByName("Request"))
		if err := proto.Unmarshal(encoded, m); err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(len(encoded)))
		b.ReportAllocs()
		for b.Loop() {
			var err error
			if encoded, err = (proto.MarshalOptions{Deterministic: true}).MarshalAppend(encoded[:0], m); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkParseDecision(b *testing.B) {
	encoded := (&Decision{Resources: &Resources{CPUShares: new(int64(1536)), CFSQuotaUS: new(int64(150_000)), CFSPeriodUS: new(int64(100_000))}}).Append(nil)
	b.Run("codec", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := ParseDecision(encoded); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("dynamicpb", func(b *testing.B) {
		d := definition(b).Messages().ByName("Decision")
		b.ReportAllocs()
		for b.Loop() {
			if err := proto.Unmarshal(encoded, dynamicpb.NewMessage(d)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func TestReadsHas(t *testing.T) {
	parse := func(names ...string) Reads {
		p, err := ParseReads(names)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	some := parse("pod", "container_envs[A]", "pod_labels")
	for field, want := range map[string]bool{"pod": true, "pod_labels": true, "container_envs": true, "container": false, "container_annotations": false, "": false, "stage": false} {
		if got := some.Has(field); got != want {
			t.Errorf("Has(%q) is %t", field, got)
		}
		if all := parse(); all.Has(field) != (field != "" && field != "stage") || all.Limited() {
			t.Errorf("everything, Has(%q) is %t", field, all.Has(field))
		}
	}
	all, one, none := parse(), parse("node_annotations[ratio]", "pod"), parse("pod")
	for _, c := range []struct {
		of   Reads
		want []string
	}{{all, nil}, {none, nil}, {one, []string{"node_annotations"}}, {parse("node_name", "node_allocatable"), []string{"node_name", "node_allocatable"}}} {
		if got := c.of.Node(); !slices.Equal(got, c.want) || c.of.NeedsNode() != (c.want != nil) {
			t.Errorf("of the node %v is declared, want %v", got, c.want)
		}
	}
	node := &Node{Name: "n", Annotations: map[string]string{"ratio": "2", "other": "x"}}
	if got := one.AppendNode(nil, node); string(got) != field(14, field(1, "ratio")+field(2, "2")) || len(none.AppendNode(nil, node)) != 0 || len(all.AppendNode(nil, nil)) != 0 {
		t.Errorf("of the node %q travels", got)
	}
	rest := parse().Without("container_envs", "container_annotations")
	if want := parse("pod", "container", "pod_labels", "pod_annotations", "cgroup_parent", "resources", "node_name", "node_labels", "node_annotations", "node_capacity", "node_allocatable", "node_topology"); !rest.Equal(&want) || !rest.Limited() {
		t.Errorf("got %+v, want %+v", rest, want)
	}
	less := some.Without("container_envs", "pod")
	if want := parse("pod_labels"); !less.Equal(&want) || !some.Has("container_envs") {
		t.Errorf("got %+v, want %+v", less, want)
	}
}
