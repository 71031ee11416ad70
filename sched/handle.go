package sched

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec"
	"github.com/kubewasm/kubewasm/codec/schedpb"
	"github.com/kubewasm/kubewasm/host"
)

// What a guest may do with the scheduler beyond its arguments, if it is granted.
const (
	// GrantEvents lets a guest report events.
	GrantEvents = "events"
	// GrantWaitingPods lets a guest see, allow and reject the Pods that wait in
	// Permit. It allows in its own name only.
	GrantWaitingPods = "waiting-pods"
	// GrantObjects lets a guest get and list the objects that Args.Objects name.
	GrantObjects = "objects"
)

// errNoHandle ends the call of a guest that wants something from a scheduler
// when there is none.
var errNoHandle = errors.New("the plugin was loaded without a scheduler")

// handleImports are the host functions that need a grant.
func (p *plugin) handleImports() []host.Import {
	i32 := abi.I32
	granted := func(grant, name string, params, results []abi.ValueType, f func(inst *host.Instance, stack []uint64)) host.Import {
		im := scheduler(name, params, results, func(inst *host.Instance, stack []uint64) {
			if p.handle == nil {
				inst.Violate(errNoHandle)
			}
			f(inst, stack)
		})
		im.Grant = grant
		return im
	}
	read := func(inst *host.Instance, stack []uint64) string {
		return string(inst.Read(uint32(stack[0]), uint32(stack[1])))
	}
	pair, pairs, one := []abi.ValueType{i32, i32}, []abi.ValueType{i32, i32, i32, i32}, []abi.ValueType{i32}
	return []host.Import{
		granted(GrantEvents, abi.ImportEvent, pair, nil, func(inst *host.Instance, stack []uint64) {
			e, err := schedpb.ParseEvent([]byte(read(inst, stack)))
			if err != nil {
				inst.Violate(err)
			}
			p.report(&inst.State().(*instance).call, e)
		}),
		granted(GrantWaitingPods, abi.ImportWaitingPods, pair, one, func(inst *host.Instance, stack []uint64) {
			b := remember(inst, "", func() []byte {
				b := []byte{}
				p.handle.IterateOverWaitingPods(func(w fwk.WaitingPod) {
					b = schedpb.AppendWaitingPod(b, w.GetPod(), w.GetPendingPlugins())
				})
				return b
			})
			stack[0] = uint64(inst.Write(uint32(stack[0]), uint32(stack[1]), b))
		}),
		granted(GrantWaitingPods, abi.ImportWaitingPod, pairs, one, func(inst *host.Instance, stack []uint64) {
			uid := read(inst, stack)
			b := remember(inst, uid, func() []byte {
				w := p.handle.GetWaitingPod(types.UID(uid))
				if w == nil {
					return nil
				}
				object, err := p.objects.Pod(w.GetPod())
				if err != nil {
					inst.Violate(err)
				}
				return object.Bytes()
			})
			stack[0] = uint64(inst.Write(uint32(stack[2]), uint32(stack[3]), b))
		}),
		granted(GrantWaitingPods, abi.ImportAllowWaitingPod, pair, one, func(inst *host.Instance, stack []uint64) {
			w := p.handle.GetWaitingPod(types.UID(read(inst, stack)))
			if stack[0] = 0; w != nil {
				stack[0] = 1
				if !inst.State().(*instance).call.replay {
					w.Allow(p.guest.Name())
				}
			}
		}),
		granted(GrantWaitingPods, abi.ImportRejectWaitingPod, pair, one, func(inst *host.Instance, stack []uint64) {
			uid, reason, _ := strings.Cut(read(inst, stack), "\x00")
			w := p.handle.GetWaitingPod(types.UID(uid))
			if stack[0] = 0; w != nil && (inst.State().(*instance).call.replay || w.Reject(p.guest.Name(), strings.ToValidUTF8(reason, "\uFFFD"))) {
				stack[0] = 1
			}
		}),
		granted(GrantObjects, abi.ImportGetObject, pairs, one, func(inst *host.Instance, stack []uint64) {
			request := read(inst, stack)
			b := remember(inst, request, func() []byte { return p.getObject(inst, request) })
			stack[0] = uint64(inst.Write(uint32(stack[2]), uint32(stack[3]), b))
		}),
		granted(GrantObjects, abi.ImportListObjects, pairs, one, func(inst *host.Instance, stack []uint64) {
			request := read(inst, stack)
			b := remember(inst, request, func() []byte { return p.listObjects(inst, request) })
			stack[0] = uint64(inst.Write(uint32(stack[2]), uint32(stack[3]), b))
		}),
	}
}

