package confidential

import (
	"bytes"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kubewasm/kubewasm/internal/json"
)

// Mask masks confidential values in data that a host hands over, anywhere in JSON, and records them
// in s. Lengths stay as they are. It reports whether it has found any.
func (r *Rule) Mask(data []byte, s *Stain) bool {
	return r.document(data, s, true)
}

// Find records the confidential values of data in s, and changes nothing. kind is that of the
// object, if it is known.
func (r *Rule) Find(group, kind string, data []byte, s *Stain) {
	if len(data) != 0 && r.Seals(group, kind) {
		s.Seal()
		return
	}
	r.document(data, s, false)
}

func (r *Rule) document(data []byte, s *Stain, mask bool) bool {
	start := bytes.TrimLeft(data, " \t\r\n")
	if len(start) == 0 || !r.mayHave(data) {
		return false
	}
	if !json.Valid(data) {
		// A message whose first field has 123 bytes begins with a line feed and a brace, too.
		isMessage := data[0] == '\n' && fields(data, func(protowire.Number, []byte) {})
		if isMessage || start[0] != '{' && start[0] != '[' && start[0] != '"' {
			// Texts in protobuf are found there.
			return r.texts(data, s, mask)
		}
		// It may be a part of JSON, or JSON that the guest parses differently.
		if mask {
			overwrite(data)
		}
		s.Seal()
		return true
	}
	w := walker{rule: r, stain: s, mask: mask, budget: budgetFor(data)}
	w.value(data, object{}, 0)
	if w.budget.over() && mask {
		overwrite(data)
	}
	return w.found
}

// mayHave reports whether data may contain confidential values. An escape may hide a name.
func (r *Rule) mayHave(data []byte) bool {
	has := func(text string) bool { return bytes.Contains(data, []byte(text)) }
	return r.Extended() || has("Secret") || has("Token") || has(`\u00`) || has("stringData") ||
		has(`"data"`) && (has(`"type"`) || has(`"op"`)) || has("/data") || r.Environment() && has("env")
}

// maxDepth is the maximum depth to which JSON is searched. Deeper values are sealed. maxTexts is
// the maximum depth of JSON in texts of JSON.
const (
	maxDepth = 200
	maxTexts = 4
)

// budget bounds the bytes that a search reads: those of a value are read again for each value that
// it is in. What is not read within the budget is sealed.
type budget struct{ left int }

// budgetFor returns the budget of a search. Objects of usual depths take a part of it.
func budgetFor(data []byte) *budget { return &budget{64<<20 + 8*len(data)} }

// spend reports whether n bytes may be read.
func (b *budget) spend(n int) bool {
	b.left -= n
	return b.left >= 0
}

func (b *budget) over() bool { return b.left < 0 }

// walker searches JSON.
type walker struct {
	rule   *Rule
	stain  *Stain
	mask   bool
	found  bool
	budget *budget
	// texts is the number of texts that contain the document.
	texts int
}

// object is the kind of a value, derived from the value that contains it: the items of a list do
// not name theirs.
type object struct{ group, kind string }

func (w *walker) value(v json.Value, of object, depth int) {
	if depth > maxDepth {
		w.seal(v)
		return
	}
	if !w.mask && w.texts == 0 && w.stain.Sealed() {
		return // There is no more to learn.
	}
	if !w.reads(v) {
		return
	}
	switch v.Kind() {
	case json.KindArray:
		for e := json.Array(v); e.Next(); {
			w.value(e.Value(), of, depth+1)
		}
	case json.KindString:
		w.text(v)
	case json.KindObject:
		w.object(v, of, depth)
	}
}

// reads reports whether the members of a value may be read, for which it takes them from the budget.
// Those of an object are read twice.
func (w *walker) reads(v json.Value) bool {
	if w.budget.spend(2 * len(v)) {
		return true
	}
	w.found = true
	w.stain.Seal()
	return false
}

// text masks a text that holds a manifest: an annotation in which kubectl or kapp keeps an
// object, a file in a ConfigMap.
func (w *walker) text(v json.Value) {
	if !w.rule.mayHave(v) {
		return
	}
	if w.rule.manifest(v.String(), w.stain, w.texts, w.budget) {
		w.hide(v)
	}
}

// manifest reports whether a text is a manifest with confidential values, and records them.
func (r *Rule) manifest(text string, s *Stain, texts int, left *budget) bool {
	if b := []byte(text); texts < maxTexts && len(b) != 0 && json.Valid(b) {
		if k := json.Value(b).Kind(); k == json.KindObject || k == json.KindArray || k == json.KindString {
			w := walker{rule: r, stain: s, texts: texts + 1, budget: left}
			w.value(b, object{}, 0)
			return w.found
		}
	}
	// YAML, or part of a manifest.
	if !strings.Contains(text, "kind") {
		return false
	}
	has := func(all ...string) bool {
		for _, part := range all {
			if !strings.Contains(text, part) {
				return false
			}
		}
		return true
	}
	found := has(secretKind) && (has("data") || has("Data")) || (has(tokenReviewKind) || has(tokenRequestKind)) && has("token") ||
		r.Environment() && (has("env:") || has(`env"`)) && has("value")
	if r != nil {
		for _, kind := range r.Kinds {
			name, _, _ := strings.Cut(kind, ".")
			found = found || has(name)
		}
		for _, field := range r.Fields {
			found = found || has(field)
		}
	}
	if found {
		s.Seal()
	}
	return found
}

