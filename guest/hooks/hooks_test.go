package hooks

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
)

// full has every field that there is.
func full() *hookmsg.Request {
	return &hookmsg.Request{
		Stage:                abi.PreCreateContainer,
		Level:                abi.LevelContainer,
		QOSClass:             abi.QOSBestEffort,
		Pod:                  hookmsg.PodMeta{Namespace: "shop", Name: "web-0", UID: "8dbc5577"},
		Container:            hookmsg.ContainerMeta{Name: "nginx", ID: "4b1f"},
		PodLabels:            map[string]string{"app": "web", "empty": "", "tier": "front"},
		PodAnnotations:       map[string]string{"kubewasm.dev/cpu": "1500m", "long": strings.Repeat("x", 300)},
		ContainerAnnotations: map[string]string{"hash": "6f3c"},
		ContainerEnvs:        []hookmsg.Env{{Name: "PATH", Value: "/bin"}, {Name: "HOME", Value: "/"}, {Name: "PATH", Value: "/sbin"}},
		CgroupParent:         "kubepods/besteffort/pod8dbc5577",
		Node: &hookmsg.Node{
			Name: "node-1", Labels: map[string]string{"pool": "fast", "zone": "a"}, Annotations: map[string]string{"long": strings.Repeat("y", 300), "ratio": "1.20"},
			Capacity: map[string]string{"cpu": "8", "memory": "32Gi"}, Allocatable: map[string]string{"cpu": "7900m", "memory": "30Gi"},
			Topology: &hookmsg.Topology{
				OnlineCPUs: "0-7", NUMANodes: []hookmsg.NUMANode{{CPUs: "0-3", MemoryBytes: 16 << 30}, {ID: 1, CPUs: "4-7", MemoryBytes: 16 << 30}, {ID: 2, MemoryBytes: 1 << 40}},
				Sockets: []hookmsg.CPUGroup{{CPUs: "0-3"}, {ID: 1, CPUs: "4-7"}}, Cores: []hookmsg.CPUGroup{{CPUs: "0,2"}, {ID: 4, CPUs: "1,3"}, {CPUs: "4,6"}, {ID: 4, CPUs: "5,7"}},
				Caches: []hookmsg.CPUCache{{Level: 1, Type: "Data", SizeBytes: 32 << 10, CPUs: "0,2"}, {Level: 3, Type: "Unified", SizeBytes: 32 << 20, CPUs: "0-3"}},
			},
		},
		Resources: &hookmsg.Resources{
			CPUShares: new(int64(512)), CFSQuotaUS: new(int64(-1)), CFSPeriodUS: new(int64(100_000)),
			CPUSetCPUs: new("0-3,8"), CPUSetMems: new(""), CPUBvt: new(int64(-1)), CPUIdle: new(int64(1)), CPUBurstUS: new(int64(0)),
			MemoryLimitBytes: new(int64(1 << 40)), MemoryMinBytes: new(int64(1)), MemoryLowBytes: new(int64(2)), MemoryHighBytes: new(int64(3)),
			OOMScoreAdj: new(int64(-998)), Unified: map[string]string{"io.weight": "default 50"},
			NetClsClassID: new(int64(1<<32 - 1)), CoreSchedGroup: new("tenant"), ResctrlGroup: new(""), ResctrlSchemata: new("L3:0=f\nMB:0=50"),
		},
	}
}

