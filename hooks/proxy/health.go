package proxy

import (
	"fmt"
	"sync"
	"time"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
)

// answering are the events that wait for their answers. The zero value has none.
type answering struct {
	mu     sync.Mutex
	number uint64
	events map[uint64]waiting
}

// waiting is an event without an answer.
type waiting struct {
	stage hookmsg.Stage
	since time.Time
}

// begin notes an event until the result is called.
func (a *answering) begin(stage hookmsg.Stage) (end func()) {
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

// oldest returns the event that waits longest; ok is false if none waits.
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

// patience is how many times Config.Timeout an event may be without its answer
// before the process counts as stuck: guests are ended after one.
const patience = 10

// Healthy returns an error while an event has been without its answer for ten times
// Config.Timeout. Plugins are ended long before: what hangs is the kernel or this
// process, which only a restart can help.
func (h *Handler) Healthy() error { return h.healthy(time.Now()) }

func (h *Handler) healthy(now time.Time) error {
	if e, ok := h.answering.oldest(); ok && now.Sub(e.since) > patience*h.cfg.Timeout {
		return fmt.Errorf("an event of the runtime, %s, is without an answer for %s", e.stage, now.Sub(e.since).Round(time.Second))
	}
	return nil
}
