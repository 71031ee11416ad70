package hookmsg

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kubewasm/kubewasm/internal/nearest"
)

// Projection says which fields of a request travel to a guest. What a guest does
// not read costs as much to encode and to copy as what it reads.
//
// The zero value is everything; [ParseProjection] makes others. The stage, the
// level and the QoS class always travel.
type Projection struct {
	limited bool
	// fields are those that travel as a whole, by number.
	fields uint16
	// keys are the entries that travel of a map of which not everything does,
	// sorted.
	keys [12][]string
}

// projected are the names of the fields that a projection may name, by number.
var projected = [...]string{
	3: "pod", 4: "container", 5: "pod_labels", 6: "pod_annotations", 7: "container_annotations",
	8: "cgroup_parent", 10: "resources", 11: "container_envs",
}

// ParseProjection returns the projection to some fields of hook.proto's Request,
// or entries of its maps: "pod", "resources",
// "pod_annotations[kubewasm.dev/cpu]". No names at all are everything.
//
// The error names every name that is not one of these.
func ParseProjection(names []string) (Projection, error) {
	var p Projection
	var errs []error
	for _, name := range names {
		p.limited = true
		field, rest, hasKey := strings.Cut(name, "[")
		key, closed := strings.CutSuffix(rest, "]")
		n := slices.Index(projected[:], field)
		isMap := n >= 5 && n <= 7 || n == 11
		meant := nearest.Name(field, fieldNames())
		switch {
		case n < 0 && meant != "":
			errs = append(errs, fmt.Errorf("projection %q is no field of a request; did you mean %q?", name, meant))
		case field == "" || n < 0 || hasKey && (!closed || !isMap || key == ""):
			errs = append(errs, fmt.Errorf("projection %q is no field of a request; there are %s, and entries like pod_labels[app]", name, strings.Join(fieldNames(), ", ")))
		case hasKey:
			p.keys[n] = append(p.keys[n], key)
		default:
			p.fields |= 1 << n
		}
	}
	if err := errors.Join(errs...); err != nil {
		return Projection{}, err
	}
	for n := range p.keys {
		slices.Sort(p.keys[n])
		p.keys[n] = slices.Compact(p.keys[n])
	}
	return p, nil
}

func fieldNames() (names []string) {
	for _, name := range projected {
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}

// has reports whether the field travels as a whole.
func (p *Projection) has(n int) bool { return !p.limited || p.fields&(1<<n) != 0 }

// Limited reports whether the projection leaves anything out.
func (p *Projection) Limited() bool { return p.limited }

// Reads reports whether a field of the request travels, or an entry of it.
func (p *Projection) Reads(field string) bool {
	n := slices.Index(projected[:], field)
	return field != "" && n >= 0 && (p.has(n) || len(p.keys[n]) != 0)
}

// Without returns the projection without some fields.
func (p Projection) Without(fields ...string) Projection {
	for n, name := range projected {
		switch {
		case name == "":
		case slices.Contains(fields, name):
			p.keys[n] = nil
			p.fields &^= 1 << n
		case !p.limited:
			p.fields |= 1 << n
		}
	}
	p.limited = true
	return p
}

// Equal reports whether the same bytes travel.
func (p *Projection) Equal(q *Projection) bool {
	if p.limited != q.limited || p.fields != q.fields {
		return false
	}
	for n := range p.keys {
		if !p.has(n) && !slices.Equal(p.keys[n], q.keys[n]) {
			return false
		}
	}
	return true
}
