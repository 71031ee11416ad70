package bindgen

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/internal/yamlsize"
)

// CRDConfig is the source of views of custom resources.
type CRDConfig struct {
	// Source is the name of a file, and Text its contents: one or several
	// CustomResourceDefinitions of apiextensions.k8s.io/v1, in YAML or JSON. Other
	// objects are ignored.
	Source string
	Text   []byte
	// Version is the version of the objects, empty for the one that is stored.
	Version string
	// Package is the name of the package of views, Path its import path.
	Package, Path string
}

// crd is the part of a CustomResourceDefinition that is read.
type crd struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		Group string `json:"group"`
		Names struct {
			Kind string `json:"kind"`
		} `json:"names"`
		Versions []struct {
			Name    string `json:"name"`
			Storage bool   `json:"storage"`
			Schema  struct {
				OpenAPIV3Schema *schema `json:"openAPIV3Schema"`
			} `json:"schema"`
		} `json:"versions"`
	} `json:"spec"`
}

// schema is the part of a JSONSchemaProps that is read.
type schema struct {
	Type                 string             `json:"type"`
	Format               string             `json:"format"`
	Description          string             `json:"description"`
	Pattern              string             `json:"pattern"`
	Nullable             bool               `json:"nullable"`
	Required             []string           `json:"required"`
	Enum                 []any              `json:"enum"`
	Properties           map[string]*schema `json:"properties"`
	Items                *schema            `json:"items"`
	AdditionalProperties *orBool            `json:"additionalProperties"`
	IntOrString          bool               `json:"x-kubernetes-int-or-string"`
	PreserveUnknown      bool               `json:"x-kubernetes-preserve-unknown-fields"`
	Embedded             bool               `json:"x-kubernetes-embedded-resource"`
}

// orBool is a schema, or true, which allows every value.
type orBool struct{ schema *schema }

func (s *orBool) UnmarshalJSON(b []byte) error {
	if b = bytes.TrimSpace(b); len(b) > 0 && b[0] != '{' {
		return nil
	}
	return json.Unmarshal(b, &s.schema)
}

// CRD returns the package of views for the objects of a CustomResourceDefinition.
func CRD(c CRDConfig) (*Package, error) {
	r := &crdReader{
		out: &Package{Name: c.Package, Path: c.Path, Source: c.Source}, taken: map[string]bool{},
		shapes: map[*schema][sha256.Size]byte{}, types: map[[sha256.Size]byte]string{},
	}
	found := false
	for documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(c.Text))); ; {
		text, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", c.Source, err)
		}
		if len(text) > maxDocument {
			return nil, fmt.Errorf("read %s: a document has more than %d bytes", c.Source, maxDocument)
		}
		if err := yamlsize.Check(text, maxDocument); err != nil {
			return nil, fmt.Errorf("read %s: %w", c.Source, err)
		}
		text, err = sigsyaml.YAMLToJSON(text)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", c.Source, err)
		}
		var d crd
		if err := json.Unmarshal(text, &d); err != nil {
			return nil, fmt.Errorf("read %s: %w", c.Source, err)
		}
		if d.Kind != "CustomResourceDefinition" {
			continue
		}
		found = true
		if err := r.definition(&d, c.Version); err != nil {
			r.errs = append(r.errs, err)
		}
	}
	if !found {
		return nil, fmt.Errorf("%s has no CustomResourceDefinition", c.Source)
	}
	return r.out, errors.Join(r.errs...)
}

type crdReader struct {
	out   *Package
	taken map[string]bool
	errs  []error
	// types are the types by the shapes of their objects, shapes those of the schemas
	// that were looked at.
	types  map[[sha256.Size]byte]string
	shapes map[*schema][sha256.Size]byte
}

