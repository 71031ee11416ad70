package bindgen

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// naming is how a language names what a package declares, its table of names. Where two
// declarations would have one name, or one would have a name that the language or generated
// code uses itself, the later gets a _ behind it, as protoc's generators do: first messages
// and enumerations, services, values and constants, and then the declarations that are made of them.
type naming struct {
	// reserved are names at the top level that are taken.
	reserved []string
	// field returns the name of a field, and parts the names that it makes within the message
	// under a name. members are names that are taken there.
	field   func(f *Field) string
	parts   func(m *Message, f *Field, name string) []string
	members []string
	// method returns the name of a method, also the names that it makes within the service, and
	// own those that are taken there.
	method func(m *Method) string
	also   func(name string) []string
	own    func(s *Service) []string
	// value and constant return the names of a value of an enumeration and of a constant. Those
	// of values are at the top level if values is set, and else within the enumeration.
	value    func(e *Enum, v *EnumValue) string
	constant func(g *ConstantGroup, c *Constant) string
	values   bool
	// grouped is set if constants of a type have a scope of their own, and flat if what fields
	// make is at the top level, behind the name of the message and a _.
	grouped, flat bool
}

// scope has the names that are taken in a part of a program.
type scope map[string]bool

func scopeOf(reserved []string) scope {
	s := scope{}
	for _, name := range reserved {
		s[name] = true
	}
	return s
}

// take returns a name that is free, as are all that parts makes of it, and takes them.
func (s scope) take(name string, parts func(name string) []string) string {
	for ; ; name = underscored(name) {
		all := []string{name}
		if parts != nil {
			all = append(all, parts(name)...)
		}
		if !slices.ContainsFunc(all, func(n string) bool { return s[n] }) {
			for _, n := range all {
				s[n] = true
			}
			return name
		}
	}
}

// underscored returns a name with a _ behind it. With it, a keyword of Rust needs no r#.
func underscored(name string) string { return strings.TrimPrefix(name, "r#") + "_" }

// named returns a copy of a package with the names of a language, which writers print as they
// are. It returns an error for names that could be anything but names.
func (n *naming) named(p *Package) (*Package, error) {
	out := *p
	top, types := scopeOf(n.reserved), map[string]string{}
	out.Messages, out.Enums, out.Services, out.Constants = nil, nil, nil, nil
	for _, m := range p.Messages {
		c := *m
		c.Name = top.take(m.Name, nil)
		types[m.Name] = c.Name
		out.Messages = append(out.Messages, &c)
	}
	for _, e := range p.Enums {
		c := *e
		c.Name = top.take(e.Name, nil)
		types[e.Name] = c.Name
		out.Enums = append(out.Enums, &c)
	}
	for _, s := range p.Services {
		c := *s
		c.Name = top.take(s.Name, nil)
		c.Methods = n.methods(s, types)
		out.Services = append(out.Services, &c)
	}
	for i, e := range out.Enums {
		values := top
		if !n.values {
			values = scope{}
		}
		e.Values = nil
		for _, v := range p.Enums[i].Values {
			v.Name = values.take(n.value(p.Enums[i], &v), nil)
			e.Values = append(e.Values, v)
		}
	}
	for _, g := range p.Constants {
		constants := top
		if n.grouped && g.Name != "" {
			constants = scope{}
		}
		c := ConstantGroup{Name: g.Name}
		for _, constant := range g.Constants {
			constant.Name = constants.take(n.constant(&g, &constant), nil)
			c.Constants = append(c.Constants, constant)
		}
		out.Constants = append(out.Constants, c)
	}
	for i, m := range out.Messages {
		m.Builder = m.Name
		if m.Read && m.Written {
			m.Builder = top.take(p.Messages[i].Name+"Value", nil)
		}
		m.Fields = n.fields(p, m.Name, p.Messages[i], types, top)
	}
	out.top = top
	return &out, out.check()
}

func (n *naming) methods(s *Service, types map[string]string) (methods []*Method) {
	taken := scope{}
	if n.own != nil {
		taken = scopeOf(n.own(s))
	}
	for _, m := range s.Methods {
		c := *m
		c.Name = taken.take(n.method(m), n.also)
		c.Request, c.Response = renamed(types, m.Request), renamed(types, m.Response)
		methods = append(methods, &c)
	}
	return methods
}

