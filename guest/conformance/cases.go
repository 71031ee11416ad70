//go:build !wasip1

package conformance

import (
	_ "embed"

	"sigs.k8s.io/yaml"
)

//go:embed cases.yaml
var cases []byte

// Suite is the calls of all cases.
type Suite struct {
	Scheduler []SchedulerCase `json:"scheduler"`
	Admission []AdmissionCase `json:"admission"`
	Hook      []HookCase      `json:"hook"`
}

// SchedulerCase is calls of one plugin, the Pod's cycle begun anew by each
// PreFilter.
type SchedulerCase struct {
	Name string `json:"name"`
	// Config is the configuration, byte for byte.
	Config string `json:"config"`
	// Refused says that configure must fail, with the reason Reason unless that is
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

// Object is a Pod or a Node.
type Object struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
	// Pad is the length of the annotation "pad".
	Pad int `json:"pad,omitempty"`
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
	// Traps says that the call must not return.
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

// AdmissionCase is a request.
type AdmissionCase struct {
	Name string `json:"name"`
	// Operation is CREATE unless it says otherwise. Object is the name of the
	// request and of the object.
	Operation string `json:"operation,omitempty"`
	Object    Object `json:"object"`
	// Mutate says that mutate is to be called and not validate. If Changed is set,
	// the object must be that afterwards, in JSON, and as before otherwise.
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

// HookCase is a request about a container of a pod.
type HookCase struct {
	Name string `json:"name"`
	Pod  Object `json:"pod"`
	// CPUShares and CFSQuota must be decided, nil for not.
	CPUShares *int64 `json:"cpuShares,omitempty"`
	CFSQuota  *int64 `json:"cfsQuota,omitempty"`
	// Error is the reason with which the hook fails, if it must.
	Error string `json:"error,omitempty"`
}

// Cases returns the calls to make.
func Cases() *Suite {
	s := &Suite{}
	if err := yaml.UnmarshalStrict(cases, s); err != nil {
		panic(err) // The file is part of the program.
	}
	return s
}
