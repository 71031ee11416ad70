package apiserver

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

	"github.com/kubewasm/kubewasm/internal/cut"
)

const (
	// maxObject bounds the size of an object: the API server stores at most 1.5 MiB for one.
	maxObject = 4 << 20
	// maxObjects bounds the size of all objects of a collection.
	maxObjects = 64 << 20
	// pageSize is the number of objects in a page of a list, and leastPage that in a page of large
	// ones: a page has at most maxPage bytes.
	pageSize, leastPage = 500, 4
	maxPage             = leastPage * maxObject
	// listTime bounds the time of a list.
	listTime = 10 * time.Second
	// watchTime is the time for which the API server should keep a watch open. watchSlack is the
	// additional time after which an open watch is abandoned, since its machine may be gone.
	watchTime, watchSlack = 5 * time.Minute, 10 * time.Second
	// minBackoff and maxBackoff bound the time before another attempt. All nodes of a cluster
	// lose an API server at once, so the times differ.
	minBackoff, maxBackoff = 500 * time.Millisecond, 30 * time.Second
	// relist is the time within which clients of an API server that has restarted list a collection
	// again.
	relist = 10 * time.Second
)

// Follower follows the objects of a resource. It lists them, and watches from there: a watch that
// breaks off continues where it was, so that clients do not all list when an API server restarts.
type Follower struct {
	Client *Client
	// Path is the path of the resource's collection.
	Path string
	// Name is the name of the only object to follow; empty follows all.
	Name string
	// Set receives all objects after a list, nil if the resource is not installed. After an error
	// they are listed again.
	Set func(ctx context.Context, objects []json.RawMessage) error
	// Keep returns for each list the function that reduces its objects to what Set needs, in their
	// order, or to nothing. It may be nil. If what is kept has more than 64 MiB, nothing is set.
	Keep func() func(object json.RawMessage) json.RawMessage
	// Change receives an object that was created, changed or deleted.
	Change func(ctx context.Context, object json.RawMessage, deleted bool) error
	// Failed receives each error. Calls of the functions are not concurrent.
	Failed func(error)

	// stopped is the time since which the API server has not reported on the objects, in nanoseconds
	// since epoch. It is 0 while it does.
	stopped atomic.Int64
}

// epoch is the time from which a Follower counts, by a monotonic clock.
var epoch = time.Now()

// Silent returns the time for which the API server has not reported on the objects, 0 while it does.
func (f *Follower) Silent() time.Duration {
	since := f.stopped.Load()
	if since == 0 {
		return 0
	}
	return time.Since(epoch) - time.Duration(since)
}

