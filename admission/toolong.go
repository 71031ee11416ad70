package admission

import (
	"bytes"
	"cmp"
	"encoding/json"

	"github.com/kubewasm/kubewasm/internal/cut"
)

// subject identifies the object of a review, as far as the beginning of the review contains it.
type subject struct{ uid, kind, namespace, name, operation string }

// String returns the subject in the words of users: "Pod shop/web (UPDATE)".
func (s subject) String() string {
	text := cmp.Or(s.kind, "an object")
	switch {
	case s.namespace != "" && s.name != "":
		text += " " + s.namespace + "/" + s.name
	case s.name != "":
		text += " " + s.name
	case s.namespace != "":
		text += " in namespace " + s.namespace
	}
	if s.operation != "" {
		text += " (" + s.operation + ")"
	}
	return text
}

// maxSubjectText is the maximum length of a text in a subject: that of a name in Kubernetes.
const maxSubjectText = 253

// subjectOf reads the beginning of a review, which may end anywhere. An API server writes uid,
// kind, name, namespace and operation before the user and the objects. The name of an object to be
// created may be only in the object.
func subjectOf(beginning []byte) subject {
	var s subject
	var made, prefix string
	wanted := map[string]*string{
		"request.uid": &s.uid, "request.kind.kind": &s.kind, "request.namespace": &s.namespace, "request.name": &s.name,
		"request.operation": &s.operation, "request.object.metadata.name": &made, "request.object.metadata.generateName": &prefix,
	}
	d := json.NewDecoder(bytes.NewReader(beginning))
	type level struct {
		path   string
		object bool
		key    string
		// hasKey is set if the next token is the value of key.
		hasKey bool
	}
	var levels []level
	for {
		token, err := d.Token()
		if err != nil {
			break // The review is cut here or is not JSON; earlier values may still help.
		}
		if delim, ok := token.(json.Delim); ok && (delim == '}' || delim == ']') {
			levels = levels[:len(levels)-1]
			continue
		}
		path := ""
		if n := len(levels); n != 0 {
			top := &levels[n-1]
			if key, ok := token.(string); ok && top.object && !top.hasKey {
				top.key, top.hasKey = key, true
				continue
			}
			path, top.hasKey = top.path+"."+top.key, false
			if !top.object || n > 4 { // Lists and deeper objects have no wanted member.
				path = "-"
			} else if n == 1 {
				path = top.key
			}
		}
		switch token := token.(type) {
		case json.Delim:
			levels = append(levels, level{path: path, object: token == '{'})
		case string:
			if to := wanted[path]; to != nil {
				*to = oneLine(cut.Text(token, maxSubjectText))
			}
		}
	}
	s.name = cmp.Or(s.name, made, prefix)
	return s
}
