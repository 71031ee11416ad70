package replay

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/cut"
)

// message is a message of protobuf: the names of its fields.
type message map[protowire.Number]member

// member is a field of a message.
type member struct {
	name string
	// of is the message of the field, nil for others.
	of message
	// many is set for a field that is repeated, entries for a map of texts.
	many, entries bool
}

// The messages of abi/*.proto that a guest hands over.
var (
	objectReference = message{1: {name: "kind"}, 2: {name: "api_version"}, 3: {name: "namespace"}, 4: {name: "name"}, 5: {name: "uid"}, 6: {name: "resource_version"}}
	event           = message{
		1: {name: "type"}, 2: {name: "reason"}, 3: {name: "action"}, 4: {name: "note"},
		5: {name: "regarding", of: objectReference}, 6: {name: "related", of: objectReference},
	}
	assignment  = message{1: {name: "namespace"}, 2: {name: "name"}, 3: {name: "node_name"}}
	placement   = message{1: {name: "name"}, 2: {name: "node_names", many: true}, 3: {name: "assignments", of: assignment, many: true}}
	placements  = message{1: {name: "placements", of: placement, many: true}}
	nominations = message{1: {name: "nominations", of: assignment, many: true}}
	fieldError  = message{1: {name: "field"}, 2: {name: "type"}, 3: {name: "message"}, 4: {name: "badValue"}}
	result      = message{
		1: {name: "reason"}, 2: {name: "fieldErrors", of: fieldError, many: true}, 3: {name: "warnings", many: true}, 4: {name: "auditAnnotations", entries: true},
	}
	resources = message{
		1: {name: "cpu_shares"}, 2: {name: "cfs_quota_us"}, 3: {name: "cfs_period_us"}, 4: {name: "cpuset_cpus"}, 5: {name: "cpuset_mems"}, 6: {name: "cpu_bvt"},
		7: {name: "cpu_idle"}, 8: {name: "cpu_burst_us"}, 9: {name: "memory_limit_bytes"}, 10: {name: "memory_min_bytes"}, 11: {name: "memory_low_bytes"},
		12: {name: "memory_high_bytes"}, 13: {name: "oom_score_adj"}, 14: {name: "unified", entries: true}, 15: {name: "net_cls_classid"},
		16: {name: "core_sched_group"}, 17: {name: "resctrl_group"}, 18: {name: "resctrl_schemata"},
	}
	mount  = message{1: {name: "destination"}, 2: {name: "source"}, 3: {name: "type"}, 4: {name: "options", many: true}}
	device = message{
		1: {name: "path"}, 2: {name: "type"}, 3: {name: "major"}, 4: {name: "minor"}, 5: {name: "file_mode"}, 6: {name: "uid"}, 7: {name: "gid"},
	}
	decision = message{
		1: {name: "resources", of: resources}, 2: {name: "container_annotations", entries: true}, 3: {name: "container_envs", entries: true},
		4: {name: "container_mounts", of: mount, many: true}, 5: {name: "container_devices", of: device, many: true},
	}
)

// handed are the messages that host functions take, by kind and name.
var handed = map[abi.Kind]map[string]message{
	abi.KindScheduler: {"event": event, "result_nominations": nominations, "result_placements": placements},
	abi.KindAdmission: {"result": result},
	abi.KindHook:      {"decision": decision},
}

// value is a value that can be shown.
type value struct {
	text string
	// tree is the result of json.Unmarshal, nil if it has no parts.
	tree any
}

const (
	// maxDecoded is the maximum number of decoded bytes, and maxParts that of their parts.
	maxDecoded = 1 << 20
	maxParts   = 100_000
	maxDepth   = 32
)

// shown returns a value that a host function took, in a readable form.
func (a *answer) shown(t taken) value {
	var v value
	switch data := t.data; {
	case len(data) == 0 || len(data) > maxDecoded:
		v.text = printable(data)
	case !a.dialect && handed[a.kind][t.by] != nil:
		v = decoded(data, handed[a.kind][t.by])
	case !a.dialect && t.by == "result_scores" && len(data)%8 == 0:
		list := make([]any, len(data)/8)
		for n := range list {
			list[n] = json.Number(strconv.FormatInt(int64(binary.LittleEndian.Uint64(data[8*n:])), 10))
		}
		v = ofTree(list)
	default:
		v = guessed(data)
	}
	for _, n := range t.numbers {
		v.text = strings.TrimPrefix(v.text+" ", " ") + strconv.FormatInt(int64(n), 10)
	}
	return v
}

