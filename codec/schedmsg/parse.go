package schedmsg

import (
	"errors"
	"fmt"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewasm/kubewasm/internal/wire"
)

// maxEntries is the maximum number of placements or nominations in a message: an empty one takes
// twenty times its two bytes.
const maxEntries = 1 << 16

// Placement is a set of nodes for a group, by their names.
type Placement struct {
	Name      string
	NodeNames []string
}

// ParsePlacements decodes the message Placements, and copies the parts of b that it keeps. keep is
// called with the size of each part before it is allocated. The error wraps ErrMalformed of package
// codec.
func ParsePlacements(b []byte, keep func(int)) ([]Placement, error) {
	keep(len(b))
	var placements []Placement
	c := wire.NewCursor(b)
	for c.Next() {
		if c.Number != 1 {
			continue
		}
		var p Placement
		m := c.Message("placements")
		for m.Next() {
			switch m.Number {
			case 1:
				p.Name = m.String("name")
			case 2:
				keep(int(unsafe.Sizeof("")))
				p.NodeNames = append(p.NodeNames, m.String("node_names"))
			}
		}
		c.Done(&m, "placements")
		if len(placements) == maxEntries {
			return nil, fmt.Errorf("read placements: %w: more than %d", wire.ErrMalformed, maxEntries)
		}
		keep(int(unsafe.Sizeof(p)))
		placements = append(placements, p)
	}
	if err := c.Err(); err != nil {
		return nil, fmt.Errorf("read placements: %w", err)
	}
	return placements, nil
}

// ParseNominations decodes the message Nominations to the node of each Pod, and copies the parts of
// b that it keeps. keep is called with the size of each part before it is allocated. The error
// wraps ErrMalformed of package codec.
func ParseNominations(b []byte, keep func(int)) (map[types.NamespacedName]string, error) {
	keep(len(b))
	nominations := map[types.NamespacedName]string{}
	c := wire.NewCursor(b)
	for c.Next() {
		if c.Number != 1 {
			continue
		}
		var pod types.NamespacedName
		var node string
		m := c.Message("nominations")
		for m.Next() {
			switch m.Number {
			case 1:
				pod.Namespace = m.String("namespace")
			case 2:
				pod.Name = m.String("name")
			case 3:
				node = m.String("node_name")
			}
		}
		c.Done(&m, "nominations")
		if len(nominations) == maxEntries {
			return nil, fmt.Errorf("read nominations: %w: more than %d", wire.ErrMalformed, maxEntries)
		}
		keep(2 * int(unsafe.Sizeof(pod)+unsafe.Sizeof(node)))
		nominations[pod] = node
	}
	if err := c.Err(); err != nil {
		return nil, fmt.Errorf("read nominations: %w", err)
	}
	return nominations, nil
}

// Event is an event that a guest reports.
type Event struct {
	// Type is corev1.EventTypeNormal or corev1.EventTypeWarning.
	Type, Reason, Action, Note string
	// Regarding is nil for the Pod of the call, Related if there is none.
	Regarding, Related *corev1.ObjectReference
}

// ParseEvent decodes the message Event, and copies the parts of b that it keeps. The error wraps
// ErrMalformed of package codec, unless the message is well-formed but describes no possible event.
func ParseEvent(b []byte) (*Event, error) {
	e := &Event{}
	c := wire.NewCursor(b)
	for c.Next() {
		switch c.Number {
		case 1:
			e.Type = c.String("type")
		case 2:
			e.Reason = c.String("reason")
		case 3:
			e.Action = c.String("action")
		case 4:
			e.Note = c.String("note")
		case 5:
			e.Regarding = reference(&c, "regarding")
		case 6:
			e.Related = reference(&c, "related")
		}
	}
	if err := c.Err(); err != nil {
		return nil, fmt.Errorf("read event: %w", err)
	}
	if e.Type != corev1.EventTypeNormal && e.Type != corev1.EventTypeWarning {
		return nil, fmt.Errorf("read event: type is %q, want Normal or Warning", e.Type)
	}
	if e.Reason == "" {
		return nil, errors.New("read event: reason is empty")
	}
	return e, nil
}

func reference(c *wire.Cursor, name string) *corev1.ObjectReference {
	r := &corev1.ObjectReference{}
	m := c.Message(name)
	for m.Next() {
		switch m.Number {
		case 1:
			r.Kind = m.String("kind")
		case 2:
			r.APIVersion = m.String("api_version")
		case 3:
			r.Namespace = m.String("namespace")
		case 4:
			r.Name = m.String("name")
		case 5:
			r.UID = types.UID(m.String("uid"))
		case 6:
			r.ResourceVersion = m.String("resource_version")
		}
	}
	c.Done(&m, name)
	return r
}
