package nativehost

import (
	"sync"

	"github.com/kubewasm/kubewasm/abi"
)

// Scheduler has the host functions of a scheduler, under their names in abi/SPEC.md,
// section 6.
type Scheduler interface {
	NodeNames() []byte
	// NodeByName returns a Node's ref and bytes, no bytes if there is none.
	NodeByName(name string) (abi.Ref, []byte)
	NodeInfo(abi.Ref) []byte
	NodeImages(abi.Ref) []byte
	// NodePods returns the bytes of the Pods of a Node.
	NodePods(abi.Ref) [][]byte
	// NominatedPods returns the bytes of the Pods that are nominated for the Node with a name.
	NominatedPods(node string) [][]byte

	Event(message []byte)
	WaitingPods() []byte
	WaitingPod(uid string) []byte
	AllowWaitingPod(uid string) bool
	RejectWaitingPod(request string) bool
	Activate(pods []byte)
	// Apply is apply_status, or apply_annotations.
	Apply(question []byte, status bool)
	AwaitObject(question []byte, milliseconds uint32)
}

var (
	schedulerMu sync.Mutex
	scheduler   Scheduler = noScheduler{}
)

// UseScheduler makes h the host until the function that it returns is called. Another UseScheduler
// waits for that, since a process has one host.
func UseScheduler(h Scheduler) (done func()) {
	schedulerMu.Lock()
	scheduler = h
	return func() {
		scheduler = noScheduler{}
		schedulerMu.Unlock()
	}
}

// CurrentScheduler returns the host.
func CurrentScheduler() Scheduler { return scheduler }

// noScheduler is a host without any objects.
type noScheduler struct{}

func (noScheduler) Apply([]byte, bool)                  {}
func (noScheduler) AwaitObject([]byte, uint32)          {}
func (noScheduler) NominatedPods(string) [][]byte       { return nil }
func (noScheduler) NodeNames() []byte                   { return nil }
func (noScheduler) NodeByName(string) (abi.Ref, []byte) { return 0, nil }
func (noScheduler) NodeInfo(abi.Ref) []byte             { return nil }
func (noScheduler) NodeImages(abi.Ref) []byte           { return nil }
func (noScheduler) NodePods(abi.Ref) [][]byte           { return nil }
func (noScheduler) Event([]byte)                        {}
func (noScheduler) Activate([]byte)                     {}
func (noScheduler) WaitingPods() []byte                 { return nil }
func (noScheduler) WaitingPod(string) []byte            { return nil }
func (noScheduler) AllowWaitingPod(string) bool         { return false }
func (noScheduler) RejectWaitingPod(string) bool        { return false }
