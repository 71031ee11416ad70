// Package listserver is the part of an API server that an audit needs: discovery, lists in
// pages, gets, watches, both also of one name, and objects that are applied. The objects that it lists are made when
// they are asked for, so that a test may have more of them than memory.
package listserver

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resource is a resource of a Server, with objects 0 to N-1 in the order of their names.
type Resource struct {
	schema.GroupVersionResource
	Kind       string
	Namespaced bool
	// Status reports whether there is a subresource status.
	Status bool
	// Verbs are get, list, watch and create if there are none.
	Verbs []string
	// N is the number of objects, and Object appends object i to dst, in JSON, after as many
	// changes; its metadata begin with %s, where the server puts the resource version:
	//
	//	{"metadata":{%s,"name":"a"}}
	N      int
	Object func(dst []byte, i, changes int) []byte

	versions []int64
	changes  []int
	gone     []bool
	log      []change
	// compacted is the last version that watches cannot begin from any more.
	compacted int64
}

type change struct {
	version int64
	i       int
	kind    string
}

// Server is an http.Handler. It is safe for use by several goroutines.
type Server struct {
	// Fault answers a request in the place of the server if it returns true. It runs with
	// nothing locked; nil never does.
	Fault func(w http.ResponseWriter, r *http.Request) bool
	// Silent leaves the bookmark out that ends what a watch has to tell of the past.
	Silent bool
	// Late is how long a watch tells of nothing.
	Late time.Duration

	mu        sync.Mutex
	version   int64
	changed   chan struct{} // Closed by the next change.
	resources []*Resource
	stored    map[string]json.RawMessage
	requests  map[string]int
}

// New returns a server of resources.
func New(resources ...*Resource) *Server {
	s := &Server{version: 1000, changed: make(chan struct{}), resources: resources, stored: map[string]json.RawMessage{}, requests: map[string]int{}}
	for _, r := range resources {
		r.versions, r.changes, r.gone = make([]int64, r.N), make([]int, r.N), make([]bool, r.N)
		for i := range r.N {
			r.versions[i] = 1 + int64(i)%s.version
		}
	}
	return s
}

// Change makes object i of a resource the one after another change.
func (s *Server) Change(resource string, i int) { s.change(resource, i, "MODIFIED") }

// Touch gives object i of a resource another version, and changes nothing else.
func (s *Server) Touch(resource string, i int) { s.change(resource, i, "TOUCHED") }

// Delete deletes object i of a resource.
func (s *Server) Delete(resource string, i int) { s.change(resource, i, "DELETED") }

func (s *Server) change(resource string, i int, kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.find(func(r *Resource) bool { return r.Resource == resource })
	s.version++
	r.versions[i] = s.version
	switch kind {
	case "MODIFIED":
		r.changes[i]++
	case "TOUCHED":
		kind = "MODIFIED"
	case "DELETED":
		r.gone[i] = true
	}
	r.log = append(r.log, change{s.version, i, kind})
	close(s.changed)
	s.changed = make(chan struct{})
}

// Compact makes watches from the versions until now impossible.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	for _, r := range s.resources {
		r.log, r.compacted = nil, s.version
	}
}

// Requests returns and forgets how often there was a request with a method and a path.
func (s *Server) Requests() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	requests := s.requests
	s.requests = map[string]int{}
	return requests
}

// Stored returns what was applied, by its paths.
func (s *Server) Stored() map[string]json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.stored)
}

func (s *Server) find(is func(r *Resource) bool) *Resource {
	if i := slices.IndexFunc(s.resources, is); i >= 0 {
		return s.resources[i]
	}
	return nil
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	what := r.Method + " " + r.URL.Path
	if r.URL.Query().Get("watch") != "" {
		what = "WATCH " + r.URL.Path
	}
	s.mu.Lock()
	s.requests[what]++
	s.mu.Unlock()
	if s.Fault != nil && s.Fault(w, r) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch r.Method {
	case http.MethodPatch:
		body, err := io.ReadAll(r.Body)
		if err != nil {
			Fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stored[r.URL.Path] = body
		_, _ = w.Write(body)
		return
	case http.MethodDelete:
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.stored, r.URL.Path)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
		return
	}
	switch parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/"); {
	case len(parts) == 1:
		s.groups(w, parts[0])
	case parts[0] == "api" && len(parts) == 2:
		s.discover(w, schema.GroupVersion{Version: parts[1]})
	case parts[0] == "apis" && len(parts) == 3:
		s.discover(w, schema.GroupVersion{Group: parts[1], Version: parts[2]})
	default:
		s.objects(w, r, parts)
	}
}

// Fail answers with a Status.
func Fail(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	FailOn(w, code, reason, message, "")
}

