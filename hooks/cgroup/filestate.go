package cgroup

import (
	"time"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
)

// fileState is the state of a file that an [Enforcer] keeps at a decided value, or of
// all files of a field. Events move it, as in transitions.
type fileState uint8

const (
	// settled is a file with the decided value, as far as is known. Each pass compares its text.
	settled fileState = iota
	// unsettled is a file that another writer changed right after it was written. The
	// next pass writes it again.
	unsettled
	// readBack is a file that twice had a text different from the written one. It is either the
	// kernel's normal form of the value, or the text of another writer, and nothing distinguishes
	// the two. So the next passes write the file again, and after enoughLooks of them only passes
	// over everything do.
	readBack
	// refused is a file whose value the kernel refused. It is left alone for a time that grows with
	// each refusal, or until a cgroup above or below changes.
	refused
	// hopeless is a file that cannot have the value, or does not exist. It is left alone like a
	// refused one, but nothing ends its wait. Only passes over everything try it again, since a
	// controller of cgroup v2 may be turned on.
	hopeless
	// yielding is a file that is left to another writer until a time.
	yielding

	fileStates
)

// fileEvent is an event that concerns a file.
type fileEvent uint8

const (
	// onPass is the end of a pass that planned the file's cgroup; the events of its results follow.
	onPass fileEvent = iota
	// onMatch is a text equal in meaning to the decided value.
	onMatch
	// onReadBack is a different text that is the same after two writes.
	onReadBack
	// onChanging is a text that has changed since the second write.
	onChanging
	// onRefusal is an error that may disappear by itself, onHopeless one that does not.
	onRefusal
	onHopeless
	// onContention is a repair beyond the limit.
	onContention
	// onExpiry is the end of a pass that tried the file again, without an error.
	onExpiry
	// onRelated is a change of a cgroup above or below.
	onRelated

	fileEvents
)

// fileAction is a side effect of a transition. Several actions are done in this order.
type fileAction uint8

const (
	// forgetText drops the text that was read back.
	forgetText fileAction = 1 << iota
	// forgetWait resets the wait, so that the next one is as short as the first.
	forgetWait
	// countLook counts the passes that read the same text back.
	countLook
	// backOff doubles the wait, between the bounds of refusals.
	backOff
	// giveWay doubles the wait, between the bounds of contention.
	giveWay
	// retryNow ends the wait but keeps its length.
	retryNow

	nothing fileAction = 0
)

// transition is the effect of an event in a state.
type transition struct {
	next fileState
	do   fileAction
}

// transitions holds the transitions by state and event. The length of a wait survives the state
// yielding, so that the next wait is longer. Different resources for a cgroup drop the records of
// its files.
var transitions = [fileStates][fileEvents]transition{
	settled: {
		onPass: {settled, nothing}, onMatch: {settled, forgetText}, onReadBack: {readBack, countLook}, onChanging: {unsettled, nothing},
		onRefusal: {refused, backOff}, onHopeless: {hopeless, backOff}, onContention: {yielding, giveWay},
		onExpiry: {settled, nothing}, onRelated: {settled, nothing},
	},
	unsettled: {
		onPass: {settled, nothing}, onMatch: {settled, forgetText}, onReadBack: {readBack, countLook}, onChanging: {unsettled, nothing},
		onRefusal: {refused, backOff}, onHopeless: {hopeless, backOff}, onContention: {yielding, giveWay},
		onExpiry: {unsettled, nothing}, onRelated: {unsettled, nothing},
	},
	readBack: {
		onPass: {readBack, nothing}, onMatch: {settled, forgetText}, onReadBack: {readBack, countLook}, onChanging: {unsettled, nothing},
		onRefusal: {refused, backOff}, onHopeless: {hopeless, backOff}, onContention: {yielding, giveWay},
		onExpiry: {readBack, nothing}, onRelated: {readBack, nothing},
	},
	refused: {
		onPass: {refused, nothing}, onMatch: {settled, forgetText | forgetWait}, onReadBack: {readBack, forgetWait | countLook}, onChanging: {unsettled, forgetWait},
		onRefusal: {refused, backOff}, onHopeless: {hopeless, backOff}, onContention: {yielding, giveWay},
		onExpiry: {settled, forgetWait}, onRelated: {refused, retryNow},
	},
	hopeless: {
		onPass: {hopeless, nothing}, onMatch: {settled, forgetText | forgetWait}, onReadBack: {readBack, forgetWait | countLook}, onChanging: {unsettled, forgetWait},
		onRefusal: {refused, backOff}, onHopeless: {hopeless, backOff}, onContention: {yielding, giveWay},
		onExpiry: {settled, forgetWait}, onRelated: {hopeless, nothing},
	},
	yielding: {
		onPass: {yielding, nothing}, onMatch: {settled, forgetText}, onReadBack: {readBack, countLook}, onChanging: {unsettled, nothing},
		onRefusal: {refused, backOff}, onHopeless: {hopeless, backOff}, onContention: {yielding, giveWay},
		onExpiry: {settled, nothing}, onRelated: {yielding, nothing},
	},
}