// read reads everything that a view has into the host's type.
func read(r *Request) *hookmsg.Request {
	var node *hookmsg.Node
	if n := r.Node(); n.Name() != "" {
		node = &hookmsg.Node{
			Name: n.Name(), Labels: goMap(n.Labels()), Annotations: goMap(n.Annotations()), Capacity: goMap(n.Capacity()), Allocatable: goMap(n.Allocatable()),
			Topology: &hookmsg.Topology{OnlineCPUs: n.Topology().OnlineCPUs()},
		}
		for of := range n.Topology().NUMANodes() {
			node.Topology.NUMANodes = append(node.Topology.NUMANodes, hookmsg.NUMANode(of))
		}
		for of := range n.Topology().Sockets() {
			node.Topology.Sockets = append(node.Topology.Sockets, hookmsg.CPUGroup(of))
		}
		for of := range n.Topology().Cores() {
			node.Topology.Cores = append(node.Topology.Cores, hookmsg.CPUGroup(of))
		}
		for of := range n.Topology().Caches() {
			node.Topology.Caches = append(node.Topology.Caches, hookmsg.CPUCache(of))
		}
	}
	return &hookmsg.Request{
		Node:                 node,
		Stage:                r.Stage(),
		Level:                r.Level(),
		QOSClass:             r.QOSClass(),
		Pod:                  hookmsg.PodMeta{Namespace: r.Pod().Namespace(), Name: r.Pod().Name(), UID: r.Pod().UID()},
		Container:            hookmsg.ContainerMeta{Name: r.Container().Name(), ID: r.Container().ID()},
		PodLabels:            goMap(r.PodLabels()),
		PodAnnotations:       goMap(r.PodAnnotations()),
		ContainerAnnotations: goMap(r.ContainerAnnotations()),
		ContainerEnvs:        envs(r.ContainerEnvs()),
		CgroupParent:         r.CgroupParent(),
		Resources:            readResources(r.Resources()),
	}
}

func readResources(r *Resources) *hookmsg.Resources {
	into := &hookmsg.Resources{Unified: goMap(r.Unified())}
	if idle, ok := r.CPUIdle(); ok {
		into.CPUIdle = new(int64(0))
		if idle {
			*into.CPUIdle = 1
		}
	}
	for _, f := range []struct {
		into **int64
		get  func() (int64, bool)
	}{
		{&into.CPUShares, r.CPUShares}, {&into.CFSQuotaUS, r.CFSQuota}, {&into.CFSPeriodUS, r.CFSPeriod},
		{&into.CPUBvt, r.CPUBvt}, {&into.CPUBurstUS, r.CPUBurst},
		{&into.MemoryLimitBytes, r.MemoryLimit}, {&into.MemoryMinBytes, r.MemoryMin},
		{&into.MemoryLowBytes, r.MemoryLow}, {&into.MemoryHighBytes, r.MemoryHigh}, {&into.OOMScoreAdj, r.OOMScoreAdj},
	} {
		if v, ok := f.get(); ok {
			*f.into = &v
		}
	}
	if v, ok := r.CPUSet(); ok {
		into.CPUSetCPUs = &v
	}
	if v, ok := r.CPUSetMems(); ok {
		into.CPUSetMems = &v
	}
	if v, ok := r.NetClsClassID(); ok {
		into.NetClsClassID = new(int64(v))
	}
	if v, ok := r.CoreSchedGroup(); ok {
		into.CoreSchedGroup = &v
	}
	if v, ok := r.ResctrlGroup(); ok {
		into.ResctrlGroup = &v
	}
	if v, ok := r.ResctrlSchemata(); ok {
		into.ResctrlSchemata = &v
	}
	return into
}

func envs(s Strings) (list []hookmsg.Env) {
	for name, value := range s.All() {
		list = append(list, hookmsg.Env{Name: name, Value: value})
	}
	return list
}

func goMap(s Strings) map[string]string {
	if s.Len() == 0 {
		return nil
	}
	return maps.Collect(s.All())
}

func TestRequestReadsWhatTheHostWrites(t *testing.T) {
	want := full()
	var r Request
	// Twice, since a guest uses the view again.
	for range 2 {
		if err := r.parse(want.Append(nil)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, read(&r)); diff != "" {
			t.Fatal(diff)
		}
	}
	if err := r.parse(nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&hookmsg.Request{Resources: &hookmsg.Resources{}}, read(&r)); diff != "" {
		t.Errorf("something of the last request is left: %s", diff)
	}
}

