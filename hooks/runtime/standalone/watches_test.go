package standalone_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/hooks/runtime/standalone"
)

// kernelWatches is the number of watches that the kernel has for the process.
func kernelWatches(t *testing.T) (n int) {
	t.Helper()
	files, err := filepath.Glob("/proc/self/fdinfo/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue // That of the directory itself.
		}
		n += strings.Count(string(b), "inotify wd:")
	}
	return n
}

// A watch of a cgroup ends with it: on cgroupfs the kernel keeps that of a removed
// directory, and they all count against the limit of root.
func TestReconcilerWatchesNoCgroupsThatAreGone(t *testing.T) {
	n := newNode(t)
	r := n.run(nil)
	const live, churn = 5, 20 // A virtual machine takes a second for each.
	name := func(i int) string { return fmt.Sprintf("p%d", i) }
	var listed []corev1.Pod
	add := func(i int) string {
		_, container := n.make(name(i))
		listed = append(listed, pod(name(i), "cpu_shares 300"))
		n.list(listed...)
		return container
	}
	// Those of the classes with the pods and containers that are there.
	settle := func(what string, want int) (got int) {
		t.Helper()
		for start := time.Now(); ; time.Sleep(time.Millisecond) {
			inKernel := kernelWatches(t)
			if got, all := r.Watches(); got == inKernel && all && (want == 0 || got == want) {
				return got
			} else if time.Since(start) > soon {
				t.Fatalf("%s: the kernel has %d watches, the reconciler says %d (%t), want %d", what, inKernel, got, all, want)
			}
		}
	}
	for i := range live {
		n.within(soon, add(i), 300)
	}
	before := settle("at first", 0)
	if want := len(n.enforcer.Applier().Hierarchies()) * (3 + 2*live); before != want {
		t.Fatalf("there are %d watches, want %d", before, want)
	}
	for i := live; i < live+churn; i++ {
		container := add(i)
		if i%4 == 0 {
			n.within(soon, container, 300)
		}
		n.tree.Remove(n.layout.Pod(abi.QOSBurstable, name(i-live)))
		listed = listed[1:]
		n.list(listed...)
		if i%3 == 0 { // The path of one that has just gone.
			again, _ := n.make(name(i - live))
			n.tree.Remove(again)
		}
	}
	for i := churn; i < live+churn; i++ {
		_, container := n.make(name(i))
		n.within(soon, container, 300)
	}
	settle("after the churn", before)
	for i := churn; i < live+churn; i++ {
		n.tree.Remove(n.layout.Pod(abi.QOSBurstable, name(i)))
	}
	settle("without pods", len(n.enforcer.Applier().Hierarchies())*3)
}

// A controller of cgroup v2 is turned off for a moment, by the kubelet or systemd, and takes
// its files and their values with it. Off and on again are found by their event.
func TestReconcilerPutsBackWhatAControllerHad(t *testing.T) {
	n := newNode(t)
	if !n.tree.V2 {
		t.Skip("cgroup v1 has no controllers to turn off")
	}
	pods, container := n.make("a")
	n.list(pod("a", "cpu_shares 300"))
	n.run(nil)
	n.within(soon, container, 300)
	for range 3 {
		n.tree.Write(pods, "cgroup.subtree_control", "-cpu")
		// It is found to be off.
		for start := time.Now(); n.enforcer.Enforce(t.Context()).LeftRefused == 0; time.Sleep(time.Millisecond) {
			if time.Since(start) > soon {
				t.Fatal("nothing is refused without the controller")
			}
		}
		n.tree.Write(pods, "cgroup.subtree_control", "+cpu")
		n.within(soon, container, 300)
	}
}

