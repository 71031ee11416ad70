package rego

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

var errPatch = errors.New("the patch does not apply")

// patchWork is the cost of copying an entry of a list, a set or an object.
const patchWork = 60

// patcher applies operations to a value, and copies the changed parts.
type patcher struct {
	call *call
	// size is an upper bound on the size of the value, as defined by the function size.
	size int
}

// jsonPatch implements json.patch. Paths are strings, with or without a leading slash, or lists of
// keys. Unlike in RFC 6902, the value may contain sets, and keys that are not strings.
func jsonPatch(c *call, args []any) (any, error) {
	operations, ok := args[1].([]any)
	if !ok {
		return nil, errArguments
	}
	p := patcher{call: c, size: size(args[0])}
	value := args[0]
	for _, operation := range operations {
		o, ok := operation.(object)
		if !ok {
			return nil, errArguments
		}
		var err error
		if value, err = p.apply(value, o); err != nil {
			return nil, err
		}
	}
	if value == removed {
		return nil, errPatch
	}
	return value, nil
}

// removed represents a removed whole value.
var removed any = &struct{ _ int }{}

// get returns the value of a key.
func (o object) get(key any) (any, bool) {
	i, ok := o.find(key)
	if !ok {
		return nil, false
	}
	return o[i].value, true
}

// find returns the index of a key, or the index at which it would be inserted.
func (o object) find(key any) (int, bool) {
	return slices.BinarySearchFunc(o, key, func(e entry, key any) int { return compare(e.key, key) })
}

func (p *patcher) apply(value any, operation object) (any, error) {
	name, _ := operation.get("op")
	path, err := p.path(operation, "path")
	if err != nil {
		return nil, err
	}
	switch name {
	case "add":
		return p.add(value, operation, path)
	case "remove":
		return p.remove(value, path)
	case "replace":
		if value, err = p.remove(value, path); err != nil {
			return nil, err
		}
		return p.add(value, operation, path)
	case "move", "copy":
		from, err := p.path(operation, "from")
		if err != nil {
			return nil, err
		}
		chunk, err := p.at(value, from)
		if err != nil {
			return nil, err
		}
		if name == "move" {
			if value, err = p.remove(value, from); err != nil {
				return nil, err
			}
		}
		return p.insert(value, path, chunk)
	case "test":
		chunk, err := p.at(value, path)
		if err != nil {
			return nil, err
		}
		want, ok := operation.get("value")
		if !ok {
			return nil, errPatch
		}
		p.call.work(10 * min(size(want), p.size))
		if compare(chunk, want) != 0 {
			return nil, errPatch
		}
		return value, nil
	}
	return nil, errPatch
}

// path returns the keys of a path.
func (p *patcher) path(operation object, name string) ([]any, error) {
	path, _ := operation.get(name)
	var keys []any
	switch path := path.(type) {
	case string:
		if path == "" {
			return nil, nil
		}
		path = strings.TrimLeft(path, "/")
		if strings.Count(path, "/") >= maxValueDepth {
			return nil, errTooMuch
		}
		for key := range strings.SplitSeq(path, "/") {
			keys = append(keys, strings.ReplaceAll(strings.ReplaceAll(key, "~1", "/"), "~0", "~"))
		}
	case []any:
		keys = path
	default:
		return nil, errPatch
	}
	if len(keys) > maxValueDepth {
		return nil, errTooMuch
	}
	return keys, nil
}

func (p *patcher) add(value any, operation object, path []any) (any, error) {
	chunk, ok := operation.get("value")
	if !ok {
		return nil, errPatch
	}
	return p.insert(value, path, chunk)
}

// insert inserts a chunk into a value. A chunk may occur many times, in chunks of chunks, so insert
// bounds the length and the depth of the value.
func (p *patcher) insert(value any, path []any, chunk any) (any, error) {
	if len(path)+depth(chunk) > maxValueDepth {
		return nil, fmt.Errorf("%w: the value is nested more than %d deep", errTooMuch, maxValueDepth)
	}
	if p.size += size(chunk); p.size > maxValues {
		return nil, fmt.Errorf("%w: the value is too long", errTooMuch)
	}
	p.call.work(10 * size(chunk))
	if len(path) == 0 {
		return chunk, nil
	}
	return p.edit(value, path, func(container, key any) (any, error) {
		switch container := container.(type) {
		case object:
			i, found := container.find(key)
			if container = slices.Clone(container); found {
				container[i] = entry{key, chunk}
				return container, nil
			}
			return slices.Insert(container, i, entry{key, chunk}), nil
		case set:
			if compare(key, chunk) != 0 {
				return nil, errPatch
			}
			p.call.work(sortWork(len(container) + 1))
			return newSet(append(slices.Clone(container), chunk)), nil
		case []any:
			i, err := index(key, len(container))
			if err != nil || i > len(container) {
				return nil, errPatch
			}
			return slices.Insert(slices.Clone(container), i, chunk), nil
		}
		return nil, errPatch
	})
}

