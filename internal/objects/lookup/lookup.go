// Package lookup implements, for all adapters, the host functions by which guests look
// objects up: the questions of abi/SPEC.md and the form of the answers.
package lookup

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	content "k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
)

// Object is an object that may be looked up.
type Object interface {
	GetNamespace() string
	GetName() string
	GetLabels() map[string]string
}

// Source has the objects of one kind of host. An error ends the call of the guest.
type Source[O Object] interface {
	// Get returns an object of a resource in the form in which its guests get objects,
	// and nothing if there is none. The bytes stay as they are during the call.
	Get(inst *host.Instance, resource, namespace, name string) ([]byte, error)
	// List returns the objects of a resource in a namespace or, if that is empty, in
	// all, sorted by namespace and then by name; it may also return those of
	// other namespaces. It returns the same list as long as the call lasts.
	List(inst *host.Instance, resource, namespace string) ([]O, error)
	// Encode returns an object in the form in which guests get objects.
	Encode(O) ([]byte, error)
	// Last is the memory for the last answer of List in the running call.
	Last(inst *host.Instance) *Last
}

// Indexed is implemented by a [Source] that has indexes.
type Indexed[O Object] interface {
	// Indexed returns the objects of a resource that a question about a list can have, sorted, if an
	// index has them, and whether it has. It is the same list as long as the call lasts.
	Indexed(inst *host.Instance, q *List) (list []O, ok bool, err error)
}

// Last is the last answer to a question about a list. A guest asks again if its buffer was
// too small.
type Last struct {
	question string
	answer   []byte
	kept     int // The kept bytes that the call was charged for the answer.
}

// The limits of questions and answers. A page has about this size, or one object.
const (
	maxQuestionBytes = 8 << 10
	maxSelectorBytes = 4 << 10
	pageBytes        = 128 << 10
)

// The prices of work in fuel, two units for about a nanosecond: for each object, for each
// requirement that it is compared with, and for each byte of a selector.
const (
	objectWork      = 100
	requirementWork = 100
	selectorWork    = 40
	// spendAfter is the number of objects between two checks of the fuel.
	spendAfter = 256
)

// Imports returns the host functions of a source in the given module: get_object and
// list_objects.
func Imports[O Object](module string, source Source[O]) []host.Import {
	function := func(name string, answer func(inst *host.Instance, question string) ([]byte, error)) host.Import {
		i32 := abi.I32
		return host.Import{
			Module: module, Name: name, Grant: host.GrantObjects,
			Params: []abi.ValueType{i32, i32, i32, i32}, Results: []abi.ValueType{i32}, Memory: 0b1111,
			Func: func(inst *host.Instance, stack []uint64) {
				question := string(ReadQuestion(inst, stack[0], stack[1]))
				b, err := answer(inst, question)
				if err != nil {
					inst.Abort(err)
				}
				resource, _, _ := strings.Cut(question, "\x00")
				inst.Confidential(inst.Rule().ShapeOfResource(resource), 0, name == "list_objects")
				stack[0] = uint64(inst.Write(uint32(stack[2]), uint32(stack[3]), b))
			},
		}
	}
	return []host.Import{
		function("get_object", func(inst *host.Instance, question string) ([]byte, error) {
			parts := strings.Split(question, "\x00")
			if len(parts) != 3 {
				return nil, fmt.Errorf("%.80q is not a resource, a namespace and a name", question)
			}
			return source.Get(inst, parts[0], parts[1], parts[2])
		}),
		function("list_objects", func(inst *host.Instance, question string) ([]byte, error) {
			last := source.Last(inst)
			if last.answer != nil && last.question == question {
				return last.answer, nil
			}
			q, err := ParseList(question, inst.Spend)
			if err != nil {
				return nil, err
			}
			var list []O
			found := false
			if indexed, ok := source.(Indexed[O]); ok {
				list, found, err = indexed.Indexed(inst, q)
			}
			if err == nil && !found {
				list, err = source.List(inst, q.Resource, q.Namespace)
			}
			if err != nil {
				return nil, err
			}
			last.question = "" // So that it is not reused after a failure.
			b, err := Append(last.answer[:0], q, list, source.Encode, inst.Spend, inst.Limits().ResultBytes)
			if err != nil {
				return nil, err
			}
			inst.Keep(len(b) - last.kept)
			last.question, last.answer, last.kept = question, b, len(b)
			return b, nil
		}),
	}
}

// ReadQuestion returns a question of the guest, which is lent as by [host.Instance.Read]. It
// ends the call of one that is too long.
func ReadQuestion(inst *host.Instance, ptr, length uint64) []byte {
	if n := uint32(length); n > maxQuestionBytes {
		inst.Abort(fmt.Errorf("the question has %d bytes, more than %d", n, maxQuestionBytes))
	}
	return inst.Read(uint32(ptr), uint32(length))
}

