package confidential

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kubewasm/kubewasm/internal/json"
	"github.com/kubewasm/kubewasm/internal/wire"
)

// Shape names the type of a message in protobuf, whose bytes do not name it. Recordings contain
// the numbers of shapes.
type Shape uint64

// Sealed reports whether all messages of the shape are sealed.
func (s Shape) Sealed() bool {
	return s <= wire.ShapeUnnamed || s >= wire.ShapeSecretObject && s <= wire.ShapeTokenRequest
}

// ShapeOf returns the shape of the objects of a kind.
func (r *Rule) ShapeOf(group, kind string) Shape {
	switch {
	case r.names(group, kind):
		return wire.ShapeWhole
	case r != nil && len(r.Fields) != 0:
		return wire.ShapeUnnamed
	}
	if shape, ok := shapeOfKind[kind]; ok {
		return shape
	}
	return wire.ShapeOther
}

// ShapeOfResource returns the shape of the objects of a resource, which is named as in a URL of the
// API: "v1/secrets".
func (r *Rule) ShapeOfResource(resource string) Shape {
	plural := resource[strings.LastIndexByte(resource, '/')+1:]
	for kind, shape := range shapeOfKind {
		if strings.ToLower(kind)+"s" == plural && !r.names(wire.AnyGroup, kind) && (r == nil || len(r.Fields) == 0 || isBuiltin(kind)) {
			return shape
		}
	}
	switch {
	case r.SealsResource(resource):
		return wire.ShapeWhole
	case r != nil && len(r.Fields) != 0:
		return wire.ShapeUnnamed
	}
	return wire.ShapeOther
}

var shapeOfKind = map[string]Shape{
	secretKind: wire.ShapeSecretObject, tokenReviewKind: wire.ShapeTokenReview, tokenRequestKind: wire.ShapeTokenRequest,
	"Pod": wire.ShapePod, "PodTemplate": wire.ShapePodTemplate, "ReplicationController": wire.ShapeReplicationController,
	"Deployment": wire.ShapeDeployment, "ReplicaSet": wire.ShapeDeployment, "StatefulSet": wire.ShapeDeployment,
	"DaemonSet": wire.ShapeDaemonSet, "Job": wire.ShapeJob, "CronJob": wire.ShapeCronJob,
}

// class is the treatment of a field.
type class uint8

const (
	// text is searched for manifests.
	text class = iota
	sealed
	// variable is the value of an environment variable.
	variable
)

// message describes the fields of a message that matter, by their numbers.
type message map[protowire.Number]field

// field is a field: a message, or bytes of a class. name is the name by which a Rule seals it, and
// keyed is set if its values are entries of a map.
type field struct {
	message message
	class   class
	name    string
	keyed   bool
}

// entry is an entry of a map whose values have a class.
func entry(c class) message { return message{2: {class: c}} }

var (
	metadata = message{12: {message: entry(text)}}
	// sealedMetadata has annotations in which other programs keep the object.
	sealedMetadata = message{12: {message: entry(sealed)}}
	container      = message{7: {message: message{2: {class: variable}}}}
	podSpec        = message{2: {message: container}, 20: {message: container}, 34: {message: message{1: {message: container}}}}
	template       = message{1: {message: metadata}, 2: {message: podSpec}}
	jobSpec        = message{6: {message: template}}
)

// objectWith returns the description of an object whose field n is a message.
func objectWith(n protowire.Number, spec message) message {
	return message{1: {message: metadata}, n: {message: spec}}
}

var shapes = map[Shape]message{
	wire.ShapeOther:                 {1: {message: metadata}},
	wire.ShapeSecretObject:          {1: {message: sealedMetadata}, 2: {message: entry(sealed)}, 4: {message: entry(sealed)}},
	wire.ShapeTokenReview:           objectWith(2, message{1: {class: sealed}}),
	wire.ShapeTokenRequest:          objectWith(3, message{1: {class: sealed}}),
	wire.ShapePod:                   objectWith(2, podSpec),
	wire.ShapePodTemplate:           objectWith(2, template),
	wire.ShapeReplicationController: objectWith(2, message{3: {message: template}}),
	wire.ShapeDeployment:            objectWith(2, message{3: {message: template}}),
	wire.ShapeDaemonSet:             objectWith(2, message{2: {message: template}}),
	wire.ShapeJob:                   objectWith(2, jobSpec),
	wire.ShapeCronJob:               objectWith(2, message{5: {message: message{1: {message: metadata}, 2: {message: jobSpec}}}}),
	wire.ShapeText:                  {},
	wire.ShapeHookRequest: {
		5: {message: entry(text), name: "pod_labels", keyed: true}, 6: {message: entry(text), name: "pod_annotations", keyed: true},
		7: {message: entry(text), name: "container_annotations", keyed: true}, 11: {message: entry(variable), name: "container_envs", keyed: true},
		13: {message: entry(text), name: "node_labels", keyed: true}, 14: {message: entry(text), name: "node_annotations", keyed: true},
	},
}

