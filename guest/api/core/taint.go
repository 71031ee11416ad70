package core

import (
	"strconv"

	"github.com/kubewasm/kubewasm/guest/internal/view"
)

// The effects of a taint.
const (
	TaintEffectNoSchedule       = "NoSchedule"
	TaintEffectPreferNoSchedule = "PreferNoSchedule"
	TaintEffectNoExecute        = "NoExecute"
)

// The operators of a toleration; empty means TolerationOpEqual.
const (
	TolerationOpExists = "Exists"
	TolerationOpEqual  = "Equal"
	TolerationOpLt     = "Lt"
	TolerationOpGt     = "Gt"
)

// Taint is a view of a taint: it keeps away from its Node the Pods that do not
// tolerate it.
type Taint struct {
	d       *taint
	version uint32
}

type taint struct {
	view.Message
	fields [4]view.Field
	effect effect
}

func newTaint(d *taint, parent *view.Message, raw []byte) Taint {
	d.SetFlat(parent, raw)
	return Taint{d, parent.Version}
}

var taintNames = view.Names{1: "key", 2: "value", 3: "effect"}

var noTaint = taint{Message: view.Message{Version: view.None}}

func (t Taint) data() *taint {
	if t.d != nil && t.d.Version == t.version {
		return t.d
	}
	return t.read()
}

func (t Taint) read() *taint {
	d := t.d
	if d == nil {
		return &noTaint
	}
	d.Read(t.version, d.fields[:], taintNames)
	d.effect = effectOf(d.fields[3].Peek())
	return d
}

// Key returns the taint's key.
func (t Taint) Key() string {
	d := t.data()
	return d.Text(&d.fields[1])
}

// Value returns the taint's value, which may be empty.
func (t Taint) Value() string {
	d := t.data()
	return d.Text(&d.fields[2])
}

// Effect returns what happens to a Pod that does not tolerate the taint.
func (t Taint) Effect() string {
	d := t.data()
	return d.Text(&d.fields[3])
}

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

// Toleration is a view of a toleration: it lets its Pod run on Nodes with
// matching taints.
type Toleration struct {
	d       *toleration
	version uint32
}

type toleration struct {
	view.Message
	fields [5]view.Field
	effect effect
	// equal says that the operator is TolerationOpEqual.
	equal bool
}

func newToleration(d *toleration, parent *view.Message, raw []byte) Toleration {
	d.SetFlat(parent, raw)
	return Toleration{d, parent.Version}
}

var tolerationNames = view.Names{1: "key", 2: "operator", 3: "value", 4: "effect"}

var noToleration = toleration{Message: view.Message{Version: view.None}, equal: true}

func (t Toleration) data() *toleration {
	if t.d != nil && t.d.Version == t.version {
		return t.d
	}
	return t.read()
}

func (t Toleration) read() *toleration {
	d := t.d
	if d == nil {
		return &noToleration
	}
	d.Read(t.version, d.fields[:], tolerationNames)
	d.effect = effectOf(d.fields[4].Peek())
	op := d.fields[2].Peek()
	d.equal = op == "" || op == TolerationOpEqual
	return d
}

// Key returns the key of the taints that are tolerated; empty means every key.
func (t Toleration) Key() string {
	d := t.data()
	return d.Text(&d.fields[1])
}

// Operator returns how the values are compared; empty means TolerationOpEqual.
func (t Toleration) Operator() string {
	d := t.data()
	return d.Text(&d.fields[2])
}

// Value returns the value that the taint's is compared with.
func (t Toleration) Value() string {
	d := t.data()
	return d.Text(&d.fields[3])
}

// Effect returns the effect that is tolerated; empty means every effect.
func (t Toleration) Effect() string {
	d := t.data()
	return d.Text(&d.fields[4])
}

// Tolerates reports whether the toleration matches the taint, by the rules of
// k8s.io/api/core/v1.Toleration.ToleratesTaint with comparison operators
// enabled.
func (t Toleration) Tolerates(taint Taint) bool {
	d := taint.data()
	d.Current()
	return t.data().tolerates(d)
}

// tolerates is Tolerates for a taint that is current.
func (d *toleration) tolerates(t *taint) bool {
	d.Current()
	if d.effect != effectNone && (d.effect != t.effect || d.effect == effectOther && d.fields[4].Peek() != t.fields[3].Peek()) {
		return false
	}
	if k := d.fields[1].Peek(); k != "" && k != t.fields[1].Peek() {
		return false
	}
	if d.equal {
		return d.fields[3].Peek() == t.fields[2].Peek()
	}
	return compares(d.fields[2].Peek(), t.fields[2].Peek(), d.fields[3].Peek())
}

// compares applies an operator other than TolerationOpEqual.
func compares(operator, have, want string) bool {
	switch operator {
	case TolerationOpExists:
		return true
	case TolerationOpLt:
		h, w, ok := decimals(have, want)
		return ok && h < w
	case TolerationOpGt:
		h, w, ok := decimals(have, want)
		return ok && h > w
	}
	return false
}

// effect is the effect of a taint as a number. Taints are compared with
// tolerations for every node, and most pairs differ here.
type effect uint8

const (
	effectNone effect = iota
	effectNoSchedule
	effectPreferNoSchedule
	effectNoExecute
	effectOther
)

func effectOf(s string) effect {
	switch s {
	case "":
		return effectNone
	case TaintEffectNoSchedule:
		return effectNoSchedule
	case TaintEffectPreferNoSchedule:
		return effectPreferNoSchedule
	case TaintEffectNoExecute:
		return effectNoExecute
	}
	return effectOther
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
	for i := range taints {
		t := taints[i].data()
		t.Current()
		if t.effect != effectNoSchedule && t.effect != effectNoExecute {
			continue
		}
		for j := range tolerations {
			if tolerations[j].data().tolerates(t) {
				continue next
			}
		}
		return taints[i], true
	}
	return Taint{}, false
}
