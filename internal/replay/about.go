package replay

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/cut"
	"github.com/kubewasm/kubewasm/internal/json"
	"github.com/kubewasm/kubewasm/internal/recording"
	"github.com/kubewasm/kubewasm/internal/wire"
)

// names are the names of objects that a recording passes by ref.
type names struct{ byRef map[uint64]string }

// maxNames is the maximum number of refs known at a time. Refs that are not known have no names.
const maxNames = 100_000

// learn takes the names of the objects whose metadata the guest got in a call.
func (n *names) learn(c *recording.Call) {
	if c.Version.Dialect != "" || c.Version.Kind != abi.KindScheduler {
		return
	}
	var asked *recording.Event
	part := false
	for i := range c.Events {
		e := &c.Events[i]
		switch e.Kind {
		case recording.Host:
			asked = nil
			if e.Index < len(c.Version.Imports) && c.Version.Imports[e.Index].Module == abi.ModuleObjects && len(e.Args) != 0 {
				switch name := c.Version.Imports[e.Index].Name; {
				case name == "object":
					asked, part = e, false
				case name == "object_part" && len(e.Args) > 1 && uint32(e.Args[1]) == 1:
					asked, part = e, true
				}
			}
		case recording.Write:
			if asked == nil || len(e.Data) == 0 {
				continue
			}
			metadata := e.Data
			if !part {
				metadata = field(e.Data, 1)
			}
			if name := nameIn(metadata); name != "" {
				if n.byRef == nil || len(n.byRef) >= maxNames {
					n.byRef = map[uint64]string{}
				}
				n.byRef[asked.Args[0]] = name
			}
		}
	}
}

// field returns the bytes of a field of a message, nil if there are none.
func field(message []byte, number int) (value []byte) {
	for w := wire.NewCursor(message); w.Next(); {
		if int(w.Number) == number {
			value = w.Bytes()
		}
	}
	return value
}

// nameIn returns the namespace and the name in an ObjectMeta.
func nameIn(metadata []byte) string {
	name, namespace := cut.Text(field(metadata, 1), maxName), cut.Text(field(metadata, 3), maxName)
	if name == "" {
		return ""
	}
	return qualified("", namespace, name)
}

// maxName is the maximum length of an object's name.
const maxName = 253

func qualified(kind, namespace, name string) string {
	if namespace != "" {
		name = namespace + "/" + name
	}
	return strings.TrimSpace(kind + " " + name)
}

// of returns the object of a call, empty if it is not known.
func (n *names) of(c *recording.Call) string {
	switch {
	case c.Version.Kind == abi.KindScheduler && c.Version.Dialect == "":
		return n.ofRefs(c)
	case c.Version.Kind == abi.KindHook && c.Version.Dialect == "":
		for i := range c.Events {
			if e := &c.Events[i]; e.Kind == recording.Write && len(e.Data) != 0 {
				return ofHook(e.Data)
			}
		}
	case c.Version.Kind == abi.KindAdmission && c.Version.Dialect == "":
		for i := range c.Events {
			if e := &c.Events[i]; e.Kind == recording.Write && len(e.Data) != 0 {
				if e.Data[0] == '{' {
					return ofJSON(e.Data, 0)
				}
				return qualified(cut.Text(field(field(e.Data, 2), 3), maxName), cut.Text(field(e.Data, 6), maxName), cut.Text(field(e.Data, 5), maxName))
			}
		}
	}
	for i := range c.Events {
		e := &c.Events[i]
		if data := bytes.TrimSpace(e.Data); e.ToGuest() && len(data) != 0 && data[0] == '{' {
			if name := ofJSON(data, 0); name != "" {
				return name
			}
		}
	}
	return ""
}

// ofRefs returns the objects that a function of the scheduler was called with. The first argument
// of most is the cycle, which is no object.
func (n *names) ofRefs(c *recording.Call) string {
	var list []string
	for i, ref := range c.Args {
		if i == 0 && len(c.Args) > 1 {
			continue
		}
		if name := n.byRef[ref]; name != "" {
			list = append(list, name)
		}
	}
	return strings.Join(list, ", ")
}

// ofHook returns the Pod and the container of a request of a hook.
func ofHook(request []byte) string {
	pod, container := field(request, 3), field(request, 4)
	named := cut.Text(field(pod, 2), maxName)
	if named == "" {
		return ""
	}
	text := qualified("Pod", cut.Text(field(pod, 1), maxName), named)
	if name := cut.Text(field(container, 1), maxName); name != "" {
		text += fmt.Sprintf(", container %s", name)
	}
	return text
}

// ofJSON returns the object in a request of admission or in an object, in JSON.
func ofJSON(data []byte, depth int) string {
	if depth > 2 || json.Value(data).Kind() != json.KindObject {
		return ""
	}
	var kind, name, namespace, within string
	text := func(v json.Value) string { s, _ := v.Text(); return cut.Text(s, maxName) }
	for o := json.Object(data); o.Next(); {
		switch o.Key() {
		case "kind":
			if v := o.Value(); v.Kind() == json.KindObject {
				for k := json.Object(v); k.Next(); {
					if k.Key() == "kind" {
						kind = text(k.Value())
					}
				}
			} else {
				kind = text(v)
			}
		case "name":
			name = text(o.Value())
		case "namespace":
			namespace = text(o.Value())
		case "metadata":
			for m := json.Object(o.Value()); m.Next(); {
				switch m.Key() {
				case "name":
					name = text(m.Value())
				case "namespace":
					namespace = text(m.Value())
				}
			}
		case "request", "object", "review", "input":
			if within == "" {
				within = ofJSON(o.Value(), depth+1)
			}
		}
	}
	if name == "" {
		return within
	}
	return qualified(kind, namespace, name)
}

// about returns texts given to the guest in a call, by which a person recognises the request.
func about(c *recording.Call) string {
	var words []string
	length := 0
	for i := range c.Events {
		e := &c.Events[i]
		if !e.ToGuest() || len(e.Data) == 0 || e.Kind == recording.Random {
			continue
		}
		for word := range bytes.FieldsFuncSeq(e.Data[:min(len(e.Data), 4<<10)], func(r rune) bool { return r <= ' ' || r > '~' }) {
			if len(word) < 4 || slices.Contains(words, string(word)) {
				continue
			}
			words = append(words, cut.Text(word, 120))
			if length += len(word); length > 160 {
				return strings.Join(words, " ")
			}
		}
	}
	if len(words) == 0 && c.Kind == recording.ByFunction && len(c.Args) != 0 {
		for _, ref := range c.Args {
			words = append(words, fmt.Sprintf("%d/%d", abi.Ref(ref).Slot(), abi.Ref(ref).Version()))
		}
	}
	return strings.Join(words, " ")
}
