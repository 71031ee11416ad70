package conformance_test

import (
	"encoding/json"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/abi/codes"
)

// Suite has the cases of all guests. Its members, and those of the other types, are the
// members of cases.yaml.
type Suite struct {
	Scheduler []SchedulerCase `json:"scheduler"`
	Queue     []QueueCase     `json:"queue"`
	Cycle     []CycleCase     `json:"cycle"`
	Group     []GroupCase     `json:"group"`
	Admission []AdmissionCase `json:"admission"`
	// Conversions are those of the admission guest.
	Conversions []ConversionCase `json:"conversions"`
	Lookup      Lookups          `json:"lookup"`
	Hook        []HookCase       `json:"hook"`
	Service     ServiceCases     `json:"service"`
}

// ServiceCases are calls of the guest service.
type ServiceCases struct {
	// Rates are the responses of the host's method Rate, by the currency. For any other
	// currency, and for one with a code, it returns the error "no rate of C".
	Rates map[string]struct {
		Rate int64      `json:"rate"`
		Code codes.Code `json:"code"`
		// Pad is the length of the field pad.
		Pad int `json:"pad"`
	} `json:"rates"`
	Cases []ServiceCase `json:"cases"`
}

// ServiceCase is a call of a method of Quotes.
type ServiceCase struct {
	Name   string `json:"name"`
	Method string `json:"method"`
	// Request and Want are messages in the JSON of protobuf. Pad is the length of the
	// annotation "pad" of the ConfigMap in Request.
	Request json.RawMessage `json:"request"`
	Pad     int             `json:"pad,omitempty"`
	Want    json.RawMessage `json:"want,omitempty"`
	// Error is the reason of the error that is wanted instead, and Code its code, that of an error
	// without one if it is 0. Traps is set for a trap.
	Error string     `json:"error,omitempty"`
	Code  codes.Code `json:"code,omitempty"`
	Traps bool       `json:"traps,omitempty"`
}

// SchedulerCase is calls of one plugin, the Pod's cycle begun anew by each
// PreFilter.
type SchedulerCase struct {
	Name string `json:"name"`
	// Config is the configuration, byte for byte.
	Config string `json:"config"`
	// Refused is set if configure must fail, with the reason Reason unless that is
	// empty.
	Refused bool   `json:"refused,omitempty"`
	Reason  string `json:"reason,omitempty"`
	// Logged is the attribute label of the line that configure logs.
	Logged string          `json:"logged,omitempty"`
	Steps  []SchedulerStep `json:"steps"`
}

// SchedulerStep is one call; one of its fields is set.
type SchedulerStep struct {
	PreFilter      *PreFilterStep      `json:"prefilter,omitempty"`
	Filter         *NodeStep           `json:"filter,omitempty"`
	Score          *NodeStep           `json:"score,omitempty"`
	NormalizeScore *NormalizeScoreStep `json:"normalizescore,omitempty"`
}

