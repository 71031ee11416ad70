package core

import (
	"slices"
	"strconv"
	"sync/atomic"
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
	of := termsOf(t)
	return of.match(taint, taint.Key(), taint.Effect())
}

// terms are the strings of a toleration.
type terms struct{ key, operator, value, effect string }

func termsOf(t Toleration) terms { return terms{t.Key(), t.Operator(), t.Value(), t.Effect()} }

// match reports whether a toleration matches a taint with a key and an effect.
func (t *terms) match(taint Taint, key, effect string) bool {
	if t.effect != "" && t.effect != effect || t.key != "" && t.key != key {
		return false
	}
	switch t.operator {
	case TolerationOpExists:
		return true
	case "", TolerationOpEqual:
		return t.value == taint.Value()
	}
	return compares(t.operator, taint.Value(), t.value)
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
func FindUntolerated(taints []Taint, tolerations []Toleration) (taint Taint, found bool) {
next:
	for _, taint := range taints {
		effect := taint.Effect()
		switch effect {
		case TaintEffectNoSchedule, TaintEffectNoExecute:
		default:
			continue
		}
		key, list := taint.Key(), termsOfAll(tolerations)
		for i := range list {
			if list[i].match(taint, key, effect) {
				continue next
			}
		}
		return taint, true
	}
	return taint, false
}

// lastTolerations are the terms of those of the last Pod: a plugin compares them with the
// taints of one Node after the other. It does not change.
var lastTolerations atomic.Pointer[tolerationTerms]

type tolerationTerms struct {
	of   []Toleration
	list []terms
}

// termsOfAll returns the terms of tolerations. Views are equal if they are of the same version
// of the same message.
func termsOfAll(tolerations []Toleration) []terms {
	if last := lastTolerations.Load(); last != nil && slices.Equal(last.of, tolerations) {
		return last.list
	}
	list := make([]terms, len(tolerations))
	for i, t := range tolerations {
		list[i] = termsOf(t)
	}
	lastTolerations.Store(&tolerationTerms{slices.Clone(tolerations), list}) // The slice may be the plugin's own.
	return list
}
