package sched

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec"
	"github.com/kubewasm/kubewasm/codec/schedmsg"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/objects/lookup"
)

// The grants for a guest to use the scheduler beyond its arguments.
const (
	// GrantEvents lets a guest report events.
	GrantEvents = "events"
	// GrantWaitingPods lets a guest see, allow and reject the Pods that wait in
	// Permit. It allows in its own name only.
	GrantWaitingPods = "waiting-pods"
)

// errNoHandle ends the call of a guest that uses the scheduler when there is none.
var errNoHandle = errors.New("the plugin was loaded without a scheduler")

// handleImports are the host functions that need a grant.
func (p *Plugin) handleImports() []host.Import {
	i32 := abi.I32
	granted := func(grant, name string, params, results []abi.ValueType, f func(inst *host.Instance, stack []uint64)) host.Import {
		im := scheduler(name, params, results, func(inst *host.Instance, stack []uint64) {
			if p.handle == nil {
				inst.Abort(errNoHandle)
			}
			f(inst, stack)
		})
		im.Grant = grant
		return im
	}
	read := func(inst *host.Instance, stack []uint64) string {
		return string(lookup.ReadQuestion(inst, stack[0], stack[1]))
	}
	pair, pairs, one := []abi.ValueType{i32, i32}, []abi.ValueType{i32, i32, i32, i32}, []abi.ValueType{i32}
	list := []host.Import{
		granted(GrantEvents, "event", pair, nil, func(inst *host.Instance, stack []uint64) {
			if n := uint32(stack[1]); n > maxEventBytes {
				inst.Abort(fmt.Errorf("an event has %d bytes, more than %d", n, maxEventBytes))
			}
			b := inst.Read(uint32(stack[0]), uint32(stack[1]))
			e, err := schedmsg.ParseEvent(b)
			if err != nil {
				inst.Abort(err)
			}
			if c := &inst.State().(*instance).call; !p.sharesState() || c.mayReport(inst, string(b)) {
				p.report(c, e)
			}
		}),
		granted(GrantWaitingPods, "waiting_pods", pair, one, func(inst *host.Instance, stack []uint64) {
			b := remember(inst, "", func() []byte {
				b := []byte{}
				for w := range p.handle.WaitingPods() {
					n := len(b)
					b = schedmsg.AppendWaitingPod(b, w.GetPod(), w.GetPendingPlugins())
					inst.Keep(len(b) - n)
				}
				inst.Keep(-len(b)) // remember counts all of it.
				return b
			})
			stack[0] = uint64(inst.Write(uint32(stack[0]), uint32(stack[1]), b))
		}),
		granted(GrantWaitingPods, "waiting_pod", pairs, one, func(inst *host.Instance, stack []uint64) {
			uid := read(inst, stack)
			b := remember(inst, uid, func() []byte {
				w := p.handle.WaitingPod(types.UID(uid))
				if w == nil {
					return nil
				}
				return p.objects.Pod(w.GetPod()).Bytes()
			})
			inst.Confidential(inst.Rule().ShapeOf("", "Pod"), 0, false)
			stack[0] = uint64(inst.Write(uint32(stack[2]), uint32(stack[3]), b))
		}),
		granted(GrantWaitingPods, "allow_waiting_pod", pair, one, func(inst *host.Instance, stack []uint64) {
			uid := read(inst, stack)
			stack[0] = inst.State().(*instance).call.effect(inst, uid, func() bool {
				w := p.handle.WaitingPod(types.UID(uid))
				if w != nil && !p.monitored {
					w.Allow(p.guest.Name())
				}
				return w != nil
			})
		}),
		granted(GrantWaitingPods, "reject_waiting_pod", pair, one, func(inst *host.Instance, stack []uint64) {
			uid, reason, _ := strings.Cut(read(inst, stack), "\x00")
			stack[0] = inst.State().(*instance).call.effect(inst, uid, func() bool {
				w := p.handle.WaitingPod(types.UID(uid))
				return w != nil && (p.monitored || w.Reject(p.guest.Name(), strings.ToValidUTF8(reason, "\uFFFD")))
			})
		}),
		granted(GrantApply, "apply_annotations", pair, nil, func(inst *host.Instance, stack []uint64) {
			p.apply(inst, read(inst, stack), false)
		}),
		granted(GrantApply, "apply_status", pair, nil, func(inst *host.Instance, stack []uint64) {
			p.apply(inst, read(inst, stack), true)
		}),
		granted(GrantActivate, "activate", pair, nil, func(inst *host.Instance, stack []uint64) {
			p.activate(inst, read(inst, stack))
		}),
	}
	// The last parameter is no length, which scheduler would take it for.
	await := granted(host.GrantObjects, "await_object", pair, nil, nil)
	await.Params = []abi.ValueType{i32, i32, i32}
	await.Func = ownAnswer(func(inst *host.Instance, stack []uint64) { p.await(inst, read(inst, stack), uint32(stack[2])) })
	list = append(list, await)
	list = append(list, granted(host.GrantObjects, "list_pods", []abi.ValueType{i32, i32, i32, i32, i32}, one, p.listPods))
	// Modules that were built when only schedulers had look-ups import them from the
	// scheduler's module.
	for _, module := range []string{abi.ModuleObjects, abi.KindScheduler.Module()} {
		for _, im := range lookup.Imports[metav1.Object](module, lookups{p}) {
			im.Func = ownAnswer(im.Func)
			list = append(list, im)
		}
	}
	return list
}

