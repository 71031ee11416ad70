package hookstate

import (
	"encoding/json"
	"errors"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/hooks/internal/facts"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/confidential"
	"github.com/kubewasm/kubewasm/internal/cut"
)

// Node holds the decisions on a node and the values in force.
type Node struct {
	// Time is the time at which the state was read, and Since the time at which the agent began to
	// record it.
	Time  time.Time `json:"time"`
	Since time.Time `json:"since"`
	// DryRun is set if nothing is written.
	DryRun     bool       `json:"dryRun,omitempty"`
	QOSClasses []QOSClass `json:"qosClasses,omitempty"`
	Pods       []Pod      `json:"pods"`
	// Omitted is the number of pods left out by the limits of an answer.
	Omitted int `json:"omitted,omitempty"`
}

// QOSClass is the cgroup of a QoS class, which bounds the cgroups of its pods.
type QOSClass struct {
	Name string `json:"name"`
	Subject
}

// Pod is a pod with its containers.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	QOSClass  string `json:"qosClass,omitempty"`
	Subject
	Containers []Container `json:"containers,omitempty"`
}

// Container is a container. ContainerID is the runtime's identifier, empty before it has one.
type Container struct {
	Name        string `json:"name"`
	ContainerID string `json:"containerID,omitempty"`
	Subject
}

// Subject has the fields common to QoS classes, pods and containers.
type Subject struct {
	// Cgroup is the path below the root of the hierarchy, empty if it is unknown.
	Cgroup string `json:"cgroup,omitempty"`
	// Missing is set if the cgroup does not exist.
	Missing bool `json:"missing,omitempty"`
	// StartedUndecided is set if the container at first ran without a decision of the plugins.
	StartedUndecided bool `json:"startedUndecided,omitempty"`
	// Throttling holds the counters of the kernel, nil if it keeps none.
	Throttling *Throttling `json:"throttling,omitempty"`
	// Fields are the fields decided by a plugin or requested by the kubelet. More is the number of
	// fields left out.
	Fields   []Field   `json:"fields,omitempty"`
	More     int       `json:"moreFields,omitempty"`
	Failures []Failure `json:"failures,omitempty"`
}

// Throttling counts how often a cgroup has used up its CPU quota since its creation.
type Throttling struct {
	Periods          int64   `json:"periods"`
	ThrottledPeriods int64   `json:"throttledPeriods"`
	ThrottledSeconds float64 `json:"throttledSeconds"`
}

// Field is a field of a cgroup or a container's configuration, by its name in hook.proto, or an
// entry of one: "unified[io.weight]", "container_envs[GOGC]".
type Field struct {
	Name string `json:"field"`
	// Asked holds the kubelet's value, empty if it is unknown.
	Asked string `json:"asked,omitempty"`
	// Plugin is the plugin that has decided Decided since Since; empty and nil if none has. Decided
	// is empty for values that only the runtime has: variables, annotations, mounts and devices of
	// a container.
	Plugin  string     `json:"plugin,omitempty"`
	Decided string     `json:"decided,omitempty"`
	Since   *time.Time `json:"since,omitempty"`
	// Enforced is set if the agent restores the value after another writer has changed it.
	Enforced bool `json:"enforced,omitempty"`
	// File is the file of the cgroup, and InForce its contents, in the kernel's units and notation.
	File    string `json:"file,omitempty"`
	InForce string `json:"inForce,omitempty"`
	// Differs is set if the file does not have the decided value or, without one, the requested
	// one.
	Differs   bool       `json:"differs,omitempty"`
	Error     string     `json:"error,omitempty"`
	LeftAlone *LeftAlone `json:"leftAlone,omitempty"`
}

// LeftAlone is the reason that a file is not written, and the time until when: see
// [cgroup.LeftAlone].
type LeftAlone struct {
	Reason  string     `json:"reason"`
	Cause   string     `json:"cause,omitempty"`
	Message string     `json:"message,omitempty"`
	Until   *time.Time `json:"until,omitempty"`
}

// Failure is a failure of a plugin that has not decided on the subject since.
type Failure struct {
	Plugin        string             `json:"plugin"`
	FailurePolicy host.FailurePolicy `json:"failurePolicy"`
	// Refused is set if the event of the runtime was refused because of it.
	Refused bool   `json:"refused,omitempty"`
	Stage   string `json:"stage"`
	// Cause is one of [hooks.CauseOf].
	Cause          string    `json:"cause"`
	Message        string    `json:"message"`
	Count          int       `json:"count"`
	FirstTimestamp time.Time `json:"firstTimestamp"`
	LastTimestamp  time.Time `json:"lastTimestamp"`
}

