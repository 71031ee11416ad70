package recording

import (
	"bytes"
	"math"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/codes"
	"github.com/kubewasm/kubewasm/host/confidential"
)

// redact masks confidential data in a call, and everything that may repeat it: the guest's data,
// and the host's answers to that. Then it calls the operator's Redact.
func (r *Recorder) redact(c *Call, t *Tape) {
	stain := &t.stain
	if maskGiven(c, stain) {
		t.stained |= Secret
	}
	if !stain.Clean() {
		maskRepeated(c, stain)
		if stain.Heavy() {
			t.ended.Store(true) // An instance that is reset has lost all knowledge.
		}
	}
	c.Marks |= t.stained
	if r.cfg.Redact == nil {
		return
	}
	changed := false
	redact := func(data []byte) []byte {
		before := bytes.Clone(data)
		r.cfg.Redact(c.Version.Plugin, c.Function, data)
		changed = changed || !bytes.Equal(data, before)
		return data
	}
	for i := range c.Events {
		redact(c.Events[i].Data)
	}
	redact(c.Output)
	c.Trap = string(redact([]byte(c.Trap)))
	if changed {
		t.stained |= Redacted
		c.Marks |= Redacted
	}
}

// given are the host functions, of this project's own ABI and of others, that hand over data of the
// host and repeat nothing from the guest. All others may repeat the guest's data, even in a later
// call than the one in which they received it.
var given = func() map[[2]string]bool {
	list := map[[2]string]bool{
		{abi.KindCommon.Module(), "config"}: true, {"wapc", "__guest_request"}: true, {"env", "read_input"}: true,
		{abi.KindHook.Module(), "request"}: true, {abi.KindService.Module(), "request"}: true,
	}
	for module, names := range map[string][]string{
		abi.ModuleObjects:          {"object", "object_part"},
		abi.KindAdmission.Module(): {"request", "object", "old_object", "options", "object_proto", "old_object_proto", "desired_api_version"},
		abi.KindScheduler.Module(): {"node_scores", "node_names", "node_refs", "node_name", "node_info", "node_images", "node_pods", "nominated_pods", "pod_group", "waiting_pods"},
	} {
		for _, name := range names {
			list[[2]string{module, name}] = true
		}
	}
	return list
}()

// known are the modules of the host functions of this project and of the dialects that it speaks.
// Their numbers are addresses, lengths, references, and words with a meaning. In functions of
// other modules, which a component adds, they may be anything.
var known = map[string]bool{
	abi.KindCommon.Module(): true, abi.KindScheduler.Module(): true, abi.KindAdmission.Module(): true,
	abi.KindHook.Module(): true, abi.KindService.Module(): true, abi.ModuleObjects: true,
	"wasi_snapshot_preview1": true, "wapc": true, "env": true, "k8s.io/klog": true,
}

// isAnswer reports whether an event is a call of the function by which a guest gets the answer of a
// service of the host.
func isAnswer(v *Version, e *Event) bool {
	return e.Kind == Host && e.Index < len(v.Imports) && v.Imports[e.Index].Name == "answer" && v.Imports[e.Index].Module == abi.KindService.Module()
}

// frame is a host function that runs, or an export that the host has called.
type frame struct {
	host bool
	// answer is set for the function that hands over the answer of a service of the host.
	answer bool
	// given is set if the function hands over the host's own data.
	given bool
	// message is the function's description of its bytes, nil if there is none.
	message *Event
}

// numbers are the events of a host function with numbers that the guest may have from something
// confidential, or the host from the guest, and the addresses and lengths of the bytes that moved.
type numbers struct {
	events []*Event
	moved  map[uint64]bool
	// answers are the lengths of the answers of services of the host in the call.
	answers map[uint64]bool
}

// isStatus reports whether a number is the result of a service of the host: the length of its
// answer and a status code.
func (n *numbers) isStatus(e *Event, v uint64) bool {
	return e.Kind == HostReturned && n.answers[v>>32] && uint32(v) <= uint32(codes.Unauthenticated)
}

// add takes an event of the function.
func (n *numbers) add(e *Event) {
	switch e.Kind {
	case Read, Write, Put, Text:
		for _, v := range e.Args {
			n.moved[uint64(uint32(v))] = true
		}
		n.moved[uint64(len(e.Data))] = true
	case Input, Output, Argument:
		n.moved[uint64(len(e.Data))] = true
	case Host, HostReturned, Invoke, Invoked:
		n.events = append(n.events, e)
	}
}

// plain reports whether a number carries no confidential data: a truth value, or the known address
// or length of bytes that moved, or two of these in one.
func (n *numbers) plain(v uint64) bool {
	half := func(v uint64) bool { return v <= 1 || v == math.MaxUint32 || n.moved[v] }
	return v == math.MaxUint64 || half(v&math.MaxUint32) && half(v>>32)
}

