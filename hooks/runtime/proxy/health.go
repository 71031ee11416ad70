package proxy

import (
	"fmt"
	"sync"
	"time"

	"github.com/kubewasm/kubewasm/abi"
)

// answering holds the events that wait for their answers. The zero value is empty.
type answering struct {
	mu     sync.Mutex
	number uint64
	events map[uint64]waiting
}

// waiting is an event without an answer.
type waiting struct {
	stage abi.Stage
	since time.Time
}

// begin records an event until end is called.
func (a *answering) begin(stage abi.Stage) (end func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.events == nil {
		a.events = map[uint64]waiting{}
	}
	a.number++
	n := a.number
	a.events[n] = waiting{stage, time.Now()}
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.events, n)
	}
}

// oldest returns the event that has waited longest; ok is false if none waits.
func (a *answering) oldest() (event waiting, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.events {
		if !ok || e.since.Before(event.since) {
			event, ok = e, true
		}
	}
	return event, ok
}

// patience is the number of Config.Timeout periods without an answer after which the process counts
// as stuck. Guests are ended after one.
const patience = 10

// Healthy returns an error if an event has been without an answer for ten times Config.Timeout.
// Plugins are ended long before, so the kernel or this process hangs, and only a restart can help.
func (h *Handler) Healthy() error { return h.healthy(time.Now()) }

func (h *Handler) healthy(now time.Time) error {
	if e, ok := h.answering.oldest(); ok && now.Sub(e.since) > patience*h.cfg.Timeout {
		return fmt.Errorf("event %s of the runtime has had no answer for %s", e.stage, now.Sub(e.since).Round(time.Second))
	}
	return nil
}