// FailOn is Fail for a list that goes on with a token.
func FailOn(w http.ResponseWriter, code int, reason metav1.StatusReason, message, token string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(&metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, ListMeta: metav1.ListMeta{Continue: token},
		Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	})
}

func (s *Server) groups(w io.Writer, root string) {
	if root == "api" {
		_ = json.NewEncoder(w).Encode(&metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
		return
	}
	list := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for _, r := range s.resources {
		if r.Group == "" {
			continue
		}
		version := metav1.GroupVersionForDiscovery{GroupVersion: r.GroupVersion().String(), Version: r.Version}
		i := slices.IndexFunc(list.Groups, func(g metav1.APIGroup) bool { return g.Name == r.Group })
		if i < 0 {
			list.Groups = append(list.Groups, metav1.APIGroup{Name: r.Group, PreferredVersion: version})
			i = len(list.Groups) - 1
		}
		if !slices.Contains(list.Groups[i].Versions, version) {
			list.Groups[i].Versions = append(list.Groups[i].Versions, version)
		}
	}
	_ = json.NewEncoder(w).Encode(list)
}

func (s *Server) discover(w io.Writer, gv schema.GroupVersion) {
	list := &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String()}
	for _, r := range s.resources {
		if r.GroupVersion() != gv {
			continue
		}
		verbs := r.Verbs
		if verbs == nil {
			verbs = []string{"create", "get", "list", "watch"}
		}
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: r.Resource, Kind: r.Kind, Namespaced: r.Namespaced, Verbs: verbs})
		if r.Status {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: r.Resource + "/status", Kind: r.Kind, Namespaced: r.Namespaced, Verbs: []string{"get", "update"}})
		}
	}
	_ = json.NewEncoder(w).Encode(list)
}

// objects answers requests about a resource and about an object of it.
func (s *Server) objects(w http.ResponseWriter, r *http.Request, parts []string) {
	gv := schema.GroupVersion{Version: parts[1]}
	rest := parts[2:]
	if parts[0] == "apis" {
		gv, rest = schema.GroupVersion{Group: parts[1], Version: parts[2]}, parts[3:]
	}
	namespace := ""
	if len(rest) > 2 && rest[0] == "namespaces" {
		namespace, rest = rest[1], rest[2:]
	}
	s.mu.Lock()
	resource := s.find(func(r *Resource) bool { return r.GroupVersionResource == gv.WithResource(rest[0]) })
	s.mu.Unlock()
	switch {
	case resource == nil && r.URL.Query().Get("watch") != "":
		s.watchStored(w, r)
	case resource == nil:
		s.listStored(w, r.URL.Path)
	case len(rest) == 2:
		s.get(w, resource, namespace, rest[1])
	case r.URL.Query().Get("watch") != "":
		s.watch(w, r, resource)
	default:
		s.list(w, r, resource)
	}
}

// applied returns what was applied to a resource. mu must be held.
func (s *Server) applied(path string) []json.RawMessage {
	resource := path[strings.LastIndexByte(path, '/')+1:]
	list := []json.RawMessage{}
	for _, stored := range slices.Sorted(maps.Keys(s.stored)) {
		if strings.HasSuffix(stored[:strings.LastIndexByte(stored, '/')], "/"+resource) {
			list = append(list, s.stored[stored])
		}
	}
	return list
}

// listStored lists what was applied to a resource.
func (s *Server) listStored(w io.Writer, path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = json.NewEncoder(w).Encode(map[string]any{"kind": "List", "apiVersion": "v1", "metadata": metav1.ListMeta{ResourceVersion: strconv.FormatInt(s.version, 10)}, "items": s.applied(path)})
}

// watchStored sends what was applied to a resource, if a request asks for the initial events, and
// nothing more.
func (s *Server) watchStored(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		for _, object := range s.applied(r.URL.Path) {
			fmt.Fprintf(w, `{"type":"ADDED","object":%s}`+"\n", object)
		}
		fmt.Fprintf(w, `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"%d","annotations":{%q:"true"}}}}`+"\n", s.version, metav1.InitialEventsAnnotationKey)
	}
	s.mu.Unlock()
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// append appends an object as it is now.
func (r *Resource) append(dst []byte, i int, metadataOnly bool) []byte {
	start := len(dst)
	dst = r.Object(dst, i, r.changes[i])
	at := start + strings.Index(string(dst[start:min(len(dst), start+256)]), "%s")
	version := strconv.AppendInt([]byte(`"resourceVersion":"`), r.versions[i], 10)
	dst = slices.Replace(dst, at, at+2, append(version, '"')...)
	if metadataOnly {
		var object struct {
			Metadata json.RawMessage `json:"metadata"`
		}
		_ = json.Unmarshal(dst[start:], &object)
		dst = fmt.Appendf(dst[:start], `{"metadata":%s}`, object.Metadata)
	}
	return dst
}