// mask masks the numbers that are not plain, by 0, and reports whether there are any.
func (n *numbers) mask(v *Version, stain *confidential.Stain) (changed bool) {
	for _, e := range n.events {
		var memory uint16
		if e.Kind == Host && e.Index < len(v.Imports) {
			memory = v.Imports[e.Index].Memory
		}
		for i, number := range e.Args {
			if i < 16 && memory&(1<<i) != 0 || n.isStatus(e, number) || n.plain(number) || !stain.HasNumber(number) {
				continue
			}
			e.Args[i], changed = 0, true
		}
	}
	return changed
}

// frames are the functions that run at an event.
type frames []frame

// next takes an event, and returns the host function that it is in, nil outside of all.
func (f *frames) next(v *Version, e *Event) *frame {
	switch e.Kind {
	case Host:
		known := false
		if e.Index < len(v.Imports) {
			im := &v.Imports[e.Index]
			known = given[[2]string{im.Module, im.Name}]
		}
		*f = append(*f, frame{host: true, given: known, answer: isAnswer(v, e)})
	case Invoke:
		*f = append(*f, frame{})
	case HostReturned, Invoked:
		if n := len(*f); n != 0 {
			*f = (*f)[:n-1]
		}
	}
	n := len(*f)
	if n == 0 || !(*f)[n-1].host {
		return nil
	}
	top := &(*f)[n-1]
	switch e.Kind {
	case Read, Text:
		top.given = false // It answers a question, which it may repeat.
	case Confidential:
		top.given, top.message = true, e // An object of the host's.
	}
	return top
}

// maskGiven masks confidential values in place in data that the host hands over, and reports
// whether there are any.
func maskGiven(c *Call, stain *confidential.Stain) (found bool) {
	rule := c.Version.Confidential
	var f frames
	for i := range c.Events {
		e := &c.Events[i]
		top := f.next(c.Version, e)
		if !e.ToGuest() || e.Kind == Random || len(e.Data) == 0 {
			continue
		}
		if top != nil && top.message != nil && len(top.message.Args) == 3 {
			args := top.message.Args
			if rule.MaskMessage(confidential.Shape(args[0]), uint32(args[1]), args[2] != 0, e.Data, stain) {
				found = true
			}
			continue
		}
		if rule.Mask(e.Data, stain) {
			found = true
		}
	}
	return found
}

// maskRepeated masks data from the guest, and data that the host may have received from it.
func maskRepeated(c *Call, stain *confidential.Stain) {
	marked := maskNumbers(c, stain)
	var f frames
	succeeded := false // The last service of the host: its answer is a message, and no error.
	for i := range c.Events {
		e := &c.Events[i]
		top := f.next(c.Version, e)
		if e.Kind == HostReturned && len(e.Args) == 1 {
			succeeded = uint32(e.Args[0]) == 0
		}
		switch {
		case e.Kind == Write && top != nil && top.answer && succeeded:
			marked = stain.MaskFields(e.Data) || marked
		case e.FromGuest() || e.Kind == Abort:
			marked = stain.Mask(e.Data) || marked
		case e.ToGuest() && e.Kind != Random && top != nil && !top.given:
			marked = stain.MaskAnswer(e.Data) || marked
		}
	}
	trap := []byte(c.Trap)
	if stain.Mask(trap) {
		c.Trap, marked = string(trap), true
	}
	if marked = stain.Mask(c.Output) || marked; marked {
		c.Marks |= Secret
	}
}

// maskNumbers masks the numbers that cross in host functions of a component.
func maskNumbers(c *Call, stain *confidential.Stain) (changed bool) {
	// The result of a service of the host has the length of its answer, which another function
	// hands over.
	answers := map[uint64]bool{}
	for i := 1; i < len(c.Events); i++ {
		if e := &c.Events[i]; e.Kind == Write && len(e.Args) == 3 && isAnswer(c.Version, &c.Events[i-1]) {
			answers[e.Args[2]] = true
		}
	}
	var running []*numbers // Those of the functions that run, nil for others.
	for i := range c.Events {
		e := &c.Events[i]
		var ended *numbers
		switch e.Kind {
		case Host:
			var n *numbers
			if e.Index >= len(c.Version.Imports) || !known[c.Version.Imports[e.Index].Module] {
				n = &numbers{moved: map[uint64]bool{}, answers: answers}
			}
			running = append(running, n)
		case HostReturned:
			if len(running) != 0 {
				ended = running[len(running)-1]
				running = running[:len(running)-1]
			}
		}
		switch {
		case ended != nil:
			ended.add(e)
			changed = ended.mask(c.Version, stain) || changed
		case len(running) != 0 && running[len(running)-1] != nil:
			running[len(running)-1].add(e)
		}
	}
	for _, n := range running { // The call ended in them.
		if n != nil {
			changed = n.mask(c.Version, stain) || changed
		}
	}
	return changed
}
