package abi

import (
	"errors"
	"strconv"
	"strings"
)

// Stage is the moment in the life of a pod at which the host asks for a decision.
type Stage int32

// The stages, with the names of Koordinator's RuntimeHookService.
const (
	PreRunPodSandbox Stage = iota + 1
	PreCreateContainer
	PreStartContainer
	PostStartContainer
	// PreUpdateContainerResources is, at LevelPod, before a resize of the pod in place.
	PreUpdateContainerResources
	PostStopContainer
	PostStopPodSandbox
	PreRemoveRunPodSandbox
	// Reconcile is no event of the runtime: the host compares the present state with the desired
	// one.
	Reconcile
)

var stageNames = [...]string{
	"Unspecified", "PreRunPodSandbox", "PreCreateContainer", "PreStartContainer", "PostStartContainer",
	"PreUpdateContainerResources", "PostStopContainer", "PostStopPodSandbox", "PreRemoveRunPodSandbox", "Reconcile",
}

// String returns the name of the stage.
func (s Stage) String() string { return enumName("stage", int32(s), stageNames[:]) }

// Known reports whether the stage is one of the constants.
func (s Stage) Known() bool { return s > 0 && int(s) < len(stageNames) }

// MarshalText returns the name of the stage.
func (s Stage) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the name of a stage.
func (s *Stage) UnmarshalText(text []byte) error {
	n, err := enumValue(string(text), stageNames[:])
	*s = Stage(n)
	return err
}

// Level is the subject of a request.
type Level int32

// The levels, from the widest to the narrowest.
const (
	// LevelQOS is the cgroup above all pods of a QoS class.
	LevelQOS Level = iota + 1
	// LevelPod is the cgroup above the containers of a pod.
	LevelPod
	LevelContainer
)

var levelNames = [...]string{"Unspecified", "QOS", "Pod", "Container"}

// String returns the name of the level.
func (l Level) String() string { return enumName("level", int32(l), levelNames[:]) }

// Known reports whether the level is one of the constants.
func (l Level) Known() bool { return l > 0 && int(l) < len(levelNames) }

// MarshalText returns the name of the level.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads the name of a level.
func (l *Level) UnmarshalText(text []byte) error {
	n, err := enumValue(string(text), levelNames[:])
	*l = Level(n)
	return err
}

// QOSClass is the QoS class of a pod, core/v1 PodQOSClass.
type QOSClass int32

// The QoS classes.
const (
	QOSGuaranteed QOSClass = iota + 1
	QOSBurstable
	QOSBestEffort
)

var qosNames = [...]string{"Unspecified", "Guaranteed", "Burstable", "BestEffort"}

// String returns the class in the spelling of Kubernetes.
func (q QOSClass) String() string { return enumName("qosClass", int32(q), qosNames[:]) }

// MarshalText returns the class in the spelling of Kubernetes.
func (q QOSClass) MarshalText() ([]byte, error) { return []byte(q.String()), nil }

// UnmarshalText reads a class in the spelling of Kubernetes.
func (q *QOSClass) UnmarshalText(text []byte) error {
	n, err := enumValue(string(text), qosNames[:])
	*q = QOSClass(n)
	return err
}

// enumValue returns the number of a name. The first name belongs to no value.
func enumValue(name string, names []string) (int32, error) {
	for n := 1; n < len(names); n++ {
		if names[n] == name {
			return int32(n), nil
		}
	}
	return 0, errors.New("want " + strings.Join(names[1:], ", "))
}

func enumName(kind string, n int32, names []string) string {
	if n >= 0 && int(n) < len(names) {
		return names[n]
	}
	return kind + "(" + strconv.Itoa(int(n)) + ")"
}