// List is a question about a list.
type List struct {
	Resource, Namespace string
	Selector            Selector
	// Paged is set if the question asks for a page: the objects after After, which is the namespace
	// and the name of an object, with a slash between them.
	Paged bool
	After string
}

// Selector is a label selector.
type Selector struct {
	labels.Selector
	// Equal are the labels that must have one of some values.
	Equal []Requirement
	// Only is set if there is nothing else in the selector than one element of Equal.
	Only bool
	// Work is the fuel for comparing an object with the selector.
	Work int64
}

// Requirement is a label that must have one of the values.
type Requirement struct {
	Key    string
	Values []string
}

// everything selects all objects.
var everything = Selector{Selector: labels.Everything(), Work: objectWork}

// ParseSelector reads a label selector. An empty text selects everything. spend deducts
// fuel.
func ParseSelector(text string, spend func(int64)) (Selector, error) {
	if text == "" {
		return everything, nil
	}
	if len(text) > maxSelectorBytes {
		return Selector{}, fmt.Errorf("the selector has %d bytes, more than %d", len(text), maxSelectorBytes)
	}
	spend(selectorWork * int64(len(text)))
	s, err := labels.Parse(text)
	if err != nil {
		return Selector{}, fmt.Errorf("selector %.80q: %w", text, err)
	}
	requirements, _ := s.Requirements()
	selector := Selector{Selector: s, Work: objectWork + requirementWork*int64(len(requirements))}
	for _, r := range requirements {
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			selector.Equal = append(selector.Equal, Requirement{r.Key(), r.Values().List()})
		}
	}
	selector.Only = len(requirements) == 1 && len(selector.Equal) == 1
	return selector, nil
}

// Selectors keeps selectors that were parsed. The zero value is empty. It is safe for use by several
// goroutines.
type Selectors struct {
	mu   sync.Mutex
	kept map[string]Selector
}

// maxSelectors is the maximum number of selectors that are kept.
const maxSelectors = 512

// Parse is [ParseSelector] at the same price, whether the selector is kept or not.
func (k *Selectors) Parse(text string, spend func(int64)) (Selector, error) {
	k.mu.Lock()
	s, ok := k.kept[text]
	k.mu.Unlock()
	if ok {
		spend(selectorWork * int64(len(text)))
		return s, nil
	}
	s, err := ParseSelector(text, spend)
	if err != nil || len(text) > maxSelectorBytes/16 {
		return s, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kept == nil || len(k.kept) >= maxSelectors {
		k.kept = map[string]Selector{}
	}
	k.kept[strings.Clone(text)] = s
	return s, nil
}

// ParseList reads a question: a resource, a NUL, a namespace, and then, each after a NUL
// and each optional, a label selector and the object before the page. spend deducts
// fuel.
func ParseList(question string, spend func(int64)) (*List, error) {
	parts := strings.Split(question, "\x00")
	if len(parts) < 2 || len(parts) > 4 {
		return nil, fmt.Errorf("%.80q is not a resource, a namespace, a selector and an object", question)
	}
	q := &List{Resource: parts[0], Namespace: parts[1], Selector: everything}
	if len(parts) > 2 {
		var err error
		if q.Selector, err = ParseSelector(parts[2], spend); err != nil {
			return nil, err
		}
	}
	if len(parts) == 4 {
		q.Paged, q.After = true, parts[3]
		if q.After != "" && !strings.Contains(q.After, "/") {
			return nil, fmt.Errorf("%.80q is not a namespace and a name with a slash between them", q.After)
		}
	}
	return q, nil
}

// key is the sort key of lists.
type key struct{ namespace, name string }

func keyOf(o Object) key { return key{o.GetNamespace(), o.GetName()} }

func compare(a, b key) int {
	return cmp.Or(strings.Compare(a.namespace, b.namespace), strings.Compare(a.name, b.name))
}

// Compare compares objects by namespace and then by name.
func Compare[O Object](a, b O) int { return compare(keyOf(a), keyOf(b)) }

// Find returns the position of an object in a sorted list, or the position where it would be.
func Find[O Object](list []O, namespace, name string) (int, bool) {
	return slices.BinarySearchFunc(list, key{namespace, name}, func(o O, k key) int { return compare(keyOf(o), k) })
}

// The fields of the message kubewasm.sched.v1.Objects.
const (
	objectsField protowire.Number = 1
	nextField    protowire.Number = 2
)

// Append appends the answer to q from a sorted list: the message
// kubewasm.sched.v1.Objects. spend deducts fuel, and limit is the maximum length of an
// answer in bytes.
func Append[O Object](dst []byte, q *List, list []O, encode func(O) ([]byte, error), spend func(int64), limit int) ([]byte, error) {
	i, start := 0, len(dst)
	if q.Namespace != "" {
		i, _ = Find(list, q.Namespace, "")
	}
	if q.After != "" {
		namespace, name, _ := strings.Cut(q.After, "/")
		after, found := Find(list, namespace, name)
		if found {
			after++
		}
		i = max(i, after)
	}
	looked, written, last := 0, 0, key{}
	for ; i < len(list); i++ {
		o := list[i]
		if q.Namespace != "" && o.GetNamespace() != q.Namespace {
			break
		}
		if looked++; looked%spendAfter == 0 {
			spend(spendAfter * q.Selector.Work)
		}
		if !q.Selector.Matches(labels.Set(o.GetLabels())) {
			continue
		}
		b, err := encode(o)
		if err != nil {
			return nil, err
		}
		if q.Paged && len(dst) > start && len(dst)-start+len(b) > pageBytes {
			dst = protowire.AppendTag(dst, nextField, protowire.BytesType)
			dst = protowire.AppendString(dst, last.namespace+"/"+last.name)
			break
		}
		if len(dst)-start+len(b) > limit {
			return nil, fmt.Errorf("the list has more than %d bytes: %w", limit, errTooLong)
		}
		dst = protowire.AppendTag(dst, objectsField, protowire.BytesType)
		dst = protowire.AppendBytes(dst, b)
		last = keyOf(o)
		if written += len(b); written >= spendAfter<<8 {
			spend(int64(written) / 4)
			written = 0
		}
	}
	spend(int64(looked%spendAfter)*q.Selector.Work + int64(written)/4)
	return dst, nil
}

var errTooLong = errors.New("ask for pages of it")

var resourceRE = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)

