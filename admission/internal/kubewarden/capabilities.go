package kubewarden

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/admission/internal/policy"
)

// Cluster is what policies may look up; see admission.Cluster.
type Cluster interface {
	Get(ctx context.Context, kind schema.GroupVersionKind, namespace, name string) ([]byte, error)
	List(ctx context.Context, kind schema.GroupVersionKind, namespace string, labels labels.Selector, fields fields.Selector) ([][]byte, error)
	Review(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, error)
}

// Capabilities are what a policy may ask the host for.
type Capabilities struct {
	Plugin string
	Logger *slog.Logger
	// Cluster is nil if there is no cluster to look at.
	Cluster Cluster
	// Kinds are those that the policy may see.
	Kinds []schema.GroupVersionKind
}

// budget is what the answer to a question may cost.
type budget struct {
	ctx context.Context
	// spend takes fuel of the call that asks, and does not return if there is none
	// or the time is over.
	spend func(fuel int64)
	// log reports whether n bytes more may be logged.
	log func(n int) bool
	// limit is how long the answer may be.
	limit int
}

// work pays for work before it is done, in nanoseconds.
func (b *budget) work(nanoseconds int) { b.spend(2 * int64(nanoseconds)) }

// What may be asked: a question about the cluster is short, and each part of a
// selector is compared with each object.
const (
	maxQuestionBytes = 64 << 10
	maxSelectorBytes = 4 << 10
)

// reviewWork is what a question costs that the API server is asked: its work, not the
// host's, and not to be had for a few instructions.
const reviewWork = 1_000_000

// read decodes a question.
func (b *budget) read(payload []byte, limit int, q any) error {
	if len(payload) > limit {
		return fmt.Errorf("the question has %d bytes, more than %d", len(payload), limit)
	}
	b.work(20 * len(payload))
	return policy.Decode(payload, q)
}

var errTooLong = errors.New("the answer is longer than limits.resultBytes")

// call does what a policy asks for. The payload is a copy, and the answer may be the
// cluster's object itself: it is not changed.
func (c *Capabilities) call(b *budget, binding, namespace, operation string, payload []byte) ([]byte, error) {
	if binding != "kubewarden" {
		return nil, fmt.Errorf("unknown binding %.100q", binding)
	}
	switch namespace {
	case "tracing":
		if operation == "log" {
			return c.log(b, payload)
		}
	case "kubernetes":
		switch operation {
		case "get_resource":
			return c.get(b, payload)
		case "list_resources_all", "list_all_resources":
			return c.list(b, payload, false)
		case "list_resources_by_namespace":
			return c.list(b, payload, true)
		case "can_i":
			return c.review(b, payload)
		}
	case "crypto":
		if operation == "v1/is_certificate_trusted" {
			return isCertificateTrusted(b, payload)
		}
	case "oci", "net":
		return nil, fmt.Errorf("%s/%.100s is not offered: policies have no network here", namespace, operation)
	}
	return nil, fmt.Errorf("unknown operation %.100q of namespace %.100q", operation, namespace)
}

// levels are those of the policies' logs.
var levels = map[string]slog.Level{
	"trace": slog.LevelDebug, "debug": slog.LevelDebug, "info": slog.LevelInfo,
	"warning": slog.LevelWarn, "warn": slog.LevelWarn, "error": slog.LevelError, "critical": slog.LevelError,
}

// maxEventBytes is how long an event may be that a policy logs.
const maxEventBytes = 64 << 10

