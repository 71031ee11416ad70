package record

import (
	"bytes"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kubewasm/kubewasm/internal/json"
)

// Mask overwrites data with the letter x.
func Mask(data []byte) {
	for i := range data {
		data[i] = 'x'
	}
}

// redact masks the data of Secrets in a call. What the guest says from then on is masked as a
// whole, since it may repeat them, and its instance is reset as soon as possible.
func (r *Recorder) redact(c *Call, t *Tape) {
	found := false
	for i := range c.Events {
		e := &c.Events[i]
		if e.ToGuest() && maskSecrets(e.Data) {
			found = true
		}
	}
	if maskConfidential(c) {
		found = true
	}
	if found {
		t.stained |= Secret
		t.ended.Store(true)
		c.Marks |= Secret
	}
	if t.stained&Secret != 0 {
		for i := range c.Events {
			if e := &c.Events[i]; e.FromGuest() || e.Kind == Abort {
				Mask(e.Data)
			}
		}
		trap := []byte(c.Trap)
		Mask(trap)
		c.Trap = string(trap)
		Mask(c.Output)
	}
	if r.cfg.Redact == nil {
		return
	}
	before := make([][]byte, len(c.Events))
	for i := range c.Events {
		before[i] = bytes.Clone(c.Events[i].Data)
	}
	trap, output := c.Trap, bytes.Clone(c.Output)
	r.cfg.Redact(c.Version, c)
	changed := c.Trap != trap || !bytes.Equal(c.Output, output)
	for i := range min(len(before), len(c.Events)) {
		e := &c.Events[i]
		if len(e.Data) != len(before[i]) { // A replay would fail for the length alone.
			Mask(before[i])
			e.Data = before[i]
			changed = true
		}
		changed = changed || !bytes.Equal(e.Data, before[i])
	}
	if changed {
		t.stained |= Redacted
		c.Marks |= Redacted
	}
}

// maskSecrets masks the data of the Secrets in JSON, wherever in it they are, and reports
// whether there were any.
func maskSecrets(data []byte) bool {
	start := bytes.TrimLeft(data, " \t\r\n")
	if len(start) == 0 || start[0] != '{' && start[0] != '[' || !mayHaveSecret(data) {
		return false
	}
	if !json.Valid(data) {
		// It may be a part of JSON, or JSON that the guest reads otherwise.
		Mask(data)
		return true
	}
	return maskValue(data, false, 0)
}

// mayHaveSecret reports whether JSON may have a Secret. An escape may hide the name.
func mayHaveSecret(data []byte) bool {
	return bytes.Contains(data, []byte("Secret")) || bytes.Contains(data, []byte(`\u00`)) ||
		bytes.Contains(data, []byte(`"stringData"`)) || bytes.Contains(data, []byte(`"data"`)) && bytes.Contains(data, []byte(`"type"`))
}

// maxDepth is how deep JSON is looked through. What lies deeper is masked.
const maxDepth = 200

// maskValue masks the Secrets in a value. secret is set if the value is one itself.
func maskValue(v json.Value, secret bool, depth int) (found bool) {
	if depth > maxDepth {
		Mask(v)
		return true
	}
	switch v.Kind() {
	case json.KindArray:
		for e := json.Array(v); e.Next(); {
			found = maskValue(e.Value(), secret, depth+1) || found
		}
	case json.KindString:
		// A Secret in a text: an annotation that kubectl keeps, a manifest in a ConfigMap.
		if text := v.String(); strings.Contains(text, "Secret") && strings.Contains(text, "kind") && (strings.Contains(text, "data") || strings.Contains(text, "Data")) {
			maskText(v)
			return true
		}
	case json.KindObject:
		return maskObject(v, secret, depth)
	}
	return found
}

// maskObject masks the Secrets in an object.
func maskObject(v json.Value, secret bool, depth int) (found bool) {
	var kind string
	var named, typed, data, reviewed bool
	for o := json.Object(v); o.Next(); {
		switch o.Key() {
		case "kind":
			value := o.Value()
			if text, ok := value.Text(); ok {
				kind, named = text, true
			} else if value.Kind() == json.KindObject { // That of an AdmissionRequest.
				for k := json.Object(value); k.Next(); {
					if text, ok := k.Value().Text(); ok && k.Key() == "kind" && text == "Secret" {
						reviewed = true
					}
				}
			}
		case "type":
			typed = o.Value().Kind() == json.KindString
		case "data", "stringData":
			data = data || o.Value().Kind() == json.KindObject
		}
	}
	// The items of a list have no kind.
	secret = secret && !named || kind == "Secret" || !named && typed && data
	for o := json.Object(v); o.Next(); {
		value := o.Value()
		switch key := o.Key(); {
		case secret && (key == "data" || key == "stringData"):
			found = maskAll(value) || found
		case kind == "SecretList" && key == "items", reviewed && (key == "object" || key == "oldObject"):
			found = maskValue(value, true, depth+1) || found
		case secret && key == "metadata":
			found = maskKept(value) || found
		default:
			found = maskValue(value, false, depth+1) || found
		}
	}
	return found
}