func (p *patcher) remove(value any, path []any) (any, error) {
	if len(path) == 0 {
		if value == removed {
			return nil, errPatch
		}
		return removed, nil
	}
	return p.edit(value, path, func(container, key any) (any, error) {
		switch container := container.(type) {
		case object:
			if i, found := container.find(key); found {
				return slices.Delete(slices.Clone(container), i, i+1), nil
			}
		case set:
			if i, found := slices.BinarySearchFunc(container, key, compare); found {
				return slices.Delete(slices.Clone(container), i, i+1), nil
			}
		case []any:
			if i, err := index(key, len(container)); err == nil && i < len(container) {
				return slices.Delete(slices.Clone(container), i, i+1), nil
			}
		}
		return nil, errPatch
	})
}

// edit returns the value with the container of the path's last key replaced by the result of
// change.
func (p *patcher) edit(value any, path []any, change func(container, key any) (any, error)) (any, error) {
	p.call.work(1000 + patchWork*width(value))
	if len(path) == 1 {
		return change(value, path[0])
	}
	child, i, err := p.child(value, path[0])
	if err != nil {
		return nil, err
	}
	if child, err = p.edit(child, path[1:], change); err != nil {
		return nil, err
	}
	switch value := value.(type) {
	case object:
		value = slices.Clone(value)
		value[i].value = child
		return value, nil
	case set:
		value = slices.Clone(value)
		value[i] = child
		p.call.work(sortWork(len(value)))
		return newSet(value), nil
	case []any:
		value = slices.Clone(value)
		value[i] = child
		return value, nil
	}
	return nil, errPatch
}

// at returns the value at a path.
func (p *patcher) at(value any, path []any) (any, error) {
	p.call.work(1000 * (1 + len(path)))
	for _, key := range path {
		var err error
		if value, _, err = p.child(value, key); err != nil {
			return nil, err
		}
	}
	if value == removed {
		return nil, errPatch
	}
	return value, nil
}

// child returns the value of a key, and its index in the container.
func (p *patcher) child(container, key any) (any, int, error) {
	switch container := container.(type) {
	case object:
		if i, found := container.find(key); found {
			return container[i].value, i, nil
		}
	case set:
		if i, found := slices.BinarySearchFunc(container, key, compare); found {
			return container[i], i, nil
		}
	case []any:
		if i, err := index(key, len(container)); err == nil && i < len(container) {
			return container[i], i, nil
		}
	}
	return nil, 0, errPatch
}

// index returns the list index given by a key: a number, or the text of one. It is not negative.
func index(key any, length int) (int, error) {
	switch key := key.(type) {
	case number:
		n, err := key.int64()
		if err != nil || n < 0 || n > maxValues {
			return 0, errPatch
		}
		return int(n), nil
	case string:
		if key == "-" {
			return length, nil
		}
		n, err := strconv.Atoi(key)
		if err != nil || n < 0 || n > maxValues || key != "0" && key[0] == '0' {
			return 0, errPatch
		}
		return n, nil
	}
	return 0, errPatch
}

// width returns the number of entries of a value.
func width(v any) int {
	switch v := v.(type) {
	case object:
		return len(v)
	case set:
		return len(v)
	case []any:
		return len(v)
	}
	return 0
}

// depth returns the nesting depth of a value.
func depth(v any) int {
	deepest := 0
	switch v := v.(type) {
	case object:
		for _, e := range v {
			deepest = max(deepest, 1+depth(e.key), 1+depth(e.value))
		}
	case set:
		return depth([]any(v))
	case []any:
		for _, e := range v {
			deepest = max(deepest, 1+depth(e))
		}
	}
	return deepest
}
