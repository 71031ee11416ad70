package hooks

import (
	"bytes"
	"sync"

	"github.com/kubewasm/kubewasm/codec/hookpb"
)

// lastDecisions are the last good decisions of a plugin with the policy
// KeepLast, as the guest wrote them.
type lastDecisions struct {
	mu sync.Mutex
	// pods are by UID, "" for the QoS classes; in each, containers by name, ""
	// for the pod itself.
	pods map[string]map[string][]byte
}

// subject names what a request is about, within a pod or the QoS classes. ok says
// that it has a name: without a UID a pod's would be those of the classes, and
// without its own a container's that of the pod.
func subject(req *hookpb.Request) (pod, name string, ok bool) {
	switch req.Level {
	case hookpb.LevelQOS:
		return "", req.QOSClass.String(), true
	case hookpb.LevelContainer:
		return req.Pod.UID, req.Container.Name, req.Pod.UID != "" && req.Container.Name != ""
	}
	return req.Pod.UID, "", req.Pod.UID != ""
}

func (l *lastDecisions) put(req *hookpb.Request, decision []byte) {
	pod, name, ok := subject(req)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pods == nil {
		l.pods = map[string]map[string][]byte{}
	}
	m := l.pods[pod]
	if m == nil {
		m = map[string][]byte{}
		l.pods[pod] = m
	}
	if old, ok := m[name]; !ok || !bytes.Equal(old, decision) {
		m[name] = bytes.Clone(decision)
	}
}

func (l *lastDecisions) get(req *hookpb.Request) (decision []byte, ok bool) {
	pod, name, ok := subject(req)
	if !ok {
		return nil, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	decision, ok = l.pods[pod][name]
	return decision, ok
}

// forget drops a pod, or one container of it.
func (l *lastDecisions) forget(pod, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if name != "" {
		delete(l.pods[pod], name)
		return
	}
	delete(l.pods, pod)
}

// forgets reports whether what the request is about is over at the stage.
func forgets(stage hookpb.Stage) bool {
	switch stage {
	case hookpb.PostStopContainer, hookpb.PostStopPodSandbox, hookpb.PreRemoveRunPodSandbox:
		return true
	}
	return false
}

func (e *Engine) forget(req *hookpb.Request) {
	if pod, name, ok := subject(req); ok && pod != "" {
		for _, p := range e.plugins {
			p.last.forget(pod, name)
		}
	}
}

// Forget drops what plugins with the policy KeepLast decided about a pod that is
// gone.
func (e *Engine) Forget(podUID string) {
	if podUID == "" {
		return // Those are of the classes.
	}
	for _, p := range e.plugins {
		p.last.forget(podUID, "")
	}
}
