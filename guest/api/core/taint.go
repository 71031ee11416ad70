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
		v := verdicts.at(view.View(taints[i]))
		if v.of != verdicts.lists || v.taint != taints[i] {
			verdicts.find(v, taints[i])
		}
		if v.keepsOut {
			return taints[i], true
		}
	}
	return taint, false
}

var (
	verdicts      verdictTable
	verdictsMutex sync.Mutex
)

// verdictTable remembers which taints keep a Pod with some tolerations out: the scheduler asks
// about the same Nodes for one Pod after the other, most of which have the same tolerations. A
// taint is known by its view, since views are equal if they are of the same version of the same
// message. Its serial number is its place, modulo maxVerdicts: of two taints with the same place
// the last one stays. A verdict takes 32 bytes. Those about the tolerations before do not count.
type verdictTable struct {
	// tolerations are those of the last Pod, and terms what they say.
	tolerations []Toleration
	terms       []terms
	// lists is how many lists of tolerations came so far, without those that say the same
	// as the one before.
	lists uint64
	table *[maxVerdicts]verdict
	// once is the verdict about a taint without a serial number.
	once verdict
}

type verdict struct {
	taint Taint
	// of is the list of tolerations that the verdict is about.
	of       uint64
	keepsOut bool
}

// maxVerdicts is how many verdicts a table has room for: a taint of each of 5,000 Nodes.
const maxVerdicts = 1 << 13

// areOf reports whether the verdicts are about the tolerations.
func (t *verdictTable) areOf(tolerations []Toleration) bool {
	if len(t.tolerations) != len(tolerations) || t.lists == 0 {
		return false
	}
	for i := range tolerations {
		if t.tolerations[i] != tolerations[i] {
			return false
		}
	}
	return true
}

// reset makes the verdicts those about other tolerations.
func (t *verdictTable) reset(tolerations []Toleration) {
	list := make([]terms, len(tolerations))
	for i, toleration := range tolerations {
		list[i] = termsOf(toleration)
	}
	t.tolerations = slices.Clone(tolerations) // The slice may be the plugin's own.
	if t.lists == 0 || !slices.Equal(t.terms, list) {
		t.terms = list
		t.lists++
	}
}

// at returns where the verdict about a taint is, if there is one.
func (t *verdictTable) at(taint view.View) *verdict {
	if n := taint.Serial(); n != 0 && t.table != nil {
		return &t.table[n%maxVerdicts]
	}
	t.once.of = 0
	return &t.once
}

// find makes v the verdict about the taint.
func (t *verdictTable) find(v *verdict, taint Taint) {
	keepsOut := t.doNotMatch(taint)
	v.of, v.keepsOut = t.lists, keepsOut
	if v != &t.once {
		v.taint = taint // Which keeps the memory of the object.
	} else if t.table == nil && view.View(taint).Serial() != 0 {
		t.table = new([maxVerdicts]verdict)
	}
}

// doNotMatch reports whether the taint keeps Pods out and no toleration matches it.
func (t *verdictTable) doNotMatch(taint Taint) bool {
	key, value, effect := read(taint)
	if effect != TaintEffectNoSchedule && effect != TaintEffectNoExecute {
		return false
	}
	for i := range t.terms {
		if t.terms[i].match(key, value, effect) {
			return false
		}
	}
	return true
}

// read returns the fields of a taint, which are valid as long as the view is: in protobuf from
// one pass over the bytes, without a copy.
func read(taint Taint) (key, value, effect string) {
	raw, ok := view.View(taint).Proto()
	if !ok {
		return taint.Key(), taint.Value(), taint.Effect()
	}
	for i := 0; i < len(raw); {
		// A short text is read here: in a Go guest a call costs more than the field does.
		number, start, end := uint64(raw[i]), i+2, 0
		if start <= len(raw) && raw[start-1] < 0x80 {
			end = start + int(raw[start-1])
		}
		if end == 0 || end > len(raw) || number&7 != uint64(wire.Bytes) || number >= 0x80 {
			number, start, end = wire.Field(raw, i)
		}
		text := raw[start:end]
		switch i = end; number {
		case 1<<3 | uint64(wire.Bytes):
			key = inPlace(text)
		case 2<<3 | uint64(wire.Bytes):
			value = inPlace(text)
		case 3<<3 | uint64(wire.Bytes):
			effect = inPlace(text)
		}
	}
	return key, value, effect
}

func inPlace(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
