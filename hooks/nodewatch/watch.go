package nodewatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/internal/apiserver"
	"github.com/kubewasm/kubewasm/internal/lograte"
	"github.com/kubewasm/kubewasm/internal/objects/lookup"
)

// Config configures a Watch.
type Config struct {
	// Name is the name of the Node object. Required.
	Name string
	// URL is the URL of the API server. The default comes from the environment variables of each
	// container.
	URL string
	// TokenFile and CAFile default to those of the Pod's service account. Both are read again for
	// each request and connection.
	TokenFile, CAFile string
	// Sys is the directory of the kernel's sysfs, for the node's topology: "/sys". It is read when
	// the node is first known and when its capacity has changed. If it is empty, or cannot be read,
	// which is logged, the topology is left out.
	Sys string
	// Set receives the node when it is first known, and whenever its name, labels, annotations,
	// capacity or allocatable resources have changed. Calls are not concurrent. Required;
	// [hooks.Engine.SetNode] is one.
	Set func(ctx context.Context, node *hookmsg.Node)
	// Objects are the resources of which the object with the name of the node is also followed:
	// "slo.koordinator.sh/v1alpha1/nodeslos". They have no namespace.
	Objects []string
	// SetObject receives such an object in JSON, without managedFields, when it is first known and
	// whenever it has changed; nil if there is none or the resource is not installed. Calls may be
	// concurrent. Required with Objects; [hooks.Engine.SetObject] is one.
	SetObject func(resource, name string, object []byte) error
	// Logger receives failures; nil drops them.
	Logger *slog.Logger
}

// Watch follows a Node. It is safe for use by several goroutines.
type Watch struct {
	cfg  Config
	node *apiserver.Follower
	// objects holds the followers of other objects.
	objects []*apiserver.Follower
	// known is closed once the node is known, and the state of each object; missing is the number
	// of unknown ones.
	known   chan struct{}
	missing atomic.Int64

	mu   sync.Mutex
	last *hookmsg.Node
	// failure is the reason that the API server does not report on the node, nil while it does.
	failure error
}

// New validates the configuration. It sends no request.
func New(cfg Config) (*Watch, error) {
	var errs []error
	if cfg.Name == "" {
		errs = append(errs, errors.New("the name of the node is missing"))
	}
	if cfg.Set == nil {
		errs = append(errs, errors.New("set is missing"))
	}
	if len(cfg.Objects) != 0 && cfg.SetObject == nil {
		errs = append(errs, errors.New("setObject is missing"))
	}
	client, err := apiserver.New(apiserver.Config{URL: cfg.URL, TokenFile: cfg.TokenFile, CAFile: cfg.CAFile})
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Logger = lograte.Logger(cfg.Logger, lograte.New(lograte.DefaultBytes))
	w := &Watch{cfg: cfg, known: make(chan struct{})}
	w.node = follow(&apiserver.Follower{Client: client, Path: "/api/v1/nodes", Name: cfg.Name, Failed: w.failed}, w.apply)
	for _, resource := range cfg.Objects {
		f, err := w.object(client, resource)
		if err != nil {
			return nil, fmt.Errorf("node: %w", err)
		}
		w.objects = append(w.objects, f)
	}
	w.missing.Store(int64(len(w.objects)) + 1)
	return w, nil
}

// follow completes a follower of one object. apply receives the current object, nil if there is none.
func follow(f *apiserver.Follower, apply func(context.Context, json.RawMessage) error) *apiserver.Follower {
	f.Set = func(ctx context.Context, objects []json.RawMessage) error {
		if len(objects) != 0 {
			return apply(ctx, objects[0])
		}
		if err := apply(ctx, nil); err != nil {
			f.Failed(err) // The object may be created later.
		}
		return nil
	}
	f.Change = func(ctx context.Context, object json.RawMessage, deleted bool) error {
		if deleted {
			object = nil
		}
		return apply(ctx, object)
	}
	return f
}

// object returns a follower of the object of a resource.
func (w *Watch) object(client *apiserver.Client, resource string) (*apiserver.Follower, error) {
	of, err := lookup.ParseResource(resource)
	if err != nil {
		return nil, err
	}
	path := "/api/" + of.Version + "/" + of.Resource
	if of.Group != "" {
		path = "/apis/" + of.Group + "/" + of.Version + "/" + of.Resource
	}
	first, last := true, ""
	failed := func(err error) {
		if err.Error() != last {
			w.cfg.Logger.Warn("the API server does not send the object of the node", slog.String("kind", resource), slog.Any("err", err))
		}
		last = err.Error()
	}
	return follow(&apiserver.Follower{Client: client, Path: path, Name: w.cfg.Name, Failed: failed}, func(_ context.Context, raw json.RawMessage) error {
		object, err := strip(raw)
		if err == nil {
			err = w.cfg.SetObject(resource, w.cfg.Name, object)
		}
		if err != nil {
			return err
		}
		if last != "" {
			w.cfg.Logger.Info("the API server sends the object of the node again", slog.String("kind", resource))
		}
		if last = ""; first {
			first = false
			w.learn()
		}
		return nil
	}), nil
}

