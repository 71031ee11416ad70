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
	// listTime bounds the time of a list, answerTime that until the answer to a request for the
	// initial events, and eventTime that between two of them, in which a server that ignores the
	// request sends a bookmark.
	listTime, answerTime, eventTime = 10 * time.Second, 30 * time.Second, 90 * time.Second
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

// Follower follows the objects of a resource by a watch that begins with all of them: a list costs an
// API server more, and thousands of clients that start together keep lists of one another from ending
// in their time. It lists the objects of a server that does not stream them, and single ones. A watch
// that breaks off continues where it was.
type Follower struct {
	Client *Client
	// Path is the path of the resource's collection.
	Path string
	// Name is the name of the only object to follow; empty follows all.
	Name string
	// Set receives all objects when they are first known and when a watch cannot continue, nil if the
	// resource is not installed. After an error they are asked for again.
	Set func(ctx context.Context, objects []json.RawMessage) error
	// Keep returns the function that reduces the objects of a Set to what it needs, in their order,
	// or to nothing. It may be nil. If what is kept has more than 64 MiB, nothing is set.
	Keep func() func(object json.RawMessage) json.RawMessage
	// Change receives an object that was created, changed or deleted.
	Change func(ctx context.Context, object json.RawMessage, deleted bool) error
	// Failed receives each error. Calls of the functions are not concurrent.
	Failed func(error)

	// stopped is the time since which the API server has not reported on the objects, in nanoseconds
	// since epoch. It is 0 while it does.
	stopped atomic.Int64
	// lists is set for a server that does not send initial events.
	lists bool
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

// follow watches the objects from a version, or from their beginning if it is empty, until the watch
// cannot continue. It calls told when the API server has answered, and returns the version from
// which another watch may continue, empty if all objects are needed.
func (f *Follower) follow(ctx context.Context, version string, told func()) (string, error) {
	if version == "" && (f.lists || f.Name != "") {
		var objects []json.RawMessage
		var err error
		version, objects, err = f.List(ctx)
		if err == nil {
			err = f.Set(ctx, objects)
		}
		if err != nil {
			return "", f.missing(ctx, err)
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

// missing reports that there are no objects if err says that the resource is not installed, and returns
// err.
func (f *Follower) missing(ctx context.Context, err error) error {
	var status *StatusError
	if errors.As(err, &status) && status.Code == http.StatusNotFound {
		return errors.Join(err, f.Set(ctx, nil))
	}
	return err
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
	Annotations     struct {
		// End is "true" for the bookmark behind the initial events.
		End string `json:"k8s.io/initial-events-end"`
	} `json:"annotations"`
}

func metaOf(object json.RawMessage) (meta, error) {
	var o struct {
		Metadata meta `json:"metadata"`
	}
	err := json.Unmarshal(object, &o)
	return o.Metadata, err
}

// event is an event of a watch.
type event struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// beginning collects what a watch sends before the end of its initial events: the objects, and the
// events behind the first one that is no object, which are changes of them.
type beginning struct {
	keep    func(json.RawMessage) json.RawMessage
	left    int
	objects []json.RawMessage
	later   []event
}

// add adds an event, and reports whether there is room for it.
func (b *beginning) add(e event) bool {
	if e.Type != "ADDED" || b.later != nil {
		b.later = append(b.later, e)
		b.left -= len(e.Object)
	} else if kept := b.keep(e.Object); len(kept) != 0 {
		b.objects = append(b.objects, kept)
		b.left -= len(kept)
	}
	return b.left >= 0
}

// watch follows the objects from a version, or from the initial events if it is empty, until the API
// server ends the watch, and returns the version from which another watch continues, empty if all
// objects are needed. It calls told when the API server has answered.
func (f *Follower) watch(ctx context.Context, version string, told func()) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, watchTime+watchSlack, errors.New("the API server did not end the watch"))
	defer cancel()
	query := url.Values{"watch": {"true"}, "allowWatchBookmarks": {"true"}, "timeoutSeconds": {strconv.Itoa(int(watchTime / time.Second))}}
	var begin *beginning
	var silent *time.Timer
	if version != "" {
		query.Set("resourceVersion", version)
	} else {
		query.Set("sendInitialEvents", "true")
		query.Set("resourceVersionMatch", "NotOlderThan")
		begin = &beginning{keep: func(object json.RawMessage) json.RawMessage { return object }, left: maxObjects}
		if f.Keep != nil {
			begin.keep = f.Keep()
		}
		of, stop := context.WithCancelCause(ctx)
		silent = time.AfterFunc(answerTime, func() { stop(errors.New("the API server sends no objects")) })
		defer silent.Stop()
		ctx = of
	}
	resp, err := f.Client.Do(ctx, http.MethodGet, f.query(query), "", nil)
	var status *StatusError
	switch {
	case begin != nil && errors.As(err, &status) && (status.Code == http.StatusBadRequest || status.Code == http.StatusUnprocessableEntity):
		f.lists = true
		return "", fmt.Errorf("the API server does not send initial events: %w", err)
	case errors.As(err, &status) && status.Code/100 == 4 && status.Code != http.StatusTooManyRequests:
		if begin != nil {
			err = f.missing(ctx, err)
		}
		return "", err // The version is too old, or rights are missing.
	case err != nil:
		return version, cause(ctx, err)
	}
	defer resp.Body.Close()
	if begin == nil {
		told()
	}
	body := &bounded{r: resp.Body, all: maxObject}
	for dec := json.NewDecoder(body); ; {
		if begin != nil {
			silent.Reset(eventTime)
		}
		var e event
		body.left = maxObject
		if err := dec.Decode(&e); errors.Is(err, io.EOF) {
			return version, nil
		} else if err != nil {
			return version, fmt.Errorf("watch %s: %w", f.Path, cause(ctx, err))
		}
		if e.Type == "ERROR" {
			return "", fmt.Errorf("watch %s: %s", f.Path, cut.Text(e.Object, 200))
		}
		m, err := metaOf(e.Object)
		if err != nil {
			return "", fmt.Errorf("watch %s: %w", f.Path, err)
		}
		switch {
		case begin == nil:
			version = m.ResourceVersion
			f.event(ctx, e, m)
		case e.Type != "BOOKMARK":
			if !begin.add(e) {
				return "", fmt.Errorf("watch %s: %w", f.Path, &tooLongError{maxObjects})
			}
		case m.Annotations.End != "true":
			f.lists = true
			return "", fmt.Errorf("watch %s: the API server does not send initial events", f.Path)
		default:
			silent.Stop()
			if err := f.Set(ctx, begin.objects); err != nil {
				return "", err
			}
			told()
			version = m.ResourceVersion
			for _, e := range begin.later {
				m, _ := metaOf(e.Object) // It was read before.
				f.event(ctx, e, m)
			}
			begin = nil
		}
	}
}

// event passes an event on.
func (f *Follower) event(ctx context.Context, e event, m meta) {
	if f.Name != "" && m.Name != f.Name || e.Type == "BOOKMARK" {
		return
	}
	if err := f.Change(ctx, e.Object, e.Type == "DELETED"); err != nil {
		f.Failed(err)
	}
}

// cause returns the reason for which ctx has ended in the place of err, if it has.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
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