func TestRequestOfIsWhatTheHostWrites(t *testing.T) {
	want := full()
	want.ContainerEnvs = []hookmsg.Env{{Name: "HOME", Value: "/"}, {Name: "PATH", Value: "/bin"}}
	var resources Resources
	set(&resources)
	topology := TopologyFields{OnlineCPUs: want.Node.Topology.OnlineCPUs}
	for _, of := range want.Node.Topology.NUMANodes {
		topology.NUMANodes = append(topology.NUMANodes, NUMANode(of))
	}
	for _, of := range want.Node.Topology.Sockets {
		topology.Sockets = append(topology.Sockets, CPUGroup(of))
	}
	for _, of := range want.Node.Topology.Cores {
		topology.Cores = append(topology.Cores, CPUGroup(of))
	}
	for _, of := range want.Node.Topology.Caches {
		topology.Caches = append(topology.Caches, CPUCache(of))
	}
	got := read(NewRequest(Fields{
		NodeTopology: topology,
		Stage:        abi.PreCreateContainer, Level: abi.LevelContainer, QOSClass: abi.QOSBestEffort,
		PodNamespace: "shop", PodName: "web-0", PodUID: "8dbc5577",
		ContainerName: "nginx", ContainerID: "4b1f",
		PodLabels: want.PodLabels, PodAnnotations: want.PodAnnotations,
		ContainerAnnotations: want.ContainerAnnotations, ContainerEnvs: map[string]string{"PATH": "/bin", "HOME": "/"},
		CgroupParent: want.CgroupParent, Resources: &resources,
		NodeName: "node-1", NodeLabels: want.Node.Labels, NodeAnnotations: want.Node.Annotations, NodeCapacity: want.Node.Capacity, NodeAllocatable: want.Node.Allocatable,
	}))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A map whose number takes two bytes is searched as the others are.
func TestLookupsInTheNode(t *testing.T) {
	var r Request
	if err := r.parse(full().Append(nil)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		of        Strings
		key, want string
		ok        bool
	}{
		{r.Node().Labels(), "zone", "a", true}, {r.Node().Annotations(), "ratio", "1.20", true}, {r.Node().Capacity(), "cpu", "8", true},
		{r.Node().Allocatable(), "cpu", "7900m", true}, {r.Node().Allocatable(), "memory", "30Gi", true}, {r.Node().Allocatable(), "none", "", false},
	} {
		if got, ok := c.of.Lookup(c.key); got != c.want || ok != c.ok || c.of.Has(c.key) != c.ok {
			t.Errorf("%s is %q, %t, want %q, %t", c.key, got, ok, c.want, c.ok)
		}
	}
}

// set sets what full has.
func set(r *Resources) {
	r.SetCPUShares(512)
	r.SetCFSQuota(Unlimited)
	r.SetCFSPeriod(100_000)
	r.SetCPUSet("0-3,8")
	r.SetCPUSetMems("")
	r.SetCPUBvt(-1)
	r.SetCPUIdle(true)
	r.SetCPUBurst(0)
	r.SetMemoryLimit(1 << 40)
	r.SetMemoryMin(1)
	r.SetMemoryLow(2)
	r.SetMemoryHigh(3)
	r.SetOOMScoreAdj(-998)
	r.SetUnified("io.weight", "default 100")
	r.SetUnified("io.weight", "default 50")
	r.SetResctrlSchemata("L3:0=f\nMB:0=50")
	r.SetResctrlGroup("")
	r.SetCoreSchedGroup("tenant")
	r.SetNetClsClassID(1<<32 - 1)
}

func TestHostReadsWhatADecisionWrites(t *testing.T) {
	for _, c := range []struct {
		name   string
		decide func(d *Decision)
		want   *hookmsg.Decision
	}{
		{"nothing", func(*Decision) {}, &hookmsg.Decision{}},
		{"every resource", func(d *Decision) { set(&d.Resources) }, &hookmsg.Decision{Resources: full().Resources}},
		{"not idle", func(d *Decision) { d.SetCPUIdle(false) }, &hookmsg.Decision{Resources: &hookmsg.Resources{CPUIdle: new(int64(0))}}},
		{"annotations and environment", func(d *Decision) {
			d.SetContainerAnnotation("b", "1")
			d.SetContainerAnnotation("a", "2")
			d.SetContainerAnnotation("b", "3")
			d.SetContainerEnv("GOMAXPROCS", "2")
		}, &hookmsg.Decision{
			ContainerAnnotations: map[string]string{"a": "2", "b": "3"},
			ContainerEnvs:        map[string]string{"GOMAXPROCS": "2"},
		}},
		{"mounts and devices", func(d *Decision) {
			d.AddContainerMount(Mount{Destination: "/a", Source: "/b", Type: "bind", Options: []string{"ro", ""}})
			d.AddContainerMount(Mount{Destination: "/c"})
			d.AddContainerDevice(Device{Path: "/dev/gpu", Type: "c", Major: 195, Minor: 1, FileMode: new(int64(0o600)), GID: new(int64(0))})
		}, &hookmsg.Decision{
			ContainerMounts:  []hookmsg.Mount{{Destination: "/a", Source: "/b", Type: "bind", Options: []string{"ro", ""}}, {Destination: "/c"}},
			ContainerDevices: []hookmsg.Device{{Path: "/dev/gpu", Type: "c", Major: 195, Minor: 1, FileMode: new(int64(0o600)), GID: new(int64(0))}},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var call call
			for range 2 {
				out, err := call.run(pluginFunc(func(_ *Request, d *Decision) error {
					c.decide(d)
					return nil
				}), nil)
				if err != nil {
					t.Fatal(err)
				}
				got, err := hookmsg.ParseDecision(out)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Fatal(diff)
				}
			}
		})
	}
}

