package objects

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/nearest"
)

// FieldSet is a set of fields of Pods and Nodes: those that a guest declares to read. Only
// these are encoded for it.
//
// A nil FieldSet contains all fields. If no field of a kind is named, all its fields are in the
// set. A named field includes everything below it. If entries of a map are named, only these are in
// the set. The fields that identify an object, metadata.name, metadata.namespace and metadata.uid,
// are in every FieldSet unless it is made without them, and metadata.managedFields is in none. A
// FieldSet does not change.
type FieldSet struct {
	paths []string
	// kinds has a tree for each kind with named fields.
	kinds map[string]*tree
	pod   *Encoder[corev1.Pod]
	node  *Encoder[corev1.Node]
}

// kinds are the objects that travel by ref, by the first element of a path.
var kinds = map[string]reflect.Type{
	"node": reflect.TypeFor[corev1.Node](),
	"pod":  reflect.TypeFor[corev1.Pod](),
}

// managedFields is the field that never travels.
const managedFields = "managedFields"

// without is the first character of a path that is left out.
const without = "-"

// identifying are the paths that every FieldSet has, unless it is made without them.
var identifying = [][]string{{"metadata", "name"}, {"metadata", "namespace"}, {"metadata", "uid"}}

// ParseFieldSet makes a FieldSet of paths such as "node.metadata.labels" and
// "pod.spec.containers.image": the kind in lower case, then the names that fields have in
// JSON. A path goes through the elements of lists and ends at a map at the latest, or at an
// entry of it, which stands in brackets:
// "node.metadata.labels[topology.kubernetes.io/zone]". Without paths the FieldSet is nil.
//
// A path with a minus in front, such as "-pod.metadata.name", leaves out one of the fields that
// identify an object, and no other path may name that field.
//
// The error names every path that does not exist, with the nearest existing one.
func ParseFieldSet(paths []string) (*FieldSet, error) {
	if len(paths) == 0 {
		return nil, nil
	}
	s := &FieldSet{kinds: map[string]*tree{}}
	var errs []error
	for _, path := range paths {
		if err := s.add(path); err != nil {
			errs = append(errs, fmt.Errorf("field path %q: %w", path, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	s.paths = slices.Clone(paths)
	slices.Sort(s.paths)
	s.paths = slices.Compact(s.paths)
	for kind, t := range s.kinds {
		for _, path := range identifying {
			name := kind + "." + strings.Join(path, ".")
			switch {
			case !s.Without(name):
				_ = t.add(kinds[kind], path, "") // Every kind has them.
			case t.has(kinds[kind], path):
				return nil, fmt.Errorf("field path %q: another path names the field", without+name)
			}
		}
	}
	s.makeEncoders()
	return s, nil
}

// allFields is the nil FieldSet with its encoders.
var allFields = sync.OnceValue(func() *FieldSet {
	s := &FieldSet{}
	s.makeEncoders()
	return s
})

func (s *FieldSet) makeEncoders() {
	s.pod = newEncoder[corev1.Pod](s.encoder("pod"))
	s.node = newEncoder[corev1.Node](s.encoder("node"))
}

// encoder returns the encoder of a kind.
func (s *FieldSet) encoder(kind string) encoder {
	return s.kinds[kind].ofObject(kinds[kind]).encoder(kinds[kind])
}

// Pod returns the Encoder of Pods.
func (s *FieldSet) Pod() *Encoder[corev1.Pod] { return s.orEverything().pod }

// Node returns the Encoder of Nodes.
func (s *FieldSet) Node() *Encoder[corev1.Node] { return s.orEverything().node }

func (s *FieldSet) orEverything() *FieldSet {
	if s == nil {
		return allFields()
	}
	return s
}

func (s *FieldSet) add(path string) error {
	path, leftOut := strings.CutPrefix(path, without)
	path, entry, err := cutEntry(path)
	if err != nil {
		return err
	}
	kind, rest, _ := strings.Cut(path, ".")
	t, ok := kinds[kind]
	if !ok {
		return fmt.Errorf("there is no kind %q%s", kind, nearest.Hint("; ", kind, slices.Sorted(maps.Keys(kinds))))
	}
	if s.kinds[kind] == nil {
		s.kinds[kind] = &tree{}
	}
	var names []string
	if rest != "" {
		names = strings.Split(rest, ".")
	}
	if leftOut {
		if entry != "" || !slices.ContainsFunc(identifying, func(path []string) bool { return slices.Equal(path, names) }) {
			return errors.New("only metadata.name, metadata.namespace and metadata.uid can be left out")
		}
		return nil
	}
	return s.kinds[kind].add(t, names, entry)
}

// cutEntry takes the key of an entry off a path: "" if there is none.
func cutEntry(path string) (before, entry string, err error) {
	before, entry, ok := strings.Cut(path, "[")
	if !ok {
		return path, "", nil
	}
	entry, ok = strings.CutSuffix(entry, "]")
	if !ok || entry == "" {
		return "", "", errors.New("the key of an entry stands between two brackets, at the end")
	}
	return before, entry, nil
}

// Paths returns the paths from which the FieldSet was made, sorted; nil for everything.
func (s *FieldSet) Paths() []string {
	if s == nil {
		return nil
	}
	return slices.Clone(s.paths)
}

// Without reports whether a field that identifies objects, such as "pod.metadata.name", is left out.
func (s *FieldSet) Without(path string) bool {
	return s != nil && slices.Contains(s.paths, without+path)
}

// OfKind returns the paths of a kind from which the FieldSet was made, sorted; none for everything.
func (s *FieldSet) OfKind(kind string) (paths []string) {
	for _, path := range s.Paths() {
		if kindOf(path) == kind {
			paths = append(paths, path)
		}
	}
	return paths
}

// kindOf returns the kind of a path.
func kindOf(path string) string {
	kind, _, _ := strings.Cut(strings.TrimPrefix(path, without), ".")
	return kind
}

// Union returns a FieldSet with the fields of both.
func (s *FieldSet) Union(t *FieldSet) *FieldSet {
	if s == nil || t == nil {
		return nil
	}
	// A kind that one of them has whole is whole in both.
	var paths []string
	for _, path := range slices.Concat(s.paths, t.paths) {
		if name, leftOut := strings.CutPrefix(path, without); leftOut && !(s.Without(name) && t.Without(name)) {
			continue
		}
		if kind := kindOf(path); s.kinds[kind] != nil && t.kinds[kind] != nil {
			paths = append(paths, path)
		}
	}
	union, err := ParseFieldSet(paths)
	if err != nil {
		panic(err) // They have been parsed before.
	}
	return union
}

// Equal reports whether both name the same fields by the same paths.
func (s *FieldSet) Equal(t *FieldSet) bool { return slices.Equal(s.Paths(), t.Paths()) }

// String returns the paths, or "everything".
func (s *FieldSet) String() string {
	if s == nil {
		return "everything"
	}
	return strings.Join(s.paths, ", ")
}

// tree is the fields of a struct that travel.
type tree struct {
	// whole is set if all fields travel, whatever fields has.
	whole  bool
	fields []field
	// generated is set if empty values are written as the generated code does.
	generated bool
	// entries are the keys of those entries of a map that travel.
	entries []string
}

// field is a field of a struct, or of a struct that is embedded in it.
type field struct {
	index []int
	tree  *tree
}

// add adds the field at path from a value of the type t, or the entry of the map there, unless that
// is "".
func (tr *tree) add(t reflect.Type, path []string, entry string) error {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if len(path) == 0 && entry != "" {
		if t.Kind() != reflect.Map {
			return fmt.Errorf("%s has no entries, so %q must be left out", describe(t), "["+entry+"]")
		}
		tr.entries = append(tr.entries, entry)
		return nil
	}
	if len(path) == 0 {
		tr.whole = true
		return nil
	}
	name := path[0]
	if t.Kind() == reflect.Map {
		return fmt.Errorf("a map has no fields; its entries stand in brackets, as in %q", "["+strings.Join(path, ".")+"]")
	}
	if !nested(t) {
		return fmt.Errorf("%s has no fields that can be told apart, so %q must be left out", describe(t), strings.Join(path, "."))
	}
	index, next, ok := lookup(t, name)
	if !ok {
		return fmt.Errorf("%s has no field %q%s", t.Name(), name, nearest.Hint("; ", name, names(t)))
	}
	if name == managedFields {
		return errors.New("managedFields never travel")
	}
	for _, f := range tr.fields {
		if slices.Equal(f.index, index) {
			return f.tree.add(next, path[1:], entry)
		}
	}
	f := field{index, &tree{}}
	if err := f.tree.add(next, path[1:], entry); err != nil {
		return err
	}
	tr.fields = append(tr.fields, f)
	return nil
}

// has reports whether the field at path from a value of the type t is in the tree, or anything
// below it.
func (tr *tree) has(t reflect.Type, path []string) bool {
	if tr.whole || len(path) == 0 {
		return true
	}
	index, next, ok := lookup(t, path[0])
	n := slices.IndexFunc(tr.fields, func(f field) bool { return slices.Equal(f.index, index) })
	return ok && n >= 0 && tr.fields[n].tree.has(next, path[1:])
}

var marshaler = reflect.TypeFor[json.Marshaler]()

// nested reports whether a type has fields in the API: Time and Quantity are structs in Go and
// strings in the API.
func nested(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && !t.Implements(marshaler) && !reflect.PointerTo(t).Implements(marshaler)
}

func describe(t reflect.Type) string {
	switch {
	case t.Kind() == reflect.Struct:
		return t.Name()
	}
	return "a " + t.Kind().String()
}

// each calls visit with the fields of t that travel in protobuf, by their names
// in JSON, those of embedded structs included.
func each(t reflect.Type, visit func(name string, index []int, t reflect.Type)) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Tag.Get("protobuf") == "" {
			continue // TypeMeta, which the envelope has.
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" && f.Anonymous {
			each(f.Type, func(name string, index []int, t reflect.Type) {
				visit(name, append([]int{i}, index...), t)
			})
			continue
		}
		visit(name, []int{i}, f.Type)
	}
}

func lookup(t reflect.Type, want string) (index []int, found reflect.Type, ok bool) {
	each(t, func(name string, i []int, t reflect.Type) {
		if name == want {
			index, found, ok = i, t, true
		}
	})
	return index, found, ok
}

func names(t reflect.Type) []string {
	var all []string
	each(t, func(name string, _ []int, _ reflect.Type) { all = append(all, name) })
	slices.Sort(all)
	return all
}

// Paths returns the paths of those fields of a Pod or a Node, T, that masks and entries
// select, see [Encoder.Only]: of a part itself if all its fields are selected.
func Paths[T any](masks []uint64, entries []EntryKey) (paths []string) {
	t := reflect.TypeFor[T]()
	kind := strings.ToLower(t.Name())
	each(t, func(name string, index []int, part reflect.Type) {
		number, path := fieldNumber(t.FieldByIndex(index)), kind+"."+name
		mask := uint64(0)
		if int(number) < len(masks) {
			mask = masks[number]
		}
		if mask == abi.AllFields {
			paths = append(paths, path)
			return
		}
		each(part, func(name string, index []int, _ reflect.Type) {
			field := fieldNumber(part.FieldByIndex(index))
			if name != managedFields && has(mask, field) {
				paths = append(paths, path+"."+name)
				return
			}
			for _, e := range entries {
				if number == MetadataPart && protowire.Number(e.Field) == field {
					paths = append(paths, fmt.Sprintf("%s.%s[%s]", path, name, e.Key))
				}
			}
		})
	})
	return paths
}