func (n *naming) fields(p *Package, message string, m *Message, types map[string]string, top scope) (fields []*Field) {
	taken := scopeOf(n.members)
	for _, f := range m.Fields {
		c := *f
		parts := func(name string) []string {
			if n.parts == nil {
				return nil
			}
			return n.parts(m, f, name)
		}
		c.Name = taken.take(n.field(f), parts)
		if n.flat {
			flat := func(name string) bool { return top[message+"_"+name] }
			for flat(c.Name) || slices.ContainsFunc(parts(c.Name), flat) {
				c.Name = taken.take(underscored(c.Name), parts)
			}
			for _, name := range append(parts(c.Name), c.Name) {
				top[message+"_"+name] = true
			}
		}
		if c.Type.Package == "" || c.Type.Package == p.Path {
			c.Type.Name = renamed(types, c.Type.Name)
		}
		fields = append(fields, &c)
	}
	return fields
}

func renamed(types map[string]string, name string) string {
	if other, ok := types[name]; ok {
		return other
	}
	return name
}

// made returns the name of a declaration that is made of others: a function of a message or a
// service.
func (p *Package) made(name string) string {
	if made, ok := p.derived[name]; ok {
		return made
	}
	if p.derived == nil {
		p.derived = map[string]string{}
	}
	p.derived[name] = p.top.take(name, nil)
	return p.derived[name]
}

// check returns an error if a name of the package is none: nothing of a source is written as a
// name that does not pass it.
func (p *Package) check() error {
	var errs []error
	identifier := func(what, name string) {
		if !identifierRE.MatchString(strings.TrimPrefix(name, "r#")) || len(name) > maxName {
			errs = append(errs, fmt.Errorf("the name %.60q of %s is no identifier of at most %d letters, digits and underscores", name, what, maxName))
		}
	}
	symbol := func(what string, s Symbol) {
		if s == (Symbol{}) || s == (Symbol{"", "[]byte"}) || s == (Symbol{"", "[]string"}) {
			return
		}
		identifier(what, s.Name)
		if s.Package != "" {
			if err := CheckImportPath(s.Package); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", what, err))
			}
		}
	}
	for _, m := range p.Messages {
		identifier("a message", m.Name)
		identifier("a message", m.Builder)
		for _, f := range m.Fields {
			what := m.Name + "." + f.Name
			identifier("a field of "+m.Name, f.Name)
			symbol(what, Symbol{f.Type.Package, f.Type.Name})
			for _, s := range []Symbol{f.Type.GoType, f.Type.Read, f.Type.Append, f.Type.Host} {
				symbol(what, s)
			}
			if f.Oneof != "" {
				identifier("a oneof of "+m.Name, f.Oneof)
			}
		}
	}
	for _, e := range p.Enums {
		identifier("an enumeration", e.Name)
		for _, v := range e.Values {
			identifier("a value of "+e.Name, v.Name)
		}
	}
	for _, g := range p.Constants {
		if g.Name != "" {
			identifier("constants", g.Name)
		}
		for _, c := range g.Constants {
			identifier("a constant", c.Name)
		}
	}
	for _, s := range p.Services {
		identifier("a service", s.Name)
		for part := range strings.SplitSeq(s.FullName, ".") {
			identifier("service "+s.Name, part)
		}
		for _, m := range s.Methods {
			identifier("a method of "+s.Name, m.Name)
			identifier("a method of "+s.Name, m.Wire)
			identifier("a message of "+s.Name, m.Request)
			identifier("a message of "+s.Name, m.Response)
		}
	}
	return errors.Join(errs...)
}

// maxName is how long a name of a declaration is at most: compilers and linkers have limits, too.
const maxName = 1000

// goNames names what both sides of a service have in Go.
var goNames = naming{
	field:  func(f *Field) string { return f.Name },
	parts:  goParts,
	method: func(m *Method) string { return m.Name },
	value:  func(_ *Enum, v *EnumValue) string { return v.Name }, values: true,
	constant: func(_ *ConstantGroup, c *Constant) string { return c.Name },
}