// strip returns an object without its managedFields, nil for none.
func strip(raw json.RawMessage) ([]byte, error) {
	if raw == nil {
		return nil, nil
	}
	var object, metadata map[string]json.RawMessage
	err := json.Unmarshal(raw, &object)
	if err == nil {
		err = json.Unmarshal(object["metadata"], &metadata)
	}
	if err != nil {
		return nil, fmt.Errorf("read an object of the node: %w", err)
	}
	delete(metadata, "managedFields")
	if object["metadata"], err = json.Marshal(metadata); err != nil {
		return nil, err
	}
	return json.Marshal(object)
}

// learn records that the node, or an object, is known.
func (w *Watch) learn() {
	if w.missing.Add(-1) == 0 {
		close(w.known)
	}
}

// Run follows the Node until ctx ends, and returns its error. It may be called once.
func (w *Watch) Run(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	for _, f := range w.objects {
		all.Go(func() { _ = f.Run(ctx) }) // The error is that of ctx.
	}
	return w.node.Run(ctx)
}

// Get asks the API server for the Node once, and returns it without its topology. The Watch does
// not change.
func (w *Watch) Get(ctx context.Context) (*hookmsg.Node, error) {
	_, found, err := w.node.List(ctx)
	if err == nil && len(found) == 0 {
		err = w.noNode()
	}
	if err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	return decode(found[0])
}

// Check requests the Node from the API server once, and returns the reason if it cannot be read.
func (w *Watch) Check(ctx context.Context) error {
	_, found, err := w.node.List(ctx)
	if err == nil && len(found) == 0 {
		err = w.noNode()
	}
	errs := []error{err}
	for _, f := range w.objects {
		_, _, err := f.List(ctx)
		var status *apiserver.StatusError
		if !errors.As(err, &status) || status.Code != http.StatusNotFound {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("node: %w", err)
	}
	return nil
}

func (w *Watch) noNode() error { return fmt.Errorf("there is no Node %q", w.cfg.Name) }

// Wait returns when the node and the state of its objects are known, or with the error of ctx.
func (w *Watch) Wait(ctx context.Context) error {
	select {
	case <-w.known:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Ready returns the reason that the node is not known, nil once it is.
func (w *Watch) Ready() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last != nil {
		return nil
	}
	if w.failure != nil {
		return fmt.Errorf("node: it is unknown so far: %w", w.failure)
	}
	return errors.New("node: it is unknown so far")
}

// Healthy returns nil, since a restart does not help if the API server does not answer.
func (*Watch) Healthy() error { return nil }

// Since returns the time for which the API server has not reported on the node, 0 while it does.
func (w *Watch) Since() time.Duration { return w.node.Silent() }

// object is the part of a Node that hooks see.
type object struct {
	Metadata struct {
		Name        string            `json:"name"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Status struct {
		Capacity    map[string]string `json:"capacity"`
		Allocatable map[string]string `json:"allocatable"`
	} `json:"status"`
}

// decode reads a Node, without its topology.
func decode(raw json.RawMessage) (*hookmsg.Node, error) {
	var o object
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, fmt.Errorf("read Node: %w", err)
	}
	return &hookmsg.Node{
		Name: o.Metadata.Name, Labels: o.Metadata.Labels, Annotations: o.Metadata.Annotations, Capacity: o.Status.Capacity, Allocatable: o.Status.Allocatable,
	}, nil
}

func (w *Watch) failed(err error) {
	w.mu.Lock()
	again := w.failure != nil && w.failure.Error() == err.Error()
	w.failure = err
	w.mu.Unlock()
	if !again {
		w.cfg.Logger.Warn("the API server does not send the node", slog.String("name", w.cfg.Name), slog.Any("err", err))
	}
}

// apply receives the current Node, nil if there is none.
func (w *Watch) apply(ctx context.Context, raw json.RawMessage) error {
	if raw == nil {
		// The kubelet creates a deleted Node again; nothing else has changed.
		return w.noNode()
	}
	node, err := decode(raw)
	if err != nil {
		return err
	}
	if last := w.last; last != nil && maps.Equal(last.Capacity, node.Capacity) {
		node.Topology = last.Topology
	} else if w.cfg.Sys != "" {
		if node.Topology, err = readTopology(w.cfg.Sys); err != nil {
			w.cfg.Logger.Warn("the topology of the node is unavailable to plugins", slog.Any("err", err))
		}
	}
	w.mu.Lock()
	first, same := w.last == nil, reflect.DeepEqual(w.last, node)
	w.last = node
	if w.failure != nil {
		w.failure = nil
		w.cfg.Logger.Info("the API server sends the node again", slog.String("name", w.cfg.Name))
	}
	w.mu.Unlock()
	if same {
		return nil // A heartbeat.
	}
	w.cfg.Set(ctx, node)
	if first {
		w.learn()
	}
	return nil
}
