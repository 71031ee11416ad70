package rego

import (
	"bytes"
	stdjson "encoding/json"
	"net/url"
	"slices"

	"github.com/google/uuid"
)

// textObject returns an object of keys and texts, without empty texts.
func textObject(pairs ...string) object {
	o := object{}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			o = append(o, entry{pairs[i], pairs[i+1]})
		}
	}
	return newObject(o)
}

// cast returns a builtin that returns values of a type unchanged.
func cast(is func(v any) bool) builtin {
	return func(_ *call, args []any) (any, error) {
		if !is(args[0]) {
			return nil, errArguments
		}
		return args[0], nil
	}
}

func isOf[T any](v any) bool {
	_, ok := v.(T)
	return ok
}

func castArray(_ *call, args []any) (any, error) {
	switch v := args[0].(type) {
	case []any:
		return v, nil
	case set:
		return []any(v), nil
	}
	return nil, errArguments
}

func castSet(c *call, args []any) (any, error) {
	switch v := args[0].(type) {
	case []any:
		c.work(sortWork(len(v)))
		return newSet(slices.Clone(v)), nil
	case set:
		return v, nil
	}
	return nil, errArguments
}

// jsonMarshalWithOptions implements json.marshal_with_options. It indents lines if the options set
// an indentation, unless they disable it.
func jsonMarshalWithOptions(c *call, args []any) (any, error) {
	options, ok := args[1].(object)
	if !ok {
		return nil, errArguments
	}
	indent, prefix, pretty, said := "\t", "", false, false
	for _, e := range options {
		s, isText := e.value.(string)
		is, isBool := e.value.(bool)
		switch {
		case e.key == "indent" && isText:
			indent, pretty = s, pretty || !said
		case e.key == "prefix" && isText:
			prefix, pretty = s, pretty || !said
		case e.key == "pretty" && isBool:
			pretty, said = is, true
		default:
			return nil, errArguments
		}
	}
	if p, ok := options.get("pretty"); ok {
		pretty = p.(bool)
	}
	raw, err := toJSON(args[0], c.limit)
	if err != nil {
		return nil, err
	}
	c.work(len(raw) * byteWork)
	if !pretty {
		return goJSON(raw), nil
	}
	lines := bytes.Count(raw, []byte(",")) + 2*(bytes.Count(raw, []byte("{"))+bytes.Count(raw, []byte("["))) + 1
	if each := len(prefix) + (depth(args[0])+1)*len(indent) + 1; each > c.limit/lines {
		return nil, errTooMuch
	}
	var out bytes.Buffer
	if err := stdjson.Indent(&out, []byte(goJSON(raw)), prefix, indent); err != nil {
		return nil, err
	}
	return prefix + out.String(), nil
}

// goJSON writes JSON as encoding/json does, escaping characters with a meaning in HTML.
func goJSON(raw []byte) string {
	var out bytes.Buffer
	stdjson.HTMLEscape(&out, raw)
	return out.String()
}

func uriParse(s string) (any, error) {
	u, err := url.Parse(s)
	if err != nil {
		return nil, err
	}
	rawPath := u.RawPath
	if rawPath == "" {
		rawPath = u.Path
	}
	return textObject("scheme", u.Scheme, "hostname", u.Hostname(), "port", u.Port(), "path", u.Path, "raw_path", rawPath,
		"raw_query", u.RawQuery, "fragment", u.Fragment), nil
}

func uriIsValid(_ *call, args []any) (any, error) {
	s, _ := args[0].(string)
	_, err := url.Parse(s)
	return s != "" && err == nil, nil
}

// macKinds maps the lowest two bits of the first byte of a MAC address to their meaning.
var macKinds = [4]string{"global:unicast", "global:multicast", "local:unicast", "local:multicast"}

func uuidParse(s string) (any, error) {
	if len(s) > 64 {
		return nil, errArguments // A UUID has one of four forms, of at most 45 bytes.
	}
	u, err := uuid.Parse(s)
	if err != nil {
		return nil, err
	}
	o := object{{"version", int(u.Version())}, {"variant", u.Variant().String()}}
	if v := u.Version(); v == 1 || v == 2 {
		seconds, nanoseconds := u.Time().UnixTime()
		node := u.NodeID()
		text := make([]byte, 0, 3*len(node))
		for i, b := range node {
			if i > 0 {
				text = append(text, '-')
			}
			text = append(text, "0123456789abcdef"[b>>4], "0123456789abcdef"[b&15])
		}
		o = append(o, entry{"time", seconds*1_000_000_000 + nanoseconds}, entry{"nodeid", string(text)},
			entry{"macvariables", macKinds[node[0]&3]}, entry{"clocksequence", u.ClockSequence()})
		if v == 2 {
			o = append(o, entry{"id", int64(u.ID())}, entry{"domain", u.Domain().String()})
		}
	}
	return newObject(o), nil
}

// reachablePaths returns the paths from some nodes of a graph, each up to a node without
// successors, or before a node that is already on the path. There may be very many, so each step is
// paid for.
func reachablePaths(c *call, args []any) (any, error) {
	graph, ok := args[0].(object)
	if !ok {
		return nil, errArguments
	}
	if !isOf[[]any](args[1]) && !isOf[set](args[1]) {
		return nil, errArguments
	}
	p := pathFinder{call: c, graph: graph, paths: set{}}
	for _, node := range elements(args[1]) {
		i, found := graph.find(node)
		if !found {
			continue
		}
		path := []any{node}
		next := elements(graph[i].value)
		if len(next) == 0 {
			p.found(path)
		}
		for _, neighbour := range next {
			if err := p.walk(neighbour, path, []any{node}); err != nil {
				return nil, err
			}
		}
	}
	c.work(sortWork(len(p.paths)))
	return newSet(p.paths), p.err
}

// elements returns the elements of a list or a set.
func elements(v any) []any {
	switch v := v.(type) {
	case []any:
		return v
	case set:
		return v
	}
	return nil
}

type pathFinder struct {
	call  *call
	graph object
	paths set
	// values is the total number of nodes in all paths.
	values int
	err    error
}

func (p *pathFinder) found(path []any) {
	if p.values += len(path); p.values > maxValues/4 {
		p.err = errTooMuch
		return
	}
	p.call.work(50 * len(path))
	p.paths = append(p.paths, slices.Clone(path))
}

// walk continues a path to a node; reached holds the nodes on the path.
func (p *pathFinder) walk(node any, path, reached []any) error {
	p.call.work(500 + 20*len(reached))
	if len(path) > maxValueDepth {
		return errTooMuch
	}
	i, found := p.graph.find(node)
	if !found {
		p.found(path)
		return p.err
	}
	path = append(slices.Clip(path), node)
	next := elements(p.graph[i].value)
	if len(next) == 0 {
		p.found(path)
		return p.err
	}
	reached = append(slices.Clip(reached), node)
	for _, neighbour := range next {
		if contains(reached, neighbour) {
			p.found(path)
		} else if err := p.walk(neighbour, path, reached); err != nil {
			return err
		}
		if p.err != nil {
			return p.err
		}
	}
	return nil
}