func goParts(_ *Message, f *Field, name string) []string {
	if f.absent() {
		return []string{"Has" + name}
	}
	return nil
}

// absent reports whether a view tells that the field is absent.
func (f *Field) absent() bool { return f.Presence && !f.Repeated && !f.Map }

// hostNames names what hosts have in Go. The type of an extension point embeds a *service.Plugin,
// whose methods stay what they are.
var hostNames = naming{
	field: goNames.field, parts: goParts, method: goNames.method, value: goNames.value, values: true, constant: goNames.constant,
	own: func(s *Service) []string {
		if s.Host {
			return nil
		}
		return pluginMembers
	},
	members: []string{"UnmarshalJSON"},
}

// pluginMembers are the exported methods of *service.Plugin, and the name of the field with it.
var pluginMembers = strings.Fields("Plugin Acquire CallBytes Close Dialect Digest Exports Follow Fresh Functions Limits Module Name Pin Ref Stats Swap")

// rustTable names what guests in Rust have.
var rustTable = naming{
	reserved: strings.Fields("AsMut AsRef Box Clone Copy Debug Default DoubleEndedIterator Drop Encode Eq Err ExactSizeIterator Extend Fn FnMut FnOnce From Hash Into IntoIterator Iterator NAMES None Ok Option Ord PartialEq PartialOrd Result Self Send Sized Some String Sync ToOwned ToString TryFrom TryInto Unpin Vec"),
	field:    func(f *Field) string { return rustIdent(f.JSONName) },
	members:  []string{"from_proto", "from_json", "view", "from_view"},
	method:   func(m *Method) string { return rustIdent(m.Name) },
	value:    func(e *Enum, v *EnumValue) string { return screamingSnake(strings.TrimPrefix(v.Name, e.Name)) },
	constant: func(_ *ConstantGroup, c *Constant) string { return screamingSnake(c.Name) },
}

// cNames names what guests in C have, without the name of the package in front. Names of several
// parts have a _ between them, and names of macros are upper case.
var cNames = naming{
	field: func(f *Field) string {
		if f.Inlined || f.JSONName == "" {
			return lower(f.Name)
		}
		return cName(f.JSONName)
	},
	parts: func(m *Message, f *Field, name string) (parts []string) {
		if f.absent() {
			parts = append(parts, "has_"+name)
		}
		if m.Written {
			parts = append(parts, "put_"+name)
		}
		return parts
	},
	members: []string{"of_proto", "of_json"},
	flat:    true,
	method:  func(m *Method) string { return m.Name },
	also:    func(name string) []string { return []string{strings.ToUpper(name) + "()"} },
	own:     func(*Service) []string { return []string{"PLUGIN()"} },
	value:   func(_ *Enum, v *EnumValue) string { return v.Name }, values: true,
	constant: func(_ *ConstantGroup, c *Constant) string { return c.Name },
}

// asNames names what guests in AssemblyScript have.
var asNames = naming{
	reserved: strings.Fields("Array ArrayBuffer Error Map Object StaticArray String Uint8Array"),
	field:    property,
	parts: func(_ *Message, f *Field, name string) []string {
		if f.absent() {
			return []string{"has" + capital(name)}
		}
		return nil
	},
	members: strings.Fields("at_ bytes_ end_ fromJSON fromProto index_ json_ key_ made_ members_ memo_ next_ part_ source_ write_"),
	method: func(m *Method) string {
		if name := lower(m.Name); !slices.Contains(asKeywords, name) {
			return name
		}
		return lower(m.Name) + "_"
	},
	value: func(e *Enum, v *EnumValue) string { return member(v.Name, e.Name) },
	constant: func(g *ConstantGroup, c *Constant) string {
		if g.Name == "" {
			return c.Name
		}
		return member(c.Name, g.Name)
	},
	grouped: true,
}

// capital returns a name with its first letter in upper case.
func capital(name string) string {
	return string(unicode.ToUpper(rune(name[0]))) + name[1:]
}
