package core

import (
	"runtime"
	"slices"
	"strconv"
	"sync"
	"unsafe"

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
	of := termsOf(t)
	return of.match(read(taint))
}

// terms are the strings of a toleration. The operator is empty for TolerationOpEqual.
type terms struct {
	key, operator, value, effect string
	exists                       bool
}

func termsOf(t Toleration) terms {
	of := terms{key: t.Key(), operator: t.Operator(), value: t.Value(), effect: t.Effect()}
	of.exists = of.operator == TolerationOpExists
	if of.operator == TolerationOpEqual {
		of.operator = ""
	}
	return of
}

// match reports whether a toleration matches a taint.
func (t *terms) match(key, value, effect string) bool {
	if t.effect != "" && t.effect != effect || t.key != "" && t.key != key {
		return false
	}
	if t.exists {
		return true
	}
	if t.operator == "" {
		return t.value == value
	}
	return compares(t.operator, value, t.value)
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

// decimals reads both texts as decimal integers without leading zeros or plus sign, the form that
// the API accepts.
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
	if len(taints) == 0 {
		return taint, false
	}
	if runtime.GOOS != "wasip1" { // A guest has one thread.
		verdictsMutex.Lock()
		defer verdictsMutex.Unlock()
	}
	if !verdicts.areOf(tolerations) {
		verdicts.reset(tolerations)
	}
	for i := range taints {
		mark := view.View(taints[i]).Mark()
		if mark == nil || *mark>>1 != verdicts.lists {
			keepsOut := verdicts.keepsOut(taints[i])
			if mark != nil {
				*mark = verdicts.lists << 1
				if keepsOut {
					*mark++
				}
			}
			if !keepsOut {
				continue
			}
		} else if *mark&1 == 0 {
			continue
		}
		return taints[i], true
	}
	return taint, false
}

var (
	verdicts      verdictsOf
	verdictsMutex sync.Mutex
)

// verdictsOf reports the taints that keep a Pod with some tolerations out. The scheduler asks about
// the same Nodes for one Pod after the other, most of which have the same tolerations. So the mark
// of a taint is twice the number of the list that it was compared with, and 1 more if it keeps Pods
// out.
type verdictsOf struct {
	// tolerations are those of the last Pod, and terms their strings.
	tolerations []Toleration
	terms       []terms
	// lists is the number of lists of tolerations so far, without those that equal the previous
	// one.
	lists uint64
}

// areOf reports whether the verdicts are about the tolerations.
func (v *verdictsOf) areOf(tolerations []Toleration) bool {
	if len(v.tolerations) != len(tolerations) || v.lists == 0 {
		return false
	}
	for i := range tolerations {
		if v.tolerations[i] != tolerations[i] {
			return false
		}
	}
	return true
}

// reset changes the verdicts to those about other tolerations.
func (v *verdictsOf) reset(tolerations []Toleration) {
	list := make([]terms, len(tolerations))
	for i, toleration := range tolerations {
		list[i] = termsOf(toleration)
	}
	v.tolerations = slices.Clone(tolerations) // The slice may be the plugin's own.
	if v.lists == 0 || !slices.Equal(v.terms, list) {
		v.terms = list
		v.lists++
	}
}

// keepsOut reports whether the taint keeps Pods out and no toleration matches it.
func (v *verdictsOf) keepsOut(taint Taint) bool {
	key, value, effect := read(taint)
	if effect != TaintEffectNoSchedule && effect != TaintEffectNoExecute {
		return false
	}
	for i := range v.terms {
		if v.terms[i].match(key, value, effect) {
			return false
		}
	}
	return true
}

// read returns the fields of a taint, which are valid as long as the view is: in protobuf without
// a copy, and without a call for short fields in the order in which they are declared.
func read(taint Taint) (key, value, effect string) {
	raw, ok := view.View(taint).Proto()
	if !ok {
		return taint.Key(), taint.Value(), taint.Effect()
	}
	text := inPlace(raw)
	key, i := short(text, 0, 1)
	value, i = short(text, i, 2)
	effect, i = short(text, i, 3)
	for i < len(text) {
		number, start, end := wire.Field(raw, i)
		switch i = end; number {
		case 1<<3 | uint64(wire.Bytes):
			key = text[start:end]
		case 2<<3 | uint64(wire.Bytes):
			value = text[start:end]
		case 3<<3 | uint64(wire.Bytes):
			effect = text[start:end]
		}
	}
	return key, value, effect
}

// short returns the bytes of the field at s[i] and its end, if it has the number and fewer than 128
// bytes.
func short(s string, i int, number byte) (text string, end int) {
	if i+1 >= len(s) || s[i] != number<<3|byte(wire.Bytes) || s[i+1] >= 0x80 || int(s[i+1]) > len(s)-i-2 {
		return "", i
	}
	end = i + 2 + int(s[i+1])
	return s[i+2 : end], end
}

func inPlace(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
