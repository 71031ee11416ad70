package main

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// progress is a line at the terminal that counts what was done. It appears for what takes
// longer than progressInterval, and is removed at the end.
type progress struct {
	terminal io.Writer
	what     string

	mu    sync.Mutex
	n     int
	next  time.Time
	shown bool
}

// progressInterval is the time between two states of the line.
const progressInterval = 500 * time.Millisecond

// progress begins a line. Without a terminal it prints nothing.
func (t *tool) progress(what string) *progress {
	return &progress{terminal: t.terminal, what: what, next: time.Now().Add(progressInterval)}
}

// add counts one more.
func (p *progress) add() {
	if p.terminal == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n++
	if now := time.Now(); now.After(p.next) {
		p.next, p.shown = now.Add(progressInterval), true
		fmt.Fprintf(p.terminal, "\r%d %s", p.n, p.what)
	}
}

// end removes the line.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown {
		fmt.Fprint(p.terminal, "\r\x1b[K")
		p.shown = false
	}
}
