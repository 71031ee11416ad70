package clusterplugins_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/internal/apiserver"
	"github.com/kubewasm/kubewasm/internal/clusterplugins"
)

// TestObjectsOfANamespaceFillNothing has namespaces with more and larger objects than there is room
// for. They keep no other from service.
func TestObjectsOfANamespaceFillNothing(t *testing.T) {
	t.Parallel()
	for _, streams := range []bool{true, false} {
		t.Run(fmt.Sprintf("initial events: %t", streams), func(t *testing.T) {
			t.Parallel()
			fillNothing(t, streams)
		})
	}
}

func fillNothing(t *testing.T, streams bool) {
	object := func(namespace, name string, size int) string {
		return fmt.Sprintf(`{"metadata":{"namespace":%q,"name":%q,"uid":"u","generation":1,"annotations":{"a":%q}},"spec":{"guestConfig":%q}}`,
			namespace, name, strings.Repeat("a", min(size, 256<<10)), strings.Repeat("x", size))
	}
	lists := map[string][]string{"clusteradmissionpolicies": {object("", "cluster", 10)}}
	add := func(object string) {
		lists["admissionpolicies"] = append(lists["admissionpolicies"], object)
	}
	for n := range 2 {
		for i := range 40 {
			add(object(fmt.Sprintf("hostile-%d", n), fmt.Sprintf("p-%d", i), 1_400_000))
		}
	}
	for i := range 2_000 {
		add(object("many", fmt.Sprintf("p-%d", i), 1))
	}
	add(object("team", "small", 10))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		all := lists[r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]]
		switch initial := query.Get("sendInitialEvents") != ""; {
		case initial && !streams:
			http.Error(w, "sendInitialEvents is forbidden", http.StatusUnprocessableEntity)
			return
		case initial:
			for _, object := range all {
				fmt.Fprintf(w, `{"type":"ADDED","object":%s}`, object)
			}
			fmt.Fprint(w, `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"1","annotations":{"k8s.io/initial-events-end":"true"}}}}`)
		}
		if query.Get("watch") != "" {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		from, _ := strconv.Atoi(query.Get("continue"))
		limit, _ := strconv.Atoi(query.Get("limit"))
		to, more := min(from+limit, len(all)), ""
		if to < len(all) {
			more = strconv.Itoa(to)
		}
		fmt.Fprintf(w, `{"metadata":{"resourceVersion":"1","continue":%q},"items":[%s]}`, more, strings.Join(all[from:to], ","))
	}))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	applied := make(chan []clusterplugins.Object, 1)
	watch := clusterplugins.New(clusterplugins.Config{
		Client: apiserver.Wrap(server.URL, server.Client()), Resources: []clusterplugins.Resource{clusterplugins.ClusterAdmissionPolicies, clusterplugins.AdmissionPolicies},
		Apply: func(objects []clusterplugins.Object) {
			select {
			case applied <- objects:
			default:
			}
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { watch.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	with, without := map[string]int{}, map[string]int{}
	var objects []clusterplugins.Object
	select {
	case objects = <-applied:
	case <-time.After(2 * time.Minute):
		t.Fatalf("nothing is applied: %v", watch.Err())
	}
	for _, o := range objects {
		switch {
		case o.Spec == nil:
			without[o.Namespace]++
		case !json.Valid(o.Spec):
			t.Errorf("%s has the spec %.100s", o.Plugin(), o.Spec)
		default:
			with[o.Namespace]++
		}
	}
	// 2 specs of a namespace have less than 4 MiB, and 3 have more.
	if with[""] != 1 || with["team"] != 1 || with["many"] == 0 || with["hostile-0"] != 2 || with["hostile-1"] != 2 || without["hostile-0"] != 38 || without["team"] != 0 {
		t.Errorf("the objects with a spec are %v, those without %v", with, without)
	}
}