func TestADecisionIsNotLeftOver(t *testing.T) {
	var c call
	decide := true
	p := pluginFunc(func(_ *Request, d *Decision) error {
		if decide {
			set(&d.Resources)
			d.SetContainerAnnotation("a", "1")
			d.SetContainerEnv("B", "2")
		}
		return nil
	})
	if out, err := c.run(p, nil); err != nil || len(out) == 0 {
		t.Fatalf("got %d bytes and error %v", len(out), err)
	}
	decide = false
	if out, err := c.run(p, nil); err != nil || len(out) != 0 {
		t.Errorf("got bytes %q and error %v, want nothing", out, err)
	}
}

func TestAnErrorDropsTheDecision(t *testing.T) {
	var c call
	want := errors.New("no such annotation")
	_, err := c.run(pluginFunc(func(_ *Request, d *Decision) error {
		d.SetCPUShares(2)
		return want
	}), nil)
	if !errors.Is(err, want) {
		t.Errorf("got error %v, want %v", err, want)
	}
}

func TestStringsFindTheLastOfTwo(t *testing.T) {
	var r Request
	// An entry of labels, one of annotations in between, and the same label.
	if err := r.parse([]byte("\x2a\x06\x0a\x01a\x12\x01" + "1" + "\x32\x06\x0a\x01a\x12\x01" + "2" + "\x2a\x06\x0a\x01a\x12\x01" + "3")); err != nil {
		t.Fatal(err)
	}
	if got, ok := r.PodLabels().Lookup("a"); got != "3" || !ok {
		t.Errorf("label a is %q, %v", got, ok)
	}
	if got := r.PodAnnotations().Get("a"); got != "2" {
		t.Errorf("annotation a is %q", got)
	}
	if got, ok := r.PodLabels().Lookup("b"); got != "" || ok {
		t.Errorf("label b is %q, %v", got, ok)
	}
	for range r.PodLabels().All() {
		break // An iteration may end early.
	}
}

// A plugin may keep strings: the bytes that they came from are another request's
// after the call.
func TestStringsOfARequestMayBeKept(t *testing.T) {
	data := full().Append(nil)
	var r Request
	if err := r.parse(data); err != nil {
		t.Fatal(err)
	}
	got := read(&r)
	clear(data)
	for range 100 { // More than a block of copies holds.
		if err := r.parse((&hookmsg.Request{Pod: hookmsg.PodMeta{UID: strings.Repeat("x", 40)}}).Append(nil)); err != nil {
			t.Fatal(err)
		}
		r.Pod()
	}
	if diff := cmp.Diff(full(), got); diff != "" {
		t.Error(diff)
	}
}

