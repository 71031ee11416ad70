package kube136

import (
	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// adaptedEntity is what is in the queue.
type adaptedEntity struct{ fwk.QueuedPodInfo }

// adaptedWaiting is a Pod that waits.
type adaptedWaiting struct {
	fwk.WaitingPod
	rejected string
}

func (w *adaptedWaiting) GetPod() *corev1.Pod { return adaptedPod }

func (w *adaptedWaiting) Reject(plugin, msg string) bool {
	w.rejected = plugin + ": " + msg
	return true
}
