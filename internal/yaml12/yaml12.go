// Package yaml12 reads YAML by the core schema of YAML 1.2, as the files of Kubewarden are
// read: NO, on and 012 are texts, and so is 1:30. Merge keys are followed all the same.
package yaml12

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kubewasm/kubewasm/internal/yamlsize"
)

// Unfit is a value that JSON has no form for, such as .inf.
type Unfit struct {
	// Path has the keys, and the numbers of items, that lead to the value.
	Path []string
	// Text is the value as it was written.
	Text string
}

func (u Unfit) Error() string {
	return fmt.Sprintf("%s is %.80s, which JSON has no form for", strings.Join(u.Path, "."), u.Text)
}

const (
	// maxDepth bounds how deep values are nested.
	maxDepth = 1000
	// valueBytes is what a value counts beside its text.
	valueBytes = 16
)

// ToJSON returns the only document of a text in JSON, or an error that is a
// [yamlsize.ErrTooLong] if it has more than limit bytes with aliases replaced. An empty
// text is null. Values that are unfit are null, too.
func ToJSON(text []byte, limit int) (document []byte, unfit []Unfit, err error) {
	d := yaml.NewDecoder(bytes.NewReader(text))
	var first, second yaml.Node
	if err := d.Decode(&first); errors.Is(err, io.EOF) {
		return []byte("null"), nil, nil
	} else if err != nil {
		return nil, nil, err
	}
	if err := d.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, nil, errors.New("it has more than one document")
	}
	w := writer{room: limit, within: map[*yaml.Node]bool{}}
	if err := w.value(&first, nil); err != nil {
		return nil, nil, err
	}
	return w.out, w.unfit, nil
}

// writer writes a document as JSON.
type writer struct {
	out   []byte
	room  int
	unfit []Unfit
	// within are the anchors that are being written.
	within map[*yaml.Node]bool
}

func (w *writer) value(n *yaml.Node, path []string) error {
	if len(path) > maxDepth {
		return fmt.Errorf("line %d: values are nested more than %d deep", n.Line, maxDepth)
	}
	if w.room -= valueBytes + len(n.Value); w.room < 0 {
		return fmt.Errorf("the document is %w", yamlsize.ErrTooLong)
	}
	switch n.Kind {
	case yaml.DocumentNode:
		return w.value(n.Content[0], path)
	case yaml.AliasNode:
		if w.within[n.Alias] {
			return fmt.Errorf("line %d: anchor %.80q contains itself", n.Line, n.Value)
		}
		w.within[n.Alias] = true
		defer delete(w.within, n.Alias)
		return w.value(n.Alias, path)
	case yaml.SequenceNode:
		w.out = append(w.out, '[')
		for i, item := range n.Content {
			if i > 0 {
				w.out = append(w.out, ',')
			}
			if err := w.value(item, append(slices.Clip(path), strconv.Itoa(i))); err != nil {
				return err
			}
		}
		w.out = append(w.out, ']')
		return nil
	case yaml.MappingNode:
		members, err := w.members(n)
		if err != nil {
			return err
		}
		w.out = append(w.out, '{')
		for i, m := range members {
			if i > 0 {
				w.out = append(w.out, ',')
			}
			w.out = append(append(w.out, quote(m.key)...), ':')
			if err := w.value(m.value, append(slices.Clip(path), m.key)); err != nil {
				return err
			}
		}
		w.out = append(w.out, '}')
		return nil
	}
	text, err := scalar(n)
	if errors.Is(err, errUnfit) {
		w.unfit, text, err = append(w.unfit, Unfit{slices.Clone(path), n.Value}), "null", nil
	}
	w.out = append(w.out, text...)
	return err
}

type member struct {
	key   string
	value *yaml.Node
}