// definition adds the views for one CustomResourceDefinition.
func (r *crdReader) definition(d *crd, version string) error {
	kind := d.Spec.Names.Kind
	if kind == "" {
		return errors.New("CustomResourceDefinition: spec.names.kind is empty")
	}
	if d.APIVersion != "apiextensions.k8s.io/v1" {
		return fmt.Errorf("CustomResourceDefinition of %s: apiVersion is %q, want apiextensions.k8s.io/v1", kind, d.APIVersion)
	}
	for _, v := range d.Spec.Versions {
		if v.Name != version && (version != "" || !v.Storage) {
			continue
		}
		s := v.Schema.OpenAPIV3Schema
		if s == nil {
			return fmt.Errorf("CustomResourceDefinition of %s: version %s has no schema", kind, v.Name)
		}
		m := r.message(exported(kind), s, d.Spec.Group+"/"+v.Name+" "+kind)
		m.Root = true
		r.root(m)
		return nil
	}
	if version == "" {
		return fmt.Errorf("CustomResourceDefinition of %s: no version is stored", kind)
	}
	return fmt.Errorf("CustomResourceDefinition of %s: there is no version %s", kind, version)
}

// root adds the fields that every object has, whether they are in its schema or not.
func (r *crdReader) root(m *Message) {
	have := map[string]*Field{}
	for _, f := range m.Fields {
		have[f.JSONName] = f
	}
	for _, f := range []*Field{
		{Name: "APIVersion", JSONName: "apiVersion", Type: Type{Kind: String}},
		{Name: "Kind", JSONName: "kind", Type: Type{Kind: String}},
		{Name: "Metadata", JSONName: "metadata", Type: Type{Kind: MessageKind, Package: sdk + "meta", Name: "ObjectMeta"}},
	} {
		if old := have[f.JSONName]; old != nil {
			f.Number, f.Doc = old.Number, old.Doc
			*old = *f
			continue
		}
		f.Number = uint32(len(m.Fields) + 1)
		m.Fields = append(m.Fields, f)
	}
}

// message adds the view of an object with properties. path is its name in errors.
func (r *crdReader) message(name string, s *schema, path string) *Message {
	if len(name) > maxName {
		r.errs = append(r.errs, fmt.Errorf("%.60q...: the names on the way have more than %d letters", path, maxName))
		return &Message{}
	}
	m := &Message{Name: r.free(name), Doc: s.Description, JSON: true}
	r.out.Messages = append(r.out.Messages, m)
	names := accessors(s)
	// The API server sends the fields of custom objects in the order of their
	// names.
	for i, property := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[property]
		if p == nil {
			p = &schema{}
		}
		f := &Field{Name: names[property], JSONName: property, Doc: p.Description, Number: uint32(i + 1)}
		f.Presence = p.Nullable || !slices.Contains(s.Required, property)
		r.property(f, p, m.Name+f.Name, path+"."+property)
		m.Fields = append(m.Fields, f)
	}
	return m
}

// accessors returns the names of an object's accessors, by its properties. If two properties
// would have the same accessor, such as jwksUri and jwks_uri in Istio, or the accessor of one
// is the Has of another, the later keeps its own spelling: Jwks_uri.
func accessors(s *schema) map[string]string {
	names, taken := map[string]string{}, map[string]bool{}
	take := func(property, name string) bool {
		if taken[name] || taken["Has"+name] {
			return false
		}
		names[property], taken[name], taken["Has"+name] = name, true, true
		return true
	}
	var rest []string
	// Properties that are spelt like their accessors come first.
	for _, property := range slices.Sorted(maps.Keys(s.Properties)) {
		if name := exported(property); !strings.EqualFold(name, property) || !take(property, name) {
			rest = append(rest, property)
		}
	}
	for _, property := range rest {
		if take(property, exported(property)) {
			continue
		}
		spelt := spelling(property)
		for i, name := 2, spelt; !take(property, name); i++ {
			name = spelt + strconv.Itoa(i)
		}
	}
	return names
}

// spelling returns the name of an accessor that differs from the property only where Go
// requires it.
func spelling(property string) string {
	name := strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return r
		}
		return '_'
	}, property)
	if name == "" || !unicode.IsLetter(rune(name[0])) {
		return "X" + name
	}
	return capital(name)
}

// shared returns the type of an object. Objects of the same shape share a type: some
// resources have a dozen templates of Pods.
func (r *crdReader) shared(name string, s *schema, path string) string {
	shape := r.shape(s)
	if known, ok := r.types[shape]; ok {
		return known
	}
	m := r.message(name, s, path)
	r.types[shape] = m.Name
	return m.Name
}