// Entries that no encoder of a map writes mean what protobuf says they mean.
func TestStringsReadUnusualEntries(t *testing.T) {
	long := strings.Repeat("v", 20_000)
	for name, c := range map[string]struct{ entry, want string }{
		"value before key":      {"\x12\x011\x0a\x01a", "1"},
		"two keys":              {"\x0a\x01b\x0a\x01a\x12\x011", "1"},
		"two values":            {"\x0a\x01a\x12\x012\x12\x011", "1"},
		"a field in between":    {"\x0a\x01a\x18\x05\x12\x011", "1"},
		"a length of two bytes": {"\x0a\x81\x00a\x12\x81\x00" + "1", "1"},
		"no value":              {"\x0a\x01a", ""},
		"a long value":          {"\x0a\x01a\x12\xa0\x9c\x01" + long, long},
	} {
		t.Run(name, func(t *testing.T) {
			var r Request
			data := append([]byte("\x2a"), protowire.AppendVarint(nil, uint64(len(c.entry)))...)
			if err := r.parse(append(data, c.entry...)); err != nil {
				t.Fatal(err)
			}
			if got, ok := r.PodLabels().Lookup("a"); got != c.want || !ok || !r.PodLabels().Has("a") {
				t.Errorf("got %.40q, %v, want %.40q", got, ok, c.want)
			}
		})
	}
}

func TestTheZeroRequestIsEmpty(t *testing.T) {
	if diff := cmp.Diff(&hookmsg.Request{Resources: &hookmsg.Resources{}}, read(new(Request))); diff != "" {
		t.Error(diff)
	}
}

func TestHookAnswersTheHost(t *testing.T) {
	Register(pluginFunc(func(req *Request, d *Decision) error {
		if req.PodLabels().Get("app") == "" {
			return errors.New("no app")
		}
		if req.Level() == abi.LevelContainer {
			d.SetCPUShares(2)
		}
		return nil
	}))
	for _, c := range []struct {
		name    string
		request []byte
		want    abi.Code
		decided string
	}{
		{"a decision", full().Append(nil), abi.Success, "\x0a\x02\x08\x02"},
		{"nothing decided", (&hookmsg.Request{PodLabels: map[string]string{"app": "web"}}).Append(nil), abi.Success, ""},
		{"an error", nil, abi.Error, ""},
		{"no request", []byte("\x80"), abi.Error, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var call call
			var decided string
			got := call.hook(c.request, func(out []byte) { decided = string(out) })
			if got != c.want || decided != c.decided {
				t.Errorf("got %s and decision %q, want %s and %q", got, decided, c.want, c.decided)
			}
		})
	}
}

func TestRegisterRefusesNil(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("Register took a nil plugin")
		}
	}()
	Register[Plugin](nil)
}

// The plugin's own allocations are its own; the SDK adds none in the steady
// state, but a block now and then for the strings that it hands out.
func TestRunDoesNotAllocate(t *testing.T) {
	var c call
	request := full().Append(nil)
	p := pluginFunc(func(req *Request, d *Decision) error {
		if req.PodAnnotations().Get("kubewasm.dev/cpu") == "" || req.PodLabels().Get("app") == "" {
			return errors.New("not found")
		}
		d.SetCPUShares(1536)
		d.SetContainerEnv("GOMAXPROCS", "2")
		return nil
	})
	n := testing.AllocsPerRun(100, func() {
		if _, err := c.run(p, request); err != nil {
			t.Error(err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func FuzzRequest(f *testing.F) {
	f.Add(full().Append(nil))
	f.Add([]byte("\x2a\x02\x0a\x05"))
	f.Add([]byte("\x52\x03\x08\xff\xff\x2a"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var r Request
		err := r.parse(b)
		got := read(&r)
		// Where the host's strict reader finds a request, the view finds the
		// same one.
		want, hostErr := hookmsg.ParseRequest(b)
		if hostErr != nil {
			return
		}
		if err != nil {
			t.Skip("a group, which the view does not read")
		}
		normalise(want.Resources)
		if want.Resources == nil {
			want.Resources = &hookmsg.Resources{}
		}
		normalise(got.Resources)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

// normalise makes the truth value of the view of every number of CPUIdle.
func normalise(r *hookmsg.Resources) {
	if r != nil && r.CPUIdle != nil && *r.CPUIdle != 0 {
		*r.CPUIdle = 1
	}
}

// pluginFunc is a function as a Plugin.
type pluginFunc func(req *Request, d *Decision) error

func (f pluginFunc) Decide(req *Request, d *Decision) error { return f(req, d) }
