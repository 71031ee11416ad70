//go:build amd64 || arm64

package host

import (
	"context"
	"slices"
	"sync"
	"time"
)

// domain has the modules of a trust domain, and the process that they share. A module is compiled, and
// its first guest started and configured, in a process that it has alone. Some time later, one process
// gets the machine code of all modules, before it is forbidden to make memory executable, and its
// guests begin from their snapshots.
type domain struct {
	rt    *Runtime
	name  string
	users int // Modules. Runtime.mu guards it.

	mu sync.Mutex
	// modules are those whose guests can begin from snapshots.
	modules []*remote
	// now is the process that its modules share, nil if there is none, and next the one that starts.
	now, next *remoteProcess
	// ended is when a shared process has ended last. wait is the time for which each module then has one
	// alone, 0 unless two have ended within endsWithin.
	ended time.Time
	wait  time.Duration
	timer *time.Timer
}

// gatherAfter is the time from the last load until the modules share a process.
var gatherAfter = 10 * time.Second

const (
	// maxModules is the maximum number of modules in a process. Others have one alone.
	maxModules = 64
	// mostWait is the maximum of domain.wait.
	mostWait = time.Hour
)

// domain returns a domain by its name. Each call is followed by one of leave.
func (rt *Runtime) domain(name string) *domain {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.domains == nil {
		rt.domains = map[string]*domain{}
	}
	d := rt.domains[name]
	if d == nil {
		d = &domain{rt: rt, name: name}
		rt.domains[name] = d
	}
	d.users++
	return d
}

// serving returns a process for an instance, which ends the use of it. shared is set for an instance that
// begins from a snapshot.
func (r *remote) serving(ctx context.Context, shared bool) (p *remoteProcess, err error) {
	for {
		if p = nil; shared {
			p = r.domain.process(r)
		}
		if p != nil {
			err = p.wait(ctx)
		} else {
			p, err = r.process(ctx)
		}
		if err != nil || p.use(1) {
			return p, err
		}
	}
}

// join has the guests of a module share the process of its domain from some time on.
func (r *remote) join() {
	d := r.domain
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Contains(d.modules, r) {
		// A start section needs more than a snapshot.
		if !r.request.Compiled || r.c.info.Starts || len(d.modules) == maxModules {
			return
		}
		d.modules = append(d.modules, r)
	}
	d.later()
}

// later has the modules share a process after some time. d.mu is held.
func (d *domain) later() {
	if d.timer != nil {
		d.timer.Stop()
	}
	d.timer = time.AfterFunc(max(gatherAfter, time.Until(d.ended.Add(d.wait))), d.gather)
}

// leave removes a module, whose guests are gone.
func (d *domain) leave(r *remote) {
	d.mu.Lock()
	d.modules = slices.DeleteFunc(d.modules, func(m *remote) bool { return m == r })
	before := []*remoteProcess{d.now, d.next}
	d.mu.Unlock()
	for _, p := range before {
		if p != nil {
			<-p.ready // A process that starts is sent the files.
		}
	}
	d.mu.Lock()
	switch {
	case len(d.modules) != 0:
		d.later()
	case d.now != nil:
		d.timer.Stop()
		d.now.retire()
		d.now = nil
	}
	d.mu.Unlock()
	d.rt.mu.Lock()
	defer d.rt.mu.Unlock()
	if d.users--; d.users == 0 {
		delete(d.rt.domains, d.name)
	}
}

// process returns the process that a module shares, which is started again if it has ended: once within
// endsWithin. It returns nil if the module has a process alone.
func (d *domain) process(r *remote) *remoteProcess {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.now
	if p == nil || !slices.Contains(p.modules, r) {
		return nil
	}
	if !p.over() {
		if p.full() {
			return nil
		}
		return p
	}
	p.retire()
	now := time.Now()
	since := now.Sub(d.ended)
	if d.ended, d.now = now, nil; since < endsWithin {
		d.wait = min(max(2*d.wait, endsWithin), mostWait)
		d.later()
		return nil
	}
	if since > 2*d.wait {
		d.wait = 0
	}
	d.now = d.begin()
	return d.now
}

// begin starts a process with all modules. d.mu is held.
func (d *domain) begin() *remoteProcess {
	p := newRemoteProcess(slices.Clone(d.modules)...)
	most := time.Duration(0)
	for _, r := range p.modules {
		most = max(most, r.most)
	}
	go p.start(most, nil)
	return p
}

// gather has all modules share a process, and closes the idle instances in others.
func (d *domain) gather() {
	d.mu.Lock()
	if d.next != nil {
		d.later()
	}
	if d.next != nil || len(d.modules) == 0 || d.now == nil && len(d.modules) == 1 {
		d.mu.Unlock()
		return
	}
	p, before := d.now, d.now
	if _, threads := needs(d.modules); p == nil || p.over() || threads > p.threads || !slices.Equal(p.modules, d.modules) {
		p = d.begin()
		d.next = p
	}
	d.mu.Unlock()
	<-p.ready
	d.mu.Lock()
	d.next = nil
	switch {
	case p == before:
	case p.err == nil && len(d.modules) != 0:
		if d.now = p; before != nil {
			before.retire()
		}
	default:
		p.retire()
		d.ended, d.wait = time.Now(), min(max(2*d.wait, endsWithin), mostWait)
		if len(d.modules) != 0 {
			d.later()
		}
	}
	shares := d.now == p
	d.mu.Unlock()
	if !shares {
		return
	}
	for _, r := range p.modules {
		r.mu.Lock()
		if alone := r.now; alone != nil {
			select {
			case <-alone.ready:
				r.now = nil
				alone.retire()
			default: // It starts for a load, which joins again.
			}
		}
		r.mu.Unlock()
	}
	d.rt.mu.Lock()
	plugins := make([]*Plugin, 0, len(d.rt.plugins))
	for p := range d.rt.plugins {
		plugins = append(plugins, p)
	}
	d.rt.mu.Unlock()
	for _, p := range plugins {
		if v := p.current.Load(); v.snapshot != nil {
			v.pool.sweep(func(inst *Instance) bool { return inst.remote != nil && inst.remote.moves() })
		}
	}
}
