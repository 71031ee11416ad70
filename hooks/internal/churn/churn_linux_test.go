package churn_test

import (
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/hooks/internal/cgrouptest"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	_ "github.com/kubewasm/kubewasm/internal/testkit/guarded"
)

// duration is the variable with the time of a long run.
const duration = "KUBEWASM_CHURN"

// node is a node with its kubelet.
type node struct {
	t    *testing.T
	tree *cgrouptest.Tree
	// gets and bytes are what the agent has read of the list of pods.
	gets, bytes atomic.Int64

	mu   sync.Mutex
	pods []int // Those that run, by their numbers.
}

func uid(i int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", i) }

func id(i int) string { return fmt.Sprintf("%064x", i*7+1) }

// shares are those that the plugin decides for a pod.
func shares(i int) int64 { return int64(100 + i%900) }

func (n *node) cgroup(i int) string { return "kubepods/burstable/pod" + uid(i) }

func (n *node) container(i int) string { return n.tree.Root + "/" + n.cgroup(i) + "/" + id(i) }

// start makes a pod with the cgroup of its sandbox, and then lists it, as a kubelet does.
func (n *node) start(i int) {
	n.tree.Make(n.cgroup(i) + "/" + strings.Repeat("f", 56) + fmt.Sprintf("%08x", i))
	n.tree.Make(n.cgroup(i) + "/" + id(i))
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pods = append(n.pods, i)
}

// end ends the pod that runs longest.
func (n *node) end() {
	n.mu.Lock()
	i := n.pods[0]
	n.pods = n.pods[1:]
	n.mu.Unlock()
	n.tree.Remove(n.tree.Root + "/" + n.cgroup(i))
}

// running returns the numbers of the pods.
func (n *node) running() []int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]int(nil), n.pods...)
}