// TestReconcilerAsksSeldom holds how often the list of pods is read while pods come: once a second
// beside a few times at once, and no more when all that is left unlisted is the cgroup of each pod's
// sandbox.
func TestReconcilerAsksSeldom(t *testing.T) {
	n := newNode(t)
	list := standalone.File(n.pods)
	var reads atomic.Int64
	begun := time.Now()
	r := n.run(func(cfg *standalone.Config) {
		cfg.Discovery = discoveryFunc(func(ctx context.Context) ([]standalone.Pod, error) {
			reads.Add(1)
			return list.Pods(ctx)
		})
	})
	var pods []corev1.Pod
	for i := range 20 {
		name := fmt.Sprint("web", i)
		pods = append(pods, pod(name, "cpu_shares 500"))
		podCgroup, container := n.make(name)
		n.tree.Make(strings.TrimPrefix(podCgroup, n.tree.Root+"/") + "/" + name + "sandbox")
		n.list(pods...)
		n.within(soon, container, 500)
	}
	for start := time.Now(); r.Unknown() != 0; time.Sleep(time.Millisecond) {
		if time.Since(start) > soon {
			t.Fatalf("it still asks what %d cgroups are", r.Unknown())
		}
	}
	if got, most := reads.Load(), 1+4+int64(time.Since(begun)/time.Second)+1; got > most {
		t.Errorf("pods were listed %d times in %s, more than %d", got, time.Since(begun), most)
	}

	// A further container is found, beside the sandbox, when it is listed.
	before := n.layout.Pod(abi.QOSBurstable, "web0")
	second := n.tree.Make(strings.TrimPrefix(before, n.tree.Root+"/") + "/web0d")
	status := pods[0].Status.ContainerStatuses[0]
	status.Name, status.ContainerID = "second", "containerd://web0d"
	pods[0].Spec.Containers = append(pods[0].Spec.Containers, corev1.Container{Name: "second"})
	pods[0].Status.ContainerStatuses = append(pods[0].Status.ContainerStatuses, status)
	n.list(pods...)
	n.within(soon, second, 500)
}

// Any list takes the place of a resync, which comes at most its interval later.
func TestReconcilerResyncsAfterTheLastList(t *testing.T) {
	n := newNode(t)
	r, err := standalone.New(standalone.Config{
		Engine: n.engine, State: n.state, Enforcer: n.enforcer, Discovery: standalone.File(n.pods), Layout: n.layout, Resync: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	for age, want := range map[time.Duration]time.Duration{
		time.Hour: 0, // There was none.
		0:         time.Minute, 20 * time.Second: 40 * time.Second, time.Minute: 0, 2 * time.Minute: 0,
	} {
		if got := r.ResyncsIn(age); got != want {
			t.Errorf("%s after a list the resync comes in %s, want %s", age, got, want)
		}
	}
}

// Without events the list is read again in each interval, and no sooner.
func TestReconcilerResyncs(t *testing.T) {
	n := newNode(t)
	_, container := n.make("a")
	n.list(pod("a", "cpu_shares 300"))
	const resync = 50 * time.Millisecond
	list := standalone.File(n.pods)
	type answer struct{ asked, answered time.Time }
	answers := make(chan answer, 100)
	n.run(func(cfg *standalone.Config) {
		cfg.Resync = resync
		cfg.Discovery = discoveryFunc(func(ctx context.Context) (pods []standalone.Pod, err error) {
			a := answer{asked: time.Now()}
			pods, err = list.Pods(ctx)
			a.answered = time.Now()
			select {
			case answers <- a:
			default:
			}
			return pods, err
		})
	})
	n.within(soon, container, 300)
	last := receive(t, answers)
	for i := range 10 {
		next := receive(t, answers)
		// What ran at the start may be unlisted at first.
		if i > 2 && next.asked.Sub(last.answered) < resync {
			t.Errorf("the list is read %s after the last one, sooner than %s", next.asked.Sub(last.answered), resync)
		}
		last = next
	}
}

// A runtime without sandboxes makes the cgroup of a further container the only unlisted one of its
// pod. It is decided on although the kubelet lists it late.
func TestReconcilerFindsAContainerBesideNoSandbox(t *testing.T) {
	n := newNode(t)
	podCgroup, first := n.make("a")
	n.list(pod("a", "cpu_shares 300"))
	var made atomic.Pointer[time.Time]
	list := standalone.File(n.pods)
	n.run(func(cfg *standalone.Config) {
		cfg.Discovery = discoveryFunc(func(ctx context.Context) ([]standalone.Pod, error) {
			pods, err := list.Pods(ctx)
			if at := made.Load(); err == nil && at != nil && time.Since(*at) > time.Second {
				pods[0].Containers = append(pods[0].Containers, standalone.Container{Name: "second", ID: "ad"})
			}
			return pods, err
		})
	})
	n.within(soon, first, 300)
	second := n.tree.Make(strings.TrimPrefix(podCgroup, n.tree.Root+"/") + "/ad")
	made.Store(new(time.Now()))
	n.within(soon, second, 300)
}