// guessed shows bytes of unknown meaning: JSON, texts with a NUL after each, a text, a message
// whose fields have numbers.
func guessed(data []byte) value {
	if tree, ok := fromJSON(data); ok {
		return ofTree(tree)
	}
	if utf8.Valid(data) && bytes.Contains(data, []byte{0}) && !control(bytes.ReplaceAll(data, []byte{0}, nil)) {
		var list []any
		for text := range strings.SplitSeq(strings.TrimSuffix(string(data), "\x00"), "\x00") {
			list = append(list, text)
		}
		return ofTree(list)
	}
	if utf8.Valid(data) && !control(data) {
		return value{text: string(data)}
	}
	return decoded(data, nil)
}

// fromJSON reads an object or an array.
func fromJSON(data []byte) (tree any, ok bool) {
	if first := bytes.TrimSpace(data); len(first) == 0 || first[0] != '{' && first[0] != '[' {
		return nil, false
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&tree); err != nil || d.More() {
		return nil, false
	}
	return tree, true
}

// decoded reads a message. Fields that of does not name have their numbers.
func decoded(data []byte, of message) value {
	parts := 0
	if tree, ok := read(data, of, 0, &parts); ok {
		return ofTree(tree)
	}
	return value{text: printable(data)}
}

func read(data []byte, of message, depth int, parts *int) (map[string]any, bool) {
	tree := map[string]any{}
	for len(data) > 0 {
		number, typ, n := protowire.ConsumeTag(data)
		if *parts++; n < 0 || *parts > maxParts {
			return nil, false
		}
		data = data[n:]
		f, known := of[number]
		if !known {
			f.name = strconv.Itoa(int(number))
		}
		var v any
		switch typ {
		case protowire.VarintType:
			u, size := protowire.ConsumeVarint(data)
			v, n = json.Number(strconv.FormatInt(int64(u), 10)), size
		case protowire.Fixed64Type:
			u, size := protowire.ConsumeFixed64(data)
			v, n = json.Number(strconv.FormatUint(u, 10)), size
		case protowire.Fixed32Type:
			u, size := protowire.ConsumeFixed32(data)
			v, n = json.Number(strconv.FormatUint(uint64(u), 10)), size
		case protowire.BytesType:
			b, size := protowire.ConsumeBytes(data)
			if n = size; n >= 0 {
				v = content(b, f, known, depth, parts)
			}
		default:
			return nil, false
		}
		if n < 0 {
			return nil, false
		}
		data = data[n:]
		put(tree, f, known, v)
	}
	return tree, true
}

// content returns the meaning of the bytes in a field.
func content(b []byte, f member, known bool, depth int, parts *int) any {
	if f.entries {
		m, ok := read(b, message{1: {name: "key"}, 2: {name: "value"}}, depth+1, parts)
		if ok {
			return m
		}
	}
	text := utf8.Valid(b) && !control(b)
	if depth < maxDepth && (f.of != nil || !known && !text) {
		if m, ok := read(b, f.of, depth+1, parts); ok {
			return m
		}
	}
	if text {
		return string(b)
	}
	return fmt.Sprintf("%q", b)
}

// put sets a field. Of one that is not repeated the last counts, as protobuf has it; an unknown
// field may be either.
func put(tree map[string]any, f member, known bool, v any) {
	had, ok := tree[f.name]
	switch {
	case f.entries:
		entries, _ := had.(map[string]any)
		if entries == nil {
			entries = map[string]any{}
		}
		entry, _ := v.(map[string]any)
		key, _ := entry["key"].(string)
		value, _ := entry["value"].(string)
		entries[key] = value
		v = entries
	case f.many:
		list, _ := had.([]any)
		v = append(list, v)
	case !known && ok:
		list, is := had.([]any)
		if !is {
			list = []any{had}
		}
		v = append(list, v)
	}
	tree[f.name] = v
}

// ofTree shows a value with parts.
func ofTree(tree any) value {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(tree); err != nil {
		return value{}
	}
	return value{text: strings.TrimSuffix(b.String(), "\n"), tree: tree}
}

