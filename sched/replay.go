package sched

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
)

// A step of a cycle is a call that changes the guest's state of the cycle. It runs once, with
// effects and results. An instance that has not seen it repeats it: the guest's questions get the
// answers of the first run, and the effects are those that happened. If a question cannot be
// answered so, the waiting call ends, where possible before the guest is called: a guest that is
// stopped loses the states of other cycles.

// firstRun is the result of the first run of a step, for repeating it.
type firstRun struct {
	// mu is held by the first run. done is set after it.
	mu   sync.Mutex
	done atomic.Bool
	// answers, listed and effects are those of the call. dropped is set if they were too many.
	answers map[string][]byte
	listed  []listed
	effects []effect
	dropped bool
	// state is the result of [host.Instance.StateReads].
	state any
	// asksNodes is that of the call, and info a copy of its info at that time, nil if the guest has
	// not asked about it.
	asksNodes bool
	info      NodeInfo
}

// effect is a change to Pods that wait or are activated: the host function and its question, and the answer.
type effect struct {
	question string
	answer   uint64
}

// The maximum bytes of answers kept of a step, and of all steps of a plugin.
const (
	maxStepAnswers = 1 << 20
	maxAnswers     = 64 << 20
)

var (
	errNodesGone = errors.New("the cycle's instance is gone, and the step depends on nodes that have changed")
	errDropped   = fmt.Errorf("the cycle's instance is gone, and the recorded answers exceed %d bytes for the step, or %d for all cycles", maxStepAnswers, maxAnswers)
	errNewEffect = errors.New("the repeated step changes different Pods")
)

// runFirst runs a step for the first time. The caller ends the call.
func (p *Plugin) runFirst(ctx context.Context, inst *host.Instance, i *instance, s *step, ref abi.Ref, snapshot bool) (uint64, error) {
	i.call = s.call()
	i.call.snapshot = snapshot
	inst.RecordState()
	result, err := s.run(ctx, p, inst, i, ref)
	if err == nil {
		p.note(s, &i.call, inst)
	}
	return result, err
}

// note keeps the results of a call for a step that ran for the first time.
func (p *Plugin) note(s *step, c *call, inst *host.Instance) {
	f := s.first
	defer f.done.Store(true)
	f.asksNodes = c.asksNodes
	if c.asksInfo && p.framework.Freeze != nil {
		f.info = p.framework.Freeze(c.info)
	}
	var size int64
	for key, answer := range c.answers {
		size += int64(len(key) + len(answer) + answerBytes)
	}
	for _, l := range c.listed {
		size += int64(len(l.objects)) * int64(unsafe.Sizeof(metav1.Object(nil)))
	}
	state, bytes := inst.StateReads()
	size += int64(bytes)
	for _, e := range c.effects {
		size += int64(len(e.question)) + int64(unsafe.Sizeof(e))
	}
	if size == 0 {
		return
	}
	if size > maxStepAnswers || p.answerBytes.Add(size) > maxAnswers {
		if size <= maxStepAnswers {
			p.answerBytes.Add(-size)
		}
		f.dropped = true
		return
	}
	runtime.AddCleanup(f, func(size int64) { p.answerBytes.Add(-size) }, size)
	f.answers, f.listed, f.effects, f.state = c.answers, slices.Clip(c.listed), c.effects, state
}

// repeat runs a step on an instance that has not seen it, for the first time if no instance has.
// gone is set if the nodes of the scheduling cycle may have changed.
func (p *Plugin) repeat(ctx context.Context, inst *host.Instance, i *instance, s *step, ref abi.Ref, gone bool) error {
	defer i.end()
	f := s.first
	if !f.done.Load() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if !f.done.Load() { // The scheduler has not called the function itself.
			_, err := p.runFirst(ctx, inst, i, s, ref, !gone)
			return err
		}
	}
	switch {
	case gone && f.asksNodes:
		return errNodesGone
	case f.dropped:
		return errDropped
	}
	i.call = s.call()
	i.call.first, i.call.gone = f, gone
	if f.info != nil {
		i.call.info = f.info
	}
	if gone {
		i.call.nodes, i.call.snapshot = nil, false
	}
	inst.StateTrial(f.state)
	_, err := s.run(ctx, p, inst, i, ref)
	return err
}

// asks records that the guest asks about nodes beyond the argument of the call, and ends a call
// whose nodes are gone.
func (c *call) asks(inst *host.Instance) {
	if c.asksNodes = true; c.gone {
		inst.Abort(errNodesGone)
	}
}

// asksAbout records that the guest asks about the argument of the call. If that has changed since
// the first run of the step, the call ends.
func (c *call) asksAbout(inst *host.Instance) {
	if c.asksInfo = true; c.first != nil && c.first.info == nil {
		inst.Abort(errNodesGone)
	}
}

// effect changes Pods, unless the call repeats a step: then the answer is that of the
// first run.
func (c *call) effect(inst *host.Instance, uid string, do func() bool) uint64 {
	question := inst.HostCall() + "\x00" + uid
	if c.first != nil {
		if n := len(c.effects); n < len(c.first.effects) && c.first.effects[n].question == question {
			c.effects = c.first.effects[:n+1]
			return c.effects[n].answer
		}
		inst.Abort(errNewEffect)
	}
	if n := slices.IndexFunc(c.done, func(e effect) bool { return e.question == question }); n >= 0 {
		e := c.done[n]
		c.done = slices.Delete(c.done, n, n+1)
		c.effects = append(c.effects, e)
		return e.answer
	}
	e := effect{question: question}
	if do() {
		e.answer = 1
	}
	inst.Keep(len(question) + int(unsafe.Sizeof(e)))
	c.effects = append(c.effects, e)
	return e.answer
}
