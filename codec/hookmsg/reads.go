package hookmsg

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kubewasm/kubewasm/internal/nearest"
)

// Reads are the fields of a request that a guest reads. Only these travel to it: a field that it
// does not read costs as much to encode and to copy as one that it reads.
//
// The zero value is everything; [ParseReads] makes restricted ones. The stage, the level and the
// QoS class always travel.
type Reads struct {
	limited bool
	// fields are the fields that travel as a whole, by number.
	fields uint32
	// keys are the entries that travel of a map that is not whole, sorted.
	keys [len(requestFields)][]string
}

// requestFields are the names of the fields that Reads may have, by number.
var requestFields = [...]string{
	3: "pod", 4: "container", 5: "pod_labels", 6: "pod_annotations", 7: "container_annotations",
	8: "cgroup_parent", 10: "resources", 11: "container_envs",
	12: "node_name", 13: "node_labels", 14: "node_annotations", 15: "node_capacity", 16: "node_allocatable", 17: "node_topology",
}

// firstNode is the number of the first field about the node. All later fields are about it, too.
const firstNode = 12

// isMap reports whether the field with a number is a map.
func isMap(n int) bool { return n >= 5 && n <= 7 || n == 11 || n >= 13 && n <= 16 }

// ParseReads parses names of fields of hook.proto's Request, or of entries of its maps: "pod", "resources",
// "pod_annotations[kubewasm.dev/cpu]". No names at all are everything.
//
// The error names every name that is not valid.
func ParseReads(names []string) (Reads, error) {
	var r Reads
	var errs []error
	for _, name := range names {
		r.limited = true
		field, rest, hasKey := strings.Cut(name, "[")
		key, closed := strings.CutSuffix(rest, "]")
		n := slices.Index(requestFields[:], field)
		meant := nearest.Name(field, fieldNames())
		switch {
		case n < 0 && meant != "":
			errs = append(errs, fmt.Errorf("reads: %q is no field of a request; did you mean %q?", name, meant))
		case field == "" || n < 0 || hasKey && (!closed || !isMap(n) || key == ""):
			errs = append(errs, fmt.Errorf("reads: %q is no field of a request; there are %s, and entries like pod_labels[app]", name, strings.Join(fieldNames(), ", ")))
		case hasKey:
			r.keys[n] = append(r.keys[n], key)
		default:
			r.fields |= 1 << n
		}
	}
	if err := errors.Join(errs...); err != nil {
		return Reads{}, err
	}
	for n := range r.keys {
		slices.Sort(r.keys[n])
		r.keys[n] = slices.Compact(r.keys[n])
	}
	return r, nil
}

func fieldNames() (names []string) {
	for _, name := range requestFields {
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}

// whole reports whether the field travels as a whole.
func (r *Reads) whole(n int) bool { return !r.limited || r.fields&(1<<n) != 0 }

// Limited reports whether anything is left out.
func (r *Reads) Limited() bool { return r.limited }

// Has reports whether a field of the request travels, or an entry of it.
func (r *Reads) Has(field string) bool {
	n := slices.Index(requestFields[:], field)
	return field != "" && n >= 0 && (r.whole(n) || len(r.keys[n]) != 0)
}

// Node returns the names of the declared fields about the node; none if everything travels.
func (r *Reads) Node() (names []string) {
	for n := firstNode; r.NeedsNode() && n < len(requestFields); n++ {
		if r.whole(n) || len(r.keys[n]) != 0 {
			names = append(names, requestFields[n])
		}
	}
	return names
}

// NeedsNode reports whether [Reads.Node] returns any names.
func (r *Reads) NeedsNode() bool {
	return r.limited && (r.fields>>firstNode != 0 || slices.ContainsFunc(r.keys[firstNode:], func(keys []string) bool { return len(keys) != 0 }))
}

// Without returns the fields without some of them.
func (r Reads) Without(fields ...string) Reads {
	for n, name := range requestFields {
		switch {
		case name == "":
		case slices.Contains(fields, name):
			r.keys[n] = nil
			r.fields &^= 1 << n
		case !r.limited:
			r.fields |= 1 << n
		}
	}
	r.limited = true
	return r
}

// Equal reports whether the same bytes travel.
func (r *Reads) Equal(s *Reads) bool {
	if r == s {
		return true
	}
	if r.limited != s.limited || r.fields != s.fields {
		return false
	}
	for n := range r.keys {
		if !r.whole(n) && !slices.Equal(r.keys[n], s.keys[n]) {
			return false
		}
	}
	return true
}
