// Package parrot is the common part of the guests that tests of recordings record. They do what a
// script says that the request of the call has, and repeat confidential values in it. Tests predict
// by the same code what a changed module does otherwise.
package parrot

import (
	"encoding/base64"
	"encoding/hex"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/kubewasm/kubewasm/internal/json"
)

// Script lists the steps of a guest in a call.
type Script struct {
	// ID is unique to the call.
	ID  string
	Ops []Op
}

// Op is one act of a guest: what it does, with which of the values that it has seen, and how it
// writes that.
type Op struct {
	Do, As string
	Value  int
}

// String returns the script as Parse reads it.
func (s Script) String() string {
	var b strings.Builder
	b.WriteString(s.ID)
	for _, op := range s.Ops {
		b.WriteString(" " + op.Do + ":" + op.As + ":" + strconv.Itoa(op.Value))
	}
	return b.String()
}

// Parse reads a script.
func Parse(text string) (s Script) {
	words := strings.Split(text, " ")
	s.ID = words[0]
	for _, word := range words[1:] {
		parts := strings.SplitN(word, ":", 3)
		n, _ := strconv.Atoi(parts[2])
		s.Ops = append(s.Ops, Op{parts[0], parts[1], n})
	}
	return s
}

// Has reports whether one of the ops does that.
func (s Script) Has(do string) bool {
	for _, op := range s.Ops {
		if op.Do == do {
			return true
		}
	}
	return false
}

// ends reports whether the guest does not return.
func (s Script) ends() bool { return s.Has("trap") || s.Has("exit") }

// Even are the encodings whose length follows from that of the value. Of the others, Uneven, a replay
// makes a text of another length, since it has a masked value.
var (
	Even   = []string{"plain", "base64", "base64url", "user", "hex", "HEX", "first", "second"}
	Uneven = []string{"quoted", "json", "twice", "decoded"}
)

// Text returns the value of an op, of those that the guest has seen, as it writes it.
func (op Op) Text(values []string) string {
	if len(values) == 0 {
		return "nothing"
	}
	v := values[op.Value%len(values)]
	switch op.As {
	case "base64":
		return base64.StdEncoding.EncodeToString([]byte(v))
	case "base64url":
		return base64.RawURLEncoding.EncodeToString([]byte(v))
	case "user": // As in the header of a request: the value begins within a group of three bytes.
		return base64.StdEncoding.EncodeToString([]byte("user:" + v))
	case "hex":
		return hex.EncodeToString([]byte(v))
	case "HEX":
		// A function that looks for small letters does less for a masked value.
		b := make([]byte, 0, 2*len(v))
		for i := range len(v) {
			b = append(b, "0123456789ABCDEF"[v[i]>>4], "0123456789ABCDEF"[v[i]&15])
		}
		return string(b)
	case "first":
		return v[:len(v)/2]
	case "second":
		return v[len(v)/2:]
	case "quoted":
		return strconv.Quote(v)
	case "json":
		return string(json.AppendString(nil, v))
	case "twice":
		return string(json.AppendString(nil, json.AppendString(nil, v)))
	case "decoded":
		if decoded, err := base64.StdEncoding.DecodeString(v); err == nil && utf8.Valid(decoded) {
			return string(decoded)
		}
	}
	return v
}

// Strings appends all texts in a document that are long enough to matter, in order.
func Strings(list []string, v json.Value) []string {
	switch v.Kind() {
	case json.KindString:
		return With(list, v.String())
	case json.KindArray:
		for e := json.Array(v); e.Next(); {
			list = Strings(list, e.Value())
		}
	case json.KindObject:
		for o := json.Object(v); o.Next(); {
			list = Strings(list, o.Value())
		}
	}
	return list
}

// With appends a text, if it is long enough to matter.
func With(list []string, text string) []string {
	if len(text) < 12 {
		return list
	}
	return append(list, strings.Clone(text))
}

// none is the seed of the module as it is built. Seeded has another one.
const none = "00000000"

// seed stands in the data of the module. It is a variable: a constant is folded.
var seed = prefix + none + suffix

const prefix, suffix = "<the seed of changes is ", ">"

// Seed returns the bytes of a module that have the seed, and what a changed module has there.
func Seed(n uint32) (old, changed string) {
	text := "0000000" + strconv.FormatUint(uint64(n), 16)
	return prefix + none + suffix, prefix + text[len(text)-len(none):] + suffix
}

// Change returns which of the changes that apply to a call the module makes, empty for none.
func Change(id string, apply []string) string {
	return ChangeOf(seed[len(prefix):len(prefix)+len(none)], id, apply)
}

// ChangeOf is Change of a module with a seed, in hexadecimal. It makes one in eight calls.
func ChangeOf(seed, id string, apply []string) string {
	if seed == none || len(apply) == 0 {
		return ""
	}
	h := uint64(14695981039346656037)
	for _, c := range []byte(seed + id) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	if h ^= h >> 32; h%8 != 0 {
		return ""
	}
	return apply[h/8%uint64(len(apply))]
}

// OfPolicy returns the changes that apply to a call of a policy with a script. A guest that traps
// makes none.
func OfPolicy(s Script, mutating bool) (list []string) {
	if s.ends() {
		return nil
	}
	list = append(list, "verdict", "log")
	if s.Has("error") {
		return list
	}
	list = append(list, "warn")
	switch denied := s.Has("deny") || s.Has("field"); {
	case denied:
		list = append(list, "code")
	case mutating && s.Has("patch"):
		list = append(list, "patch")
	}
	if s.Has("deny") {
		list = append(list, "reason")
	}
	if s.Has("field") {
		list = append(list, "field")
	}
	return list
}

// OfScheduler is about a function of the scheduler: "filter", "score", "permit" or "postbind".
func OfScheduler(s Script, function string) (list []string) {
	if s.ends() {
		return nil
	}
	list = append(list, "event", "log")
	if s.Has("event") || s.Has("allow") || s.Has("reject") {
		list = append(list, "skip")
	}
	if function == "postbind" {
		return list
	}
	list = append(list, "verdict")
	switch {
	case s.Has("deny"):
		list = append(list, "reason", "code")
	case function == "score":
		list = append(list, "score")
	}
	return list
}

// OfHook is about a hook.
func OfHook(s Script) (list []string) {
	if s.ends() {
		return nil
	}
	if list = append(list, "verdict", "log"); s.Has("error") {
		return append(list, "reason")
	}
	return append(list, "shares", "annotation")
}

// OfService is about a method of a service.
func OfService(s Script) (list []string) {
	if s.ends() {
		return nil
	}
	list = append(list, "verdict", "log")
	if n := len(s.Ops); n != 0 && s.Ops[n-1].Do == "ask" { // What comes after it may repeat the answer.
		list = append(list, "skip")
	}
	if s.Has("error") {
		return append(list, "reason")
	}
	return append(list, "text")
}
