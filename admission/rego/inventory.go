package rego

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kubewasm/kubewasm/admission/dialect"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/json"
	"github.com/kubewasm/kubewasm/internal/policyjson"
)

// source holds the objects of the cluster that a policy may look up. It is safe for use by
// several goroutines.
type source interface {
	// Snapshot returns the current objects, or the reason that they are unknown. The kinds and
	// their order are the same each time.
	Snapshot(ctx context.Context) ([]group, error)
}

// group holds the objects of a kind.
type group struct {
	APIVersion, Kind string
	// Resource is the plural name of the kind.
	Resource string
	Objects  objects
}

// objects are the objects at one time, sorted by namespace and then by name. They do not change.
type objects interface {
	Len() int
	// At returns an object in JSON. Its ref is comparable, and stays equal until the object
	// changes.
	At(i int) (ref any, namespace, name string, object []byte)
	// Same reports whether the objects are identical to those of another snapshot.
	Same(other objects) bool
}

// objectData tracks the objects in the data of an instance. The policy's values are built when an
// object has changed, and not for each request: data is kept between requests, below the heap of
// each request.
type objectData struct {
	groups []objects
	// counts holds the number of objects below each path.
	counts map[string]int
	// base is the address at which the heap of data begins, and full its length after the last
	// rebuild.
	base, full uint32
	// broken is set while data may be incomplete.
	broken bool
	// scratch is memory of the policy for texts to be parsed.
	scratch, scratchBytes uint32
}

// Limits of one step, which has separate fuel and time, so that the objects of a cluster do not use
// up those of a verdict.
const (
	stepBytes   = 1 << 20
	stepChanges = 4096
)

// minGarbage is the amount of garbage, beyond the size of data, after which data is rebuilt.
const minGarbage = 4 << 20

// change inserts an object into data or, without one, removes it.
type change struct {
	path   []string
	object []byte
}

// fill updates the objects in data to those of the cluster. An error other than a trap does not
// name the plugin.
func (cfg *config) fill(ctx context.Context, inst host.DialectInstance) error {
	groups, err := cfg.inventory.Snapshot(ctx)
	if err != nil {
		return fmt.Errorf("look up objects: %w", err)
	}
	if r, ok := dialect.CallOf(inst.Instance).Own.(*ruleset); ok && r.objects.current(groups) {
		return nil
	}
	step := func(f func(r *ruleset) error) error {
		return inst.Do(ctx, "opa_data", func() error {
			r, err := cfg.rulesetOf(inst)
			if err != nil {
				return err
			}
			return f(r)
		})
	}
	var r *ruleset
	var changes []change
	err = step(func(current *ruleset) error {
		r = current
		return r.begin(inst, groups, cfg.settings, &changes)
	})
	for err == nil && len(changes) != 0 {
		n, bytes := 0, 0
		for n < len(changes) && n < stepChanges && (n == 0 || bytes+len(changes[n].object) <= stepBytes) {
			bytes += len(changes[n].object)
			n++
		}
		part := changes[:n]
		changes = changes[n:]
		err = step(func(current *ruleset) error {
			if current != r {
				return errors.New("the policy began anew while its data were changed")
			}
			return r.apply(inst, part)
		})
	}
	if err != nil {
		return err
	}
	o := &r.objects
	o.groups, o.broken = o.groups[:0], false
	for i := range groups {
		o.groups = append(o.groups, groups[i].Objects)
	}
	if o.full == 0 {
		o.full = r.heap - o.base
	}
	return nil
}

// current reports whether data holds the objects of a snapshot.
func (o *objectData) current(groups []group) bool {
	if o.broken || len(o.groups) != len(groups) {
		return false
	}
	for i := range groups {
		if !groups[i].Objects.Same(o.groups[i]) {
			return false
		}
	}
	return true
}