// Object is a Pod or a Node. In the cases of the guests queue, cycle and group a
// Pod is in the namespace "default" and has the UID "uid-" with its name.
type Object struct {
	Name string `json:"name"`
	// Namespace is that of a Pod, "default" if it is empty.
	Namespace string `json:"namespace,omitempty"`
	// Terminating is set if it has a deletionTimestamp.
	Terminating bool              `json:"terminating,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	// Annotations are those beside "pad".
	Annotations map[string]string `json:"annotations,omitempty"`
	// Pad is the length of the annotation "pad".
	Pad int `json:"pad,omitempty"`
	// Taints are the keys of the taints of a Node, whose effect is NoSchedule.
	Taints []string `json:"taints,omitempty"`
}

// Status is what a scheduler function must return: the name of a code.
type Status struct {
	Code   string `json:"code"`
	Reason string `json:"reason,omitempty"`
}

// PreFilterStep begins the cycle of a Pod.
type PreFilterStep struct {
	Pod  Object `json:"pod"`
	Want Status `json:"want"`
	// Nodes are those that the cycle must be narrowed down to; none means all.
	Nodes []string `json:"nodes,omitempty"`
}

// NodeStep asks about a Node, Repeat times the same, 1 if it is 0.
type NodeStep struct {
	Node   Object `json:"node"`
	Want   Status `json:"want,omitempty"`
	Score  int64  `json:"score,omitempty"`
	Repeat int    `json:"repeat,omitempty"`
	// Traps is set if the call must trap.
	Traps bool `json:"traps,omitempty"`
}

// NormalizeScoreStep hands over scores, by the names of nodes, in order.
type NormalizeScoreStep struct {
	Scores []Score `json:"scores"`
	// More adds so many nodes with the score 0, whose names are long.
	More int     `json:"more,omitempty"`
	Want []Score `json:"want"`
}

// Score is the score of a node.
type Score struct {
	Name  string `json:"name"`
	Score int64  `json:"score"`
}

// QueueCase is a question about Pods that wait to be scheduled; one of its fields
// beside the name is set.
type QueueCase struct {
	Name       string          `json:"name"`
	PreEnqueue *PreEnqueueStep `json:"preenqueue,omitempty"`
	QueueSort  *QueueSortStep  `json:"queuesort,omitempty"`
	Events     []ClusterEvent  `json:"eventstoregister,omitempty"`
	Hint       *HintStep       `json:"queueinghint,omitempty"`
	PreHint    *PreHintStep    `json:"prequeueinghint,omitempty"`
	Sign       *SignStep       `json:"signpod,omitempty"`
}

// PreEnqueueStep asks whether a Pod may enter the queue.
type PreEnqueueStep struct {
	Pod  Object `json:"pod"`
	Want Status `json:"want"`
}

// QueueSortStep sorts Pods. Want is their names in the order that there must be,
// however they were in the queue.
type QueueSortStep struct {
	Pods []QueuedPod `json:"pods"`
	Want []string    `json:"want"`
}

// QueuedPod is a Pod with the second since 1970 in which it came, that in which it was first to be
// tried, 0 if it was not yet, and how many times it was tried.
type QueuedPod struct {
	Object
	Second   int64 `json:"second"`
	First    int64 `json:"first,omitempty"`
	Attempts int   `json:"attempts,omitempty"`
}

// ClusterEvent is an event that must be registered: the name of the resource, the
// bits of the action and whether there is a hint.
type ClusterEvent struct {
	Resource string `json:"resource"`
	Action   uint32 `json:"action"`
	Hint     bool   `json:"hint,omitempty"`
	// PreHint is set if there is a hint for all Pods.
	PreHint bool `json:"preHint,omitempty"`
}

// HintStep asks for a hint. Old and New are the object of the event, nil if there
// is none.
type HintStep struct {
	// Event counts the events that were registered, from 0.
	Event int     `json:"event"`
	Pod   Object  `json:"pod"`
	Old   *Object `json:"old,omitempty"`
	New   *Object `json:"new,omitempty"`
	// Queue is set if the Pod must be queued again. After an Error it is as well.
	Queue bool   `json:"queue,omitempty"`
	Error string `json:"error,omitempty"`
}

// PreHintStep asks for a hint for all Pods. Old and New are the object of the event, nil if
// there is none.
type PreHintStep struct {
	// Event counts the events that were registered, from 0.
	Event int     `json:"event"`
	Old   *Object `json:"old,omitempty"`
	New   *Object `json:"new,omitempty"`
	// Pods are namespaces and names, with a slash between them. All is set if the event may
	// matter to all Pods, as it must be after an Error.
	Pods  []string `json:"pods,omitempty"`
	All   bool     `json:"all,omitempty"`
	Error string   `json:"error,omitempty"`
}

// SignStep asks for the signature of a Pod.
type SignStep struct {
	Pod       Object     `json:"pod"`
	Want      Status     `json:"want"`
	Fragments []Fragment `json:"fragments,omitempty"`
}

// Fragment is a part of a signature, whose value is JSON.
type Fragment struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// CycleCase is calls of one plugin for one Pod.
type CycleCase struct {
	Name string `json:"name"`
	Pod  Object `json:"pod"`
	// Nodes are those of the scheduler's snapshot.
	Nodes []Node `json:"nodes,omitempty"`
	// Waiting are the Pods that wait in Permit.
	Waiting []WaitingPod `json:"waiting,omitempty"`
	// Claims are the PersistentVolumeClaims that there are.
	Claims []Claim     `json:"claims,omitempty"`
	Steps  []CycleStep `json:"steps"`
}

// Node is what a scheduler knows about a node.
type Node struct {
	Object
	Pods []Object `json:"pods,omitempty"`
	// Requested and Allocatable are thousandths of a CPU.
	Requested   int64 `json:"requested,omitempty"`
	Allocatable int64 `json:"allocatable,omitempty"`
	// Images are the sizes of the images that the node has, in bytes.
	Images map[string]int64 `json:"images,omitempty"`
}

// WaitingPod is a Pod that waits for plugins.
type WaitingPod struct {
	Object
	PendingPlugins []string `json:"pendingPlugins"`
	// Want is what must have become of it in the end: "allowed", "rejected: " and the
	// reason, or nothing.
	Want string `json:"want,omitempty"`
}

// Claim is a PersistentVolumeClaim.
type Claim struct {
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
	VolumeName string `json:"volumeName,omitempty"`
}

// CycleStep is a call, or a change of the scheduler's snapshot.
type CycleStep struct {
	// Call is the name of the function.
	Call string `json:"call,omitempty"`
	// Change replaces the node of its name for later calls.
	Change *Node `json:"change,omitempty"`
	// Trial is the cycle in which it is called: 0 is the Pod's own, any other number
	// a copy of it that was made when that number was first used. What is added and
	// removed in one of them must not be seen in another.
	Trial int `json:"trial,omitempty"`
	// Node is the name of the node that the call is about, or of the node that was
	// chosen.
	Node string `json:"node,omitempty"`
	// Other is the Pod that is added or removed.
	Other *Object `json:"other,omitempty"`
	// Nodes are those that prescore is about.
	Nodes []string `json:"nodes,omitempty"`
	// Statuses are those of nodes, for postfilter.
	Statuses []NodeStatus `json:"statuses,omitempty"`

	Want Status `json:"want,omitempty"`
	// Score is what score must return.
	Score int64 `json:"score,omitempty"`
	// Nominated is the node that postfilter must nominate, empty to take a nomination
	// away, nil to leave it as it is.
	Nominated *string `json:"nominated,omitempty"`
	// Milliseconds is how long the Pod must wait.
	Milliseconds int64 `json:"milliseconds,omitempty"`
	// Parallel is set if prebind may run in parallel with that of other plugins.
	Parallel bool `json:"parallel,omitempty"`
	// Events must be reported about the Pod: the type, the reason, the action, a
	// colon and the note.
	Events []string `json:"events,omitempty"`
}

// NodeStatus is why a Pod does not fit on a node.
type NodeStatus struct {
	Node   string `json:"node"`
	Status Status `json:"status"`
}

// GroupCase is a question about a group of Pods; one of the last five fields is
// set.
type GroupCase struct {
	Name string `json:"name"`
	// Pods are those of the group "gang" of the type podgroup in the namespace
	// "default".
	Pods []Object `json:"pods,omitempty"`
	// Nodes are those of the scheduler's snapshot, and of the parent placement.
	Nodes []Node `json:"nodes,omitempty"`

	PostFilter     *GroupPostFilterStep `json:"podgrouppostfilter,omitempty"`
	Generate       *GenerateStep        `json:"generateplacements,omitempty"`
	Score          *ScorePlacementStep  `json:"scoreplacement,omitempty"`
	NormalizeScore *NormalizeScoreStep  `json:"normalizeplacementscore,omitempty"`
	Victims        *VictimsStep         `json:"potentialvictims,omitempty"`
}

// VictimsStep asks for the Pods of the only node that may be evicted for a Pod.
type VictimsStep struct {
	Pod Object `json:"pod"`
	// Nominated are the Pods that are nominated for the node.
	Nominated []Object `json:"nominated,omitempty"`
	// Victims are the names of the Pods that it must name, none with another code than Success.
	Victims []string `json:"victims,omitempty"`
	Want    Status   `json:"want"`
}

// GroupPostFilterStep asks what is to be done about a group that does not fit.
type GroupPostFilterStep struct {
	// Trial is what a trial answers, nil if there must be none.
	Trial       *Trial       `json:"trial,omitempty"`
	Want        Status       `json:"want"`
	Nominations []Assignment `json:"nominations,omitempty"`
}

// Trial is the outcome of scheduling the group without some Pods.
type Trial struct {
	// Without are the names of the Pods that must be gone from their nodes.
	Without     []string     `json:"without"`
	Status      Status       `json:"status"`
	Assignments []Assignment `json:"assignments,omitempty"`
}

// Assignment is a Pod of the namespace "default" with its node.
type Assignment struct {
	Pod  string `json:"pod"`
	Node string `json:"node"`
}

// GenerateStep asks for placements, each with the names of its nodes.
type GenerateStep struct {
	Want       Status      `json:"want"`
	Placements []Placement `json:"placements,omitempty"`
}

// Placement is a set of nodes by their names.
type Placement struct {
	Name  string   `json:"name"`
	Nodes []string `json:"nodes"`
}

// ScorePlacementStep asks about a placement and the nodes that its Pods would have.
type ScorePlacementStep struct {
	Placement
	Assignments []Assignment `json:"assignments,omitempty"`
	Want        Status       `json:"want"`
	Score       int64        `json:"score,omitempty"`
}

// AdmissionCase is a request.
type AdmissionCase struct {
	Name string `json:"name"`
	// Operation is CREATE unless it says otherwise. Object is the name of the
	// request and of the object.
	Operation string `json:"operation,omitempty"`
	Object    Object `json:"object"`
	// Old is the object before an UPDATE. Options are JSON, if there are any.
	Old     *Object `json:"old,omitempty"`
	Options string  `json:"options,omitempty"`
	// Mutate is set if mutate is to be called, and not validate. Changed is the object
	// afterwards, in JSON, empty if it must be unchanged.
	Mutate  bool   `json:"mutate,omitempty"`
	Changed string `json:"changed,omitempty"`
	// Want is "allow", "deny" or "fail"; for a denial Code, Message and
	// FieldErrors.
	Want        string            `json:"want"`
	Code        int32             `json:"code,omitempty"`
	Message     string            `json:"message,omitempty"`
	Warnings    []string          `json:"warnings,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// ConversionCase is a conversion of the Widget w of example.com/v1alpha1, whose spec is
// {"size":1}.
type ConversionCase struct {
	Name string `json:"name"`
	// Desired is the apiVersion to convert to.
	Desired string `json:"desired"`
	// Want is the object that comes of it; empty if it fails, with Message in the error.
	Want    string `json:"want,omitempty"`
	Message string `json:"message,omitempty"`
}

// Lookups are cases of the admission guest in which it looks objects up. It is granted
// v1/configmaps.
type Lookups struct {
	// ConfigMaps are all that there are.
	ConfigMaps []ConfigMap     `json:"configMaps"`
	Cases      []AdmissionCase `json:"cases"`
}

// ConfigMap is an object that is looked up.
type ConfigMap struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Tier is the label tier, none if it is empty, Pad the length of the annotation "pad".
	Tier string `json:"tier,omitempty"`
	Pad  int    `json:"pad,omitempty"`
}

// HookCase is a request about a container of a pod.
type HookCase struct {
	Name string `json:"name"`
	Pod  Object `json:"pod"`
	// Node are the annotations of the node, none if it is not known.
	Node map[string]string `json:"node,omitempty"`
	// Object is the Node that a guest with the import get_object looks up, nil if there is none.
	Object *Object `json:"object,omitempty"`
	// CPUShares and CFSQuota must be decided, nil for not.
	CPUShares *int64 `json:"cpuShares,omitempty"`
	CFSQuota  *int64 `json:"cfsQuota,omitempty"`
	// Error is the reason with which the hook fails, if it must.
	Error string `json:"error,omitempty"`
}

func readCases(t *testing.T, text []byte) *Suite {
	t.Helper()
	s := &Suite{}
	if err := yaml.UnmarshalStrict(text, s); err != nil {
		t.Fatal(err)
	}
	return s
}
