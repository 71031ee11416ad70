package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/kubewasm/kubewasm/internal/foreign"
)

// screen is a terminal with a status line at its end. Writes come before it.
type screen struct {
	mu    sync.Mutex
	w     io.Writer
	shown bool
}

// Write implements [io.Writer].
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
	return s.w.Write(p)
}

// show writes the line in place of the previous one, and removes it if it is empty.
func (s *screen) show(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clear(); line != "" {
		s.shown = true
		fmt.Fprint(s.w, foreign.Line(line))
	}
}

func (s *screen) clear() {
	if s.shown {
		s.shown = false
		fmt.Fprint(s.w, "\r\x1b[K")
	}
}

// progress is a line on the terminal that shows the progress of a step. It appears for steps that
// take longer than progressInterval, and is removed at the end.
type progress struct {
	screen *screen
	every  time.Duration
	what   string

	mu   sync.Mutex
	n    int
	next time.Time

	// stop and stopped end a line of seconds.
	stop, stopped chan struct{}
}

// progressInterval is the time between two states of the line.
const progressInterval = 500 * time.Millisecond

// progress begins a line that counts finished items. Without a terminal it prints nothing.
func (t *tool) progress(what string) *progress {
	return &progress{screen: t.terminal, every: t.every, what: what, next: time.Now().Add(t.every)}
}

// working begins a line that counts the seconds of a step.
func (t *tool) working(what string) *progress {
	p := t.progress(what)
	if p.screen == nil {
		return p
	}
	p.stop, p.stopped = make(chan struct{}), make(chan struct{})
	begun, ticker := time.Now(), time.NewTicker(p.every)
	go func() {
		defer close(p.stopped)
		defer ticker.Stop()
		for {
			select {
			case <-p.stop:
				return
			case <-ticker.C:
				p.screen.show(fmt.Sprintf("%s, %d s", what, int(time.Since(begun).Seconds())))
			}
		}
	}()
	return p
}

// add counts one more.
func (p *progress) add() {
	if p == nil || p.screen == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n++
	if now := time.Now(); !now.Before(p.next) {
		p.next = now.Add(p.every)
		p.screen.show(fmt.Sprintf("%d %s", p.n, p.what))
	}
}

// end removes the line.
func (p *progress) end() {
	if p == nil || p.screen == nil {
		return
	}
	if p.stop != nil {
		close(p.stop)
		<-p.stopped
	}
	p.screen.show("")
}