// begin finds the changes. If data cannot be changed in place, or has too much garbage, it is
// rebuilt from all objects.
func (r *ruleset) begin(inst host.DialectInstance, groups []group, settings []byte, changes *[]change) error {
	o := &r.objects
	anew := o.broken || len(o.groups) != len(groups) || r.heap-o.base > 2*o.full+minGarbage
	inPlace := inst.Exports(valueAddPath) && inst.Exports(valueRemovePath)
	o.broken = true
	if anew || !inPlace {
		if o.counts == nil {
			o.base = r.heap
		}
		o.groups, o.counts, o.full = make([]objects, len(groups)), map[string]int{}, 0
		// The memory above belongs to the old data.
		o.scratch, o.scratchBytes = 0, 0
		if inst.Exports(stashClear) {
			inst.Invoke(stashClear)
		}
		inst.Invoke(heapSet, uint64(o.base))
		r.heap = o.base
	}
	for i := range groups {
		*changes = r.diff(*changes, &groups[i], o.groups[i])
	}
	text := r.emptyData(settings)
	if !inPlace {
		text = r.wholeData(settings, *changes)
		*changes = nil
	}
	if anew || !inPlace {
		if r.data = r.parse(inst, text); r.data == 0 {
			return errors.New("the policy does not take the objects of the cluster")
		}
		r.heap = uint32(inst.Invoke(heapGet))
	}
	return nil
}

// diff appends the changes between two snapshots of a group; before may be nil.
func (r *ruleset) diff(changes []change, g *group, before objects) []change {
	was, is := 0, 0
	if before != nil {
		was = before.Len()
	}
	i, j := 0, 0
	for is = g.Objects.Len(); i < was || j < is; {
		order := 1
		var oldRef, newRef any
		var oldNamespace, oldName, newNamespace, newName string
		var object []byte
		if i < was {
			oldRef, oldNamespace, oldName, _ = before.At(i)
			order = -1
		}
		if j < is {
			newRef, newNamespace, newName, object = g.Objects.At(j)
			if i < was {
				order = cmp.Or(strings.Compare(oldNamespace, newNamespace), strings.Compare(oldName, newName))
			}
		}
		switch {
		case order < 0:
			changes = append(changes, change{r.path(g, oldNamespace, oldName), nil})
			i++
		case order > 0:
			changes = append(changes, change{r.path(g, newNamespace, newName), object})
			j++
		default:
			if oldRef != newRef {
				changes = append(changes, change{r.path(g, newNamespace, newName), object})
			}
			i++
			j++
		}
	}
	return changes
}

// path returns the path of an object in data, as in Gatekeeper or in OPA's agent for Kubernetes.
func (r *ruleset) path(g *group, namespace, name string) []string {
	switch {
	case r.gatekeeper && namespace == "":
		return []string{inventory, "cluster", g.APIVersion, g.Kind, name}
	case r.gatekeeper:
		return []string{inventory, "namespace", namespace, g.APIVersion, g.Kind, name}
	case namespace == "":
		return []string{kubernetes, g.Resource, name}
	}
	return []string{kubernetes, g.Resource, namespace, name}
}

// fixed returns the number of elements of a path that exist even without objects.
func (r *ruleset) fixed() int {
	if r.gatekeeper {
		return 2
	}
	return 1
}

// emptyData returns data without objects.
func (r *ruleset) emptyData(settings []byte) []byte {
	if r.gatekeeper {
		return []byte(`{"inventory":{"cluster":{},"namespace":{}}}`)
	}
	o := policyjson.NewObject(make([]byte, 0, len(settings)+32))
	for s := json.Object(settings); s.Next(); {
		o.Raw(s.Key(), s.Value())
	}
	o.Raw(kubernetes, []byte("{}"))
	return o.End()
}

