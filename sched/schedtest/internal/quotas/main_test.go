package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/sched"
	"github.com/kubewasm/kubewasm/guest/state"
	"github.com/kubewasm/kubewasm/sched/schedtest"
)

const (
	kind = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: quotas.quota.example.com}
spec:
  group: quota.example.com
  names: {plural: quotas, kind: Quota}
  versions: [{name: v1, served: true}]
`
	shut   = `{apiVersion: quota.example.com/v1, kind: Quota, metadata: {namespace: default, name: team}, spec: {open: false}}`
	opened = `{apiVersion: quota.example.com/v1, kind: Quota, metadata: {namespace: default, name: team}, spec: {open: true}}`
	member = `metadata: {name: web, namespace: default, annotations: {quota: team, siblings: "a,b"}}`
	other  = `metadata: {name: web, namespace: default, annotations: {quota: other}}`
)

func TestPodsWaitForTheirQuota(t *testing.T) {
	schedtest.Each(t, plugin{}, func(t *testing.T, p *schedtest.Plugin) {
		for objects, want := range map[string]string{
			kind:                    "Unschedulable: there is no Quota team",
			kind + "---\n" + shut:   "Unschedulable: the Quota team is closed",
			kind + "---\n" + opened: "Success",
		} {
			if got := p.In(t, objects).Begin(t, member).Status.String(); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
	})
}

func TestHints(t *testing.T) {
	schedtest.Each(t, plugin{}, func(t *testing.T, p *schedtest.Plugin) {
		p = p.In(t, kind)
		changed := sched.ClusterEvent{Object: quotas, ActionType: abi.ActionUpdate}
		if diff := cmp.Diff([]sched.ClusterEvent{
			{Resource: abi.EventNamed, Object: quotas, ActionType: abi.ActionAdd | abi.ActionUpdate},
			{Resource: abi.EventPersistentVolumeClaim, ActionType: abi.ActionAdd},
		}, p.EventsToRegister(t)); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		claimed := sched.ClusterEvent{Resource: abi.EventPersistentVolumeClaim, ActionType: abi.ActionAdd}
		claim := func(pod string) string {
			return `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: default, labels: {for: ` + pod + `}}}`
		}
		for _, test := range []struct {
			event              sched.ClusterEvent
			pod, before, after string
			want               sched.QueueingHint
		}{
			{changed, member, shut, opened, sched.Queue},
			{changed, member, opened, shut, sched.QueueSkip},
			{changed, other, shut, opened, sched.QueueSkip},
			{claimed, member, "", claim("web"), sched.Queue},
			{claimed, member, "", claim("api"), sched.QueueSkip},
		} {
			if got, err := p.QueueingHint(t, test.event, test.pod, test.before, test.after); got != test.want || err != nil {
				t.Errorf("%s: the hint is %d, %v; want %d", test.pod, got, err, test.want)
			}
		}
	})
}

func TestSiblingsAreActivated(t *testing.T) {
	schedtest.Each(t, plugin{}, func(t *testing.T, p *schedtest.Plugin) {
		p = p.In(t, kind+"---\n"+opened)
		if status, _ := p.Begin(t, member).Permit(t, "n1"); !status.IsSuccess() {
			t.Error(status)
		}
		if diff := cmp.Diff([]sched.PodName{{Namespace: "default", Name: "a"}, {Namespace: "default", Name: "b"}}, p.Activated()); diff != "" {
			t.Errorf("activated (-want +got):\n%s", diff)
		}
	})
}

// TestPodsAreListedBesideTheirOlderVersion holds that the Pod of a call stays as it is when the plugin
// lists the Pods, of which one is a newer version of it.
func TestPodsAreListedBesideTheirOlderVersion(t *testing.T) {
	const pod = `{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: default, uid: web, annotations: {beside: %s}}}`
	schedtest.Each(t, plugin{}, func(t *testing.T, p *schedtest.Plugin) {
		p = p.In(t, kind+"---\n"+fmt.Sprintf(pod, "newer"))
		for range 2 {
			if got, want := p.Begin(t, fmt.Sprintf(pod, "older")).Status.String(), "Unschedulable: newer, older"; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
	})
}

// sorting is a plugin that uses the shared state where a host has none.
type sorting struct{ plugin }

func (sorting) Less(a, _ sched.QueuedPodInfo) bool {
	_, ok := state.Get(a.Pod.Metadata().Name())
	return ok
}

// TestFunctionsWithoutState holds that a native test does not pass where a host ends the call.
func TestFunctionsWithoutState(t *testing.T) {
	schedtest.Each(t, sorting{}, func(t *testing.T, p *schedtest.Plugin) {
		if !strings.HasSuffix(t.Name(), "/native") {
			t.Skip("the guest does not sort")
		}
		defer func() {
			if got, want := recover(), "this function has no state that all instances share"; got != want {
				t.Errorf("got %v, want %s", got, want)
			}
		}()
		p.Less(t, member, other)
	})
}
