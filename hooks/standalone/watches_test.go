package standalone_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
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
		n.tree.Remove(n.layout.Pod(hookmsg.QOSBurstable, name(i-live)))
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
		n.tree.Remove(n.layout.Pod(hookmsg.QOSBurstable, name(i)))
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