// ParseResource reads the name of a resource as in a URL of the API: "v1/pods",
// "apps/v1/replicasets".
func ParseResource(name string) (schema.GroupVersionResource, error) {
	parts := strings.Split(name, "/")
	for _, part := range parts {
		if !resourceRE.MatchString(part) {
			return schema.GroupVersionResource{}, notAResource(name)
		}
	}
	switch len(parts) {
	case 2:
		return schema.GroupVersionResource{Version: parts[0], Resource: parts[1]}, nil
	case 3:
		return schema.GroupVersionResource{Group: parts[0], Version: parts[1], Resource: parts[2]}, nil
	}
	return schema.GroupVersionResource{}, notAResource(name)
}

// Grants returns the grants of resources, in all namespaces.
func Grants(resources ...string) (grants []host.ObjectGrant) {
	for _, r := range resources {
		grants = append(grants, host.ObjectGrant{Resource: r})
	}
	return grants
}

// TestGrants returns the grants of resources with everything that may be granted, for programs without
// an API server, where the values of queries are objects.
func TestGrants(resources ...string) []host.ObjectGrant {
	grants := Grants(resources...)
	for i := range grants {
		if g := &grants[i]; strings.HasPrefix(g.Resource, queried+"/") {
			g.Query = &host.ObjectQuery{Prometheus: "vector(1)", Service: "none/none"}
		} else {
			g.Apply = []string{applyStatus, applyAnnotations}
		}
	}
	return grants
}

// Granted returns the grants of a plugin, with [host.GrantObjects] if its configuration names objects.
func Granted(grants []string, objects []host.ObjectGrant) []string {
	if len(objects) == 0 || slices.Contains(grants, host.GrantObjects) {
		return grants
	}
	return append(slices.Clone(grants), host.GrantObjects)
}

// CheckGrants returns every mistake of grants.
func CheckGrants(grants []host.ObjectGrant) (errs []error) {
	seen := map[string]bool{}
	for i, g := range grants {
		if _, err := ParseResource(g.Resource); err != nil {
			errs = append(errs, err)
		}
		if seen[g.Resource] {
			errs = append(errs, fmt.Errorf("objects: %q is there twice", g.Resource))
		}
		seen[g.Resource] = true
		if g.Namespaces != nil && len(g.Namespaces) == 0 {
			errs = append(errs, fmt.Errorf("objects[%d].namespaces is empty: leave it out for all", i))
		}
		errs = append(errs, checkApply(g)...)
		for n, index := range g.Index {
			if problems := content.IsQualifiedName(index.Label); len(problems) != 0 {
				errs = append(errs, fmt.Errorf("objects[%d].index[%d].label is %.80q: %s", i, n, index.Label, problems[0]))
			}
		}
		for _, namespace := range g.Namespaces {
			if problems := validation.ValidateNamespaceName(namespace, false); len(problems) != 0 {
				errs = append(errs, fmt.Errorf("objects[%d].namespaces has %.80q: %s", i, namespace, problems[0]))
			}
		}
	}
	return errs
}

func notAResource(name string) error {
	return fmt.Errorf("objects: %.200q is not version/resource or group/version/resource", name)
}
