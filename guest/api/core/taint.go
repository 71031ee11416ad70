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
	t.number()
	return t
}

// number fills in the numbers of the texts.
func (t *terms) number() {
	switch e := t.effectText; {
	case e == "":
		t.effect = noEffect
	case wire.Equal(e, TaintEffectNoSchedule):
		t.effect = noSchedule
	case wire.Equal(e, TaintEffectNoExecute):
		t.effect = noExecute
	case wire.Equal(e, TaintEffectPreferNoSchedule):
		t.effect = preferNoSchedule
	default:
		t.effect = otherEffect
	}
	switch o := t.operatorText; {
	case o == "" || wire.Equal(o, TolerationOpEqual):
		t.operator = equal
	case wire.Equal(o, TolerationOpExists):
		t.operator = exists
	default:
		t.operator = otherOperator
	}
}

// match reports whether a toleration matches a taint.
func (t *terms) match(taint *terms) bool {
	if t.effect != taint.effect && t.effect != noEffect || t.effect == otherEffect && t.effectText != taint.effectText {
		return false
	}
	if t.key != "" && !wire.Equal(t.key, taint.key) {
		return false
	}
	switch t.operator {
	case equal:
		return wire.Equal(t.value, taint.value)
	case exists:
		return true
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

// termList is the terms of a list of taints or tolerations. Their strings share the
// memory of the object, so they are those of a version.
type termList struct {
	terms []terms
	// untolerated is the index of the first of these taints that is not tolerated
	// by the list of tolerations with the note with, in a version; -1 if there is
	// none. It is not known if with is nil.
	untolerated int
	with        *view.Note
	version     uint32
}

// FindUntolerated returns the first taint that keeps a Pod with the given
// tolerations from being scheduled: its effect is NoSchedule or NoExecute, and
// no toleration matches it.
//
// Of the lists of a Node and a Pod, as Taints and Tolerations return them, the
// terms are read once in a version, and the last answer for a Node is kept: the
// scheduler asks again when it tries a Pod another time, and when it tries what
// preemption would do.
func FindUntolerated(taints []Taint, tolerations []Toleration) (Taint, bool) {
	if len(taints) == 0 {
		return Taint{}, false
	}
	if of := view.NoteOf(taints); of != nil && of.Made == of.Version {
		l := of.Value.(*termList)
		if with := view.NoteOf(tolerations); with != nil && l.with == with && l.version == with.Version {
			if l.untolerated < 0 {
				return Taint{}, false
			}
			return taints[l.untolerated], true
		}
	}
	if i := findUntolerated(taints, tolerations); i >= 0 {
		return taints[i], true
	}
	return Taint{}, false
}

// findUntolerated is FindUntolerated for two lists that were not compared yet. It
// returns an index or -1.
func findUntolerated(taints []Taint, tolerations []Toleration) int {
	of, with := view.NoteOf(taints), view.NoteOf(tolerations)
	l := readTerms(of, taints, readTaint)
	l.untolerated = l.find(readTerms(with, tolerations, readToleration).terms)
	l.with = with
	if with != nil {
		l.version = with.Version
	}
	return l.untolerated
}

// readTerms returns the terms of a list with the given note, or without one.
func readTerms[V view.Of](note *view.Note, views []V, read func(*terms, view.View)) *termList {
	var l *termList
	if note != nil {
		l, _ = note.Value.(*termList)
		if l != nil && note.Made == note.Version {
			return l
		}
	}
	if l == nil {
		l = &termList{}
	}
	if len(l.terms) != len(views) {
		l.terms = make([]terms, len(views))
	}
	for i := range views {
		read(&l.terms[i], view.View(views[i]))
		l.terms[i].number()
	}
	if note != nil {
		note.Value, note.Made = l, note.Version
	}
	return l
}

func readTaint(t *terms, v view.View) {
	var texts [4]string
	v.Texts(texts[:])
	t.key, t.value, t.effectText = texts[1], texts[2], texts[3]
}

func readToleration(t *terms, v view.View) {
	var texts [5]string
	v.Texts(texts[:])
	t.key, t.operatorText, t.value, t.effectText = texts[1], texts[2], texts[3], texts[4]
}

// find returns the index of the first of the taints that no toleration matches,
// -1 if there is none.
func (l *termList) find(tolerations []terms) int {
next:
	for i := range l.terms {
		t := &l.terms[i]
		if t.effect != noSchedule && t.effect != noExecute {
			continue
		}
		for j := range tolerations {
			if tolerations[j].match(t) {
				continue next
			}
		}
		return i
	}
	return -1
}