// MaskMessage masks confidential values in a message of a shape, or in JSON of such an object, and
// records them in s. part is the number of the field whose message data are, 0 for all. A list has
// the messages in its field 1. Malformed data is sealed. It reports whether it has found any.
func (r *Rule) MaskMessage(shape Shape, part uint32, list bool, data []byte, s *Stain) bool {
	m := messages{rule: r, stain: s, budget: budgetFor(data)}
	if list {
		if !fields(data, func(n protowire.Number, value []byte) {
			if n == 1 {
				m.object(shape, part, value)
			}
		}) {
			m.seal(data)
		}
		return m.found
	}
	m.object(shape, part, data)
	return m.found
}

// messages looks through messages.
type messages struct {
	rule   *Rule
	stain  *Stain
	found  bool
	budget *budget
}

func (m *messages) seal(value []byte) {
	if len(value) != 0 {
		m.found = true
		m.stain.Seal()
		overwrite(value)
	}
}

// object looks through an object.
func (m *messages) object(shape Shape, part uint32, data []byte) {
	description, known := shapes[shape]
	if json.Valid(data) { // Custom resources have no other form, and some hosts give all in it.
		if shape == wire.ShapeWhole {
			m.seal(data)
			return
		}
		w := walker{rule: m.rule, stain: m.stain, mask: true, budget: m.budget}
		w.value(data, object{kind: kindOfShape(shape)}, 0)
		if m.found = m.found || w.found; m.budget.over() {
			m.seal(data)
		}
		return
	}
	of, described := description[protowire.Number(part)]
	switch {
	case !known:
		m.seal(data)
	case shape == wire.ShapeText:
		m.texts(data, 0)
	case part == 0:
		m.message(description, data)
	case described:
		m.field(of, data)
	default:
		m.texts(data, 0)
	}
}

func kindOfShape(shape Shape) string {
	switch shape {
	case wire.ShapeSecretObject:
		return secretKind
	case wire.ShapeTokenReview:
		return tokenReviewKind
	case wire.ShapeTokenRequest:
		return tokenRequestKind
	}
	return ""
}

// message looks through the fields of a message.
func (m *messages) message(description message, data []byte) {
	ok := fields(data, func(n protowire.Number, value []byte) {
		if of, ok := description[n]; ok {
			m.field(of, value)
		} else {
			m.texts(value, 0)
		}
	})
	if !ok {
		m.seal(data)
	}
}

func (m *messages) field(of field, value []byte) {
	switch {
	case of.name != "" && m.rule.field(of.name):
		m.entryOf(value, true)
	case of.keyed:
		m.entryOf(value, false)
		m.message(of.message, value)
	case of.message != nil:
		m.message(of.message, value)
	case of.class == sealed:
		m.seal(value)
	case of.class == variable:
		if len(value) != 0 && m.rule.Environment() {
			m.found = true
			m.stain.AddText(string(value))
			overwrite(value)
		}
	default:
		m.texts(value, 0)
	}
}

// entryOf seals the value of an entry of a map, if always is set or its key is a field of the
// rule.
func (m *messages) entryOf(entry []byte, always bool) {
	key := ""
	fields(entry, func(n protowire.Number, value []byte) {
		switch {
		case n == 1:
			key = string(value)
		case n == 2 && (always || m.rule.field(key)):
			m.seal(value)
		}
	})
}

// maxNested is the maximum depth to which messages are searched for texts.
const maxNested = 32

// texts masks the texts in a value that are manifests.
func (m *messages) texts(value []byte, depth int) {
	if !m.rule.mayHave(value) {
		return
	}
	if utf8.Valid(value) && !bytes.ContainsFunc(value, func(c rune) bool { return c < ' ' && c != '\n' && c != '\t' && c != '\r' }) {
		if m.rule.manifest(string(value), m.stain, 0, m.budget) {
			m.found = true
			overwrite(value)
			return
		}
	}
	if depth >= maxNested {
		m.seal(value)
		return
	}
	fields(value, func(_ protowire.Number, value []byte) { m.texts(value, depth+1) })
}

// texts masks the texts of data, which are no JSON.
func (r *Rule) texts(data []byte, s *Stain, mask bool) bool {
	if !mask {
		data = bytes.Clone(data)
	}
	m := messages{rule: r, stain: s, budget: budgetFor(data)}
	m.texts(data, 0)
	return m.found
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
