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

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/nearest"
)

// Projection is the fields of objects that a guest reads: only those are encoded
// for it, and only when one of them changes does the object get another version.
//
// A nil Projection is everything. A kind of which no field is named travels
// whole, and so does everything below a field that is named; of a map of which
// entries are named those travel that it has. The fields that
// say which object it is, metadata.name, metadata.namespace and metadata.uid,
// always travel, unless [NamelessNodes] takes them away from Nodes, and
// metadata.managedFields never does. A Projection does not change.
type Projection struct {
	paths []string
	// kinds has a tree for each kind of which fields are named.
	kinds map[string]*tree
	// pod and node encode what travels of either, declared what paths name of a
	// Pod, nil if they name nothing of it.
	pod, node, declared encoder
	// podTexts and nodeTexts encode what travels of labels and annotations.
	podTexts, nodeTexts texts
	// nameless says that a Node has only what paths name.
	nameless bool
}

// kinds are the objects that travel by ref, by the first element of a path.
var kinds = map[string]reflect.Type{
	"node": reflect.TypeFor[corev1.Node](),
	"pod":  reflect.TypeFor[corev1.Pod](),
}

// managedFields is what never travels.
const managedFields = "managedFields"

// NamelessNodes is the path that takes away what says which Node it is, see
// [ParseProjection].
const NamelessNodes = "-node.metadata"

// identity is what travels unasked.
var identity = [][]string{{"metadata", "name"}, {"metadata", "namespace"}, {"metadata", "uid"}}

// ParseProjection makes a Projection of paths such as "node.metadata.labels" and
// "pod.spec.containers.image": the kind in lower case, then the names that
// fields have in JSON. A path goes through the elements of lists and ends at a
// map at the latest, or at an entry of it, which stands in brackets:
// "node.metadata.labels[topology.kubernetes.io/zone]". No paths are the nil
// Projection.
//
// [NamelessNodes] beside paths of a Node is for a guest that does not ask which Node it
// is: metadata.name and metadata.uid are left out then, unless other paths name them,
// and Nodes that are equal in what is left are one object to the guest.
//
// The error names every path that there is not, with the nearest that there is.
func ParseProjection(paths []string) (*Projection, error) {
	if len(paths) == 0 {
		return nil, nil
	}
	p := &Projection{kinds: map[string]*tree{}}
	var errs []error
	for _, path := range paths {
		if path == NamelessNodes {
			p.nameless = true
			continue
		}
		if err := p.add(path); err != nil {
			errs = append(errs, fmt.Errorf("field path %q: %w", path, err))
		}
	}
	if p.nameless && p.kinds["node"] == nil {
		errs = append(errs, fmt.Errorf("field path %q: the fields of a Node that travel must be named beside it", NamelessNodes))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if p.kinds["pod"] != nil {
		p.declared = p.encoder("pod")
	}
	for kind, t := range p.kinds {
		if kind == "node" && p.nameless {
			continue
		}
		for _, path := range identity {
			_ = t.add(kinds[kind], path, "") // Every kind has them.
		}
	}
	p.paths = slices.Clone(paths)
	slices.Sort(p.paths)
	p.paths = slices.Compact(p.paths)
	p.makeEncoders()
	return p, nil
}

// everything is the nil Projection, which needs its encoders too.
var everything = sync.OnceValue(func() *Projection {
	p := &Projection{}
	p.makeEncoders()
	return p
})

// orEverything returns p with its encoders.
func (p *Projection) orEverything() *Projection {
	if p == nil {
		return everything()
	}
	return p
}

func (p *Projection) makeEncoders() {
	p.pod, p.node = p.encoder("pod"), p.encoder("node")
	p.podTexts, p.nodeTexts = p.pod.texts(), p.node.texts()
}

// encoder returns the encoder of a kind.
func (p *Projection) encoder(kind string) encoder {
	return p.kinds[kind].ofObject(kinds[kind]).encoder(kinds[kind])
}

func (p *Projection) add(path string) error {
	path, entry, err := cutEntry(path)
	if err != nil {
		return err
	}
	kind, rest, _ := strings.Cut(path, ".")
	t, ok := kinds[kind]
	if !ok {
		return fmt.Errorf("there is no kind %q%s", kind, nearest.Hint("; ", kind, slices.Sorted(maps.Keys(kinds))))
	}
	if p.kinds[kind] == nil {
		p.kinds[kind] = &tree{}
	}
	var names []string
	if rest != "" {
		names = strings.Split(rest, ".")
	}
	return p.kinds[kind].add(t, names, entry)
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

// NodePaths returns the paths of those fields of a part of a Node (see
// [Object.AppendPart]) that a mask has: of the part itself if that is [abi.AllFields], and none
// of fields that there are not.
func NodePaths(part uint32, fields uint64) (paths []string) {
	node := kinds["node"]
	each(node, func(name string, index []int, t reflect.Type) {
		path := "node." + name
		switch {
		case fieldNumber(node.FieldByIndex(index)) != uint64(part):
		case fields == abi.AllFields:
			paths = append(paths, path)
		default:
			each(t, func(name string, index []int, _ reflect.Type) {
				if name != managedFields && has(fields, fieldNumber(t.FieldByIndex(index))) {
					paths = append(paths, path+"."+name)
				}
			})
		}
	})
	return paths
}

// Paths returns the paths that the Projection was made of, sorted; nil for
// everything.
func (p *Projection) Paths() []string {
	if p == nil {
		return nil
	}
	return slices.Clone(p.paths)
}

// Union returns the Projection that has the fields of both.
func (p *Projection) Union(q *Projection) *Projection {
	if p == nil || q == nil {
		return nil
	}
	// A kind that one of them has whole is whole in both.
	var paths []string
	for _, path := range slices.Concat(p.paths, q.paths) {
		kind, _, _ := strings.Cut(path, ".")
		if p.kinds[kind] != nil && q.kinds[kind] != nil {
			paths = append(paths, path)
		}
	}
	if p.nameless && q.nameless {
		paths = append(paths, NamelessNodes)
	}
	union, err := ParseProjection(paths)
	if err != nil {
		panic(err) // They have been parsed before.
	}
	return union
}

// Nameless reports whether the Projection leaves out which Node it is, so that Nodes
// with equal bytes are one object.
func (p *Projection) Nameless() bool { return p != nil && p.nameless }

// Equal reports whether both name the same fields by the same paths.
func (p *Projection) Equal(q *Projection) bool { return slices.Equal(p.Paths(), q.Paths()) }

// String returns the paths, or "everything".
func (p *Projection) String() string {
	if p == nil {
		return "everything"
	}
	return strings.Join(p.paths, ", ")
}

// tree is the fields of a struct that travel.
type tree struct {
	// whole says that all of them do, whatever fields has.
	whole  bool
	fields []field
	// generated says that what is empty is written as the generated code does.
	generated bool
	// entries are the keys of those entries of a map that travel.
	entries []string
}

// field is a field of a struct, or of a struct that is embedded in it.
type field struct {
	index []int
	tree  *tree
}

// add adds the field that path leads to from a value of the type t, or the entry
// of the map there, unless that is "".
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

var marshaler = reflect.TypeFor[json.Marshaler]()

// nested reports whether a type has fields of its own in the API: Time and
// Quantity are structs in Go and strings in the API.
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