// fileKey names a file of a field, or all files of a field if file is empty.
type fileKey struct {
	field hookmsg.Fields
	file  string
}

// fileRecord is the state of a file, in addition to its last text. The zero value is the record of
// a settled file.
type fileRecord struct {
	state fileState
	// cause is the cause of the last refusal, message its error.
	cause, message string
	// until is the time at which a refused or yielding file is tried again, and wait the length of
	// that wait or of the last one.
	until time.Time
	wait  time.Duration
	// text is the text read back, and looks the number of passes that have found it.
	text  string
	looks int
	// repairs are the times of the last repairs.
	repairs []time.Time
}

// enoughLooks is the number of passes that must read a text back before it counts as the kernel's.
const enoughLooks = 3

// waits are the bounds of the waits after refusals and contention.
type waits struct{ refusals, contention bounds }

type bounds struct{ least, most time.Duration }

// on updates the record by an event. text is the text of onReadBack.
func (r *fileRecord) on(event fileEvent, now time.Time, bounds *waits, text string) {
	t := transitions[r.state][event]
	r.state = t.next
	if t.do&forgetText != 0 {
		r.text, r.looks = "", 0
	}
	if t.do&forgetWait != 0 {
		r.wait = 0
	}
	if t.do&countLook != 0 {
		if r.text != text {
			r.text, r.looks = text, 0
		}
		r.looks++
	}
	if t.do&backOff != 0 {
		r.wait = min(max(2*r.wait, bounds.refusals.least), bounds.refusals.most)
		r.until = now.Add(r.wait)
	}
	if t.do&giveWay != 0 {
		if now.Sub(r.until) > bounds.contention.most {
			r.wait = 0 // The last contention has ended long ago.
		}
		r.wait = min(max(2*r.wait, bounds.contention.least), bounds.contention.most)
		r.until = now.Add(r.wait)
	}
	if t.do&retryNow != 0 {
		r.until = time.Time{}
	}
}

// leftAlone reports whether the file is skipped for now.
func (r *fileRecord) leftAlone(now time.Time) bool {
	return r.state.isWaiting() && now.Before(r.until)
}

// hasDeadline reports whether the file is tried again at a time.
func (r *fileRecord) hasDeadline() bool { return r.state == refused || r.state == yielding }

// isWaiting reports whether files in the state may be left alone.
func (s fileState) isWaiting() bool { return s == refused || s == hopeless || s == yielding }

// due reports whether a pass must look at the file even if its text is the same.
func (r *fileRecord) due(now time.Time, everything bool) bool {
	switch r.state {
	case unsettled:
		return true
	case readBack:
		return everything || r.looks < enoughLooks
	case refused, yielding:
		return !now.Before(r.until)
	case hopeless:
		return everything && !now.Before(r.until)
	}
	return false
}

// empty reports whether the record is equivalent to no record.
func (r *fileRecord) empty() bool {
	return r.state == settled && r.wait == 0 && r.text == "" && len(r.repairs) == 0
}
