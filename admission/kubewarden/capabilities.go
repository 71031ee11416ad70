package kubewarden

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/admission/dialect"
	"github.com/kubewasm/kubewasm/admission/kubewarden/capabilities"
	"github.com/kubewasm/kubewasm/host/confidential"
	"github.com/kubewasm/kubewasm/internal/policyjson"
	"github.com/kubewasm/kubewasm/internal/publicerr"
)

// cluster is the part of an [admission.Cluster] that answers questions.
type cluster interface {
	Get(ctx context.Context, kind schema.GroupVersionKind, namespace, name string, fresh bool) ([]byte, error)
	List(ctx context.Context, kind schema.GroupVersionKind, namespace string, labels labels.Selector, fields fields.Selector) ([][]byte, error)
	Review(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, error)
}

// hostCapabilities implements the host capabilities of a policy.
type hostCapabilities struct {
	Plugin string
	Logger *slog.Logger
	// Cluster is nil if look-ups are not supported.
	Cluster cluster
	// Caller holds the policy's grants, and answers the capabilities that need more than the
	// cluster or the question.
	Caller *capabilities.Caller
	// holds release the cluster's caches.
	holds []func()
}

// newCapabilities returns the host capabilities of a plugin, which must be closed.
func newCapabilities(o Options, p dialect.Plugin) *hostCapabilities {
	var scope capabilities.Scope
	if own, ok := p.Config.(*capabilities.Scope); ok {
		scope = *own
	}
	c := &hostCapabilities{Plugin: p.Name, Logger: p.Logger, Caller: o.Capabilities.Caller(p.Name, scope)}
	if o.Cluster != nil {
		c.Cluster = o.Cluster
	}
	for _, k := range scope.ContextAwareResources {
		if o.Cluster != nil {
			c.holds = append(c.holds, o.Cluster.Hold(k.GroupVersionKind()))
		}
	}
	return c
}

// volatile reports whether the policy may ask for anything.
func (c *hostCapabilities) volatile() bool {
	scope := c.Caller.Scope()
	return len(scope.HostCapabilities)+len(scope.ContextAwareResources) != 0
}

func (c *hostCapabilities) close() {
	for _, release := range c.holds {
		release()
	}
	c.Caller.Close()
}

// budget bounds the cost of the answer to a question.
type budget struct {
	ctx context.Context
	// spend takes fuel from the current call. It does not return if none is left or the time is
	// over.
	spend func(fuel int64)
	// log reports whether n bytes more may be logged.
	log func(n int) bool
	// limit is the maximum length of the answer.
	limit int
	// wait returns the context for a question that is passed on to another server.
	wait func() (context.Context, context.CancelFunc)
	// asked counts such questions in a request.
	asked *int
	// about is the kind of the objects in the question, if it names one.
	about schema.GroupVersionKind
	// stain returns the confidential values that the call has seen.
	stain func() *confidential.Stain
}

// maxAsked is the number of questions of a policy in a request that may be passed on.
const maxAsked = 64

// leave returns the context for a question that is passed on, and counts it. The price is that of
// the host's work for it.
func (b *budget) leave() (context.Context, context.CancelFunc, error) {
	if *b.asked++; *b.asked > maxAsked {
		return nil, nil, fmt.Errorf("the policy asks more than %d questions in one request", maxAsked)
	}
	b.work(leaveWork)
	ctx, cancel := b.wait()
	return ctx, cancel, nil
}

// leaveWork is the price of a question that is passed on, in nanoseconds. The work is another
// server's and not the host's, but must not be available for a few instructions.
const leaveWork = 1_000_000

// work pays for work before it is done, in nanoseconds.
func (b *budget) work(nanoseconds int) { b.spend(2 * int64(nanoseconds)) }

// Limits of questions: a question about the cluster is short, and each part of a selector is
// compared with each object.
const (
	maxQuestionBytes = 64 << 10
	maxSelectorBytes = 4 << 10
)

// read decodes a question.
func (b *budget) read(payload []byte, limit int, q any) error {
	if len(payload) > limit {
		return fmt.Errorf("the question has %d bytes, more than %d", len(payload), limit)
	}
	b.work(20 * len(payload))
	return policyjson.Decode(payload, q)
}

