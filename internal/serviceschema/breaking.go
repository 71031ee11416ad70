package serviceschema

import (
	"errors"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// Breaking reports what a later version of a schema takes from plugins and components that were
// built from an earlier one: every way in which the two are not [Compatible], services and methods
// that are gone, grants that are needed now, and fields and values that are gone without their
// numbers being reserved. It returns a joined error of *[Disagreement], nil if there is none.
func Breaking(earlier, later *Schema) error {
	c := newComparison("the old file", "the new one")
	c.deleted = true
	for _, old := range earlier.Services {
		now := later.Find(string(old.FullName()))
		switch {
		case now == nil:
			c.fail(old, "the service %s is gone", old.FullName())
			continue
		case now.Host != old.Host:
			c.fail(now, "%s is %s in the old file and %s in the new one", old.FullName(), role(old.Host), role(now.Host))
			continue
		}
		for i := range old.Methods().Len() {
			c.method(old, old.Methods().Get(i), now)
		}
		c.services(old, now)
	}
	c.run()
	return errors.Join(c.errs...)
}

func role(host bool) string {
	if host {
		return "a service of the host"
	}
	return "an extension point"
}

// method compares a method of a service with the one of the later version.
func (c *comparison) method(old Service, m protoreflect.MethodDescriptor, now *Service) {
	of := now.Methods().ByName(m.Name())
	switch {
	case of == nil && old.Host:
		c.fail(now, "%s is gone: plugins that call it are not loaded any more", m.FullName())
	case of == nil:
		c.fail(now, "%s is gone: plugins are not asked any more", m.FullName())
	case Grant(of) != "" && Grant(of) != Grant(m):
		c.fail(of, "%s needs the grant %q: plugins that call it are not loaded without", m.FullName(), Grant(of))
	}
}

// deletedFields notes the fields that only the guest's side has, and whose numbers are not reserved.
func (c *comparison) deletedFields(guest, host protoreflect.MessageDescriptor) {
	for i := range guest.Fields().Len() {
		f := guest.Fields().Get(i)
		if host.Fields().ByNumber(f.Number()) == nil && host.Fields().ByName(f.Name()) == nil && !host.ReservedRanges().Has(f.Number()) {
			c.fail(host, "field %d of %s, %s, is gone: write reserved %[1]d, so that the number gets no other meaning", f.Number(), host.FullName(), f.Name())
		}
	}
	for i := range host.Fields().Len() {
		if f := host.Fields().Get(i); guest.ReservedRanges().Has(f.Number()) {
			c.fail(f, "field %d of %s is reserved in the old file and %s in the new one", f.Number(), host.FullName(), f.Name())
		}
	}
}

// deletedValues notes the values that only the guest's side has, as deletedFields does fields.
func (c *comparison) deletedValues(guest, host protoreflect.EnumDescriptor) {
	for i := range guest.Values().Len() {
		v := guest.Values().Get(i)
		if host.Values().ByNumber(v.Number()) == nil && host.Values().ByName(v.Name()) == nil && !host.ReservedRanges().Has(v.Number()) {
			c.fail(host, "value %d of %s, %s, is gone: write reserved %[1]d, so that the number gets no other meaning", v.Number(), host.FullName(), v.Name())
		}
	}
	for i := range host.Values().Len() {
		if v := host.Values().Get(i); guest.ReservedRanges().Has(v.Number()) {
			c.fail(v, "value %d of %s is reserved in the old file and %s in the new one", v.Number(), host.FullName(), v.Name())
		}
	}
}
