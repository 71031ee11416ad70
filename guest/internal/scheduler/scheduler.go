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
	current Host = nobody{}
)

// Use makes h the host until the function that it returns is called. Another Use
// waits for that, since a process has one host.
func Use(h Host) (done func()) {
	mu.Lock()
	current = h
	return func() {
		current = nobody{}
		mu.Unlock()
	}
}

// Current returns the host.
func Current() Host { return current }

// nobody is a host without any objects.
type nobody struct{}

func (nobody) NodeNames() []byte                   { return nil }
func (nobody) NodeByName(string) (abi.Ref, []byte) { return 0, nil }
func (nobody) NodeInfo(abi.Ref) []byte             { return nil }
func (nobody) NodeImages(abi.Ref) []byte           { return nil }
func (nobody) NodePods(abi.Ref) [][]byte           { return nil }
func (nobody) Event([]byte)                        {}
func (nobody) WaitingPods() []byte                 { return nil }
func (nobody) WaitingPod(string) []byte            { return nil }
func (nobody) AllowWaitingPod(string) bool         { return false }
func (nobody) RejectWaitingPod(string) bool        { return false }