var errTooLong = errors.New("the answer is longer than limits.resultBytes")

// call performs the operation requested by a policy. It is the only way in which a policy gets data
// beyond its request. The payload is a copy. The answer may be the cluster's object itself, and
// must not be changed.
func (c *hostCapabilities) call(b *budget, binding, namespace, operation string, payload []byte) (answer []byte, err error) {
	if binding != "kubewarden" {
		return nil, fmt.Errorf("unknown binding %.100q", binding)
	}
	name := namespace + "/" + operation
	switch name {
	case "tracing/log":
		return c.log(b, payload)
	case "kubernetes/list_all_resources": // The name in some documents.
		name = capabilities.ListAll
	case capabilities.IsCertificateTrusted: // The question alone determines the answer.
		return c.answerTo(b, name, payload)
	}
	return dialect.Ask(b.ctx, name+" "+string(payload), func() ([]byte, error) { return c.answerTo(b, name, payload) })
}

// answerTo answers every question except those about the host's log.
func (c *hostCapabilities) answerTo(b *budget, name string, payload []byte) (answer []byte, err error) {
	defer func() { c.Caller.Count(name, err) }()
	f, ok := answers[name]
	if !ok {
		namespace, operation, _ := strings.Cut(name, "/")
		return nil, fmt.Errorf("unknown operation %.100q of namespace %.100q", operation, namespace)
	}
	if err := c.Caller.Scope().MayCall(name); err != nil {
		return nil, err
	}
	if answer, err = f(c, b, payload); err != nil {
		operation := name[strings.LastIndexByte(name, '/')+1:]
		return nil, publicerr.Wrap(operation+": "+publicerr.Words(err), fmt.Errorf("%s: %w", operation, err))
	}
	return answer, nil
}

// answers maps the operations that need a grant to their implementations.
var answers = map[string]func(c *hostCapabilities, b *budget, payload []byte) ([]byte, error){
	capabilities.GetResource:     (*hostCapabilities).get,
	capabilities.ListAll:         func(c *hostCapabilities, b *budget, payload []byte) ([]byte, error) { return c.list(b, payload, false) },
	capabilities.ListByNamespace: func(c *hostCapabilities, b *budget, payload []byte) ([]byte, error) { return c.list(b, payload, true) },
	capabilities.CanI:            (*hostCapabilities).review,
	capabilities.IsCertificateTrusted: func(_ *hostCapabilities, b *budget, payload []byte) ([]byte, error) {
		return isCertificateTrusted(b, payload)
	},
	capabilities.LookupHost:     (*hostCapabilities).lookupHost,
	capabilities.ManifestDigest: (*hostCapabilities).digest,
	capabilities.Manifest:       (*hostCapabilities).manifest,
	capabilities.ManifestConfig: (*hostCapabilities).manifestConfig,
	capabilities.Verify: func(c *hostCapabilities, b *budget, payload []byte) ([]byte, error) {
		return c.verify(b, payload, false)
	},
	capabilities.VerifyV2: func(c *hostCapabilities, b *budget, payload []byte) ([]byte, error) {
		return c.verify(b, payload, true)
	},
}

// levels maps the levels of policies' logs.
var levels = map[string]slog.Level{
	"trace": slog.LevelDebug, "debug": slog.LevelDebug, "info": slog.LevelInfo,
	"warning": slog.LevelWarn, "warn": slog.LevelWarn, "error": slog.LevelError, "critical": slog.LevelError,
}

// maxEventBytes is the maximum length of an event logged by a policy.
const maxEventBytes = 64 << 10