// apart returns the difference of the values that two modules handed over.
func apart(class Class, name string, x, y value) *answersDiffer {
	d := &answersDiffer{class: class, detail: name}
	if path := strings.TrimPrefix(firstPath(x.tree, y.tree, 0), "."); path != "" {
		d.detail = cut.Marked(strings.TrimSpace(name+" "+path), maxDetail)
	}
	d.old, d.new = x.around(y.text), y.around(x.text)
	return d
}

// maxDetail is the maximum length of the detail of a group.
const maxDetail = 200

// firstPath returns the path of the first part in which two values differ, with indexes left out,
// so that calls with the same change have the same: ".metadata.labels.team", ".[/spec/replicas]"
// of a JSON patch. It is empty if the values as a whole differ.
func firstPath(x, y any, depth int) string {
	if depth > maxDepth {
		return ""
	}
	switch x := x.(type) {
	case map[string]any:
		y, ok := y.(map[string]any)
		if !ok {
			return ""
		}
		for _, key := range slices.Sorted(maps.Keys(union(x, y))) {
			a, had := x[key]
			b, has := y[key]
			if had != has {
				return "." + key
			}
			if !same(a, b) {
				return "." + key + firstPath(a, b, depth+1)
			}
		}
	case []any:
		y, ok := y.([]any)
		if !ok {
			return ""
		}
		a, b := keyed(x), keyed(y)
		if a != nil && b != nil {
			for _, key := range slices.Sorted(maps.Keys(union(a, b))) {
				if !same(a[key], b[key]) {
					return ".[" + withoutIndexes(key) + "]"
				}
			}
			return ".order"
		}
		for n := range min(len(x), len(y)) {
			if !same(x[n], y[n]) {
				return "[]" + firstPath(x[n], y[n], depth+1)
			}
		}
		return "[]"
	}
	return ""
}

// keyed returns the elements of a list by their names: the path of a patch, the field of an error.
// It is nil if they have no names, or if two share a name.
func keyed(list []any) map[string]any {
	byKey := map[string]any{}
	for _, e := range list {
		m, ok := e.(map[string]any)
		if !ok {
			return nil
		}
		name, ok := "", false
		for _, key := range []string{"path", "field", "destination"} {
			if name, ok = m[key].(string); ok {
				break
			}
		}
		if _, taken := byKey[name]; !ok || taken {
			return nil
		}
		byKey[name] = e
	}
	return byKey
}

func union(x, y map[string]any) map[string]any {
	both := maps.Clone(x)
	maps.Copy(both, y)
	return both
}

func same(x, y any) bool { return ofTree(x).text == ofTree(y).text }

// withoutIndexes replaces the indexes of a path: of "/spec/containers/0/image" and
// "spec.containers[0].image".
func withoutIndexes(path string) string {
	var b strings.Builder
	for n := 0; n < len(path); {
		end := n
		for end < len(path) && '0' <= path[end] && path[end] <= '9' {
			end++
		}
		index := end > n && n > 0 && (path[n-1] == '/' && (end == len(path) || path[end] == '/') || path[n-1] == '[' && end < len(path) && path[end] == ']')
		if index {
			b.WriteByte('*')
			n = end
			continue
		}
		if end == n {
			end++
		}
		b.WriteString(path[n:end])
		n = end
	}
	return b.String()
}

const (
	// maxExample is the maximum length of a text in an example; before is the length of the part
	// before the first difference.
	maxExample = 300
	before     = 100
)

// around returns the text, or the part around the first byte in which it differs from another.
func (v value) around(other string) string {
	if len(v.text) <= maxExample {
		return cut.Valid(v.text)
	}
	at := 0
	for at < min(len(v.text), len(other)) && v.text[at] == other[at] {
		at++
	}
	start := max(0, min(at-before, len(v.text)-maxExample))
	for start > 0 && start < len(v.text) && !utf8.RuneStart(v.text[start]) {
		start--
	}
	if start == 0 {
		return cut.Marked(v.text, maxExample)
	}
	return "…" + cut.Marked(v.text[start:], maxExample)
}

// control reports whether bytes have control characters that a text has not.
func control(b []byte) bool {
	return bytes.ContainsFunc(b, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' })
}

// printable returns text as it is, and other bytes quoted.
func printable(b []byte) string {
	if utf8.Valid(b) && !control(b) {
		return string(b)
	}
	return fmt.Sprintf("%.*q", maxExample, b)
}
