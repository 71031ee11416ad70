package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/apiserver"
	"github.com/kubewasm/kubewasm/internal/cut"
	"github.com/kubewasm/kubewasm/internal/lograte"
)

const (
	// queuedEvents bounds the waiting refusals, and knownEvents those whose Event is updated.
	queuedEvents, knownEvents = 64, 1024
	// eventBurst and eventEvery bound the requests to the API server.
	eventBurst = 25
	eventEvery = 5 * time.Second
	// eventAgain is the shortest interval between updates of one Event.
	eventAgain = time.Minute
	// maxMessage is the maximum length of a message in the API server, in bytes.
	maxMessage = 1024
)

// events writes an Event on a Pod when a plugin refuses it or a container of it. It is the Observer
// of an engine; Run writes the observed refusals. No decision waits for it: refusals beyond the
// rate limit are counted and dropped.
type events struct {
	client *apiserver.Client
	node   string
	logger *slog.Logger
	queue  chan refusal
	// known holds the written Events by subject, plugin and cause.
	known map[refusalKey]*knownEvent
	pace  pace

	written, dropped, failed atomic.Uint64
}

var _ hooks.Observer = (*events)(nil)

// refusalKey identifies the refusals of one Event.
type refusalKey struct {
	pod                      hookmsg.PodMeta
	container, plugin, cause string
}

type refusal struct {
	refusalKey
	stage   abi.Stage
	message string
	at      time.Time
}

// knownEvent is an Event that was written.
type knownEvent struct {
	name    string
	count   int32
	first   time.Time
	written time.Time
}

// pace is a bucket of tokens for requests.
type pace struct {
	tokens float64
	at     time.Time
}

func (p *pace) take(now time.Time) bool {
	if !p.at.IsZero() {
		p.tokens = min(eventBurst, p.tokens+float64(now.Sub(p.at))/float64(eventEvery))
	}
	p.at = now
	if p.tokens < 1 {
		return false
	}
	p.tokens--
	return true
}

func newEvents(cfg apiserver.Config, node string, logger *slog.Logger) (*events, error) {
	client, err := apiserver.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("events: %w", err)
	}
	return &events{
		client: client, node: node, logger: lograte.Logger(logger, lograte.New(lograte.DefaultBytes)), queue: make(chan refusal, queuedEvents),
		known: map[refusalKey]*knownEvent{}, pace: pace{tokens: eventBurst},
	}, nil
}

// refusable reports whether an error at a stage stops the runtime.
func refusable(stage abi.Stage) bool {
	switch stage {
	case abi.PreRunPodSandbox, abi.PreCreateContainer, abi.PreStartContainer, abi.PreUpdateContainerResources:
		return true
	}
	return false
}

// Failed implements [hooks.Observer].
func (e *events) Failed(_ context.Context, req *hookmsg.Request, plugin string, _ host.FailurePolicy, refused bool, err error) {
	if !refused || !refusable(req.Stage) || req.Pod.Namespace == "" || req.Pod.Name == "" {
		return
	}
	r := refusal{
		refusalKey: refusalKey{pod: req.Pod, container: req.Container.Name, plugin: plugin, cause: hooks.CauseOf(err)},
		stage:      req.Stage, message: cut.Marked(err.Error(), maxMessage), at: time.Now(),
	}
	select {
	case e.queue <- r:
	default:
		e.dropped.Add(1)
	}
}

// Decided implements [hooks.Observer].
func (*events) Decided(context.Context, *hookmsg.Request, time.Duration, *hookmsg.Decision, error) {}

// Monitored implements [hooks.Observer].
func (*events) Monitored(context.Context, *hookmsg.Request, string, *hookmsg.Decision) {}

// Run writes Events until ctx ends.
func (e *events) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case r := <-e.queue:
			e.handle(ctx, r)
		}
	}
}

// handle writes the Event of a refusal, or counts it for the next time.
func (e *events) handle(ctx context.Context, r refusal) {
	k := e.known[r.refusalKey]
	if k == nil {
		if len(e.known) >= knownEvents {
			e.forgetOldest()
		}
		k = &knownEvent{first: r.at}
		e.known[r.refusalKey] = k
	}
	k.count++
	if !k.written.IsZero() && r.at.Sub(k.written) < eventAgain || !e.pace.take(time.Now()) {
		e.dropped.Add(1)
		return
	}
	if err := e.write(ctx, r, k); err != nil {
		e.failed.Add(1)
		if ctx.Err() == nil {
			e.logger.Warn("the Event of a refusal was not written", slog.String("pod", r.pod.Namespace+"/"+r.pod.Name), slog.Any("err", err))
		}
		return
	}
	e.written.Add(1)
}

