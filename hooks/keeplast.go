package hooks

import (
	"sync"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
)

// lastDecisions holds the last good decisions of a plugin with the policy KeepLast.
type lastDecisions struct {
	mu sync.Mutex
	// pods maps UIDs, "" for the QoS classes, to decisions by the name of the container, "" for the
	// pod itself.
	pods map[string]map[string]lastDecision
}

// lastDecision is the last decision on a container or another named subject.
type lastDecision struct {
	decision *hookmsg.Decision
	// container is the identifier of the container, empty if it had none at that time. A
	// replacement of a container has the same name.
	container string
}

// subject returns the pod and the name of a request's subject, within a pod or the QoS classes. ok
// is false if the subject has no name: without a UID a pod would be confused with the classes, and
// without a name a container with its pod.
func subject(req *hookmsg.Request) (pod, name string, ok bool) {
	switch req.Level {
	case abi.LevelQOS:
		return "", req.QOSClass.String(), true
	case abi.LevelContainer:
		return req.Pod.UID, req.Container.Name, req.Pod.UID != "" && req.Container.Name != ""
	}
	return req.Pod.UID, "", req.Pod.UID != ""
}

func (l *lastDecisions) put(req *hookmsg.Request, d *hookmsg.Decision) {
	pod, name, ok := subject(req)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pods == nil {
		l.pods = map[string]map[string]lastDecision{}
	}
	m := l.pods[pod]
	if m == nil {
		m = map[string]lastDecision{}
		l.pods[pod] = m
	}
	m[name] = lastDecision{d, req.Container.ID}
}

// get returns the last decision, nil if there is none.
func (l *lastDecisions) get(req *hookmsg.Request) *hookmsg.Decision {
	pod, name, ok := subject(req)
	if !ok {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pods[pod][name].decision
}

// forget drops a pod, or one container of it, but not a replacement of that container.
func (l *lastDecisions) forget(pod, name, container string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if name == "" {
		delete(l.pods, pod)
		return
	}
	if container == "" || l.pods[pod][name].container == container {
		delete(l.pods[pod], name)
	}
}

// ends are the stages at which the subject of the request has ended.
var ends = setOf([]abi.Stage{abi.PostStopContainer, abi.PostStopPodSandbox, abi.PreRemoveRunPodSandbox})

func (e *Engine) forget(req *hookmsg.Request) {
	if pod, name, ok := subject(req); ok && pod != "" {
		e.standing.forget(pod, name, req.Container.ID)
		for _, p := range e.plugins {
			p.last.forget(pod, name, req.Container.ID)
		}
	}
}

// Forget drops the decisions on a pod that has ended.
func (e *Engine) Forget(podUID string) {
	if podUID == "" {
		return // The empty UID has the QoS classes.
	}
	e.standing.forget(podUID, "", "")
	for _, p := range e.plugins {
		p.last.forget(podUID, "", "")
	}
}