// members returns the members of a mapping with those that it merges, sorted: another order is
// no other document.
func (w *writer) members(n *yaml.Node) (all []member, err error) {
	has := map[string]bool{}
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		if key.Kind == yaml.ScalarNode && key.ShortTag() == "!!merge" {
			if merged = append(merged, value); value.Kind == yaml.SequenceNode {
				merged = append(merged[:len(merged)-1], value.Content...)
			}
			continue
		}
		name, err := keyOf(key)
		if err != nil {
			return nil, err
		}
		if has[name] {
			return nil, fmt.Errorf("line %d: key %.80q already set in map", key.Line, name)
		}
		has[name] = true
		all = append(all, member{name, value})
	}
	for _, m := range merged {
		if m.Kind == yaml.AliasNode {
			m = m.Alias
		}
		if m.Kind != yaml.MappingNode || w.within[m] {
			return nil, fmt.Errorf("line %d: what is merged is no mapping", m.Line)
		}
		w.within[m] = true
		others, err := w.members(m)
		delete(w.within, m)
		if err != nil {
			return nil, err
		}
		if w.room -= valueBytes * len(others); w.room < 0 {
			return nil, fmt.Errorf("the document is %w", yamlsize.ErrTooLong)
		}
		for _, other := range others {
			if !has[other.key] {
				has[other.key] = true
				all = append(all, other)
			}
		}
	}
	slices.SortFunc(all, func(a, b member) int { return strings.Compare(a.key, b.key) })
	return all, nil
}

func keyOf(n *yaml.Node) (string, error) {
	if n.Kind != yaml.ScalarNode {
		return "", fmt.Errorf("line %d: a key is no text", n.Line)
	}
	text, err := scalar(n)
	if err != nil || text == "null" {
		return "", fmt.Errorf("line %d: key %.80q is no text", n.Line, n.Value)
	}
	var key string
	if json.Unmarshal([]byte(text), &key) != nil {
		key = text // A number or a boolean.
	}
	return key, nil
}

var (
	errUnfit   = errors.New("JSON has no form for it")
	integerRE  = regexp.MustCompile(`^[-+]?(0|[1-9][0-9]*|0x[0-9a-fA-F]{1,64}|0o[0-7]{1,64}|0b[01]{1,64})$`)
	zerosRE    = regexp.MustCompile(`^[-+]?0[0-9]+$`)
	floatRE    = regexp.MustCompile(`^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$`)
	infiniteRE = regexp.MustCompile(`^([-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$`)
)

// scalar returns a scalar in JSON.
func scalar(n *yaml.Node) (string, error) {
	const quoted = yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	text, kind := plain(n.Value)
	switch tag := n.ShortTag(); {
	case n.Style&yaml.TaggedStyle == 0 && n.Style&quoted == 0:
	case n.Style&yaml.TaggedStyle == 0 || tag == "!!str" || tag == "!":
		return quote(n.Value), nil
	case tag != kind && (tag != "!!float" || kind != "!!int"):
		return "", fmt.Errorf("line %d: %.80q is no %.80s", n.Line, n.Value, tag)
	}
	if kind == "!!float" && text == "" {
		return "", errUnfit
	}
	return text, nil
}

// plain returns a scalar without quotes in JSON, and its tag.
func plain(value string) (text, tag string) {
	switch value {
	case "", "~", "null", "Null", "NULL":
		return "null", "!!null"
	case "true", "True", "TRUE":
		return "true", "!!bool"
	case "false", "False", "FALSE":
		return "false", "!!bool"
	}
	switch number := strings.TrimPrefix(value, "+"); {
	case integerRE.MatchString(value):
		if n, ok := new(big.Int).SetString(number, 0); ok && strings.ContainsAny(number, "xob") {
			number = n.String()
		}
		return number, "!!int"
	case infiniteRE.MatchString(value):
		return "", "!!float"
	case floatRE.MatchString(value) && !zerosRE.MatchString(value):
		f, err := strconv.ParseFloat(number, 64)
		if err != nil || math.IsInf(f, 0) {
			break
		}
		if !json.Valid([]byte(number)) {
			number = strconv.FormatFloat(f, 'g', -1, 64)
		}
		return number, "!!float"
	}
	return quote(value), "!!str"
}

func quote(text string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(text); err != nil {
		panic(err) // A text has a form.
	}
	return strings.TrimSuffix(b.String(), "\n")
}