// remember returns the answer of a host function to a question, which stays the
// same within one call of the guest, whatever happens in the scheduler.
func remember(inst *host.Instance, question string, answer func() []byte) []byte {
	c := &inst.State().(*instance).call
	key := inst.HostCall() + "\x00" + question
	b, ok := c.answers[key]
	if !ok {
		b = answer()
		if c.answers == nil {
			c.answers = map[string][]byte{}
		}
		c.answers[key] = b
	}
	return b
}

// report hands an event to the scheduler's recorder. A replay reports nothing.
func (p *plugin) report(c *call, e *schedpb.Event) {
	if c.replay {
		return
	}
	var regarding, related runtime.Object
	switch {
	case e.Regarding != nil:
		regarding = e.Regarding
	case c.of != nil:
		regarding = c.of
	default:
		return // An event about nothing.
	}
	if e.Related != nil {
		related = e.Related
	}
	// The note is no format.
	p.handle.EventRecorder().Eventf(regarding, related, e.Type, e.Reason, e.Action, "%s", e.Note)
}

// lister is where the objects of one resource are.
type lister struct{ cache.GenericLister }

// inform makes informers of resources, which are named as in a URL of the API:
// "v1/persistentvolumeclaims", "apps/v1/replicasets". It must run before the
// scheduler starts its informers.
func (p *plugin) inform(resources []string) error {
	if len(resources) == 0 {
		return nil
	}
	if p.handle == nil {
		return errNoHandle
	}
	p.informers = map[string]lister{}
	var errs []error
	for _, name := range resources {
		gvr, err := parseResource(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		informer, err := p.handle.SharedInformerFactory().ForResource(gvr)
		if err != nil {
			errs = append(errs, fmt.Errorf("objects: %q: %w", name, err))
			continue
		}
		informer.Informer() // Registers it with the factory.
		p.informers[name] = lister{informer.Lister()}
	}
	return errors.Join(errs...)
}

func parseResource(name string) (schema.GroupVersionResource, error) {
	parts := strings.Split(name, "/")
	switch len(parts) {
	case 2:
		return schema.GroupVersionResource{Version: parts[0], Resource: parts[1]}, nil
	case 3:
		return schema.GroupVersionResource{Group: parts[0], Version: parts[1], Resource: parts[2]}, nil
	}
	return schema.GroupVersionResource{}, fmt.Errorf("objects: %q is not version/resource or group/version/resource", name)
}

// listerOf finds the lister of a resource that the configuration names.
func (p *plugin) listerOf(inst *host.Instance, resource string) lister {
	l, ok := p.informers[resource]
	if !ok {
		inst.Violate(fmt.Errorf("the plugin's configuration does not name the objects %q", resource))
	}
	return l
}

// getObject answers "resource NUL namespace NUL name": nothing if there is no
// such object.
func (p *plugin) getObject(inst *host.Instance, request string) []byte {
	parts := strings.Split(request, "\x00")
	if len(parts) != 3 {
		inst.Violate(fmt.Errorf("%.80q is not a resource, a namespace and a name", request))
	}
	l := p.listerOf(inst, parts[0])
	key := parts[2]
	if parts[1] != "" {
		key = parts[1] + "/" + key
	}
	// The lister of all namespaces takes the key of its index.
	object, err := l.Get(key)
	if err != nil {
		return nil
	}
	return encode(inst, object)
}

// listObjects answers "resource NUL namespace": those of all namespaces if it is
// empty.
func (p *plugin) listObjects(inst *host.Instance, request string) []byte {
	resource, namespace, _ := strings.Cut(request, "\x00")
	objects, err := p.listerOf(inst, resource).List(labels.Everything())
	if err != nil {
		inst.Violate(err)
	}
	byName := map[string]runtime.Object{}
	for _, object := range objects {
		m, err := meta.Accessor(object)
		if err != nil || namespace != "" && m.GetNamespace() != namespace {
			continue
		}
		byName[m.GetNamespace()+"/"+m.GetName()] = object
	}
	var b []byte
	for _, name := range sortedKeys(byName) {
		b = schedpb.AppendObject(b, encode(inst, byName[name]))
	}
	return b
}

func encode(inst *host.Instance, object runtime.Object) []byte {
	m, ok := object.(metav1.Object)
	if !ok {
		inst.Violate(fmt.Errorf("%T is no object", object))
	}
	b, err := codec.Encode(m)
	if err != nil {
		inst.Violate(err)
	}
	return b
}
