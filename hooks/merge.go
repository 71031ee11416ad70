package hooks

import (
	"maps"
	"strconv"

	"github.com/kubewasm/kubewasm/codec/hookpb"
)

// part is what one plugin decided.
type part struct {
	plugin   string
	decision *hookpb.Decision
}

// merge puts decisions together that do not conflict. A single one is returned
// as it is.
func merge(parts []part) *hookpb.Decision {
	if len(parts) == 0 {
		return new(hookpb.Decision)
	}
	d := parts[0].decision
	for _, p := range parts[1:] {
		if r := p.decision.Resources; r != nil {
			if d.Resources == nil {
				d.Resources = new(hookpb.Resources)
			}
			for i := range numberFields {
				mergeField(numberFields[i].in(d.Resources), *numberFields[i].in(r))
			}
			for i := range listFields {
				mergeField(listFields[i].in(d.Resources), *listFields[i].in(r))
			}
			d.Resources.Unified = mergeMap(d.Resources.Unified, r.Unified)
		}
		d.ContainerAnnotations = mergeMap(d.ContainerAnnotations, p.decision.ContainerAnnotations)
		d.ContainerEnvs = mergeMap(d.ContainerEnvs, p.decision.ContainerEnvs)
	}
	return d
}

func mergeField[T any](into **T, v *T) {
	if v != nil {
		*into = v
	}
}

func mergeMap(into, m map[string]string) map[string]string {
	if into == nil {
		return m
	}
	maps.Copy(into, m)
	return into
}

// findConflict returns the first field that d and an earlier decision both set
// to different values, or nil.
func findConflict(plugin string, d *hookpb.Decision, earlier []part) error {
	for _, e := range earlier {
		field, values, ok := difference(e.decision, d)
		if !ok {
			return &ConflictError{Field: field, Plugins: [2]string{e.plugin, plugin}, Values: values}
		}
	}
	return nil
}

// difference returns the first field that a and b set differently; ok says that
// there is none.
func difference(a, b *hookpb.Decision) (field string, values [2]string, ok bool) {
	if a.Resources != nil && b.Resources != nil {
		for i := range numberFields {
			f := &numberFields[i]
			if x, y := *f.in(a.Resources), *f.in(b.Resources); x != nil && y != nil && *x != *y {
				return f.name, [2]string{strconv.FormatInt(*x, 10), strconv.FormatInt(*y, 10)}, false
			}
		}
		for i := range listFields {
			f := &listFields[i]
			if x, y := *f.in(a.Resources), *f.in(b.Resources); x != nil && y != nil && *x != *y {
				return f.name, [2]string{strconv.Quote(*x), strconv.Quote(*y)}, false
			}
		}
		if field, values, ok = mapDifference("unified", a.Resources.Unified, b.Resources.Unified); !ok {
			return field, values, false
		}
	}
	if field, values, ok = mapDifference("container_annotations", a.ContainerAnnotations, b.ContainerAnnotations); !ok {
		return field, values, false
	}
	return mapDifference("container_envs", a.ContainerEnvs, b.ContainerEnvs)
}

func mapDifference(name string, a, b map[string]string) (field string, values [2]string, ok bool) {
	// The first in the order of the keys, so that a message does not change
	// from one time to the next.
	key, found := "", false
	for k, v := range b {
		if w, both := a[k]; both && v != w && (!found || k < key) {
			key, found = k, true
		}
	}
	if !found {
		return "", values, true
	}
	return name + "[" + key + "]", [2]string{strconv.Quote(a[key]), strconv.Quote(b[key])}, false
}
