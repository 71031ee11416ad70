package serviceschema

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// The bounds of a schema beside [MaxBytes]. Parse refuses a schema above them before package
// protodesc sees it, whose work may otherwise grow exponentially with the length.
const (
	// maxElements bounds the fields in the encoding, each of which may become a struct of
	// some hundred bytes. A schema that kubewasm gen writes has one for every five bytes.
	maxElements = 96 << 10
	// maxNesting is how deep messages nest in the encoding: those of a .proto file nest 32
	// deep at most, as for protoc.
	maxNesting = 40
	maxFiles   = 256
	// maxImports bounds the ways along public imports that package protodesc walks, from
	// all files together.
	maxImports = 10_000
	// maxMessages bounds messages, with those of maps.
	maxMessages = 8192
	// maxNameBytes and maxNameParts bound full names, which each declaration has, and the
	// names of types.
	maxNameBytes, maxNameParts = 1024, 64
)

// checkEncoding returns an error if an encoded FileDescriptorSet has more elements than
// maxElements or nests deeper than maxNesting.
func checkEncoding(b []byte) error {
	room := maxElements
	return countElements(b, (&descriptorpb.FileDescriptorSet{}).ProtoReflect().Descriptor(), 0, &room)
}

func countElements(b []byte, d protoreflect.MessageDescriptor, depth int, room *int) error {
	if depth > maxNesting {
		return fmt.Errorf("messages nest more than %d deep", maxNesting)
	}
	for len(b) > 0 {
		number, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		size := protowire.ConsumeFieldValue(number, typ, b)
		if size < 0 {
			return protowire.ParseError(size)
		}
		if *room--; *room < 0 {
			return fmt.Errorf("more than %d elements", maxElements)
		}
		if f := d.Fields().ByNumber(number); f != nil && f.Message() != nil && typ == protowire.BytesType {
			inner, _ := protowire.ConsumeBytes(b)
			if err := countElements(inner, f.Message(), depth+1, room); err != nil {
				return err
			}
		}
		b = b[size:]
	}
	return nil
}

// checkSet returns an error if the files of a set import one another in more ways, or have more
// messages or longer names, than the bounds allow.
func checkSet(set *descriptorpb.FileDescriptorSet) error {
	if len(set.File) > maxFiles {
		return fmt.Errorf("%d files are more than %d", len(set.File), maxFiles)
	}
	if err := checkImports(set); err != nil {
		return err
	}
	c := &names{}
	for _, f := range set.File {
		c.check("", f.GetName())
		c.scope(f.GetPackage(), f.MessageType, f.EnumType, f.Extension)
		for _, s := range f.Service {
			name := c.check(f.GetPackage(), s.GetName())
			for _, m := range s.Method {
				c.check(name, m.GetName())
				c.types(m.GetInputType(), m.GetOutputType())
			}
		}
	}
	if c.err == nil && c.messages > maxMessages {
		return fmt.Errorf("%d messages are more than %d", c.messages, maxMessages)
	}
	return c.err
}

// checkImports bounds the ways along the imports of a set.
func checkImports(set *descriptorpb.FileDescriptorSet) error {
	imports := Imports{}
	for _, f := range set.File {
		public := map[int32]bool{}
		for _, i := range f.PublicDependency {
			public[i] = true
		}
		var all FileImports
		for i, name := range f.Dependency {
			all = all.Add(name, public[int32(i)])
		}
		imports[f.GetName()] = all
	}
	return imports.Check()
}

// Imports are the imports of files, by their names.
type Imports map[string]FileImports

// FileImports are the imports of a file.
type FileImports struct{ all, public []string }

// Add returns the imports with one more.
func (f FileImports) Add(name string, public bool) FileImports {
	f.all = append(f.all, name)
	if public {
		f.public = append(f.public, name)
	}
	return f
}

// Check bounds the ways along public imports: package protodesc and compilers walk each of them
// anew, of which k files that import two others each have 2^k.
func (f Imports) Check() error {
	ways := map[string]int{}
	var count func(name string) (int, error)
	count = func(name string) (int, error) {
		if n, ok := ways[name]; ok && n < 0 {
			return 0, fmt.Errorf("file %.60q imports itself", name)
		} else if ok {
			return n, nil
		}
		ways[name] = -1
		n := 0
		for _, imported := range f[name].public {
			more, err := count(imported)
			if err != nil {
				return 0, err
			}
			if n += 1 + more; n > maxImports {
				return 0, fmt.Errorf("public imports of file %.60q are reached in more than %d ways", name, maxImports)
			}
		}
		ways[name] = n
		return n, nil
	}
	total := 0
	for _, name := range slices.Sorted(maps.Keys(f)) {
		for _, imported := range f[name].all {
			n, err := count(imported)
			if err != nil {
				return err
			}
			if total += 1 + n; total > maxImports {
				return fmt.Errorf("imports are reached in more than %d ways", maxImports)
			}
		}
	}
	return nil
}

// names checks the names of declarations and types.
type names struct {
	messages int
	err      error
}

func (c *names) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

// check returns the full name of a declaration.
func (c *names) check(scope, name string) string {
	if len(scope)+len(name) > maxNameBytes {
		c.fail("name %.40q... has more than %d bytes", name, maxNameBytes)
		return ""
	}
	if scope != "" {
		name = scope + "." + name
	}
	if strings.Count(name, ".") >= maxNameParts {
		c.fail("name %.40q... has more than %d parts", name, maxNameParts)
		return ""
	}
	return name
}

// types checks the names by which fields and methods have their types. Compilers write full
// ones, with a dot in front. For others package protodesc searches all scopes.
func (c *names) types(of ...string) {
	for _, name := range of {
		if name == "" {
			continue
		}
		if name[0] != '.' {
			c.fail("type %.40q is no full name, which begins with a dot", name)
		}
		c.check("", name)
	}
}

// scope checks the declarations in a file or a message with a full name. Messages nest as deep as
// their encoding.
func (c *names) scope(of string, messages []*descriptorpb.DescriptorProto, enums []*descriptorpb.EnumDescriptorProto, extensions []*descriptorpb.FieldDescriptorProto) {
	c.check("", of)
	fields := func(scope string, list []*descriptorpb.FieldDescriptorProto) {
		for _, f := range list {
			c.check(scope, f.GetName())
			c.types(f.GetTypeName(), f.GetExtendee())
		}
	}
	fields(of, extensions)
	for _, e := range enums {
		// Values are declared beside their enumeration.
		c.check(of, e.GetName())
		for _, v := range e.Value {
			c.check(of, v.GetName())
		}
	}
	for _, m := range messages {
		if c.messages++; c.err != nil {
			return
		}
		name := c.check(of, m.GetName())
		fields(name, m.Field)
		for _, o := range m.OneofDecl {
			c.check(name, o.GetName())
		}
		c.scope(name, m.NestedType, m.EnumType, m.Extension)
	}
}