func (e *events) forgetOldest() {
	var oldest refusalKey
	var at time.Time
	for key, k := range e.known {
		if last := cmp.Or(k.written, k.first); at.IsZero() || last.Before(at) {
			oldest, at = key, last
		}
	}
	delete(e.known, oldest)
}

// errNoEvent reports that an Event has expired: an API server keeps Events for an hour.
var errNoEvent = errors.New("the Event is gone")

// write updates the Event of earlier refusals, or creates one.
func (e *events) write(ctx context.Context, r refusal, k *knownEvent) error {
	message := cut.Marked(fmt.Sprintf("runtime hook %q refused %s (%s): %s", cut.Text(r.plugin, 200), r.what(), r.cause, r.message), maxMessage)
	of := "/api/v1/namespaces/" + url.PathEscape(r.pod.Namespace) + "/events"
	if k.name != "" {
		err := e.send(ctx, http.MethodPatch, of+"/"+url.PathEscape(k.name), "application/merge-patch+json", map[string]any{
			"count": k.count, "lastTimestamp": metav1.NewTime(r.at), "message": message,
		})
		if !errors.Is(err, errNoEvent) {
			if err == nil {
				k.written = r.at
			}
			return err
		}
		*k = knownEvent{count: 1, first: r.at}
	}
	name := fmt.Sprintf("%s.%x", r.pod.Name, r.at.UnixNano()) // The form of client-go.
	err := e.send(ctx, http.MethodPost, of, "application/json", &corev1.Event{
		TypeMeta:       metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta:     metav1.ObjectMeta{Namespace: r.pod.Namespace, Name: name},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: r.pod.Namespace, Name: r.pod.Name, UID: types.UID(r.pod.UID)},
		Reason:         "RefusedByRuntimeHook", Message: message, Type: corev1.EventTypeWarning, Count: k.count,
		Source:         corev1.EventSource{Component: component, Host: e.node},
		FirstTimestamp: metav1.NewTime(k.first), LastTimestamp: metav1.NewTime(r.at), ReportingController: component, ReportingInstance: e.node,
	})
	if err == nil {
		k.name, k.written = name, r.at
	}
	return err
}

const component = "kubewasm-agent"

// what returns the name of a refusal's subject.
func (r *refusal) what() string {
	subject := "the pod"
	if r.container != "" {
		subject = fmt.Sprintf("container %q", cut.Text(r.container, 200))
	}
	if r.stage == abi.PreUpdateContainerResources {
		return "an update of the resources of " + subject
	}
	return subject
}

// eventTime bounds a request to the API server.
const eventTime = 10 * time.Second

// send sends an object to the API server.
func (e *events) send(ctx context.Context, method, path, contentType string, object any) error {
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, eventTime)
	defer cancel()
	resp, err := e.client.Do(ctx, method, path, contentType, body)
	var status *apiserver.StatusError
	switch {
	case errors.As(err, &status) && status.Code == http.StatusNotFound && method == http.MethodPatch:
		return errNoEvent
	case err != nil:
		return err
	}
	// A connection is reused once its answer is read.
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	return errors.Join(err, resp.Body.Close())
}

// observers combines several observers into one.
type observers []hooks.Observer

func (o observers) Decided(ctx context.Context, req *hookmsg.Request, took time.Duration, d *hookmsg.Decision, err error) {
	for _, each := range o {
		each.Decided(ctx, req, took, d, err)
	}
}

func (o observers) Failed(ctx context.Context, req *hookmsg.Request, plugin string, policy host.FailurePolicy, refused bool, err error) {
	for _, each := range o {
		each.Failed(ctx, req, plugin, policy, refused, err)
	}
}

func (o observers) Monitored(ctx context.Context, req *hookmsg.Request, plugin string, d *hookmsg.Decision) {
	for _, each := range o {
		each.Monitored(ctx, req, plugin, d)
	}
}