// wholeData returns data with all objects, for modules whose data cannot be changed.
func (r *ruleset) wholeData(settings []byte, objects []change) []byte {
	type node struct {
		object []byte
		names  []string
		below  map[string]*node
	}
	root := &node{}
	for _, c := range objects {
		n := root
		for _, part := range c.path {
			next := n.below[part]
			if next == nil {
				next = &node{}
				if n.below == nil {
					n.below = map[string]*node{}
				}
				n.below[part] = next
				n.names = append(n.names, part)
			}
			n = next
		}
		n.object = c.object
	}
	var encode func(dst []byte, n *node) []byte
	encode = func(dst []byte, n *node) []byte {
		if n.object != nil {
			return append(dst, n.object...)
		}
		dst = append(dst, '{')
		for i, name := range n.names {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(json.AppendString(dst, name), ':')
			dst = encode(dst, n.below[name])
		}
		return append(dst, '}')
	}
	for _, name := range []string{"cluster", "namespace"} {
		if !r.gatekeeper {
			break
		}
		if root.below == nil || root.below[inventory] == nil {
			return r.emptyData(settings)
		}
		if in := root.below[inventory]; in.below[name] == nil {
			in.below[name] = &node{}
			in.names = append(in.names, name)
		}
	}
	if r.gatekeeper {
		return encode(nil, root)
	}
	o := policyjson.NewObject(nil)
	for s := json.Object(settings); s.Next(); {
		o.Raw(s.Key(), s.Value())
	}
	if of := root.below[kubernetes]; of != nil {
		o.Raw(kubernetes, encode(nil, of))
	} else {
		o.Raw(kubernetes, []byte("{}"))
	}
	return o.End()
}

// apply applies changes to data.
func (r *ruleset) apply(inst host.DialectInstance, changes []change) error {
	// The blocks of replaced values are reused if the module can keep them.
	keeps := inst.Exports(blocksStash) && inst.Exports(blocksRestore) && inst.Exports(stashClear)
	inst.Invoke(heapSet, uint64(r.heap))
	if keeps {
		inst.Invoke(blocksRestore)
	}
	for _, c := range changes {
		path, object := r.counted(c)
		p := r.parse(inst, pathText(path))
		if p == 0 {
			return errors.New("the policy does not take a path in its data")
		}
		var code uint64
		if object == nil {
			code = inst.Invoke(valueRemovePath, uint64(r.data), uint64(p))
		} else {
			value := r.parse(inst, object)
			if value == 0 {
				return fmt.Errorf("the policy does not take the object %.200s", strings.Join(path, "/"))
			}
			code = inst.Invoke(valueAddPath, uint64(r.data), uint64(p), uint64(value))
		}
		if code != 0 {
			return fmt.Errorf("the policy does not change its data at %.200s: code %d", strings.Join(path, "/"), int32(uint32(code)))
		}
		if inst.Exports(valueFree) {
			inst.Invoke(valueFree, uint64(p))
		}
	}
	r.heap = uint32(inst.Invoke(heapGet))
	if keeps {
		inst.Invoke(blocksStash)
	}
	return nil
}

// counted counts a change. If it removes the last object below a path, the returned change also
// removes that path. So data depends only on the objects, not on the order of changes.
func (r *ruleset) counted(c change) (path []string, object []byte) {
	counts, name := r.objects.counts, strings.Join(c.path, "\x00")
	switch {
	case c.object != nil && counts[name] != 0:
		return c.path, c.object // The object is replaced.
	case c.object != nil:
		for n := r.fixed() + 1; n <= len(c.path); n++ {
			counts[strings.Join(c.path[:n], "\x00")]++
		}
		return c.path, c.object
	}
	path = c.path
	for n := len(c.path); n > r.fixed(); n-- {
		prefix := strings.Join(c.path[:n], "\x00")
		if counts[prefix]--; counts[prefix] <= 0 {
			delete(counts, prefix)
			path = c.path[:n]
		}
	}
	return path, nil
}

func pathText(path []string) []byte {
	text := []byte{'['}
	for i, part := range path {
		if i > 0 {
			text = append(text, ',')
		}
		text = json.AppendString(text, part)
	}
	return append(text, ']')
}

// parse returns a value of the policy parsed from a text, 0 if the policy cannot parse it. The text
// uses memory that is reused for the next one.
func (r *ruleset) parse(inst host.DialectInstance, text []byte) uint32 {
	o := &r.objects
	if uint64(len(text)) > uint64(o.scratchBytes) {
		o.scratchBytes = max(uint32(len(text)), 2*o.scratchBytes, 4<<10)
		o.scratch = uint32(inst.Invoke(malloc, uint64(o.scratchBytes)))
	}
	if err := inst.Put(o.scratch, text); err != nil {
		inst.Abort(err)
	}
	return uint32(inst.Invoke(jsonParse, uint64(o.scratch), uint64(len(text))))
}
