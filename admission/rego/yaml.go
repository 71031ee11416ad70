package rego

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// yamlWork is the cost of reading or writing a byte of YAML.
const yamlWork = 500

func yamlIsValid(c *call, args []any) (any, error) {
	_, err := yamlUnmarshal(c, args)
	if errors.Is(err, errTooMuch) {
		return nil, err
	}
	return err == nil, nil
}

func yamlMarshal(c *call, args []any) (any, error) {
	raw, err := toJSON(args[0], c.limit)
	if err != nil {
		return nil, err
	}
	if err := affordable(len(raw), yamlWork/50); err != nil {
		return nil, err
	}
	c.work(len(raw) * yamlWork)
	var v any
	if err := yaml.Unmarshal(raw, &v); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := errors.Join(e.Encode(v), e.Close()); err != nil {
		return nil, err
	}
	return out.String(), nil
}

// yamlUnmarshal reads the first document of a text, all of which must be YAML.
func yamlUnmarshal(c *call, args []any) (any, error) {
	s, ok := args[0].(string)
	if !ok {
		return nil, errArguments
	}
	if err := affordable(len(s), yamlWork/50); err != nil {
		return nil, err
	}
	c.work(len(s) * yamlWork)
	var first *yaml.Node
	for d := yaml.NewDecoder(strings.NewReader(s)); ; {
		node := new(yaml.Node)
		if err := d.Decode(node); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		if first == nil {
			first = node
		}
	}
	if first == nil {
		return nil, nil
	}
	r := yamlReader{call: c, within: map[*yaml.Node]bool{}}
	return r.value(first, 0)
}

// yamlReader converts the nodes of a document to values. An alias is read again, and paid for, each
// time it is used.
type yamlReader struct {
	call          *call
	values, bytes int
	// within holds the anchors that are being read.
	within map[*yaml.Node]bool
}

func (r *yamlReader) value(n *yaml.Node, depth int) (any, error) {
	if depth > maxValueDepth {
		return nil, fmt.Errorf("%w: the value is nested more than %d deep", errTooMuch, maxValueDepth)
	}
	if r.values%valuesPaid == 0 {
		r.call.work(valuesPaid * valueWork)
	}
	r.bytes += len(n.Value) + 1
	if r.values++; r.values > maxValues || r.bytes > r.call.limit {
		return nil, fmt.Errorf("%w: the document is too long with its aliases replaced", errTooMuch)
	}
	switch n.Kind {
	case yaml.DocumentNode:
		if len(n.Content) != 1 {
			return nil, nil
		}
		return r.value(n.Content[0], depth+1)
	case yaml.AliasNode:
		if r.within[n.Alias] {
			return nil, fmt.Errorf("anchor %.100q contains itself", n.Value)
		}
		r.within[n.Alias] = true
		defer delete(r.within, n.Alias)
		return r.value(n.Alias, depth+1)
	case yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, item := range n.Content {
			var err error
			if list[i], err = r.value(item, depth+1); err != nil {
				return nil, err
			}
		}
		return list, nil
	case yaml.MappingNode:
		return r.mapping(n, depth)
	case yaml.ScalarNode:
		return r.scalar(n)
	}
	return nil, fmt.Errorf("a node is of kind %d", n.Kind)
}

// mapping reads an object. The last of equal keys counts. Explicit keys take precedence over merged
// ones, and earlier merges over later ones.
func (r *yamlReader) mapping(n *yaml.Node, depth int) (any, error) {
	entries := map[string]any{}
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if isMerge(key) {
			if value.Kind == yaml.SequenceNode {
				merged = append(merged, value.Content...)
			} else {
				merged = append(merged, value)
			}
			continue
		}
		name, err := r.key(key, depth)
		if err != nil {
			return nil, err
		}
		if entries[name], err = r.value(value, depth+1); err != nil {
			return nil, err
		}
	}
	for _, m := range merged {
		if m.Kind != yaml.MappingNode && (m.Kind != yaml.AliasNode || m.Alias.Kind != yaml.MappingNode) {
			return nil, errors.New("what is merged is no mapping")
		}
		value, err := r.value(m, depth+1)
		if err != nil {
			return nil, err
		}
		for _, e := range value.(object) {
			if _, ok := entries[e.key.(string)]; !ok {
				entries[e.key.(string)] = e.value
			}
		}
	}
	o := make(object, 0, len(entries))
	for key, value := range entries {
		o = append(o, entry{key, value})
	}
	r.call.work(sortWork(len(o)))
	return newObject(o), nil
}

func isMerge(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Value == "<<" && (n.Tag == "" || n.Tag == "!" || n.ShortTag() == "!!merge")
}

// key returns the text of a key.
func (r *yamlReader) key(n *yaml.Node, depth int) (string, error) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.ScalarNode {
		return "", errors.New("a key is no scalar")
	}
	var key any
	if err := decodeScalar(n, &key); err != nil {
		return "", err
	}
	r.bytes += len(n.Value)
	switch key := key.(type) {
	case string:
		return validText(key), nil
	case int:
		return strconv.Itoa(key), nil
	case int64:
		return strconv.FormatInt(key, 10), nil
	case uint64:
		return strconv.FormatUint(key, 10), nil
	case bool:
		return strconv.FormatBool(key), nil
	case float64:
		switch {
		case math.IsInf(key, 1):
			return ".inf", nil
		case math.IsInf(key, -1):
			return "-.inf", nil
		case math.IsNaN(key):
			return ".nan", nil
		}
		return strconv.FormatFloat(key, 'g', -1, 32), nil
	}
	return "", fmt.Errorf("a key is %T", key)
}

func (r *yamlReader) scalar(n *yaml.Node) (any, error) {
	var v any
	if err := decodeScalar(n, &v); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case nil:
		return nil, nil
	case bool:
		return v, nil
	case string:
		return validText(v), nil
	}
	raw, err := stdjson.Marshal(v)
	if err != nil {
		return nil, err
	}
	return parseValue(r.call, string(raw))
}

// decodeScalar reads a scalar by YAML 1.2, whose core schema has no times.
func decodeScalar(n *yaml.Node, v *any) error {
	if n.Tag == "!!timestamp" && n.Style == 0 {
		*v = n.Value
		return nil
	}
	return n.Decode(v)
}

// validText returns the text in the form that it has in JSON.
func validText(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return string([]rune(s))
}
