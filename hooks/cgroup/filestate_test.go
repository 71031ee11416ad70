package cgroup

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The rows are the states, the columns the events: "." stays, "+" does something.
func TestTransitions(t *testing.T) {
	names := []string{"settled", "unsettled", "readBack", "refused", "hopeless", "yielding"}
	const want = `
           pass      match     readBack   changing    refusal   hopeless   contention expiry    related
settled    .         .+        readBack+  unsettled   refused+  hopeless+  yielding+  .         .
unsettled  settled   settled+  readBack+  .           refused+  hopeless+  yielding+  .         .
readBack   .         settled+  .+         unsettled   refused+  hopeless+  yielding+  .         .
refused    .         settled+  readBack+  unsettled+  .+        hopeless+  yielding+  settled+  .+
hopeless   .         settled+  readBack+  unsettled+  refused+  .+         yielding+  settled+  .
yielding   .         settled+  readBack+  unsettled   refused+  hopeless+  .+         settled   .
`
	got := [][]string{{"pass", "match", "readBack", "changing", "refusal", "hopeless", "contention", "expiry", "related"}}
	for state := range fileStates {
		row := []string{names[state]}
		for event := range fileEvents {
			to := transitions[state][event]
			cell := names[to.next]
			if to.next == state {
				cell = "."
			}
			if to.do != nothing {
				cell += "+"
			}
			row = append(row, cell)
		}
		got = append(got, row)
	}
	var rows [][]string
	for line := range strings.Lines(strings.TrimSpace(want)) {
		rows = append(rows, strings.Fields(line))
	}
	if diff := cmp.Diff(rows, got); diff != "" {
		t.Error(diff)
	}
}

// A record follows its events. Each step is an event a second after the last one, after
// which the state, the wait and the looks are compared.
func TestFileRecord(t *testing.T) {
	const refusal, contention = time.Second, 30 * time.Second
	bounds := waits{bounds{refusal, 3 * time.Second}, bounds{contention, 100 * time.Second}}
	type step struct {
		event fileEvent
		text  string
		want  string
	}
	for _, c := range []struct {
		name  string
		steps []step
	}{
		{"a refusal waits longer each time, up to the bound, until the value is taken", []step{
			{onRefusal, "", "refused 1s, left alone"}, {onRefusal, "", "refused 2s, left alone"}, {onRefusal, "", "refused 3s, left alone"}, {onRefusal, "", "refused 3s, left alone"},
			{onMatch, "", "settled"}, {onRefusal, "", "refused 1s, left alone"},
		}},
		{"a refusal is tried at once after a related change, and its wait stays", []step{
			{onRefusal, "", "refused 1s, left alone"}, {onRelated, "", "refused 1s, due"}, {onRefusal, "", "refused 2s, left alone"},
		}},
		{"a refusal that went is forgotten", []step{{onRefusal, "", "refused 1s, left alone"}, {onExpiry, "", "settled"}}},
		{"a hopeless file is not tried again after a related change, and settles if it is there later", []step{
			{onHopeless, "", "hopeless 1s, left alone"}, {onHopeless, "", "hopeless 2s, left alone"}, {onRelated, "", "hopeless 2s, left alone"}, {onExpiry, "", "settled"},
		}},
		{"a second contention yields longer, up to the bound", []step{
			{onContention, "", "yielding 30s, left alone"}, {onExpiry, "", "settled 30s"}, {onContention, "", "yielding 1m0s, left alone"},
			{onMatch, "", "settled 1m0s"}, {onContention, "", "yielding 1m40s, left alone"},
		}},
		{"a text that is read back is due until it is believed", []step{
			{onReadBack, "a", "readBack 1 looks, due"}, {onPass, "", "readBack 1 looks, due"}, {onReadBack, "a", "readBack 2 looks, due"}, {onReadBack, "a", "readBack 3 looks"},
		}},
		{"another text begins anew", []step{
			{onReadBack, "a", "readBack 1 looks, due"}, {onReadBack, "a", "readBack 2 looks, due"}, {onReadBack, "b", "readBack 1 looks, due"}, {onMatch, "", "settled"},
		}},
		{"a file that changes meanwhile is due once", []step{{onChanging, "", "unsettled, due"}, {onPass, "", "settled"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var r fileRecord
			now := time.Now()
			for i, s := range c.steps {
				now = now.Add(time.Second)
				r.on(s.event, now, &bounds, s.text)
				got := [...]string{"settled", "unsettled", "readBack", "refused", "hopeless", "yielding"}[r.state]
				if r.wait != 0 {
					got += " " + r.wait.String()
				}
				if r.looks != 0 {
					got += fmt.Sprintf(" %d looks", r.looks)
				}
				if r.leftAlone(now) {
					got += ", left alone"
				}
				if r.due(now, false) {
					got += ", due"
				}
				if got != s.want {
					t.Fatalf("after step %d: %s, want %s", i+1, got, s.want)
				}
			}
			if all, some := r.due(now, true), r.due(now, false); r.state == readBack && !all || some && !all {
				t.Errorf("%+v is not due in a pass over everything", r)
			}
		})
	}
	var r fileRecord
	now := time.Now()
	r.on(onContention, now, &bounds, "")
	r.on(onContention, now.Add(time.Hour), &bounds, "")
	if r.wait != contention {
		t.Errorf("a contention after an hour waits for %s", r.wait)
	}
}
