package hooks

import (
	"sync"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
)

// lastDecisions are the last good decisions of a plugin with the policy
// KeepLast.
type lastDecisions struct {
	mu sync.Mutex
	// pods are by UID, "" for the QoS classes; in each, containers by name, ""
	// for the pod itself.
	pods map[string]map[string]lastDecision
}

// lastDecision is the last one on a container or what else has a name.
type lastDecision struct {
	decision *hookmsg.Decision
	// container is the identifier of the container that it was about, empty if it had
	// none yet: what replaces a container has its name.
	container string
}

// subject names what a request is about, within a pod or the QoS classes. ok says
// that it has a name: without a UID a pod's would be those of the classes, and
// without its own a container's that of the pod.
func subject(req *hookmsg.Request) (pod, name string, ok bool) {
	switch req.Level {
	case hookmsg.LevelQOS:
		return "", req.QOSClass.String(), true
	case hookmsg.LevelContainer:
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

// forget drops a pod, or one container of it: not the one that has replaced it.
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

// ends are the stages at which what the request is about is over.
var ends = setOf([]hookmsg.Stage{hookmsg.PostStopContainer, hookmsg.PostStopPodSandbox, hookmsg.PreRemoveRunPodSandbox})

func (e *Engine) forget(req *hookmsg.Request) {
	if pod, name, ok := subject(req); ok && pod != "" {
		e.standing.forget(pod, name, req.Container.ID)
		for _, p := range e.plugins {
			p.last.forget(pod, name, req.Container.ID)
		}
	}
}

// Forget drops what plugins have decided about a pod that is gone.
func (e *Engine) Forget(podUID string) {
	if podUID == "" {
		return // Those are of the classes.
	}
	e.standing.forget(podUID, "", "")
	for _, p := range e.plugins {
		p.last.forget(podUID, "", "")
	}
}
