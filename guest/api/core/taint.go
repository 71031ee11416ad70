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
func (t Toleration) Tolerates(taint Taint) bool { return t.terms().match(taint.terms()) }

// terms are what a taint and a toleration are compared by. They are read once in
// a version and noted with the view, since a Pod's tolerations are compared with
// the taints of every node. The strings share the memory of the object.
type terms struct {
	key, value, effectText, operatorText string
	effect                               effect
	operator                             operator
}

// effect and operator are numbers for the texts that there are, so that hardly
// any text is compared.
type (
	effect   uint8
	operator uint8
)

const (
	noEffect effect = iota
	otherEffect
	noSchedule
	preferNoSchedule
	noExecute
)

const (
	equal operator = iota
	otherOperator
	exists
)

func (t Taint) terms() *terms {
	if n, ok := view.View(t).Note().(*terms); ok {
		return n
	}
	return readTerms(view.View(t), 0, 2, 3)
}

func (t Toleration) terms() *terms {
	if n, ok := view.View(t).Note().(*terms); ok {
		return n
	}
	return readTerms(view.View(t), 2, 3, 4)
}

// readTerms reads the terms in the fields with these numbers; 1 is the key.
func readTerms(v view.View, operatorField, valueField, effectField uint32) *terms {
	n, ok := v.LastNote().(*terms)
	if !ok {
		n = &terms{}
	}
	n.key, n.value, n.effectText, n.operatorText = v.TextInPlace(1), v.TextInPlace(valueField), v.TextInPlace(effectField), ""
	if operatorField != 0 {
		n.operatorText = v.TextInPlace(operatorField)
	}
	switch n.effectText {
	case "":
		n.effect = noEffect
	case TaintEffectNoSchedule:
		n.effect = noSchedule
	case TaintEffectPreferNoSchedule:
		n.effect = preferNoSchedule
	case TaintEffectNoExecute:
		n.effect = noExecute
	default:
		n.effect = otherEffect
	}
	switch n.operatorText {
	case "", TolerationOpEqual:
		n.operator = equal
	case TolerationOpExists:
		n.operator = exists
	default:
		n.operator = otherOperator
	}
	v.SetNote(n)
	return n
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

// FindUntolerated returns the first taint that keeps a Pod with the given
// tolerations from being scheduled: its effect is NoSchedule or NoExecute, and
// no toleration matches it.
func FindUntolerated(taints []Taint, tolerations []Toleration) (Taint, bool) {
next:
	for _, taint := range taints {
		n := taint.terms()
		if n.effect != noSchedule && n.effect != noExecute {
			continue
		}
		for _, toleration := range tolerations {
			if toleration.terms().match(n) {
				continue next
			}
		}
		return taint, true
	}
	return Taint{}, false
}