func (c *Capabilities) log(b *budget, payload []byte) ([]byte, error) {
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
	if len(event) != 0 {
		attrs = append(attrs, "data", event)
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
}

// parse reads a question and returns the kind that it is about, if the policy may
// see it.
func (c *Capabilities) parse(b *budget, payload []byte, q *lookup) (schema.GroupVersionKind, error) {
	if err := b.read(payload, maxQuestionBytes, q); err != nil {
		return schema.GroupVersionKind{}, err
	}
	gv, err := schema.ParseGroupVersion(q.APIVersion)
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	kind := gv.WithKind(q.Kind)
	if !slices.Contains(c.Kinds, kind) {
		return kind, fmt.Errorf("the policy may not see %s %s: its contextAwareResources do not have it", q.APIVersion, q.Kind)
	}
	if c.Cluster == nil {
		return kind, errors.New("the host has no cluster to look at")
	}
	return kind, nil
}

func (q *lookup) namespace() string {
	if q.Namespace == nil {
		return ""
	}
	return *q.Namespace
}

func (c *Capabilities) get(b *budget, payload []byte) ([]byte, error) {
	var q lookup
	kind, err := c.parse(b, payload, &q)
	if err != nil {
		return nil, fmt.Errorf("get_resource: %w", err)
	}
	object, err := c.Cluster.Get(b.ctx, kind, q.namespace(), q.Name)
	if err != nil {
		return nil, fmt.Errorf("get_resource: %w", err)
	}
	if object == nil {
		return nil, fmt.Errorf("get_resource: there is no %s %s in namespace %q", q.Kind, q.Name, q.namespace())
	}
	mask, err := newFieldMask(q.FieldMasks)
	if err != nil {
		return nil, fmt.Errorf("get_resource: %w", err)
	}
	return mask.appendTo(nil, object, b), nil
}

func (c *Capabilities) list(b *budget, payload []byte, namespaced bool) ([]byte, error) {
	var q lookup
	kind, err := c.parse(b, payload, &q)
	if err != nil {
		return nil, fmt.Errorf("list resources: %w", err)
	}
	if namespaced == (q.namespace() == "") {
		return nil, fmt.Errorf("list resources: namespace is %q", q.namespace())
	}
	mask, err := newFieldMask(q.FieldMasks)
	if err != nil {
		return nil, fmt.Errorf("list resources: %w", err)
	}
	for _, selector := range []*string{q.LabelSelector, q.FieldSelector} {
		if selector != nil && len(*selector) > maxSelectorBytes {
			return nil, fmt.Errorf("list resources: a selector has %d bytes, more than %d", len(*selector), maxSelectorBytes)
		}
	}
	labelSelector, fieldSelector := labels.Everything(), fields.Everything()
	if q.LabelSelector != nil {
		if labelSelector, err = labels.Parse(*q.LabelSelector); err != nil {
			return nil, fmt.Errorf("list resources: label_selector: %w", err)
		}
	}
	if q.FieldSelector != nil {
		if fieldSelector, err = fields.ParseSelector(*q.FieldSelector); err != nil {
			return nil, fmt.Errorf("list resources: field_selector: %w", err)
		}
	}
	objects, err := c.Cluster.List(b.ctx, kind, q.namespace(), labelSelector, fieldSelector)
	if err != nil {
		return nil, fmt.Errorf("list resources: %w", err)
	}
	list := policy.NewObject(nil)
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
		return nil, fmt.Errorf("list resources: %w", err)
	}
	return list.End(), nil
}

func (c *Capabilities) review(b *budget, payload []byte) ([]byte, error) {
	if c.Cluster == nil {
		return nil, errors.New("can_i: the host has no cluster to look at")
	}
	if len(c.Kinds) == 0 {
		return nil, errors.New("can_i: the policy may see nothing of the cluster: it has no contextAwareResources")
	}
	var q accessQuestion
	if err := b.read(payload, maxQuestionBytes, &q); err != nil {
		return nil, fmt.Errorf("can_i: %w", err)
	}
	spec, err := q.review()
	if err != nil {
		return nil, fmt.Errorf("can_i: %w", err)
	}
	b.work(reviewWork)
	status, err := c.Cluster.Review(b.ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("can_i: %w", err)
	}
	return json.Marshal(status)
}

// accessQuestion is what can_i asks, in the form of Kubewarden's SDKs for Rust and
// JavaScript or, with the spec of a SubjectAccessReview, in that of the one for Go.
type accessQuestion struct {
	Review struct {
		User       string   `json:"user"`
		Groups     []string `json:"groups"`
		Attributes *struct {
			Group       string `json:"group"`
			Name        string `json:"name"`
			Namespace   string `json:"namespace"`
			Resource    string `json:"resource"`
			Subresource string `json:"subresource"`
			Verb        string `json:"verb"`
			Version     string `json:"version"`
		} `json:"resource_attributes"`
	} `json:"subject_access_review"`
	Spec *authorizationv1.SubjectAccessReviewSpec `json:"spec"`
}

func (q *accessQuestion) review() (authorizationv1.SubjectAccessReviewSpec, error) {
	switch a := q.Review.Attributes; {
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
