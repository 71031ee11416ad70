package cgroup

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// checkCoreSchedGroup checks the name of a group, of which the kernel knows nothing.
func checkCoreSchedGroup(group string) error {
	if group == "" || len(group) > maxGroup || strings.ContainsFunc(group, isControl) {
		return fmt.Errorf("%.200q is not a name of 1 to %d bytes without control characters", group, maxGroup)
	}
	return nil
}

// coreSched tracks the cookies of core scheduling groups
// (Documentation/admin-guide/hw-vuln/core-scheduling.rst). A cookie lives as long as a task has it,
// and only such a task can give it to another. So the threads of a group keep its cookie, and a
// thread of this process takes it from one of them and passes it on. The zero value has no kernel.
type coreSched struct {
	kernel cookies
	mu     sync.Mutex
	groups map[string]*coreGroup
}

// coreGroup is a cookie and some of the threads that have it.
type coreGroup struct {
	cookie  uint64
	threads []int
}

// cookies are the operations of prctl(2) with PR_SCHED_CORE. Thread 0 is the calling thread.
type cookies interface {
	get(thread int) (uint64, error)
	create() error
	shareTo(thread int) error
	shareFrom(thread int) error
}

// maxKeepers is the maximum number of remembered threads of a group that may pass its cookie on.
const maxKeepers = 16

// is reports whether a thread is in a group, or in none if the group is "".
func (c *coreSched) is(group string, thread int) (bool, error) {
	if group != "" {
		return c.has(group, thread)
	}
	cookie, err := c.kernel.get(thread)
	return cookie == 0, err
}

// put puts a thread into a group, or takes it out of its group if the group is "".
func (c *coreSched) put(group string, thread int) error {
	if group == "" {
		return c.leave(thread)
	}
	return c.join(group, thread)
}

// has reports whether a thread has the cookie of a group.
func (c *coreSched) has(group string, thread int) (bool, error) {
	cookie, err := c.kernel.get(thread)
	if err != nil {
		return false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.groups[group]
	if g == nil || g.cookie != cookie || cookie == 0 {
		return false, nil
	}
	g.keep(thread)
	return true, nil
}

func (g *coreGroup) keep(thread int) {
	if !slices.Contains(g.threads, thread) && len(g.threads) < maxKeepers {
		g.threads = append(g.threads, thread)
	}
}

// join gives a thread the cookie of a group.
func (c *coreSched) join(group string, thread int) error {
	return c.onThread(func() error { return c.joinFromHere(group, thread) })
}

// leave takes a thread out of its group.
func (c *coreSched) leave(thread int) error {
	return c.onThread(func() error {
		switch own, err := c.kernel.get(0); {
		case err != nil:
			return err
		case own != 0:
			return fmt.Errorf("this process is in a group itself, and only one without a group can take others out: %w", errUnsupported)
		}
		return c.kernel.shareTo(thread)
	})
}

// onThread calls f on a thread that ends with it.
func (c *coreSched) onThread(f func() error) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The thread ends together with its cookie: since it is never unlocked, no other goroutine
		// uses it.
		runtime.LockOSThread()
		err = f()
	}()
	<-done
	return err
}

func (c *coreSched) joinFromHere(group string, thread int) error {
	g := c.groups[group]
	if g != nil {
		// The number may belong to another thread by now.
		g.threads = slices.DeleteFunc(g.threads, func(member int) bool {
			cookie, err := c.kernel.get(member)
			return err != nil || cookie != g.cookie
		})
		if len(g.threads) == 0 || c.kernel.shareFrom(g.threads[0]) != nil {
			g = nil // All threads have ended, and the cookie with them.
		}
	}
	if g == nil {
		if err := c.kernel.create(); err != nil {
			return err
		}
		cookie, err := c.kernel.get(0)
		if err != nil {
			return err
		}
		g = &coreGroup{cookie: cookie}
		if c.groups == nil {
			c.groups = map[string]*coreGroup{}
		}
		c.forget()
		c.groups[group] = g
	}
	if err := c.kernel.shareTo(thread); err != nil {
		return err
	}
	g.keep(thread)
	return nil
}

// forget drops the groups of which no thread is left.
func (c *coreSched) forget() {
	for name, g := range c.groups {
		if !slices.ContainsFunc(g.threads, func(thread int) bool {
			cookie, err := c.kernel.get(thread)
			return err == nil && cookie == g.cookie
		}) {
			delete(c.groups, name)
		}
	}
}

// coreSchedGroup plans the cookies of the cgroup's threads: that of a group, or none for the group
// "". Threads created meanwhile inherit their parents' cookies.
func (p *plan) coreSchedGroup(group string) {
	const file = "core_sched"
	if p.skip != nil && p.skip(p.cgroup, p.field, file) {
		return
	}
	if err := checkCoreSchedGroup(group); err != nil && group != "" {
		p.fail(fmt.Errorf("apply core_sched_group to cgroup %q: %w", p.cgroup, err))
		return
	}
	s, threads := p.processes(p.threadsFile())
	if s == nil {
		return
	}
	cores := &p.applier.cores
	for i, t := range threads.numbers {
		thread, err := strconv.Atoi(t)
		if err != nil {
			continue // It had the cookie already.
		}
		path := t + "/" + file // Not a real file: the path names the thread.
		has, err := cores.is(group, thread)
		switch {
		case errors.Is(err, syscall.ESRCH):
		case err != nil:
			p.fail(coreSchedError("read", path, "", err))
			return
		case !has:
			p.outside(s, path, "", group, func() error {
				return threads.ifStill(i, func(*os.Root) error {
					if err := cores.put(group, thread); err != nil && !errors.Is(err, syscall.ESRCH) {
						return coreSchedError("write", path, group, err)
					}
					return nil
				})
			})
			if last := &p.steps[len(p.steps)-1]; group != "" {
				last.noted, last.note = coreSchedNote, group
			}
		}
	}
}

// coreSchedError explains an error of the kernel: EINVAL is a kernel without core scheduling,
// ENODEV a machine without threads of cores.
func coreSchedError(op, path, value string, err error) error {
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.ENOSYS) {
		err = fmt.Errorf("core scheduling is not available: %w: %w", err, errUnsupported)
	}
	return &FileError{Op: op, File: path, Value: value, Err: err}
}
