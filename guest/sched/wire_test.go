package sched

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/internal/wire"
)

// message makes a message of fields of type Bytes: number, content.
func message(pairs ...any) (b []byte) {
	for ; len(pairs) > 0; pairs = pairs[2:] {
		switch v := pairs[1].(type) {
		case string:
			b = wire.AppendBytes(b, uint32(pairs[0].(int)), v)
		case []byte:
			b = wire.AppendBytes(b, uint32(pairs[0].(int)), v)
		case int:
			b = wire.AppendVarint(b, uint32(pairs[0].(int)), uint64(v))
		}
	}
	return b
}

func TestReadWhatTheHostTells(t *testing.T) {
	statuses := readStatuses(message(1, message(1, "n1", 2, 2, 3, "full"), 9, "later", 1, message(1, "n2", 2, 3)))
	var texts []string
	for _, s := range statuses.All() {
		texts = append(texts, s.NodeName+" "+s.Status.String())
	}
	if diff := cmp.Diff([]string{"n1 Unschedulable: full", "n2 UnschedulableAndUnresolvable"}, texts); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
	if got := statuses.Get("n1").String(); got != "Unschedulable: full" {
		t.Errorf("got %s", got)
	}
	if got := statuses.Get("n9").Code(); got != abi.UnschedulableAndUnresolvable {
		t.Errorf("a node that was not looked at is %s", got)
	}
	group := readPodGroup(message(1, "podgroup", 2, "shop", 3, "gang", 4, 3))
	if group.Type != "podgroup" || group.Namespace != "shop" || group.Name != "gang" || group.NumUnscheduledPods() != 3 {
		t.Errorf("got %+v", group)
	}
	placement := readPlacement(message(1, "rack", 2, "n1", 2, "n2", 3, message(1, "shop", 2, "web", 3, "n2")))
	want := Placement{Name: "rack", NodeNames: []string{"n1", "n2"}, Assignments: []Nomination{{"shop", "web", "n2"}}}
	if diff := cmp.Diff(want, placement); diff != "" {
		t.Errorf("placement (-want +got):\n%s", diff)
	}
}

func TestReadTrial(t *testing.T) {
	got, status := readTrial(message(1, 2, 2, "full", 3, message(1, "shop", 2, "web", 3, "n2"), 9, "later"))
	if diff := cmp.Diff([]Nomination{{"shop", "web", "n2"}}, got); diff != "" || status.String() != "Unschedulable: full" {
		t.Errorf("status %s, assignments (-want +got):\n%s", status, diff)
	}
	if got, status := readTrial([]byte{}); got != nil || status != nil {
		t.Errorf("an empty answer is %v, %s", got, status)
	}
	// Natively there is no scheduler.
	if _, status := TryPodGroup("uid"); status.Code() != abi.Unschedulable {
		t.Errorf("got %s", status)
	}
}

func TestWriteWhatTheHostTakes(t *testing.T) {
	if diff := cmp.Diff(message(1, message(1, "rack", 2, "n1")), appendPlacements(nil, []Placement{{Name: "rack", NodeNames: []string{"n1"}}})); diff != "" {
		t.Errorf("placements (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(message(1, message(1, "shop", 2, "web", 3, "n1")), appendNominations(nil, []Nomination{{"shop", "web", "n1"}})); diff != "" {
		t.Errorf("nominations (-want +got):\n%s", diff)
	}
	got := appendEvents(nil, []ClusterEventWithHint{
		{Event: ClusterEvent{Resource: abi.EventNode, ActionType: abi.ActionAdd | abi.ActionUpdateNodeLabel}},
		{Event: ClusterEvent{Resource: abi.EventAssignedPod, ActionType: abi.ActionDelete}, QueueingHintFn: func(core.Pod, EventObject, EventObject) (QueueingHint, error) { return Queue, nil }},
	})
	if diff := cmp.Diff([]byte{4, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0x80}, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestWritePodsOfAnEvent(t *testing.T) {
	got := appendEvents(nil, []ClusterEventWithHint{
		{Event: ClusterEvent{Resource: abi.EventPod, ActionType: abi.ActionAdd}, PreQueueingHintFn: func(EventObject, EventObject) (PreQueueingHintResult, error) { return PreQueueingHintResult{}, nil }},
	})
	if diff := cmp.Diff([]byte{0, 0, 0, 0, 1, 0, 0, 0x40}, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if got, want := string(appendPodNames(nil, []PodName{{"shop", "web"}, {"", "x"}})), "shop\x00web\x00\x00x\x00"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// enqueues counts how often it is asked.
type enqueues struct{ asked *int }

func (e enqueues) EventsToRegister() ([]ClusterEventWithHint, error) {
	if *e.asked++; *e.asked == 1 {
		return nil, errors.New("not yet")
	}
	return nil, nil
}

func TestEventsAreAskedForUntilThereAreSome(t *testing.T) {
	asked := 0
	registered.enqueue = enqueues{&asked}
	t.Cleanup(func() { registered.enqueue, events = nil, nil })
	if _, err := registeredEvents(); err == nil {
		t.Error("no error")
	}
	for range 3 {
		if _, err := registeredEvents(); err != nil {
			t.Error(err)
		}
	}
	if asked != 2 {
		t.Errorf("asked %d times, want 2", asked)
	}
}

func TestNativeNodeInfo(t *testing.T) {
	n := NewNodeInfo(core.Node{}).With(NodeUsage{Requested: Resource{MilliCPU: 500, ScalarResources: []ScalarResource{{"example.com/gpu", 2}}}}, []ImageState{{Name: "web"}}, []core.Pod{{}, {}})
	if n.Usage().Requested.MilliCPU != 500 || n.Usage().Requested.Scalar("example.com/gpu") != 2 || n.Usage().Requested.Scalar("none") != 0 ||
		n.NumPods() != 2 || len(n.Pods()) != 2 || n.ImageStates()[0].Name != "web" {
		t.Errorf("got %+v", n.d.more)
	}
	var none NodeInfo
	if none.NumPods() != 0 || none.Usage().Requested.MilliCPU != 0 || none.Pods() != nil || none.ImageStates() != nil || none.Node() != (core.Node{}) {
		t.Error("no node has something")
	}
}
