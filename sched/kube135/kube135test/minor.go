package kube135test

import (
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/events"
	fwk "k8s.io/kube-scheduler/framework"
)

// Handle is a fwk.Handle with a snapshot of nodes, Pods that wait and a recorder.
// Its other methods panic.
type Handle struct {
	fwk.Handle
	Nodes     []*NodeInfo
	Waiting   []*WaitingPod
	Recorder  events.EventRecorder
	Informers informers.SharedInformerFactory
}

// EventRecorder implements fwk.Handle.
func (h *Handle) EventRecorder() events.EventRecorder { return h.Recorder }

// Reject implements fwk.WaitingPod.
func (w *WaitingPod) Reject(plugin, msg string) {
	w.end("rejected by ", plugin, ": ", msg)
}
