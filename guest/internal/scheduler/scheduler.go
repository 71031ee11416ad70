// Package scheduler has the scheduler of plugins that run natively: none, unless
// a test sets one.
package scheduler

import (
	"sync"

	"github.com/kubewasm/kubewasm/abi"
)

// Host has the host functions of a scheduler, under their names in abi/SPEC.md,
// section 6.
type Host interface {
	NodeNames() []byte
	// NodeByName returns a Node's ref and bytes, no bytes if there is none.
	NodeByName(name string) (abi.Ref, []byte)
	NodeInfo(abi.Ref) []byte
	NodeImages(abi.Ref) []byte
	// NodePods returns the bytes of the Pods of a Node.
	NodePods(abi.Ref) [][]byte

	Event(message []byte)
	WaitingPods() []byte
	WaitingPod(uid string) []byte
	AllowWaitingPod(uid string) bool
	RejectWaitingPod(request string) bool
}

var (
	mu      sync.Mutex
	current Host = noHost{}
)

// Use makes h the host until the function that it returns is called. Another Use
// waits for that, since a process has one host.
func Use(h Host) (done func()) {
	mu.Lock()
	current = h
	return func() {
		current = noHost{}
		mu.Unlock()
	}
}

// Current returns the host.
func Current() Host { return current }

// noHost is a host without any objects.
type noHost struct{}

func (noHost) NodeNames() []byte                   { return nil }
func (noHost) NodeByName(string) (abi.Ref, []byte) { return 0, nil }
func (noHost) NodeInfo(abi.Ref) []byte             { return nil }
func (noHost) NodeImages(abi.Ref) []byte           { return nil }
func (noHost) NodePods(abi.Ref) [][]byte           { return nil }
func (noHost) Event([]byte)                        {}
func (noHost) WaitingPods() []byte                 { return nil }
func (noHost) WaitingPod(string) []byte            { return nil }
func (noHost) AllowWaitingPod(string) bool         { return false }
func (noHost) RejectWaitingPod(string) bool        { return false }
