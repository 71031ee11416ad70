package policies_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/kubewarden/capabilities"
	"github.com/kubewasm/kubewasm/host"
)

// Several instances follow objects that change all the time, each at its own pace.
func TestInventoryHammer(t *testing.T) {
	const source = `package p
violation contains {"msg": concat(",", [sprintf("%s=%d", [name, pod.version]) | some name, pod in data.inventory.namespace.a["v1"].Pod])} if true
`
	pods := &objects{}
	cfg := config(t, "p", regoSource(t, "p/violation", source))
	cfg.Cluster, cfg.ContextAwareResources = &keeper{kept: map[string]*objects{"v1/pods": pods}}, []capabilities.Kind{{APIVersion: "v1", Kind: "Pod"}}
	cfg.Limits.Instances = 3
	e := admission.NewEngine(load(t, cfg))
	version := func(n int) []*host.Object {
		var list []*host.Object
		for i := range 5 {
			if n%(i+2) != 0 {
				list = append(list, &host.Object{Namespace: "a", Name: fmt.Sprintf("p%d", i), JSON: fmt.Appendf(nil, `{"version":%d}`, n)})
			}
		}
		return list
	}
	pods.set(nil, version(1)...)
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				// All that a request sees is of one moment.
				got := e.Validate(t.Context(), requestOf(`{}`))
				message := strings.TrimPrefix(got.Result.Message, "p: ")
				var versions []string
				for pair := range strings.SplitSeq(message, ",") {
					if _, v, ok := strings.Cut(pair, "="); ok && !slices.Contains(versions, v) {
						versions = append(versions, v)
					}
				}
				if got.Result.Code != 403 || len(versions) > 1 {
					t.Errorf("answer is %+v", got.Result)
					return
				}
			}
		})
	}
	for n := range 300 {
		pods.set(nil, version(n+1)...)
		if n%20 == 0 {
			e.Validate(t.Context(), requestOf(`{}`))
		}
	}
	close(done)
	wg.Wait()
	var want []string
	for _, o := range version(300) {
		want = append(want, o.Name+"=300")
	}
	got := strings.Split(strings.TrimPrefix(e.Validate(t.Context(), requestOf(`{}`)).Result.Message, "p: "), ",")
	slices.Sort(got)
	if !slices.Equal(got, want) && len(want) != 0 {
		t.Errorf("got %v, want %v", got, want)
	}
}