// object looks through the members of an object.
func (w *walker) object(v json.Value, of object, depth int) {
	self, reviewed, patched := w.about(v, of)
	wide := w.rule.names(self.group, self.kind)
	for o := json.Object(v); o.Next(); {
		value := o.Value()
		switch key := o.Key(); {
		case w.rule.field(key):
			w.seal(value)
		case wide && key != "apiVersion" && key != "kind":
			if key == "metadata" {
				w.metadata(value)
			} else {
				w.seal(value)
			}
		case self.kind == secretKind && (key == "data" || key == "stringData"), patched && key == "value":
			w.seal(value)
		case self.kind == secretKind && key == "metadata":
			w.metadata(value)
		case self.kind == tokenReviewKind && key == "spec", self.kind == tokenRequestKind && key == "status":
			for m := json.Object(value); m.Next(); {
				if m.Key() == "token" {
					w.seal(m.Value())
				} else {
					w.value(m.Value(), object{}, depth+1)
				}
			}
		case strings.HasSuffix(self.kind, "List") && key == "items":
			w.value(value, object{self.group, strings.TrimSuffix(self.kind, "List")}, depth+1)
		case reviewed.kind != "" && (key == "object" || key == "oldObject"):
			w.value(value, reviewed, depth+1)
		case key == "env" && w.rule.Environment() && value.Kind() == json.KindArray:
			w.environment(value, depth+1)
		default:
			w.value(value, object{}, depth+1)
		}
	}
}

// about returns the kind of an object, the kind of the objects that it reviews, and whether it is
// an operation of a JSON Patch on the data of a Secret, as far as its members tell.
func (w *walker) about(v json.Value, of object) (self, reviewed object, patched bool) {
	var typed, data, texted, named bool
	for o := json.Object(v); o.Next(); {
		value := o.Value()
		switch o.Key() {
		case "apiVersion":
			text, _ := value.Text()
			self.group = groupOf(text)
		case "kind":
			if text, ok := value.Text(); ok {
				if named = true; !isBuiltin(self.kind) { // A guest may read the first of two.
					self.kind = text
				}
			} else if value.Kind() == json.KindObject { // That of an AdmissionRequest.
				for k := json.Object(value); k.Next(); {
					switch text, _ := k.Value().Text(); k.Key() {
					case "kind":
						reviewed.kind = text
					case "group":
						reviewed.group = text
					}
				}
			}
		case "type":
			typed = value.Kind() == json.KindString
		case "data":
			data = data || value.Kind() == json.KindObject
		case "stringData":
			texted = texted || value.Kind() == json.KindObject
		case "path":
			text, _ := value.Text()
			patched = patched || strings.HasPrefix(text, "/data") || strings.HasPrefix(text, "/stringData")
		}
	}
	switch {
	case named:
	case of.kind != "":
		self = of
	case typed && data || texted:
		self.kind = secretKind
	}
	return self, reviewed, patched
}

// groupOf returns the group of an apiVersion.
func groupOf(apiVersion string) string {
	group, _, grouped := strings.Cut(apiVersion, "/")
	if !grouped {
		return ""
	}
	return group
}

// metadata seals the annotations of a sealed object: kubectl and others keep a copy of it there.
func (w *walker) metadata(v json.Value) {
	for m := json.Object(v); m.Next(); {
		if m.Key() == "annotations" {
			w.seal(m.Value())
		}
	}
}

// environment masks the values of environment variables.
func (w *walker) environment(v json.Value, depth int) {
	for e := json.Array(v); e.Next(); {
		variable := e.Value()
		if variable.Kind() != json.KindObject {
			w.value(variable, object{}, depth+1)
			continue
		}
		for m := json.Object(variable); m.Next(); {
			value := m.Value()
			if m.Key() != "value" {
				w.value(value, object{}, depth+1)
				continue
			}
			if value.Kind() != json.KindString {
				w.seal(value)
				continue
			}
			text, raw := value.String(), inner(value)
			if len(raw) == 0 {
				continue
			}
			w.stain.AddText(strings.Clone(text))
			if string(raw) != text {
				w.stain.add(string(raw))
			}
			w.hide(value)
		}
	}
}

// seal seals every text and number in a value.
func (w *walker) seal(v json.Value) {
	if !w.reads(v) {
		return
	}
	switch v.Kind() {
	case json.KindObject:
		for o := json.Object(v); o.Next(); {
			w.seal(o.Value())
		}
		return
	case json.KindArray:
		for e := json.Array(v); e.Next(); {
			w.seal(e.Value())
		}
		return
	case json.KindString:
		if len(inner(v)) == 0 {
			return
		}
	case json.KindNumber:
	default:
		return
	}
	w.stain.Seal()
	w.hide(v)
}

// hide masks a text or a number.
func (w *walker) hide(v json.Value) {
	w.found = true
	switch {
	case !w.mask:
	case v.Kind() == json.KindString:
		maskText(v)
	default:
		maskDigits(v)
	}
}

// inner returns a string of JSON between its quotes.
func inner(v []byte) []byte {
	start, end := bytes.IndexByte(v, '"'), bytes.LastIndexByte(v, '"')
	if start < 0 || end <= start {
		return nil
	}
	return v[start+1 : end]
}

// maskText masks a string between its quotes. A base64 text stays base64.
func maskText(v []byte) {
	text := inner(v)
	n := len(text)
	for n > 0 && len(text)-n < 2 && text[n-1] == '=' {
		n--
	}
	overwrite(text[:n])
}

func maskDigits(v []byte) {
	for i := range v {
		if v[i] >= '0' && v[i] <= '9' {
			v[i] = '1'
		}
	}
}

// isString and isNumber report whether data are one value of JSON of the kind.
func isString(data []byte) bool {
	return json.Valid(data) && json.Value(data).Kind() == json.KindString
}

func isNumber(data []byte) bool {
	return json.Valid(data) && json.Value(data).Kind() == json.KindNumber
}