// shape returns a digest of a schema without its descriptions.
func (r *crdReader) shape(s *schema) (sum [sha256.Size]byte) {
	if s == nil {
		return sum
	}
	if known, ok := r.shapes[s]; ok {
		return known
	}
	of := func(list ...*schema) (out []string) {
		for _, s := range list {
			sum := r.shape(s)
			out = append(out, hex.EncodeToString(sum[:]))
		}
		return out
	}
	plain := *s
	plain.Description, plain.Properties, plain.Items, plain.AdditionalProperties = "", nil, nil, nil
	said := struct {
		Plain      schema
		Properties map[string]string
		Parts      []string
	}{Plain: plain, Properties: map[string]string{}, Parts: of(s.Items)}
	for name, p := range s.Properties {
		said.Properties[name] = of(p)[0]
	}
	if s.AdditionalProperties != nil {
		said.Parts = append(said.Parts, of(s.AdditionalProperties.schema)...)
	}
	text, err := json.Marshal(said) // In the order of the names.
	if err != nil {
		panic(err) // It was JSON before.
	}
	sum = sha256.Sum256(text)
	r.shapes[s] = sum
	return sum
}

// free returns a name that is not used by another type.
func (r *crdReader) free(name string) string {
	unique := name
	for i := 2; r.taken[unique]; i++ {
		unique = name + strconv.Itoa(i)
	}
	r.taken[unique] = true
	return unique
}

// raw is JSON without a view.
var raw = rawBytes("")

// property sets the type of a field. name is that of the type, if it needs one of
// its own.
func (r *crdReader) property(f *Field, s *schema, name, path string) {
	switch {
	case s.Type == "array" && s.Items != nil:
		f.Repeated = true
		f.Type = r.single(s.Items, name, path+"[]")
	case s.Type == "object" && len(s.Properties) == 0 && s.AdditionalProperties != nil && s.AdditionalProperties.schema != nil && !s.Embedded:
		f.Map = true
		f.Type = r.single(s.AdditionalProperties.schema, name, path+"{}")
	default:
		f.Type = r.single(s, name, path)
	}
}

// quantity is the beginning of the pattern that controller-gen writes for a
// resource.Quantity.
const quantity = `^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))`

// single returns the type of a value that is neither a list nor a map.
func (r *crdReader) single(s *schema, name, path string) Type {
	switch {
	case s.IntOrString && strings.HasPrefix(s.Pattern, quantity):
		return values["k8s.io.apimachinery.pkg.api.resource.Quantity"]
	case s.IntOrString:
		return values["k8s.io.apimachinery.pkg.util.intstr.IntOrString"]
	case s.Embedded:
		return raw
	}
	switch s.Type {
	case "object":
		if len(s.Properties) == 0 {
			return raw
		}
		return Type{Kind: MessageKind, Name: r.shared(name, s, path)}
	case "string":
		switch s.Format {
		case "byte":
			return Type{Kind: Bytes}
		case "date-time":
			return values["k8s.io.apimachinery.pkg.apis.meta.v1.MicroTime"]
		}
		r.values(s, name)
		return Type{Kind: String}
	case "integer":
		if s.Format == "int32" {
			return Type{Kind: Int32}
		}
		return Type{Kind: Int64}
	case "number":
		return Type{Kind: Double}
	case "boolean":
		return Type{Kind: Bool}
	case "", "array":
		// Anything, and a list in a list or in a map.
		return raw
	}
	r.errs = append(r.errs, fmt.Errorf("%s: there is no type %q", path, s.Type))
	return raw
}

// values adds constants for the values of an enumeration.
func (r *crdReader) values(s *schema, name string) {
	group := ConstantGroup{Name: name}
	for _, v := range s.Enum {
		text, ok := v.(string)
		if !ok || text == "" {
			continue
		}
		group.Constants = append(group.Constants, Constant{Name: r.free(name + exported(text)), Value: text})
	}
	if len(group.Constants) > 0 {
		r.out.Constants = append(r.out.Constants, group)
	}
}
