package sched_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/framework"
	"github.com/kubewasm/kubewasm/sched"
)

// A Pod that has lost the node for which it waited in Permit is tried again if it is still nominated,
// and is not otherwise.
func TestANominationThatStaysIsTriedAgain(t *testing.T) {
	rt, err := compiledOnce()
	if err != nil {
		t.Fatal(err)
	}
	active := make(chan string, 100)
	handle := &framework.Handle{Informers: framework.NewInformers(), Activated: func(pods []*corev1.Pod) {
		for _, pod := range pods {
			active <- pod.Name
		}
	}}
	p, err := sched.Load(t.Context(), rt, sched.PluginConfig{Config: host.Config{Name: "waits", Module: host.ModuleConfig{File: "testdata/waits.wasm"}}}, framework.Of(handle))
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range []*corev1.Pod{
		{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "free", UID: types.UID("1")}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "bound", UID: types.UID("2")}, Spec: corev1.PodSpec{NodeName: "n1"}, Status: corev1.PodStatus{NominatedNodeName: "n1"}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "nominated", UID: types.UID("3")}, Status: corev1.PodStatus{NominatedNodeName: "n1"}},
	} {
		c := p.Begin(pod)
		if s, _ := p.Permit(c, pod, "n1"); s.Code() != abi.Wait {
			t.Fatalf("the status of %s is %v", pod.Name, s)
		}
		p.Unreserve(c, pod, "n1")
	}
	if got := <-active; got != "nominated" {
		t.Errorf("%s is tried again", got)
	}
	if err := p.Close(t.Context()); err != nil { // Ends the checks that are left.
		t.Error(err)
	}
	if len(active) != 0 {
		t.Errorf("%s is tried again, too", <-active)
	}
}
