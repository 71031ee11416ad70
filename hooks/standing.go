package hooks

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/cut"
)

// Subject is a QoS class, a pod or a container that plugins were asked about, with their
// standing decisions.
type Subject struct {
	Level    abi.Level
	QOSClass abi.QOSClass
	Pod      hookmsg.PodMeta
	// Container is the zero value for a class and a pod. Its ID is empty until the runtime assigns
	// one.
	Container hookmsg.ContainerMeta
	// Settings holds decisions by field and key. More counts further ones.
	Settings []Setting
	More     int
	// Failures are the failures of plugins that have not decided since.
	Failures []Failure
}

// Setting is a field, or an entry of one, decided by a plugin.
type Setting struct {
	Field hookmsg.Fields
	// Key is the key of an entry: a file of FieldUnified, the name of a variable, an annotation or
	// a device, the destination of a mount.
	Key string
	// Plugin is the plugin that decided it first.
	Plugin string
	// Value is the decided value. Only fields of resources have one: values of variables,
	// annotations, mounts and devices are not kept.
	Value string
	// Withheld is set if a confidential value was masked in Key or Value.
	Withheld bool
	// Since is the time since which the plugin has decided this value without a break, as far as
	// this process knows.
	Since time.Time

	// number, text and key hold the decision.
	number    int64
	text, key string
	seen      bool
}

// Sets reports whether the setting is that of a field and, if the field has entries, of the key.
func (s *Setting) Sets(field hookmsg.Fields, key string) bool {
	return s.Field == field && s.key == key
}

// Failure is the reason that a plugin has not decided.
type Failure struct {
	Plugin string
	Policy host.FailurePolicy
	// Refused is set if the request failed because of it.
	Refused bool
	Stage   abi.Stage
	// Cause is one of [CauseOf], and Message the error without confidential values.
	Cause, Message string
	// Since and Last are the first and the last of Count failures without a decision in between.
	Since, Last time.Time
	Count       int
}

const (
	// maxSubjects bounds the subjects with known decisions, and maxSettings the settings of one. A
	// node has a few hundred pods.
	maxSubjects = 16 << 10
	maxSettings = 64
	// maxName and maxText bound texts of a setting, and maxFailure that of a failure, in bytes.
	maxName, maxText = 256, 1 << 10
	maxFailure       = 1 << 10
)

// standing holds the standing decisions of an engine. The zero value is empty.
type standing struct {
	mu sync.Mutex
	// pods maps UIDs, "" for the QoS classes, to subjects by the name of the container, "" for the
	// pod.
	pods map[string]map[string]*Subject
	n    int
}

// at returns the subject of a request, nil if it has no name or there is no room for another. s.mu
// must be held.
func (s *standing) at(req *hookmsg.Request) *Subject {
	pod, name, ok := subject(req)
	if !ok {
		return nil
	}
	of := s.pods[pod][name]
	if of == nil {
		if s.n >= maxSubjects {
			return nil
		}
		if s.pods == nil {
			s.pods = map[string]map[string]*Subject{}
		}
		if s.pods[pod] == nil {
			s.pods[pod] = map[string]*Subject{}
		}
		of = &Subject{Level: req.Level, QOSClass: req.QOSClass, Pod: req.Pod}
		s.pods[pod][name] = of
		s.n++
	}
	if req.QOSClass != 0 {
		of.QOSClass = req.QOSClass
	}
	if req.Container.ID != "" || req.Stage == abi.PreCreateContainer {
		of.Container.ID = req.Container.ID
	}
	of.Container.Name = req.Container.Name
	return of
}

// forget drops a pod, or one container of it, but not a replacement of that container.
func (s *standing) forget(pod, name, container string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name == "" {
		s.n -= len(s.pods[pod])
		delete(s.pods, pod)
		return
	}
	if of := s.pods[pod][name]; of != nil && (container == "" || of.Container.ID == container) {
		s.n--
		if delete(s.pods[pod], name); len(s.pods[pod]) == 0 {
			delete(s.pods, pod)
		}
	}
}

// decided records the decisions on a request. failed are the plugins whose failure was ignored.
//
// 0 allocs except for new texts: TestDecideAllocations.
func (e *Engine) decided(req *hookmsg.Request, parts []part, failed []string) {
	if ends.has(req.Stage) {
		return
	}
	s := &e.standing
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.at(req)
	if of == nil {
		return
	}
	// Only a creation decides more than resources, and it resets the settings.
	created := req.Level == abi.LevelContainer && req.Stage == abi.PreCreateContainer
	whole := created || req.Stage == abi.Reconcile || req.Level != abi.LevelContainer
	for i := range of.Settings {
		of.Settings[i].seen = false
	}
	of.More = 0
	for _, p := range parts {
		e.settings(of, req, p, created)
	}
	if whole {
		of.Settings = slices.DeleteFunc(of.Settings, func(v Setting) bool {
			return !v.seen && (created || v.Field.OfResources() != 0)
		})
	}
	if len(of.Failures) != 0 {
		of.Failures = slices.DeleteFunc(of.Failures, func(f Failure) bool {
			i := slices.IndexFunc(e.plugins, func(p *plugin) bool { return p.Name() == f.Plugin })
			return e.plugins[i].wants(req) && !slices.Contains(failed, f.Plugin)
		})
	}
}

