package core

import (
	"strconv"

	"github.com/kubewasm/kubewasm/guest/internal/wire"
	"github.com/kubewasm/kubewasm/guest/view"
)

// String returns the taint as kubectl writes it: key=value:effect.
func (t Taint) String() string {
	s := t.Key()
	if v := t.Value(); v != "" {
		s += "=" + v
	}
	if e := t.Effect(); e != "" {
		s += ":" + e
	}
	return s
}

// Tolerates reports whether the toleration matches the taint, by the rules of
// k8s.io/api/core/v1.Toleration.ToleratesTaint with comparison operators
// enabled.
func (t Toleration) Tolerates(taint Taint) bool {
	of, with := newTerms(t.Key(), t.Operator(), t.Value(), t.Effect()), newTerms(taint.Key(), "", taint.Value(), taint.Effect())
	return of.match(&with)
}

// terms are what a taint and a toleration are compared by. A taint has no
// operator.
type terms struct {
	key, operatorText, value, effectText string

	operator operator
	effect   effect
}

// operator and effect are numbers for the texts that there are, so that hardly
// any text is compared.
type (
	operator uint8
	effect   uint8
)

const (
	equal operator = iota
	exists
	otherOperator
)

const (
	noEffect effect = iota
	noSchedule
	preferNoSchedule
	noExecute
	otherEffect
)

func newTerms(key, operatorText, value, effectText string) (t terms) {
	t.key, t.operatorText, t.value, t.effectText = key, operatorText, value, effectText
	t.operator, t.effect = operatorOf(operatorText), effectOf(effectText)
	return t
}

func effectOf(text string) effect {
	switch len(text) {
	case 0:
		return noEffect
	case len(TaintEffectNoSchedule):
		if wire.Equal(text, TaintEffectNoSchedule) {
			return noSchedule
		}
	case len(TaintEffectNoExecute):
		if wire.Equal(text, TaintEffectNoExecute) {
			return noExecute
		}
	case len(TaintEffectPreferNoSchedule):
		if wire.Equal(text, TaintEffectPreferNoSchedule) {
			return preferNoSchedule
		}
	}
	return otherEffect
}

func operatorOf(text string) operator {
	switch len(text) {
	case 0:
		return equal
	case len(TolerationOpExists):
		if wire.Equal(text, TolerationOpExists) {
			return exists
		}
	case len(TolerationOpEqual):
		if wire.Equal(text, TolerationOpEqual) {
			return equal
		}
	}
	return otherOperator
}

// match reports whether a toleration matches a taint.
func (t *terms) match(taint *terms) bool {
	if t.effect != noEffect && (t.effect != taint.effect || t.effect == otherEffect && t.effectText != taint.effectText) {
		return false
	}
	if len(t.key) != 0 && !wire.Equal(t.key, taint.key) {
		return false
	}
	return t.operator == exists || t.matchValue(taint)
}

func (t *terms) matchValue(taint *terms) bool {
	if t.operator == equal {
		return wire.Equal(t.value, taint.value)
	}
	return compares(t.operatorText, taint.value, t.value)
}

// compares applies an operator other than TolerationOpEqual and TolerationOpExists.
func compares(operator, have, want string) bool {
	switch operator {
	case TolerationOpLt:
		h, w, ok := decimals(have, want)
		return ok && h < w
	case TolerationOpGt:
		h, w, ok := decimals(have, want)
		return ok && h > w
	}
	return false
}

// decimals reads both texts as decimal integers without leading zeros or plus
// sign, which is what the API accepts.
func decimals(a, b string) (x, y int64, ok bool) {
	x, okX := decimal(a)
	y, okY := decimal(b)
	return x, y, okX && okY
}

func decimal(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && strconv.FormatInt(n, 10) == s
}

// FindUntolerated returns the first taint that keeps a Pod with the given
// tolerations from being scheduled: its effect is NoSchedule or NoExecute, and
// no toleration matches it.
//
// Of the lists of a Node and a Pod, as Taints and Tolerations return them, the
// tolerations are read once in a version, and the last answer for a Node is kept:
// the scheduler asks again when it tries a Pod another time, and when it tries what
// preemption would do.
func FindUntolerated(taints []Taint, tolerations []Toleration) (taint Taint, found bool) {
	if len(taints) == 0 {
		return taint, false
	}
	i, known := view.Remembered(taints, tolerations)
	if !known {
		i = unusual
		terms := termsOf(tolerations)
		var spans [maxQuick]view.Spans
		if memory, ok := view.ReadSpans(taints, spans[:]); ok {
			i = untolerated(memory, spans[:len(taints)], terms)
		}
		if i == unusual {
			i = find(taints, terms)
		}
		view.Remember(taints, tolerations, i)
	}
	if i < 0 {
		return taint, false
	}
	return taints[i], true
}

// maxQuick is up to how many elements of a list are read at once: few Nodes have
// more taints, and Pods more tolerations.
const maxQuick = 4

// unusual is the answer of untolerated that it is for find to say.
const unusual = -2

// find returns the index of the first of the taints that no toleration matches,
// -1 if there is none.
func find(taints []Taint, tolerations []terms) int {
next:
	for i, taint := range taints {
		t := newTerms(taint.Key(), "", taint.Value(), taint.Effect())
		if t.effect != noSchedule && t.effect != noExecute {
			continue
		}
		for j := range tolerations {
			if tolerations[j].match(&t) {
				continue next
			}
		}
		return i
	}
	return -1
}

// termsOf returns the terms of tolerations. Their strings share the memory of the
// object, so they are those of a version.
func termsOf(tolerations []Toleration) []terms {
	note := view.NoteOf(tolerations)
	var list *[]terms
	if note != nil {
		if list, _ = note.Value.(*[]terms); list != nil && note.Made == note.Version {
			return *list
		}
	}
	if list == nil {
		list = new([]terms)
	}
	if len(*list) != len(tolerations) {
		*list = make([]terms, len(tolerations))
	}
	var spans [maxQuick]view.Spans
	if memory, ok := view.ReadSpans(tolerations, spans[:]); ok {
		for i := range *list {
			s := &spans[i]
			(*list)[i] = newTerms(memory.At(s[0]), memory.At(s[1]), memory.At(s[2]), memory.At(s[3]))
		}
	} else {
		for i, t := range tolerations {
			(*list)[i] = newTerms(t.Key(), t.Operator(), t.Value(), t.Effect())
		}
	}
	if note != nil {
		note.Value, note.Made = list, note.Version
	}
	return *list
}
