package audit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/kubewasm/kubewasm/internal/json"
)

// client reads objects from an API server as raw parts of its responses, at a bounded rate. After a
// 429, and after a 5xx with Retry-After, it waits as package rest does.
type client struct {
	rest      rest.Interface
	discovery discovery.DiscoveryInterface
	requests  atomic.Int64
}

// newClient returns a client of the API server of config. If config has a RateLimiter, it sets the
// rate.
func newClient(config *rest.Config, qps float32, burst int) (*client, error) {
	c := new(client)
	config = rest.CopyConfig(config)
	if config.RateLimiter == nil {
		config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(qps, burst)
	}
	config.ContentConfig = rest.ContentConfig{
		AcceptContentTypes: "application/json", ContentType: "application/json",
		GroupVersion: &schema.GroupVersion{}, NegotiatedSerializer: scheme.Codecs.WithoutConversion(),
	}
	config.APIPath = "/"
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			c.requests.Add(1)
			return next.RoundTrip(r)
		})
	})
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	if c.rest, err = rest.UnversionedRESTClientForConfigAndClient(config, httpClient); err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	if c.discovery, err = discovery.NewDiscoveryClientForConfigAndClient(config, httpClient); err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	return c, nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// metadataOnly requests lists that contain only metadata.
const metadataOnly = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

// pathOf returns the path of a resource, of all namespaces if namespace is empty.
func pathOf(resource schema.GroupVersionResource, namespace string) string {
	path := "/apis/" + resource.Group + "/" + resource.Version
	if resource.Group == "" {
		path = "/api/" + resource.Version
	}
	if namespace != "" {
		path += "/namespaces/" + namespace
	}
	return path + "/" + resource.Resource
}

// throttledWaits is the number of retries of a request that the API server refused with a 429
// without Retry-After. Package rest waits only if the header is present.
const throttledWaits = 5

// do sends a request made by build and returns the body of the response.
func (c *client) do(ctx context.Context, build func() *rest.Request) ([]byte, error) {
	for n := 0; ; n++ {
		result := build().Do(ctx)
		err := result.Error()
		if err == nil {
			return result.Raw()
		}
		if !apierrors.IsTooManyRequests(err) || n == throttledWaits {
			return nil, err
		}
		wait := time.Second << n
		if seconds, ok := apierrors.SuggestsClientDelay(err); ok && seconds > 0 {
			wait = time.Duration(seconds) * time.Second
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// page is a part of a list.
type page struct {
	// version is the resource version of the list, and next the token of its next page.
	version, next string
	// items are parts of the response.
	items []json.Value
	bytes int
}

// list returns a page of a list. accept is empty for whole objects.
func (c *client) list(ctx context.Context, path, accept, selector string, limit int, next string) (*page, error) {
	body, err := c.do(ctx, func() *rest.Request {
		r := c.rest.Get().AbsPath(path).Param("limit", strconv.Itoa(limit))
		if next != "" {
			r.Param("continue", next)
		}
		if selector != "" {
			r.Param("labelSelector", selector)
		}
		if accept != "" {
			r.SetHeader("Accept", accept)
		}
		return r
	})
	if err != nil {
		return nil, err
	}
	if !json.Valid(body) {
		return nil, fmt.Errorf("the response of %d bytes is not JSON", len(body))
	}
	p := &page{bytes: len(body)}
	for m := json.Object(body); m.Next(); {
		switch m.Key() {
		case "metadata":
			for m := json.Object(m.Value()); m.Next(); {
				switch m.Key() {
				case "resourceVersion":
					p.version = m.Value().String()
				case "continue":
					p.next = m.Value().String()
				}
			}
		case "items":
			for e := json.Array(m.Value()); e.Next(); {
				p.items = append(p.items, e.Value())
			}
		}
	}
	return p, nil
}

// get returns an object, nil if there is none.
func (c *client) get(ctx context.Context, path string) ([]byte, error) {
	body, err := c.do(ctx, func() *rest.Request { return c.rest.Get().AbsPath(path) })
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	case !json.Valid(body):
		return nil, fmt.Errorf("the response of %d bytes is not JSON", len(body))
	}
	return body, nil
}

// event is an event of a watch about an object.
type event struct {
	kind   string // ADDED, MODIFIED, DELETED or BOOKMARK.
	object json.Value
	err    error
}

const (
	// maxEventBytes is the length of the longest event that is read. An API server stores objects
	// of up to 1.5 MiB, and JSON may take six bytes for one.
	maxEventBytes = 16 << 20
	// watchSeconds bounds a watch for changes. An API server sends a bookmark two seconds before
	// it ends one.
	watchSeconds = 4
)

// watch sends the changes of a resource after a version to events, until ctx ends, the API server
// ends the watch or there is an error, and closes events. It calls open when the watch has begun.
func (c *client) watch(ctx context.Context, path, version string, open func(), events chan<- event) {
	defer close(events)
	send := func(e event) bool {
		select {
		case events <- e:
			return true
		case <-ctx.Done():
			return false
		}
	}
	stream, err := c.rest.Get().AbsPath(path).Param("watch", "true").Param("allowWatchBookmarks", "true").
		Param("resourceVersion", version).Param("timeoutSeconds", strconv.Itoa(watchSeconds)).Stream(ctx)
	if err != nil {
		send(event{err: err})
		return
	}
	defer stream.Close()
	open()
	lines := bufio.NewScanner(stream)
	lines.Buffer(make([]byte, 64<<10), maxEventBytes)
	for lines.Scan() {
		e, err := parseEvent(append([]byte{}, lines.Bytes()...))
		if err != nil {
			send(event{err: err})
			return
		}
		if !send(e) {
			return
		}
	}
	if err := lines.Err(); err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, io.ErrUnexpectedEOF) {
		send(event{err: err})
	}
}

// parseEvent reads an event of a watch. An event of type ERROR becomes a StatusError.
func parseEvent(line []byte) (e event, err error) {
	if !json.Valid(line) {
		return event{}, fmt.Errorf("an event of %d bytes is not JSON", len(line))
	}
	for m := json.Object(line); m.Next(); {
		switch m.Key() {
		case "type":
			e.kind = m.Value().String()
		case "object":
			e.object = m.Value()
		}
	}
	switch e.kind {
	case "ADDED", "MODIFIED", "DELETED", "BOOKMARK":
		return e, nil
	case "ERROR":
		status := metav1.Status{Status: metav1.StatusFailure}
		for m := json.Object(e.object); m.Next(); {
			switch m.Key() {
			case "message":
				status.Message = m.Value().String()
			case "reason":
				status.Reason = metav1.StatusReason(m.Value().String())
			case "code":
				code, _ := m.Value().Int64()
				status.Code = int32(code)
			}
		}
		return event{}, &apierrors.StatusError{ErrStatus: status}
	}
	return event{}, fmt.Errorf("an event has type %.20q", e.kind)
}

// expired reports whether an API server no longer has the version named by a request.
func expired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// goOn returns the token that continues an expired list with the current objects, empty if the API
// server gives none.
func goOn(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Continue
	}
	return ""
}