func (c *hostCapabilities) log(b *budget, payload []byte) ([]byte, error) {
	var event map[string]any
	if err := b.read(payload, maxEventBytes, &event); err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	if c.Logger == nil || !b.log(len(payload)) {
		return []byte{}, nil
	}
	level, _ := event["level"].(string)
	message, _ := event["message"].(string)
	attrs := []any{"plugin", c.Plugin}
	for _, key := range []string{"column", "line", "file", "policy"} {
		delete(event, key)
	}
	delete(event, "level")
	delete(event, "message")
	switch stain := b.stain(); {
	case stain.Clean():
		if len(event) != 0 {
			attrs = append(attrs, "data", event)
		}
	case len(event) != 0:
		text, err := json.Marshal(event)
		if err != nil {
			return nil, fmt.Errorf("log: %w", err)
		}
		attrs = append(attrs, "data", stain.Text(string(text)))
		fallthrough
	default:
		message = stain.Text(message)
	}
	c.Logger.Log(b.ctx, levels[level], message, attrs...)
	return []byte{}, nil
}

// lookup is a question about objects.
type lookup struct {
	APIVersion    string   `json:"api_version"`
	Kind          string   `json:"kind"`
	Namespace     *string  `json:"namespace"`
	Name          string   `json:"name"`
	LabelSelector *string  `json:"label_selector"`
	FieldSelector *string  `json:"field_selector"`
	FieldMasks    []string `json:"field_masks"`
	DisableCache  bool     `json:"disable_cache"`
}

// parse reads a question and returns the kind of the objects, if the policy may see it.
func (c *hostCapabilities) parse(b *budget, payload []byte, q *lookup) (schema.GroupVersionKind, error) {
	if err := b.read(payload, maxQuestionBytes, q); err != nil {
		return schema.GroupVersionKind{}, err
	}
	gv, err := schema.ParseGroupVersion(q.APIVersion)
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	kind := gv.WithKind(q.Kind)
	if err := c.Caller.Scope().MaySee(kind, q.namespace()); err != nil {
		return kind, err
	}
	if c.Cluster == nil {
		return kind, errors.New("the host has no cluster to look at")
	}
	b.about = kind
	return kind, nil
}

func (q *lookup) namespace() string {
	if q.Namespace == nil {
		return ""
	}
	return *q.Namespace
}

func (c *hostCapabilities) get(b *budget, payload []byte) ([]byte, error) {
	var q lookup
	kind, err := c.parse(b, payload, &q)
	if err != nil {
		return nil, err
	}
	mask, err := newFieldMask(q.FieldMasks)
	if err != nil {
		return nil, err
	}
	object, err := c.object(b, kind, &q)
	if err != nil {
		return nil, err
	}
	if object == nil {
		return nil, fmt.Errorf("there is no %s %s in namespace %q", q.Kind, q.Name, q.namespace())
	}
	return mask.appendTo(nil, object, b), nil
}

// object returns an object from the cache. It asks the API server if the policy wants no cache, or
// if the cache does not have the object, which may have been created a moment ago. Without the
// right to do so, it returns the object in the cache.
func (c *hostCapabilities) object(b *budget, kind schema.GroupVersionKind, q *lookup) ([]byte, error) {
	if !q.DisableCache {
		ctx, cancel := b.wait()
		object, err := c.Cluster.Get(ctx, kind, q.namespace(), q.Name, false)
		cancel()
		if object != nil || err != nil {
			return object, err
		}
		if object, err = c.fresh(b, kind, q); apierrors.IsForbidden(err) {
			return nil, nil
		}
		return object, err
	}
	return c.fresh(b, kind, q)
}

// fresh returns an object from the API server.
func (c *hostCapabilities) fresh(b *budget, kind schema.GroupVersionKind, q *lookup) ([]byte, error) {
	ctx, cancel, err := b.leave()
	if err != nil {
		return nil, err
	}
	defer cancel()
	return c.Caller.Ask(ctx, capabilities.GetResource, "", true, func(ctx context.Context) ([]byte, error) {
		return c.Cluster.Get(ctx, kind, q.namespace(), q.Name, true)
	})
}

