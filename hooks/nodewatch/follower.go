package nodewatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/kubewasm/kubewasm/internal/apiserver"
	"github.com/kubewasm/kubewasm/internal/cut"
)

const (
	// maxObject bounds the size of an object: the API server stores at most 1.5 MiB for one.
	maxObject = 4 << 20
	// listTime bounds the time of a list.
	listTime = 10 * time.Second
	// watchTime is the time for which the API server should keep a watch open. watchSlack is the
	// additional time after which an open watch is abandoned, since its machine may be gone.
	watchTime, watchSlack = 5 * time.Minute, 10 * time.Second
	// minBackoff and maxBackoff bound the time before another attempt. All nodes of a cluster
	// lose an API server at once, so the times differ.
	minBackoff, maxBackoff = 500 * time.Millisecond, 30 * time.Second
)

// follower follows the object of a resource with a name.
type follower struct {
	client *apiserver.Client
	// path is the path of the resource's collection.
	path, name string
	// apply receives the current object, nil if there is none, and failed each error. Calls are not
	// concurrent.
	apply  func(context.Context, json.RawMessage) error
	failed func(error)

	// stopped is the time since which the API server has not reported on the object, in nanoseconds
	// since epoch. It is 0 while it does.
	stopped atomic.Int64
}

// epoch is the time from which a follower counts, by a monotonic clock.
var epoch = time.Now()

// silent returns the time for which the API server has not reported on the object.
func (f *follower) silent() time.Duration {
	since := f.stopped.Load()
	if since == 0 {
		return 0
	}
	return time.Since(epoch) - time.Duration(since)
}

// run follows the object until ctx ends, and returns its error.
func (f *follower) run(ctx context.Context) error {
	f.stopped.Store(int64(time.Since(epoch)) + 1)
	backoff := minBackoff
	for {
		err := f.follow(ctx, func() { backoff = minBackoff })
		f.stopped.CompareAndSwap(0, int64(time.Since(epoch))+1)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		f.failed(err)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(backoff/2 + rand.N(backoff)): //nolint:gosec // It spreads load.
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

// follow lists the object and watches it from there, until the watch cannot continue. It calls told
// when the API server has answered.
func (f *follower) follow(ctx context.Context, told func()) error {
	version, object, err := f.list(ctx)
	var status *apiserver.StatusError
	if err == nil || errors.As(err, &status) && status.Code == http.StatusNotFound {
		// A resource that is not installed has no object.
		err = errors.Join(err, f.apply(ctx, object))
	}
	if err != nil && (object != nil || version == "") {
		return err
	}
	if err != nil {
		f.failed(err) // The object may be created later.
	}
	told()
	f.stopped.Store(0)
	for {
		start := time.Now()
		if version, err = f.watch(ctx, version); err != nil {
			return err
		}
		if time.Since(start) < time.Second {
			return errors.New("the API server ends watches at once")
		}
	}
}

// selector is the query of all requests.
func (f *follower) selector(more url.Values) string {
	more.Set("fieldSelector", "metadata.name="+f.name)
	return f.path + "?" + more.Encode()
}

// list returns the version of the list, and the object, nil if there is none.
func (f *follower) list(ctx context.Context) (version string, object json.RawMessage, err error) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	resp, err := f.client.Do(ctx, http.MethodGet, f.selector(url.Values{}), "", nil)
	if err != nil {
		return "", nil, err
	}
	defer resp.Body.Close()
	var list struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
		Items []json.RawMessage `json:"items"`
	}
	if err := json.NewDecoder(&bounded{r: resp.Body, left: maxObject}).Decode(&list); err != nil {
		return "", nil, fmt.Errorf("list %s: %w", f.path, err)
	}
	if list.Metadata.ResourceVersion == "" {
		return "", nil, fmt.Errorf("list %s: the list has no resourceVersion", f.path)
	}
	for _, item := range list.Items {
		if m, err := metaOf(item); err == nil && m.Name == f.name {
			return list.Metadata.ResourceVersion, item, nil
		}
	}
	return list.Metadata.ResourceVersion, nil, nil
}

// meta holds the metadata of an object that a follower needs.
type meta struct {
	Name            string `json:"name"`
	ResourceVersion string `json:"resourceVersion"`
}

func metaOf(object json.RawMessage) (meta, error) {
	var o struct {
		Metadata meta `json:"metadata"`
	}
	err := json.Unmarshal(object, &o)
	return o.Metadata, err
}

// watch follows the object from a version until the API server ends the watch, and returns the
// version from which another watch continues. After an error, a list is needed.
func (f *follower) watch(ctx context.Context, version string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, watchTime+watchSlack, errors.New("the API server did not end the watch"))
	defer cancel()
	resp, err := f.client.Do(ctx, http.MethodGet, f.selector(url.Values{
		"watch": {"true"}, "resourceVersion": {version}, "allowWatchBookmarks": {"true"}, "timeoutSeconds": {strconv.Itoa(int(watchTime / time.Second))},
	}), "", nil)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body := &bounded{r: resp.Body}
	for dec := json.NewDecoder(body); ; {
		var event struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		body.left = maxObject
		if err := dec.Decode(&event); errors.Is(err, io.EOF) {
			return version, nil
		} else if err != nil {
			return "", fmt.Errorf("watch %s: %w", f.path, err)
		}
		if event.Type == "ERROR" {
			return "", fmt.Errorf("watch %s: %s", f.path, cut.Text(event.Object, 200))
		}
		m, err := metaOf(event.Object)
		if err != nil {
			return "", fmt.Errorf("watch %s: %w", f.path, err)
		}
		version = m.ResourceVersion
		if m.Name != f.name || event.Type == "BOOKMARK" {
			continue
		}
		object := event.Object
		if event.Type == "DELETED" {
			object = nil
		}
		if err := f.apply(ctx, object); err != nil {
			f.failed(err)
		}
	}
}

// bounded returns an error after a number of bytes.
type bounded struct {
	r    io.Reader
	left int
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, fmt.Errorf("an object has more than %d bytes", maxObject)
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
