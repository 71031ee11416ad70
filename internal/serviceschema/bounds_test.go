package serviceschema_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/kubewasm/kubewasm/internal/serviceschema"
)

// publicImports returns n pairs of files, each of which imports both of the pair before it: the
// last is reached along 2^n ways.
func publicImports(n int) *descriptorpb.FileDescriptorSet {
	set := &descriptorpb.FileDescriptorSet{}
	for k := range n {
		for _, side := range []string{"a", "b"} {
			f := &descriptorpb.FileDescriptorProto{Name: proto.String(fmt.Sprintf("%s%d", side, k)), Syntax: proto.String("proto3")}
			if k > 0 {
				f.Dependency, f.PublicDependency = []string{fmt.Sprintf("a%d", k-1), fmt.Sprintf("b%d", k-1)}, []int32{0, 1}
			}
			set.File = append(set.File, f)
		}
	}
	return set
}

// nestedMessages returns a message that has n others inside one another.
func nestedMessages(n int, name string) *descriptorpb.DescriptorProto {
	m := &descriptorpb.DescriptorProto{Name: proto.String(name)}
	for range n {
		m = &descriptorpb.DescriptorProto{Name: proto.String(name), NestedType: []*descriptorpb.DescriptorProto{m}}
	}
	return m
}

// fileOf returns a set of one file with a service and messages.
func fileOf(pkg string, messages ...*descriptorpb.DescriptorProto) *descriptorpb.FileDescriptorSet {
	messages = append(messages, &descriptorpb.DescriptorProto{Name: proto.String("Req")})
	return &descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{{
		Name: proto.String("f.proto"), Package: proto.String(pkg), Syntax: proto.String("proto3"), MessageType: messages,
		Service: []*descriptorpb.ServiceDescriptorProto{{Name: proto.String("S"), Method: []*descriptorpb.MethodDescriptorProto{
			{Name: proto.String("A"), InputType: proto.String("." + pkg + ".Req"), OutputType: proto.String("." + pkg + ".Req")},
		}}},
	}}}
}

// hostileSchemas are sets whose parsing, without a bound, takes time or memory that their length does
// not suggest, and the errors that they get.
func hostileSchemas() map[string]struct {
	set  *descriptorpb.FileDescriptorSet
	want string
} {
	many := &descriptorpb.FileDescriptorSet{}
	for i := range 300 {
		many.File = append(many.File, &descriptorpb.FileDescriptorProto{Name: proto.String(fmt.Sprint(i))})
	}
	circle := publicImports(2)
	circle.File[0].Dependency, circle.File[0].PublicDependency = []string{"a1"}, []int32{0}
	private := publicImports(12)
	for i := range 100 {
		private.File = append(private.File, &descriptorpb.FileDescriptorProto{Name: proto.String(fmt.Sprint("c", i)), Dependency: []string{"a11"}})
	}
	var empty []*descriptorpb.DescriptorProto
	for range 9000 {
		empty = append(empty, &descriptorpb.DescriptorProto{})
	}
	values := &descriptorpb.EnumDescriptorProto{}
	for range 100_000 {
		values.Value = append(values.Value, &descriptorpb.EnumValueDescriptorProto{})
	}
	relative := fileOf("p", &descriptorpb.DescriptorProto{Name: proto.String("M"), Field: []*descriptorpb.FieldDescriptorProto{
		{Name: proto.String("f"), Number: proto.Int32(1), Type: descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(), TypeName: proto.String("Req")},
	}})
	method := fileOf("p")
	method.File[0].Service[0].Method[0].InputType = proto.String("Req")
	return map[string]struct {
		set  *descriptorpb.FileDescriptorSet
		want string
	}{
		"forty pairs of files with public imports":       {publicImports(40), "are reached in more than 10000 ways"},
		"a hundred files that import public imports":     {private, "imports are reached in more than 10000 ways"},
		"files that import one another":                  {circle, "imports itself"},
		"very many files":                                {many, "300 files are more than 256"},
		"messages that nest deep":                        {fileOf("p", nestedMessages(1000, "M")), "messages nest more than 40 deep"},
		"long names in long names":                       {fileOf("p", nestedMessages(30, strings.Repeat("M", 500))), "has more than 1024 bytes"},
		"a package of very many parts":                   {fileOf("p" + strings.Repeat(".p", 400)), "has more than 64 parts"},
		"a long package":                                 {fileOf(strings.Repeat("p", 2000)), "has more than 1024 bytes"},
		"very many messages":                             {fileOf("p", empty...), "messages are more than 8192"},
		"more values of an enumeration than bytes allow": {&descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{{EnumType: []*descriptorpb.EnumDescriptorProto{values}}}}, "more than 98304 elements"},
		"a field whose type is looked for in each scope": {relative, `type "Req" is no full name`},
		"a method whose request is looked for likewise":  {method, `type "Req" is no full name`},
	}
}

// TestSchemasAreBounded holds that a schema is refused before a parser works on it for long: the
// first hangs package protodesc for days.
func TestSchemasAreBounded(t *testing.T) {
	for name, test := range hostileSchemas() {
		t.Run(name, func(t *testing.T) {
			section, err := proto.Marshal(test.set)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := serviceschema.Parse(section); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("of %d bytes: got %v, want %s", len(section), err, test.want)
			}
		})
	}
}

// TestSchemasBelowTheBounds holds that ordinary schemas are taken: public imports among them.
func TestSchemasBelowTheBounds(t *testing.T) {
	imports := publicImports(8)
	imports.File = append(imports.File, fileOf("p", nestedMessages(31, "M")).File...)
	for name, set := range map[string]*descriptorpb.FileDescriptorSet{
		"public imports and messages that nest": imports,
		"a package of some parts":               fileOf("a.b.c.d.e.f.g.h"),
	} {
		t.Run(name, func(t *testing.T) {
			section, err := proto.Marshal(set)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := serviceschema.Parse(section); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestComparisonIsBounded compares a guest that puts very many messages at the place of each of
// the host's, which go around in circles.
func TestComparisonIsBounded(t *testing.T) {
	circle := func(n int) *descriptorpb.FileDescriptorSet {
		set := fileOf("p")
		of := func(i int) string { return fmt.Sprint("M", i%n) }
		for i := range n {
			set.File[0].MessageType = append(set.File[0].MessageType, &descriptorpb.DescriptorProto{Name: proto.String(of(i)), Field: []*descriptorpb.FieldDescriptorProto{{
				Name: proto.String("f"), Number: proto.Int32(1), Type: descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(), TypeName: proto.String(".p." + of(i+1)),
			}}})
		}
		set.File[0].Service[0].Method[0].InputType = proto.String(".p.M0")
		return set
	}
	parse := func(set *descriptorpb.FileDescriptorSet) *serviceschema.Service {
		section, err := proto.Marshal(set)
		if err != nil {
			t.Fatal(err)
		}
		s, err := serviceschema.Parse(section)
		if err != nil {
			t.Fatal(err)
		}
		return s.Find("p.S")
	}
	guest := parse(circle(4001))
	if err := serviceschema.Compatible(guest, parse(circle(10))); err != nil {
		t.Errorf("40,010 pairs: %v", err)
	}
	if err := serviceschema.Compatible(guest, parse(circle(30))); err == nil || !strings.Contains(err.Error(), "more than 65536 pairs of messages") {
		t.Errorf("120,030 pairs: got %v", err)
	}
}