// Config configures a Source. All fields are required.
type Config struct {
	Engine   *hooks.Engine
	State    *cgroup.State
	Enforcer *cgroup.Enforcer
	// Layout locates the cgroups of QoS classes.
	Layout cgroup.Layout
}

// Source reads the state of a node. It is safe for use by several goroutines.
type Source struct {
	cfg   Config
	since time.Time
	// reading limits the answers being built to one at a time.
	reading chan struct{}
}

// New checks the configuration.
func New(cfg Config) (*Source, error) {
	if cfg.Engine == nil || cfg.State == nil || cfg.Enforcer == nil {
		return nil, errors.New("hookstate: configuration: the engine, the state or the enforcer is missing")
	}
	return &Source{cfg: cfg, since: time.Now(), reading: make(chan struct{}, 1)}, nil
}

// Query selects pods and containers. Empty fields select all.
type Query struct{ Namespace, Pod, Container string }

const (
	// maxPods and maxBytes bound an answer: a kubelet runs 110 pods by default.
	maxPods  = 1000
	maxBytes = 8 << 20
)

// Node returns the state selected by a query. It reads only the selected cgroups.
func (s *Source) Node(q Query) Node {
	node := Node{Time: time.Now(), Since: s.since, DryRun: s.cfg.Enforcer.DryRun(), Pods: []Pod{}}
	subjects := s.cfg.Engine.Subjects(func(pod hookmsg.PodMeta) bool {
		return pod == (hookmsg.PodMeta{}) || (q.Namespace == "" || pod.Namespace == q.Namespace) && (q.Pod == "" || pod.Name == q.Pod)
	})
	size := 0
	for len(subjects) != 0 {
		first := &subjects[0]
		n := 1
		for n < len(subjects) && first.Level != abi.LevelQOS && subjects[n].Pod.UID == first.Pod.UID {
			n++
		}
		of := subjects[:n]
		subjects = subjects[n:]
		if first.Level == abi.LevelQOS {
			path := s.cfg.Layout.QOS(first.QOSClass)
			node.QOSClasses = append(node.QOSClasses, QOSClass{first.QOSClass.String(), s.subject(first, path, facts.Facts{})})
			continue
		}
		if len(node.Pods) >= maxPods || size >= maxBytes {
			node.Omitted++
			continue
		}
		pod, ok := s.pod(of, q.Container)
		if !ok {
			continue
		}
		b, _ := json.Marshal(pod)
		if size += len(b); size > maxBytes {
			node.Omitted++
			continue
		}
		node.Pods = append(node.Pods, pod)
	}
	return node
}

// pod returns a pod with the named container, or with all if the name is empty. ok is false if it
// has none.
func (s *Source) pod(subjects []hooks.Subject, container string) (pod Pod, ok bool) {
	meta := subjects[0].Pod
	pod = Pod{Namespace: meta.Namespace, Name: meta.Name, UID: meta.UID}
	known := (*facts.Store)(s.cfg.State.Facts()).Get(facts.Subject{PodUID: meta.UID})
	pod.Cgroup = known.Cgroup
	for i := range subjects {
		of := &subjects[i]
		if of.QOSClass != 0 {
			pod.QOSClass = of.QOSClass.String()
		}
		if of.Level == abi.LevelPod {
			pod.Subject = s.subject(of, known.Cgroup, known)
			continue
		}
		if container != "" && of.Container.Name != container {
			continue
		}
		var known facts.Facts
		if of.Container.ID != "" {
			known = (*facts.Store)(s.cfg.State.Facts()).Get(facts.Subject{PodUID: meta.UID, ContainerID: of.Container.ID})
			if known.Parent == "" && len(of.Failures) == 0 {
				continue // The container has ended without an event.
			}
		}
		pod.Containers = append(pod.Containers, Container{of.Container.Name, of.Container.ID, s.subject(of, known.Cgroup, known)})
	}
	return pod, container == "" || len(pod.Containers) != 0
}

