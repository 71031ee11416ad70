package core

import "strconv"

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
	if effect := t.Effect(); effect != "" && effect != taint.Effect() {
		return false
	}
	if key := t.Key(); key != "" && key != taint.Key() {
		return false
	}
	switch operator := t.Operator(); operator {
	case TolerationOpExists:
		return true
	case "", TolerationOpEqual:
		return t.Value() == taint.Value()
	default:
		return compares(operator, taint.Value(), t.Value())
	}
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
		switch taint.Effect() {
		case TaintEffectNoSchedule, TaintEffectNoExecute:
		default:
			continue
		}
		for _, t := range tolerations {
			if t.Tolerates(taint) {
				continue next
			}
		}
		return taint, true
	}
	return taint, false
}