// settings records the fields decided by one plugin.
func (e *Engine) settings(of *Subject, req *hookmsg.Request, p part, created bool) {
	set := func(field hookmsg.Fields, key string, number int64, text string) {
		key, text = cut.Text(key, maxName), cut.Text(text, maxText)
		i := slices.IndexFunc(of.Settings, func(v Setting) bool { return v.Field == field && v.key == key })
		switch {
		case i >= 0 && of.Settings[i].seen: // An earlier plugin decides the same.
			return
		case i >= 0 && of.Settings[i].Plugin == p.plugin && of.Settings[i].number == number && of.Settings[i].text == text:
			of.Settings[i].seen = true
			return
		case i < 0 && len(of.Settings) >= maxSettings:
			of.More++
			return
		case i < 0:
			of.Settings = append(of.Settings, Setting{})
			i = len(of.Settings) - 1
		}
		v := Setting{Field: field, Key: key, Plugin: p.plugin, Value: text, Since: time.Now(), number: number, text: text, key: key, seen: true}
		if field.Numbers() == 0 && field&(hookmsg.FieldCPUSetCPUs|hookmsg.FieldCPUSetMems) == 0 { // The other fields are numbers.
			v.Key, v.Value = e.quiet(p.plugin, req, key), e.quiet(p.plugin, req, text)
			v.Withheld = v.Key != key || v.Value != text
		}
		of.Settings[i] = v
	}
	fields := p.decision.Fields()
	for f := range fields.Numbers().All() {
		set(f, "", **p.decision.Resources.Number(f), "")
	}
	for f := range fields.Texts().All() {
		set(f, "", 0, **p.decision.Resources.Text(f))
	}
	if fields&keyed == 0 {
		return
	}
	keysOf(p.decision, func(field hookmsg.Fields, key string) {
		switch {
		case field == hookmsg.FieldUnified:
			set(field, key, 0, p.decision.Resources.Unified[key])
		case created:
			set(field, key, 0, "")
		}
	})
}

// quiet masks the confidential values of a request in a text.
func (e *Engine) quiet(name string, req *hookmsg.Request, text string) string {
	i := slices.IndexFunc(e.plugins, func(p *plugin) bool { return p.Name() == name })
	return stainOf(&e.plugins[i].cfg.Confidential, req.Append(nil)).Text(text)
}

// note records a failure of a plugin, whose error contains no confidential value.
func (s *standing) note(req *hookmsg.Request, plugin string, policy host.FailurePolicy, refused bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.at(req)
	if of == nil {
		return
	}
	i := slices.IndexFunc(of.Failures, func(f Failure) bool { return f.Plugin == plugin })
	if i < 0 {
		of.Failures = append(of.Failures, Failure{Plugin: plugin, Since: time.Now()})
		i = len(of.Failures) - 1
	}
	f := &of.Failures[i]
	*f = Failure{
		Plugin: plugin, Policy: policy, Refused: refused, Stage: req.Stage, Cause: CauseOf(err), Message: cut.Marked(err.Error(), maxFailure),
		Since: f.Since, Last: time.Now(), Count: f.Count + 1,
	}
}

// Subjects returns the standing decisions of plugins on QoS classes, pods and containers that have
// not ended. It returns those for which match returns true, sorted by namespace, name and UID, a
// pod before its containers. Decisions of a dry run are not included.
//
// The result contains no confidential value, as far as the Confidential rules of the plugins name
// it.
func (e *Engine) Subjects(match func(pod hookmsg.PodMeta) bool) (subjects []Subject) {
	e.standing.mu.Lock()
	for _, pod := range e.standing.pods {
		for _, of := range pod {
			if match(of.Pod) {
				found := *of
				found.Settings, found.Failures = slices.Clone(of.Settings), slices.Clone(of.Failures)
				subjects = append(subjects, found)
			}
		}
	}
	e.standing.mu.Unlock()
	for i := range subjects {
		for j := range subjects[i].Settings {
			if v := &subjects[i].Settings[j]; v.Field.Numbers() != 0 {
				v.Value = strconv.FormatInt(v.number, 10)
			}
		}
		slices.SortFunc(subjects[i].Settings, func(a, b Setting) int {
			return cmp.Or(cmp.Compare(a.Field, b.Field), strings.Compare(a.key, b.key))
		})
	}
	slices.SortFunc(subjects, func(a, b Subject) int {
		return cmp.Or(
			strings.Compare(a.Pod.Namespace, b.Pod.Namespace), strings.Compare(a.Pod.Name, b.Pod.Name), strings.Compare(a.Pod.UID, b.Pod.UID),
			cmp.Compare(a.QOSClass, b.QOSClass), cmp.Compare(a.Level, b.Level), strings.Compare(a.Container.Name, b.Container.Name),
		)
	})
	return subjects
}

// Resources returns the resources among the settings, nil if there are none. Texts may be cut.
func (s *Subject) Resources() *hookmsg.Resources {
	r := new(hookmsg.Resources)
	for i := range s.Settings {
		v := &s.Settings[i]
		switch {
		case v.Field.Numbers() != 0:
			*r.Number(v.Field) = &v.number
		case v.Field.Texts() != 0:
			*r.Text(v.Field) = &v.text
		case v.Field == hookmsg.FieldUnified:
			if r.Unified == nil {
				r.Unified = map[string]string{}
			}
			r.Unified[v.key] = v.text
		}
	}
	return r.Select(hookmsg.AllFields)
}
