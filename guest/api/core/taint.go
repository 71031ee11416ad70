package core

import (
	"strconv"

	"github.com/kubewasm/kubewasm/guest/internal/json"
	"github.com/kubewasm/kubewasm/guest/internal/view"
	"github.com/kubewasm/kubewasm/guest/internal/wire"
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
type Taint struct{ d *taint }

type taint struct {
	view.Message
	key, value, effect string
}

var noTaint taint

func (t Taint) data() *taint {
	if t.d == nil {
		return &noTaint
	}
	if t.d.Unread() {
		t.d.read()
	}
	return t.d
}

func (d *taint) read() {
	if d.JSON {
		for it := json.Object(d.Raw); it.Next(); {
			switch it.Key() {
			case "key":
				d.key = it.Value().String()
			case "value":
				d.value = it.Value().String()
			case "effect":
				d.effect = it.Value().String()
			}
		}
		return
	}
	for r := wire.NewReader(d.Raw); r.Next(); {
		switch r.Field {
		case 1:
			d.key = r.String()
		case 2:
			d.value = r.String()
		case 3:
			d.effect = r.String()
		}
	}
}

// Key returns the taint's key.
func (t Taint) Key() string { return t.data().key }

// Value returns the taint's value, which may be empty.
func (t Taint) Value() string { return t.data().value }

// Effect returns what happens to a Pod that does not tolerate the taint.
func (t Taint) Effect() string { return t.data().effect }

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
type Toleration struct{ d *toleration }

type toleration struct {
	view.Message
	key, operator, value, effect string
}

var noToleration toleration

func (t Toleration) data() *toleration {
	if t.d == nil {
		return &noToleration
	}
	if t.d.Unread() {
		t.d.read()
	}
	return t.d
}

func (d *toleration) read() {
	if d.JSON {
		for it := json.Object(d.Raw); it.Next(); {
			switch it.Key() {
			case "key":
				d.key = it.Value().String()
			case "operator":
				d.operator = it.Value().String()
			case "value":
				d.value = it.Value().String()
			case "effect":
				d.effect = it.Value().String()
			}
		}
		return
	}
	for r := wire.NewReader(d.Raw); r.Next(); {
		switch r.Field {
		case 1:
			d.key = r.String()
		case 2:
			d.operator = r.String()
		case 3:
			d.value = r.String()
		case 4:
			d.effect = r.String()
		}
	}
}

// Key returns the key of the taints that are tolerated; empty means every key.
func (t Toleration) Key() string { return t.data().key }

// Operator returns how the values are compared; empty means TolerationOpEqual.
func (t Toleration) Operator() string { return t.data().operator }

// Value returns the value that the taint's is compared with.
func (t Toleration) Value() string { return t.data().value }

// Effect returns the effect that is tolerated; empty means every effect.
func (t Toleration) Effect() string { return t.data().effect }

// Tolerates reports whether the toleration matches the taint, by the rules of
// k8s.io/api/core/v1.Toleration.ToleratesTaint with comparison operators
// enabled.
func (t Toleration) Tolerates(taint Taint) bool {
	if e := t.Effect(); e != "" && e != taint.Effect() {
		return false
	}
	if k := t.Key(); k != "" && k != taint.Key() {
		return false
	}
	switch t.Operator() {
	case "", TolerationOpEqual:
		return t.Value() == taint.Value()
	case TolerationOpExists:
		return true
	case TolerationOpLt:
		have, want, ok := decimals(taint.Value(), t.Value())
		return ok && have < want
	case TolerationOpGt:
		have, want, ok := decimals(taint.Value(), t.Value())
		return ok && have > want
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
		if e := taint.Effect(); e != TaintEffectNoSchedule && e != TaintEffectNoExecute {
			continue
		}
		for _, t := range tolerations {
			if t.Tolerates(taint) {
				continue next
			}
		}
		return taint, true
	}
	return Taint{}, false
}