// remember returns the answer of a host function to a question. The answer stays the same within
// one call of the guest, even if the scheduler changes, and when the call is repeated.
func remember(inst *host.Instance, question string, answer func() []byte) []byte {
	c := &inst.State().(*instance).call
	key := inst.HostCall() + "\x00" + question
	b, ok := c.answers[key]
	if !ok && c.first != nil {
		b, ok = c.first.answers[key]
	}
	if !ok {
		inst.Keep(len(key) + answerBytes)
		b = answer()
		inst.Keep(len(b))
		if c.answers == nil {
			c.answers = map[string][]byte{}
		}
		c.answers[key] = b
	}
	return b
}

// answerBytes is the size of the place of an answer in a map, without its texts.
const answerBytes = 128

// maxEventBytes is the length of the longest event. An API server accepts notes of 1 KiB.
const maxEventBytes = 16 << 10

// report hands an event to the scheduler's recorder. A replay reports nothing, nor does a monitored
// guest.
func (p *Plugin) report(c *call, e *schedmsg.Event) {
	if c.first != nil || p.monitored {
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
	p.handle.Eventf(regarding, related, e.Type, e.Reason, e.Action, e.Note)
}

// informer has the objects of a resource.
type informer struct {
	Objects
	// namespaces are the granted ones, nil for all.
	namespaces []string
	// indexer has the indexes of labels, nil if there is none.
	indexer cache.Indexer
	labels  []string
}

// inform makes informers of the resources that are granted. It must run before the
// scheduler starts its informers.
func (p *Plugin) inform(grants []host.ObjectGrant) error {
	if len(grants) == 0 {
		return nil
	}
	if p.handle == nil {
		return errNoHandle
	}
	p.informers = map[string]informer{}
	var errs []error
	for _, g := range grants {
		name := g.Resource
		gvr, err := lookup.ParseResource(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		objects, err := p.handle.Lister(g)
		if err != nil {
			errs = append(errs, fmt.Errorf("objects: %q: %w", name, err))
			continue
		}
		i := informer{Objects: objects, namespaces: g.Namespaces}
		if err := p.index(&i, gvr, g.Index); err != nil {
			errs = append(errs, fmt.Errorf("objects: %q: index: %w", name, err))
			continue
		}
		p.informers[name] = i
	}
	return errors.Join(errs...)
}

// lookups answers guests that look objects up.
type lookups struct{ *Plugin }

// lister finds the lister of a resource and a namespace, or of all if it is empty, that the
// configuration names. It waits until the scheduler knows the objects, or ends the call: otherwise
// there would seem to be none.
func (l lookups) lister(inst *host.Instance, resource, namespace string) (cache.GenericLister, error) {
	if l.handle == nil {
		return nil, errNoHandle
	}
	i, ok := l.informers[resource]
	if !ok {
		return nil, fmt.Errorf("the plugin's configuration does not name the objects %q", resource)
	}
	if i.namespaces != nil && !slices.Contains(i.namespaces, namespace) {
		if namespace == "" {
			return nil, fmt.Errorf("the plugin's configuration names the objects %q of some namespaces, not of all", resource)
		}
		return nil, fmt.Errorf("the plugin's configuration does not name the objects %q of the namespace %.80q", resource, namespace)
	}
	if err := awaitSync(inst, i, resource); err != nil {
		return nil, err
	}
	return i, nil
}

func (l lookups) Get(inst *host.Instance, resource, namespace, name string) (b []byte, err error) {
	lister, err := l.lister(inst, resource, namespace)
	if err != nil {
		return nil, err
	}
	// The lister of all namespaces takes the key of its index.
	key := name
	if namespace != "" {
		key = namespace + "/" + name
	}
	b = remember(inst, resource+"\x00"+key, func() []byte {
		object, notFound := lister.Get(key)
		if notFound != nil {
			return nil
		}
		var m metav1.Object
		if m, err = meta.Accessor(object); err == nil {
			b, err = l.Encode(m)
		}
		return b
	})
	return b, err
}

func (l lookups) List(inst *host.Instance, resource, namespace string) ([]metav1.Object, error) {
	lister, err := l.lister(inst, resource, namespace)
	if err != nil {
		return nil, err
	}
	c := &inst.State().(*instance).call
	known := c.listed
	if c.first != nil {
		known = append(slices.Clip(c.first.listed), known...)
	}
	for i := range known {
		if known[i].resource == resource {
			return known[i].objects, nil
		}
	}
	objects, err := lister.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	inst.Spend(sortWork * int64(len(objects)))
	inst.Keep(int(unsafe.Sizeof(metav1.Object(nil))) * len(objects))
	list := make([]metav1.Object, len(objects))
	for i, object := range objects {
		if list[i], err = meta.Accessor(object); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(list, lookup.Compare[metav1.Object])
	c.listed = append(c.listed, listed{resource, list, nil})
	return list, nil
}

// sortWork is the price of an object that is put into a sorted list, in fuel.
const sortWork = 1000

func (lookups) Encode(object metav1.Object) ([]byte, error) { return codec.Encode(object) }

func (lookups) Last(inst *host.Instance) *lookup.Last {
	return &inst.State().(*instance).call.lastList
}
