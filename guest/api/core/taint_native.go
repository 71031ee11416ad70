//go:build !wasm

package core

import "github.com/kubewasm/kubewasm/guest/view"

// untolerated is find for taints of which it is known where their strings lie. It
// leaves it to find to compare numbers.
func untolerated(memory view.Memory, taints []view.Spans, tolerations []terms) int {
next:
	for i := range taints {
		s := &taints[i]
		t := newTerms(memory.At(s[0]), "", memory.At(s[1]), memory.At(s[2]))
		if t.effect != noSchedule && t.effect != noExecute {
			continue
		}
		for j := range tolerations {
			if tolerations[j].operator == otherOperator {
				return unusual
			}
			if tolerations[j].match(&t) {
				continue next
			}
		}
		return i
	}
	return -1
}