// ServeHTTP answers with the list of pods, each of about the size that it has on a node.
func (n *node) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	n.gets.Add(1)
	fields := strings.Repeat("y", 6000)
	var b strings.Builder
	b.WriteString(`{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[`)
	for k, i := range n.running() {
		if k != 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"metadata":{"name":"web-%d","namespace":"shop","uid":"%s","annotations":{"p":"cpu_shares %d"},"managedFields":[{"manager":"kubelet","fieldsV1":{"f:x":"%s"}}]},`+
			`"spec":{"nodeName":"n","containers":[{"name":"main","image":"r/x:1","resources":{"requests":{"cpu":"500m","memory":"64Mi"}}}]},`+
			`"status":{"phase":"Running","qosClass":"Burstable","containerStatuses":[{"name":"main","containerID":"containerd://%s","state":{"running":{"startedAt":"2026-01-01T00:00:00Z"}}}]}}`,
			i, uid(i), shares(i), fields, id(i))
	}
	b.WriteString("]}")
	n.bytes.Add(int64(b.Len()))
	_, _ = io.WriteString(w, b.String())
}

// file and want are the file of a container's CPU shares, and its text for a decision.
func (n *node) file() string {
	if n.tree.V2 {
		return "cpu.weight"
	}
	return "cpu.shares"
}

func (n *node) want(i int) string {
	if n.tree.V2 {
		return strconv.FormatInt(cgroup.WeightQuadratic.Weight(shares(i)), 10)
	}
	return strconv.FormatInt(shares(i), 10)
}

// wrong returns how many pods do not have what is decided for them.
func (n *node) wrong() (wrong int) {
	for _, i := range n.running() {
		b, err := os.ReadFile(n.tree.Path(n.container(i), n.file()))
		if err != nil || strings.TrimSpace(string(b)) != n.want(i) {
			wrong++
		}
	}
	return wrong
}

// agent is a process of the agent.
type agent struct {
	t   *testing.T
	cmd *exec.Cmd
	url string
}

// followed is the number of watches beside those of cgroups: that of the agent's file.
const followed = 1

var address = regexp.MustCompile(`msg="serving metrics and probes" address=(\S+)`)

// run starts the agent and waits for its address.
func run(t *testing.T, program, config, log string) *agent {
	t.Helper()
	f, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.CommandContext(t.Context(), program, "-config", config, "-log-format", "text")
	// As a node has it: the checks of tests take time.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "KUBEWASM_DEBUG=") })
	cmd.Stdout, cmd.Stderr = f, f
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	a := &agent{t: t, cmd: cmd}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for start := time.Now(); a.url == ""; <-tick.C {
		b, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		if m := address.FindSubmatch(b); m != nil {
			a.url = "http://" + string(m[1])
		}
		if time.Since(start) > time.Minute {
			t.Fatalf("the agent does not serve:\n%s", b)
		}
	}
	return a
}

// metric returns the value of a series.
func (a *agent) metric(name string) float64 {
	a.t.Helper()
	resp, err := http.Get(a.url + "/metrics")
	if err != nil {
		a.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if text, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			if err != nil {
				a.t.Fatal(err)
			}
			return v
		}
	}
	a.t.Fatalf("there is no metric %s in\n%s", name, b)
	return 0
}

// use is what a process uses.
type use struct {
	watches, descriptors int
	resident             int64 // KiB.
	processor            time.Duration
}

func (a *agent) use() (u use) {
	a.t.Helper()
	proc := "/proc/" + strconv.Itoa(a.cmd.Process.Pid)
	entries, err := os.ReadDir(proc + "/fd")
	if err != nil {
		a.t.Fatal(err)
	}
	u.descriptors = len(entries)
	infos, err := filepath.Glob(proc + "/fdinfo/*")
	if err != nil {
		a.t.Fatal(err)
	}
	for _, info := range infos {
		b, _ := os.ReadFile(info) // It may have been closed.
		u.watches += strings.Count(string(b), "inotify wd:")
	}
	status, err := os.ReadFile(proc + "/status")
	if err != nil {
		a.t.Fatal(err)
	}
	if m := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(status); m != nil {
		u.resident, _ = strconv.ParseInt(string(m[1]), 10, 64)
	}
	stat, err := os.ReadFile(proc + "/stat")
	if err != nil {
		a.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	for _, field := range fields[11:13] { // User and system time, in hundredths of a second.
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			a.t.Fatal(err)
		}
		u.processor += time.Duration(n) * 10 * time.Millisecond
	}
	return u
}

// root returns a hierarchy that is the test's subtree alone: an agent locks the one that it serves.
func (n *node) root() string {
	n.t.Helper()
	if n.tree.V2 {
		return filepath.Join(cgrouptest.Mount, n.tree.Root)
	}
	root := n.t.TempDir()
	for _, controller := range []string{"cpu", "cpuset", "memory"} {
		dir := filepath.Join(root, controller)
		err := os.Mkdir(dir, 0o755)
		if err == nil {
			err = syscall.Mount(filepath.Join(cgrouptest.Mount, controller, n.tree.Root), dir, "", syscall.MS_BIND, "")
		}
		if err != nil {
			n.t.Fatal(err)
		}
		n.t.Cleanup(func() {
			if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
				n.t.Error(err)
			}
		})
	}
	return root
}

// overwrite writes into the files of containers ten times a second until ended is closed, and returns
// how often it did.
func (n *node) overwrite(ended <-chan struct{}) (writes int) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return writes
		case <-tick.C:
		}
		running := n.running()
		i := running[rand.IntN(len(running))]
		f, err := os.OpenFile(n.tree.Path(n.container(i), n.file()), os.O_WRONLY, 0)
		if err != nil {
			continue // It has just ended.
		}
		if _, err := f.WriteString("77"); err == nil {
			writes++
		}
		f.Close()
	}
}

func TestPodsThatComeAndGo(t *testing.T) {
	most, pods := 15*time.Second, 40
	if text := os.Getenv(duration); text != "" {
		var err error
		if most, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", duration, err)
		}
		pods = 250
	}
	program := filepath.Join(t.TempDir(), "node-agent")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
	build.Dir = "../../../cmd/kubewasm-agent"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the agent: %v\n%s", err, out)
	}
	guest, err := guestbuild.Build(t.Context(), "../../testdata/scripted")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, tree: cgrouptest.New(t)}
	for _, class := range []string{"kubepods/burstable", "kubepods/besteffort"} {
		n.tree.Make(class)
	}
	kubelet := httptest.NewTLSServer(n)
	defer kubelet.Close()
	dir := t.TempDir()
	const resync = 60 * time.Second
	config := fmt.Sprintf(`cacheDir: %s/cache