func (c *hostCapabilities) list(b *budget, payload []byte, namespaced bool) ([]byte, error) {
	var q lookup
	kind, err := c.parse(b, payload, &q)
	if err != nil {
		return nil, err
	}
	if namespaced == (q.namespace() == "") {
		return nil, fmt.Errorf("namespace is %q", q.namespace())
	}
	mask, err := newFieldMask(q.FieldMasks)
	if err != nil {
		return nil, err
	}
	for _, selector := range []*string{q.LabelSelector, q.FieldSelector} {
		if selector != nil && len(*selector) > maxSelectorBytes {
			return nil, fmt.Errorf("a selector has %d bytes, more than %d", len(*selector), maxSelectorBytes)
		}
	}
	labelSelector, fieldSelector := labels.Everything(), fields.Everything()
	if q.LabelSelector != nil {
		if labelSelector, err = labels.Parse(*q.LabelSelector); err != nil {
			return nil, fmt.Errorf("label_selector: %w", err)
		}
	}
	if q.FieldSelector != nil {
		if fieldSelector, err = fields.ParseSelector(*q.FieldSelector); err != nil {
			return nil, fmt.Errorf("field_selector: %w", err)
		}
	}
	ctx, cancel := b.wait()
	defer cancel()
	objects, err := c.Cluster.List(ctx, kind, q.namespace(), labelSelector, fieldSelector)
	if err != nil {
		return nil, err
	}
	list := policyjson.NewObject(nil)
	list.Text("kind", q.Kind+"List")
	list.Text("apiVersion", q.APIVersion)
	list.Raw("metadata", []byte("{}"))
	list.Key("items")
	err = nil
	list.Append(func(dst []byte) []byte {
		dst = append(dst, '[')
		for i, object := range objects {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst = mask.appendTo(dst, object, b); len(dst) > b.limit {
				err = errTooLong
				return nil
			}
		}
		return append(dst, ']')
	})
	if err != nil {
		return nil, err
	}
	return list.End(), nil
}

func (c *hostCapabilities) review(b *budget, payload []byte) ([]byte, error) {
	if c.Cluster == nil {
		return nil, errors.New("the host has no cluster to look at")
	}
	var q accessQuestion
	if err := b.read(payload, maxQuestionBytes, &q); err != nil {
		return nil, err
	}
	spec, err := q.review()
	if err != nil {
		return nil, err
	}
	key, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	ctx, cancel, err := b.leave()
	if err != nil {
		return nil, err
	}
	defer cancel()
	return c.Caller.Ask(ctx, capabilities.CanI, string(key), q.DisableCache, func(ctx context.Context) ([]byte, error) {
		status, err := c.Cluster.Review(ctx, spec)
		if err != nil {
			return nil, err
		}
		return json.Marshal(status)
	})
}

// accessQuestion is the question of can_i. It has the form of Kubewarden's SDKs for Rust and
// JavaScript, or of the SDK for Go, or holds the spec of a SubjectAccessReview.
type accessQuestion struct {
	Review struct {
		User       string            `json:"user"`
		Groups     []string          `json:"groups"`
		Attributes *accessAttributes `json:"resource_attributes"`
		InGo       *accessAttributes `json:"resourceAttributes"`
	} `json:"subject_access_review"`
	Spec         *authorizationv1.SubjectAccessReviewSpec `json:"spec"`
	DisableCache bool                                     `json:"disable_cache"`
}

type accessAttributes struct {
	Group       string `json:"group"`
	Name        string `json:"name"`
	Namespace   string `json:"namespace"`
	Resource    string `json:"resource"`
	Subresource string `json:"subresource"`
	Verb        string `json:"verb"`
	Version     string `json:"version"`
}

func (q *accessQuestion) review() (authorizationv1.SubjectAccessReviewSpec, error) {
	a := q.Review.Attributes
	if a == nil {
		a = q.Review.InGo
	}
	switch {
	case a != nil:
		return authorizationv1.SubjectAccessReviewSpec{
			User: q.Review.User, Groups: q.Review.Groups,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: a.Group, Name: a.Name, Namespace: a.Namespace, Resource: a.Resource, Subresource: a.Subresource, Verb: a.Verb, Version: a.Version,
			},
		}, nil
	case q.Spec != nil && q.Spec.ResourceAttributes != nil:
		return *q.Spec, nil
	}
	return authorizationv1.SubjectAccessReviewSpec{}, errors.New("the question has no resource attributes")
}
