package kube136test

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// QueuedPod is a fwk.QueuedPodInfo. Its other methods panic.
type QueuedPod struct {
	fwk.QueuedPodInfo
	Pod  *corev1.Pod
	Came time.Time
}

// GetPodInfo implements fwk.QueuedPodInfo.
func (q QueuedPod) GetPodInfo() fwk.PodInfo { return PodInfo{Pod: q.Pod} }

// GetTimestamp implements fwk.QueuedPodInfo.
func (q QueuedPod) GetTimestamp() time.Time { return q.Came }
