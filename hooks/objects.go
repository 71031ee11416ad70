package hooks

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/objects/lookup"
)

// nodeObject is an object of a node. JSON is nil if there is none.
type nodeObject struct {
	name   string
	labels map[string]string
	json   []byte
}

func (o *nodeObject) GetNamespace() string         { return "" }
func (o *nodeObject) GetName() string              { return o.name }
func (o *nodeObject) GetLabels() map[string]string { return o.labels }

// objects holds the known objects by resource. It is immutable.
type objects map[string]*nodeObject

// checkObjects returns all mistakes in grants. The objects of a node have no namespace.
func checkObjects(grants []host.ObjectGrant) []error {
	errs := append(lookup.CheckGrants(grants), lookup.RefuseQueries(grants)...)
	for i, g := range grants {
		if g.Namespaces != nil {
			errs = append(errs, fmt.Errorf("objects[%d].namespaces: a hook looks up the objects of its node, which have no namespace", i))
		}
	}
	return errs
}

// SetObject sets the object, in JSON, of a resource that has the name of the node; nil if there is
// none. Before the first call, plugins whose Objects name the resource fail when they look it up.
// The channel of [Engine.Changed] is closed if the object differs from the previous one. object
// must not change afterwards.
func (e *Engine) SetObject(resource, name string, object []byte) error {
	o := &nodeObject{name: name, json: object}
	if object != nil {
		var of struct {
			Metadata struct {
				Labels map[string]string `json:"labels"`
			} `json:"metadata"`
		}
		if err := json.Unmarshal(object, &of); err != nil {
			return fmt.Errorf("set the object of %s: %w", resource, err)
		}
		o.labels = of.Metadata.Labels
	}
	e.setObject.Lock()
	defer e.setObject.Unlock()
	before := *e.objects.Load()
	if was := before[resource]; was != nil && was.name == name && (was.json == nil) == (object == nil) && string(was.json) == string(object) {
		return nil
	}
	after := maps.Clone(before)
	after[resource] = o
	e.objects.Store(&after)
	if slices.ContainsFunc(e.plugins, func(p *plugin) bool { return slices.Contains(p.resources, resource) }) {
		e.signal()
	}
	return nil
}

// lookups answers the guests of a plugin. Within a call the objects stay the same.
type lookups struct{ *plugin }

// find returns an object named by the configuration.
func (p lookups) find(inst *host.Instance, resource string) (*nodeObject, error) {
	if !slices.Contains(p.resources, resource) {
		return nil, fmt.Errorf("the plugin's configuration does not name the objects %.200q", resource)
	}
	x := inst.State().(*exchange)
	if x.request == nil {
		return nil, errors.New("objects are looked up in hook")
	}
	o := x.objects[resource]
	if o == nil {
		return nil, fmt.Errorf("the objects %q are not listed yet", resource)
	}
	return o, nil
}

func (p lookups) Get(inst *host.Instance, resource, namespace, name string) ([]byte, error) {
	o, err := p.find(inst, resource)
	if err != nil {
		return nil, err
	}
	if namespace != "" || name != o.name {
		return nil, fmt.Errorf("a hook sees only the object of %q named as the node", resource)
	}
	return o.json, nil
}

func (p lookups) List(inst *host.Instance, resource, _ string) ([]*nodeObject, error) {
	o, err := p.find(inst, resource)
	if err != nil || o.json == nil {
		return nil, err
	}
	return []*nodeObject{o}, nil
}

func (p lookups) Encode(o *nodeObject) ([]byte, error) { return o.json, nil }

func (p lookups) Last(inst *host.Instance) *lookup.Last { return &inst.State().(*exchange).last }