// Run follows the objects until ctx ends, and returns its error.
func (f *Follower) Run(ctx context.Context) error {
	f.stopped.Store(int64(time.Since(epoch)) + 1)
	backoff, version := minBackoff, ""
	for {
		watched := version != ""
		var err error
		version, err = f.follow(ctx, version, func() { watched, backoff = true, minBackoff })
		f.stopped.CompareAndSwap(0, int64(time.Since(epoch))+1)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		f.Failed(err)
		wait := backoff/2 + rand.N(backoff) //nolint:gosec // It spreads load.
		if f.Name == "" && watched && version == "" {
			wait += rand.N(relist) //nolint:gosec // Likewise.
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

// follow watches the objects from a version, or lists them first if it is empty, until the watch
// cannot continue. It calls told when the API server has answered, and returns the version from
// which another watch may continue, empty if a list is needed.
func (f *Follower) follow(ctx context.Context, version string, told func()) (string, error) {
	if version == "" {
		var objects []json.RawMessage
		var err error
		version, objects, err = f.List(ctx)
		var status *StatusError
		if errors.As(err, &status) && status.Code == http.StatusNotFound {
			// A resource that is not installed has no objects.
			return "", errors.Join(err, f.Set(ctx, nil))
		}
		if err == nil {
			err = f.Set(ctx, objects)
		}
		if err != nil {
			return "", err
		}
		told()
		f.stopped.Store(0)
	}
	for {
		start := time.Now()
		next, err := f.watch(ctx, version, func() {
			told()
			f.stopped.Store(0)
		})
		if err != nil {
			return next, err
		}
		version = next
		if time.Since(start) < time.Second {
			return version, errors.New("the API server ends watches at once")
		}
	}
}

// query returns the path with the query of a request.
func (f *Follower) query(more url.Values) string {
	if f.Name != "" {
		more.Set("fieldSelector", "metadata.name="+f.Name)
	}
	return f.Path + "?" + more.Encode()
}

// List returns the objects, and the version of the list.
func (f *Follower) List(ctx context.Context) (version string, objects []json.RawMessage, err error) {
	left, next, limit := maxObjects, "", pageSize
	keep := func(object json.RawMessage) json.RawMessage { return object }
	if f.Keep != nil {
		keep = f.Keep()
	}
	for {
		query := url.Values{}
		if f.Name == "" {
			query.Set("limit", strconv.Itoa(limit))
		}
		if next != "" {
			query.Set("continue", next)
		}
		v, page, more, err := f.page(ctx, query)
		if errors.As(err, new(*tooLongError)) && f.Name == "" && limit > leastPage {
			limit = max(limit/5, leastPage)
			continue
		}
		if err != nil {
			return "", nil, err
		}
		version, next = v, more
		for _, object := range page {
			kept := keep(object)
			if left -= len(kept); left < 0 {
				return "", nil, fmt.Errorf("list %s: %w", f.Path, &tooLongError{maxObjects})
			}
			if len(kept) != 0 {
				objects = append(objects, kept)
			}
		}
		if next == "" {
			return version, objects, nil
		}
	}
}

// page returns a page of a list.
func (f *Follower) page(ctx context.Context, query url.Values) (version string, objects []json.RawMessage, next string, err error) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	resp, err := f.Client.Do(ctx, http.MethodGet, f.query(query), "", nil)
	if err != nil {
		return "", nil, "", err
	}
	defer resp.Body.Close()
	var list struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
			Continue        string `json:"continue"`
		} `json:"metadata"`
		Items []json.RawMessage `json:"items"`
	}
	size := maxPage
	if f.Name != "" {
		size = maxObject
	}
	if err := json.NewDecoder(&bounded{r: resp.Body, left: size, all: size}).Decode(&list); err != nil {
		return "", nil, "", fmt.Errorf("list %s: %w", f.Path, err)
	}
	if list.Metadata.ResourceVersion == "" {
		return "", nil, "", fmt.Errorf("list %s: the list has no resourceVersion", f.Path)
	}
	for _, item := range list.Items {
		if m, err := metaOf(item); f.Name == "" || err == nil && m.Name == f.Name {
			objects = append(objects, item)
		}
	}
	return list.Metadata.ResourceVersion, objects, list.Metadata.Continue, nil
}

// meta holds the metadata of an object that a Follower needs.
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

// watch follows the objects from a version until the API server ends the watch, and returns the
// version from which another watch continues, empty if a list is needed. It calls told when the API
// server has answered.
func (f *Follower) watch(ctx context.Context, version string, told func()) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, watchTime+watchSlack, errors.New("the API server did not end the watch"))
	defer cancel()
	resp, err := f.Client.Do(ctx, http.MethodGet, f.query(url.Values{
		"watch": {"true"}, "resourceVersion": {version}, "allowWatchBookmarks": {"true"}, "timeoutSeconds": {strconv.Itoa(int(watchTime / time.Second))},
	}), "", nil)
	var status *StatusError
	if errors.As(err, &status) && status.Code/100 == 4 && status.Code != http.StatusTooManyRequests {
		return "", err // The version is too old, or rights are missing.
	}
	if err != nil {
		return version, err
	}
	defer resp.Body.Close()
	told()
	body := &bounded{r: resp.Body, all: maxObject}
	for dec := json.NewDecoder(body); ; {
		var event struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		body.left = maxObject
		if err := dec.Decode(&event); errors.Is(err, io.EOF) {
			return version, nil
		} else if err != nil {
			return version, fmt.Errorf("watch %s: %w", f.Path, err)
		}
		if event.Type == "ERROR" {
			return "", fmt.Errorf("watch %s: %s", f.Path, cut.Text(event.Object, 200))
		}
		m, err := metaOf(event.Object)
		if err != nil {
			return "", fmt.Errorf("watch %s: %w", f.Path, err)
		}
		version = m.ResourceVersion
		if f.Name != "" && m.Name != f.Name || event.Type == "BOOKMARK" {
			continue
		}
		if err := f.Change(ctx, event.Object, event.Type == "DELETED"); err != nil {
			f.Failed(err)
		}
	}
}

// bounded returns an error after a number of bytes.
type bounded struct {
	r         io.Reader
	left, all int
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, &tooLongError{b.all}
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// tooLongError is the error of what is longer than a number of bytes.
type tooLongError struct{ bytes int }

func (e *tooLongError) Error() string { return fmt.Sprintf("it has more than %d bytes", e.bytes) }