// selected returns whether the field selector of a query, metadata.name=a, selects object i.
func (r *Resource) selected(q url.Values, i int) bool {
	name, ok := strings.CutPrefix(q.Get("fieldSelector"), "metadata.name=")
	if !ok {
		return true
	}
	var o metav1.PartialObjectMetadata
	return json.Unmarshal(r.append(nil, i, false), &o) == nil && o.Name == name
}

func (s *Server) list(w http.ResponseWriter, r *http.Request, resource *Resource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := r.URL.Query()
	from, version := 0, s.version
	if token := q.Get("continue"); token != "" {
		if _, err := fmt.Sscanf(token, "%d@%d", &from, &version); err != nil {
			Fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "continue: "+err.Error())
			return
		}
	}
	limit, _ := strconv.Atoi(q.Get("limit"))
	metadataOnly := strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadataList")
	var items []byte
	i, n := from, 0
	for ; i < resource.N && (limit == 0 || n < limit); i++ {
		if resource.gone[i] || !resource.selected(q, i) {
			continue
		}
		if n++; n > 1 {
			items = append(items, ',')
		}
		items = resource.append(items, i, metadataOnly)
	}
	next := ""
	if i < resource.N {
		next = fmt.Sprintf("%d@%d", i, version)
	}
	fmt.Fprintf(w, `{"kind":"%sList","apiVersion":"%s","metadata":{"resourceVersion":"%d","continue":"%s"},"items":[`, resource.Kind, resource.GroupVersion(), version, next)
	_, _ = w.Write(items)
	_, _ = io.WriteString(w, "]}\n")
}

func (s *Server) get(w http.ResponseWriter, resource *Resource, namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range resource.N {
		object := resource.append(nil, i, false)
		var o struct {
			Metadata struct{ Namespace, Name string } `json:"metadata"`
		}
		if json.Unmarshal(object, &o) == nil && o.Metadata.Name == name && o.Metadata.Namespace == namespace && !resource.gone[i] {
			_, _ = w.Write(object)
			return
		}
	}
	Fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, name+" not found")
}

// watch tells what has changed since a version or, if a request asks for the initial events, what
// there is, and goes on with changes as they are made.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, resource *Resource) {
	q := r.URL.Query()
	ctx := r.Context()
	if seconds, err := strconv.Atoi(q.Get("timeoutSeconds")); err == nil {
		var stop func()
		ctx, stop = context.WithTimeout(ctx, time.Duration(seconds)*time.Second)
		defer stop()
	}
	since, _ := strconv.ParseInt(q.Get("resourceVersion"), 10, 64)
	initial := q.Get("sendInitialEvents") == "true"
	s.mu.Lock()
	defer s.mu.Unlock()
	var events []byte
	annotations := ""
	if initial {
		since, annotations = s.version, fmt.Sprintf(`,"annotations":{%q:"true"}`, metav1.InitialEventsAnnotationKey)
		for i := range resource.N {
			if !resource.gone[i] && resource.selected(q, i) {
				events = append(resource.append(append(events, `{"type":"ADDED","object":`...), i, false), "}\n"...)
			}
		}
	}
	if since < resource.compacted {
		_, _ = io.WriteString(w, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","message":"too old resource version","reason":"Expired","code":410}}`+"\n")
		return
	}
	if s.Late != 0 {
		s.mu.Unlock()
		w.(http.Flusher).Flush() // The watch has begun.
		select {
		case <-time.After(s.Late):
		case <-ctx.Done():
		}
		s.mu.Lock()
	}
	for bookmark := !s.Silent; ctx.Err() == nil; bookmark = false {
		for _, c := range resource.log {
			if c.version <= since || !resource.selected(q, c.i) {
				continue
			}
			events = fmt.Appendf(events, `{"type":%q,"object":`, c.kind)
			was := resource.versions[c.i]
			resource.versions[c.i] = c.version
			events = append(resource.append(events, c.i, false), "}\n"...)
			resource.versions[c.i] = was
		}
		since = s.version
		if bookmark {
			events = fmt.Appendf(events, `{"type":"BOOKMARK","object":{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"%d"%s}}}`+"\n", resource.Kind, resource.GroupVersion(), since, annotations)
		}
		changed := s.changed
		s.mu.Unlock()
		_, _ = w.Write(events)
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
		events = events[:0]
		select {
		case <-changed:
		case <-ctx.Done():
		}
		s.mu.Lock()
	}
}