// subject returns the state of a subject with a cgroup; path is empty if the cgroup is unknown.
func (s *Source) subject(of *hooks.Subject, path string, known facts.Facts) Subject {
	subject := Subject{Cgroup: path, StartedUndecided: known.Undecided, More: of.More}
	for i := range of.Failures {
		f := &of.Failures[i]
		subject.Failures = append(subject.Failures, Failure{
			Plugin: cut.Valid(f.Plugin), FailurePolicy: f.Policy, Refused: f.Refused, Stage: f.Stage.String(), Cause: f.Cause, Message: f.Message,
			Count: f.Count, FirstTimestamp: f.Since, LastTimestamp: f.Last,
		})
	}
	desired, _ := s.cfg.State.Get(path)
	decided := of.Resources().Overlay(desired.Resources)
	all := known.Asked.Overlay(decided)
	var found []cgroup.Found
	if applier := s.cfg.Enforcer.Applier(); path != "" {
		if subject.Missing = !applier.Exists(path); !subject.Missing {
			found = s.cfg.Enforcer.Inspect(cgroup.Target{Cgroup: path, Level: of.Level, Resources: all})
		}
		if periods, throttled, waited, ok := applier.Throttling(path); ok {
			subject.Throttling = &Throttling{periods, throttled, waited.Seconds()}
		}
	}
	for field, key := range entries(all) {
		f := Field{Name: name(field, key)}
		f.Asked, _ = value(known.Asked, field, key)
		f.Decided, _ = value(decided, field, key)
		_, f.Enforced = value(desired.Resources, field, key)
		i := slices.IndexFunc(of.Settings, func(v hooks.Setting) bool { return v.Sets(field, key) })
		switch {
		case i >= 0:
			f.decidedAs(&of.Settings[i])
		case field == hookmsg.FieldUnified && f.Decided != "":
			continue // Counted among the settings that are left out.
		}
		for j := range found {
			if v := &found[j]; v.Field&field != 0 && v.Key == key {
				f.found(v)
			}
		}
		if i >= 0 && of.Settings[i].Withheld {
			f.withhold()
		}
		subject.Fields = append(subject.Fields, f)
	}
	for i := range of.Settings {
		if v := &of.Settings[i]; v.Field.OfResources() == 0 {
			f := Field{}
			f.decidedAs(v)
			subject.Fields = append(subject.Fields, f)
		}
	}
	return subject
}

// decidedAs sets the fields of f that come from a plugin's decision. The texts are already cut and
// masked.
func (f *Field) decidedAs(v *hooks.Setting) {
	f.Name, f.Decided, f.Plugin, f.Since = name(v.Field, v.Key), v.Value, cut.Valid(v.Plugin), &v.Since
}

// maxText bounds the contents of a file and of an error, in bytes.
const maxText = 1 << 10

// found sets the fields of f that come from the cgroup's file.
func (f *Field) found(v *cgroup.Found) {
	f.File, f.InForce, f.Differs = v.File, cut.Marked(v.Text, maxText), f.Differs || v.Differs
	if v.Err != nil {
		f.Error = cut.Marked(v.Err.Error(), maxText)
	}
	if l := v.LeftAlone; l != nil {
		f.LeftAlone = &LeftAlone{Reason: l.Reason, Cause: l.Cause, Message: cut.Marked(l.Message, maxText)}
		if !l.Until.IsZero() {
			f.LeftAlone.Until = &l.Until
		}
	}
}

// withhold masks fields that may repeat a confidential decided text.
func (f *Field) withhold() {
	for _, text := range []*string{&f.Asked, &f.File, &f.InForce, &f.Error} {
		if *text != "" {
			*text = confidential.Withheld
		}
	}
	if f.LeftAlone != nil && f.LeftAlone.Message != "" {
		f.LeftAlone.Message = confidential.Withheld
	}
}

// name returns the name of a field, or of an entry of one.
func name(field hookmsg.Fields, key string) string {
	if key == "" {
		return field.String()
	}
	return field.String() + "[" + key + "]"
}

// entries returns the fields of resources, with the keys of those that have entries.
func entries(r *hookmsg.Resources) iter.Seq2[hookmsg.Fields, string] {
	return func(yield func(hookmsg.Fields, string) bool) {
		for field := range (r.Fields() &^ hookmsg.FieldUnified).All() {
			if !yield(field, "") {
				return
			}
		}
		if r == nil {
			return
		}
		for _, key := range slices.Sorted(maps.Keys(r.Unified)) {
			if !yield(hookmsg.FieldUnified, key) {
				return
			}
		}
	}
}

// value returns a field of resources as text; ok is false if it is not set.
func value(r *hookmsg.Resources, field hookmsg.Fields, key string) (text string, ok bool) {
	switch {
	case r.Fields()&field == 0:
		return "", false
	case field.Numbers() != 0:
		return strconv.FormatInt(**r.Number(field), 10), true
	case field.Texts() != 0:
		return cut.Marked(**r.Text(field), maxText), true
	}
	text, ok = r.Unified[key]
	return cut.Marked(text, maxText), ok
}

// ServeHTTP answers a GET with the Node of its parameters namespace, pod and container, or with
// 404 if there is none.
func (s *Source) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case s.reading <- struct{}{}:
		defer func() { <-s.reading }()
	case <-r.Context().Done():
		return
	}
	values := r.URL.Query()
	q := Query{Namespace: values.Get("namespace"), Pod: values.Get("pod"), Container: values.Get("container")}
	node := s.Node(q)
	if q != (Query{}) && len(node.Pods) == 0 && node.Omitted == 0 {
		http.Error(w, "no such pod or container is known on this node", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.Encode(node) // On an error, the client is gone.
}