cgroup: {root: %s, driver: cgroupfs}
standalone: {resync: %s, kubelet: {url: %q, tokenFile: %s/token, caFile: %s/ca.crt, serverName: example.com}}
http: {address: "127.0.0.1:0"}
plugins:
- {name: p, module: {file: %s}, levels: [Container], owns: [cpu_shares], reads: ["pod_annotations[p]"]}
`, dir, n.root(), resync, kubelet.URL, dir, dir, guest)
	for name, text := range map[string]string{
		"agent.yaml": config, "token": "secret\n", "ca.crt": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: kubelet.Certificate().Raw})),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	next := 0
	for range pods {
		n.start(next)
		next++
	}
	a := run(t, program, filepath.Join(dir, "agent.yaml"), filepath.Join(dir, "agent.log"))
	// settled waits until all pods have what is decided, and nothing is asked about any more.
	settled := func(when string) use {
		t.Helper()
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for start := time.Now(); ; <-tick.C {
			hierarchies := 3
			if n.tree.V2 {
				hierarchies = 1
			}
			u := a.use()
			if wrong := n.wrong(); wrong == 0 && u.watches == hierarchies*(3+3*pods)+followed && u.watches == followed+int(a.metric(`kubewasm_agent_inotify_watches{mode="standalone"}`)) {
				return u
			} else if time.Since(start) > 2*time.Minute {
				b, _ := os.ReadFile(filepath.Join(dir, "agent.log"))
				t.Fatalf("%s: %d of %d pods are not as decided; there are %d watches, want %d\n%s", when, wrong, pods, u.watches, hierarchies*(3+3*pods)+followed, b)
			}
		}
	}
	first := settled("at first")
	n.gets.Store(0)
	n.bytes.Store(0)

	var writes, kills int
	begun, before := time.Now(), next
	// churn ends and starts a pod each second, beside a writer if one is asked for, and kills the agent
	// as often as given. It returns the processor's time that the agent takes, its starts among it, and
	// the most and the least of ten seconds that have no start.
	churn := func(took time.Duration, hostile bool, starts int) (share, least, most float64) {
		ended := make(chan struct{})
		var writer sync.WaitGroup
		if hostile {
			writer.Go(func() { writes += n.overwrite(ended) })
		}
		begun, killed := time.Now(), 0
		var processor time.Duration
		last := a.use().processor // Of this process, at the last look.
		least, seconds, recent := math.Inf(1), 0, time.Duration(0)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for ; time.Since(begun) < took; <-tick.C {
			now := a.use().processor
			processor, recent, last = processor+now-last, recent+now-last, now
			if seconds++; seconds == 10 {
				of := 100 * recent.Seconds() / 10
				least, most, seconds, recent = min(least, of), max(most, of), 0, 0
			}
			n.end()
			n.start(next)
			next++
			if killed < starts && time.Since(begun) > time.Duration(killed+1)*took/time.Duration(starts+1) {
				if err := a.cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				_ = a.cmd.Wait()
				a = run(t, program, filepath.Join(dir, "agent.yaml"), filepath.Join(dir, "agent.log"))
				killed, last, seconds, recent = killed+1, 0, 0, 0
			}
		}
		processor += a.use().processor - last
		close(ended)
		writer.Wait()
		kills += killed
		return 100 * processor.Seconds() / time.Since(begun).Seconds(), least, most
	}
	for _, phase := range []struct {
		name    string
		hostile bool
		kills   int
	}{{"without hostile writers", false, 0}, {"with hostile writers", true, 0}, {"with hostile writers and two SIGKILLs", true, 2}} {
		share, least, most := churn(most/3, phase.hostile, phase.kills)
		windows := "too short for windows of ten seconds"
		if least <= most {
			windows = fmt.Sprintf("in ten seconds %.2f%% to %.2f%%", least, most)
		}
		t.Logf("%s: %.2f%% of a processor, %s", phase.name, share, windows)
	}
	took := time.Since(begun)
	after := settled("after the churn")
	gets := n.gets.Load()

	// A list is read for each new pod at most, with those of starts. Each takes the place of a resync.
	// A short run also has the four that there was time for before it.
	made := int64(next - before)
	bound := made
	if took < time.Minute {
		bound += 4 + int64(kills)
	}
	if gets > bound {
		t.Errorf("the list of pods was read %d times for %d new pods and %d starts, more than %d", gets, made, kills, bound)
	}
	// A file and a directory of each container that runs stay open.
	if bound := first.descriptors + 2*pods + 8; after.descriptors > bound {
		t.Errorf("there are %d descriptors, %d at first, more than %d", after.descriptors, first.descriptors, bound)
	}
	if drift := a.metric(`kubewasm_hooks_files_left_alone{reason="contended"}`) + a.metric(`kubewasm_hooks_files_left_alone{reason="refused"}`); drift != 0 {
		t.Errorf("%g files are left alone", drift)
	}
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := a.cmd.Wait(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("the agent ends with %v", err)
	}
	t.Logf("%s, %d pods: %d new ones, %d hostile writes, %d kills; 0 wrong at the end, %d reads of the list (%.2f a new pod), %.1f MB each; watches %d and %d, descriptors %d and %d, resident %d and %d MiB",
		took.Round(time.Second), pods, made, writes, kills, gets, float64(gets)/float64(made), float64(n.bytes.Load())/float64(max(gets, 1))/1e6,
		first.watches, after.watches, first.descriptors, after.descriptors, first.resident>>10, after.resident>>10)
}