// lastApplied is the annotation in which kubectl keeps an object as a text.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// maskKept masks the annotation of a Secret in which kubectl keeps it.
func maskKept(metadata json.Value) (found bool) {
	for m := json.Object(metadata); m.Next(); {
		if m.Key() != "annotations" {
			continue
		}
		for a := json.Object(m.Value()); a.Next(); {
			if a.Key() == lastApplied {
				maskText(a.Value())
				found = true
			}
		}
	}
	return found
}

// maskAll masks every text and number in a value.
func maskAll(v json.Value) (found bool) {
	switch v.Kind() {
	case json.KindObject:
		for o := json.Object(v); o.Next(); {
			found = maskAll(o.Value()) || found
		}
	case json.KindArray:
		for e := json.Array(v); e.Next(); {
			found = maskAll(e.Value()) || found
		}
	case json.KindString:
		maskText(v)
		found = true
	case json.KindNumber:
		for i := range v {
			if v[i] >= '0' && v[i] <= '9' {
				v[i] = '1'
			}
		}
		found = true
	}
	return found
}

// maskText masks a string between its quotes. It stays base64, if it was.
func maskText(v json.Value) {
	start, end := bytes.IndexByte(v, '"'), bytes.LastIndexByte(v, '"')
	for i := start + 1; i < end; i++ {
		if v[i] != '=' {
			v[i] = 'x'
		}
	}
}

// maskConfidential masks Secrets in protobuf: what host functions hand over that were told
// so, and what get_object and list_objects answer about them.
func maskConfidential(c *Call) (found bool) {
	var host *Event
	confidential, asked := false, false
	for i := range c.Events {
		e := &c.Events[i]
		switch e.Kind {
		case Host:
			host, confidential, asked = e, false, false
		case Confidential:
			confidential = true
		case Read:
			if host != nil && host.Index < len(c.Version.Imports) {
				name := c.Version.Imports[host.Index].Name
				asked = (name == "get_object" || name == "list_objects") && strings.HasPrefix(string(e.Data), "v1/secrets\x00")
			}
		case Write, Put:
			if len(e.Data) == 0 || !confidential && !asked {
				continue
			}
			found = true
			if t := bytes.TrimLeft(e.Data, " \n"); len(t) != 0 && t[0] == '{' {
				maskValue(e.Data, true, 0)
				continue
			}
			name := ""
			if host != nil && host.Index < len(c.Version.Imports) {
				name = c.Version.Imports[host.Index].Name
			}
			switch name {
			case "object", "object_proto", "old_object_proto", "get_object":
				maskProto(e.Data, false)
			case "list_objects":
				maskProto(e.Data, true)
			default: // A part of one.
				Mask(e.Data)
			}
		}
	}
	return found
}

// maskProto masks what a Secret in protobuf holds, or the Secrets in field 1 of a list. What
// is malformed is masked as a whole.
func maskProto(data []byte, list bool) {
	ok := fields(data, func(n protowire.Number, value []byte) {
		switch {
		case list && n == 1:
			if len(value) != 0 && value[0] == '{' {
				maskValue(value, true, 0)
			} else {
				maskProto(value, false)
			}
		case list:
		case n == 1: // metadata
			fields(value, func(n protowire.Number, entry []byte) {
				if n == 12 && bytes.Contains(entry, []byte(lastApplied)) {
					fields(entry, maskEntry)
				}
			})
		case n == 2 || n == 4: // data, stringData
			fields(value, maskEntry)
		}
	})
	if !ok {
		Mask(data)
	}
}

// maskEntry masks the value of an entry of a map.
func maskEntry(n protowire.Number, value []byte) {
	if n == 2 {
		Mask(value)
	}
}

// fields calls f with the fields of a message that are bytes, and reports whether the message
// is well-formed.
func fields(data []byte, f func(n protowire.Number, value []byte)) bool {
	for len(data) > 0 {
		n, kind, size := protowire.ConsumeTag(data)
		if size < 0 {
			return false
		}
		data = data[size:]
		if kind == protowire.BytesType {
			value, size := protowire.ConsumeBytes(data)
			if size < 0 {
				return false
			}
			f(n, slices.Clip(value))
			data = data[size:]
			continue
		}
		if size = protowire.ConsumeFieldValue(n, kind, data); size < 0 {
			return false
		}
		data = data[size:]
	}
	return true
}
