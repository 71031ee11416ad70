package hooks

import (
	"strings"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
)

// ownership holds the fields owned by a plugin: whole fields, and keys of others.
type ownership struct {
	whole hookmsg.Fields
	keys  map[string]bool // "unified[io.weight]".
	// partly are the fields to which the keys belong.
	partly hookmsg.Fields
}

// keyed are the fields that are maps or lists with a key, which two plugins may share.
const keyed = hookmsg.FieldUnified | hookmsg.FieldContainerAnnotations | hookmsg.FieldContainerEnvs | hookmsg.FieldContainerMounts | hookmsg.FieldContainerDevices

// Answered holds the fields owned by the plugins that have answered.
type Answered struct {
	whole  hookmsg.Fields
	partly []*ownership // With keys of unified.
}

// Fields returns the fields owned by the plugins.
func (a *Answered) Fields() hookmsg.Fields { return a.whole }

// File reports whether one of them owns a file of unified.
func (a *Answered) File(name string) bool {
	if a.whole&hookmsg.FieldUnified != 0 {
		return true
	}
	for _, o := range a.partly {
		if o.keys[keyName(hookmsg.FieldUnified, name)] {
			return true
		}
	}
	return false
}

// OwnsFile reports whether a plugin owns a file of unified, including plugins in the mode Monitor.
func (e *Engine) OwnsFile(name string) bool {
	for _, p := range e.plugins {
		if p.owns.whole&hookmsg.FieldUnified != 0 || p.owns.keys[keyName(hookmsg.FieldUnified, name)] {
			return true
		}
	}
	return false
}

// OwnsFiles reports whether a plugin owns files of unified, all or some.
func (e *Engine) OwnsFiles() bool {
	for _, p := range e.plugins {
		if (p.owns.whole|p.owns.partly)&hookmsg.FieldUnified != 0 {
			return true
		}
	}
	return false
}

func keyName(field hookmsg.Fields, key string) string { return field.String() + "[" + key + "]" }

// parseOwnership parses the fields and keys owned by a plugin.
func parseOwnership(names []string) (o ownership, errs []error) {
	for _, name := range names {
		field, key, err := hookmsg.ParseField(name)
		switch {
		case err != nil:
			errs = append(errs, err)
		case key == "":
			o.whole |= field
		default:
			if o.keys == nil {
				o.keys = map[string]bool{}
			}
			o.keys[keyName(field, key)] = true
			o.partly |= field
		}
	}
	return o, errs
}

func (o *ownership) none() bool { return o.whole|o.partly == 0 }

// overlap returns the names of the fields and keys owned by both.
func (o *ownership) overlap(p *ownership) (shared []string) {
	for f := range (o.whole & p.whole).All() {
		shared = append(shared, f.String())
	}
	for _, pair := range [2][2]*ownership{{o, p}, {p, o}} {
		for key := range pair[1].keys {
			field, _, _ := strings.Cut(key, "[")
			if f, _, err := hookmsg.ParseField(field); err == nil && pair[0].whole&f != 0 {
				shared = append(shared, key)
			}
		}
	}
	for key := range p.keys {
		if o.keys[key] {
			shared = append(shared, key)
		}
	}
	return shared
}

// outside returns the first field or key that d sets and o does not hold, in the
// order of hook.proto; empty if there is none.
func (o *ownership) outside(d *hookmsg.Decision) (name string) {
	set := d.Fields()
	if set&^o.whole == 0 {
		return ""
	}
	if plain := set &^ o.whole &^ keyed; plain != 0 {
		return (plain & -plain).String()
	}
	keysOf(d, func(field hookmsg.Fields, key string) {
		if o.whole&field != 0 {
			return
		}
		if k := keyName(field, key); !o.keys[k] && (name == "" || k < name) {
			name = k
		}
	})
	return name
}

// inside returns the first field or key that d sets and o holds.
func (o *ownership) inside(d *hookmsg.Decision) (name string) {
	if set := d.Fields() & (o.whole | o.partly); set == 0 {
		return ""
	} else if whole := set & o.whole; whole != 0 {
		return (whole & -whole).String()
	}
	keysOf(d, func(field hookmsg.Fields, key string) {
		if k := keyName(field, key); o.keys[k] && (name == "" || k < name) {
			name = k
		}
	})
	return name
}

// keysOf calls yield with the keys of the keyed fields of a decision.
func keysOf(d *hookmsg.Decision, yield func(field hookmsg.Fields, key string)) {
	if d.Resources != nil {
		for key := range d.Resources.Unified {
			yield(hookmsg.FieldUnified, key)
		}
	}
	for key := range d.ContainerAnnotations {
		yield(hookmsg.FieldContainerAnnotations, key)
	}
	for key := range d.ContainerEnvs {
		yield(hookmsg.FieldContainerEnvs, key)
	}
	for i := range d.ContainerMounts {
		yield(hookmsg.FieldContainerMounts, d.ContainerMounts[i].Destination)
	}
	for i := range d.ContainerDevices {
		yield(hookmsg.FieldContainerDevices, d.ContainerDevices[i].Path)
	}
}
