//go:build amd64 || arm64

package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/plugin"
	"github.com/kubewasm/kubewasm/host/oci"
)

// TestDryLoad pins modules that can be loaded, and no others: what serves serves on.
func TestDryLoad(t *testing.T) {
	w := newWorld(t)
	// asked are the requests for manifests, and for the modules of the registry, by repository.
	var mu sync.Mutex
	asked := map[string]int{}
	count := func(of string) int {
		mu.Lock()
		defer mu.Unlock()
		return asked[of]
	}
	modules := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if part := strings.Split(r.URL.Path, "/"); len(part) > 4 && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			mu.Lock()
			asked[part[4]+" of "+part[3]]++
			mu.Unlock()
		}
		modules.ServeHTTP(out, r)
	}))
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")
	w.registries = oci.Config{
		Registries: []oci.Registry{{Host: address, PlainHTTP: true}}, Trust: []oci.Trust{{Repositories: []string{address + "/acme/*"}, Unsigned: true}},
	}
	pusher, err := oci.New(w.registries)
	if err != nil {
		t.Fatal(err)
	}
	// push pushes a file of the repository with a custom section, or what is no module without a file. It
	// returns the artifact.
	push := func(name, file, section string) string {
		t.Helper()
		module := []byte("\x00asm\x01\x00\x00\x00\xff\x00")
		if file != "" {
			var err error
			if module, err = os.ReadFile("../../" + file); err != nil {
				t.Fatal(err)
			}
		}
		ref, err := oci.ParseReference(address + "/acme/" + name + ":1")
		if err != nil {
			t.Fatal(err)
		}
		if section != "" {
			module = append(module, append([]byte{0, byte(len(section) + 2), byte(len(section))}, section+"."...)...)
		}
		if ref.Digest, err = pusher.Push(t.Context(), ref, module, oci.PushOptions{}); err != nil {
			t.Fatal(err)
		}
		return ref.String()
	}
	const good, hook = "host/testdata/admission.wasm", "sched/testdata/passes.wasm"
	cases := []struct {
		name, kind, good, bad, message string
		object                         client.Object
	}{
		{name: "broken", kind: plugin.ClusterAdmissionPolicy, good: good, message: "section"},
		{name: "other", kind: plugin.AdmissionPolicy, good: good, bad: hook, message: "the guest implements no admission function, only: filter"},
		{name: "grant", kind: plugin.ClusterAdmissionPolicy, good: good, bad: "admission/testdata/asker.wasm", message: `import k8s.io/api.get_object needs the grant "objects"`},
		{name: "loops", kind: plugin.SchedulerPlugin, good: hook, bad: "host/testdata/startloops.wasm", message: "start trapped"},
	}
	resolved := func(o client.Object, status, pinned string) string {
		t.Helper()
		var message string
		eventually(t, "condition of "+o.GetName(), func() error {
			if err := w.admin.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
				return err
			}
			p, _ := plugin.Of(o)
			c, is := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionResolved), "none"
			if c != nil {
				is, message = string(c.Status)+"/"+c.Reason, c.Message
			}
			if p.Status.Pin != nil {
				is += " " + p.Status.Pin.Reference
			}
			if want := strings.TrimSpace(status + " " + pinned); is != want {
				return fmt.Errorf("it is %q, want %q: %s", is, want, message)
			}
			return nil
		})
		return message
	}
	o := w.options()
	o.dryLoad = true
	w.run(t, o)
	first := map[string]string{}
	for i := range cases {
		c := &cases[i]
		first[c.name] = push(c.name, c.good, "")
		c.object = plugin.New(c.kind)
		c.object.SetName(c.name)
		if c.kind == plugin.AdmissionPolicy {
			c.object.SetNamespace("team")
		}
		p, _ := plugin.Of(c.object)
		*p.Raw = spec(`{"module":{"oci":"` + address + `/acme/` + c.name + `:1","follow":true}}`)
		if c.kind == plugin.SchedulerPlugin {
			p.Raw.Raw = []byte(`{"limits":{"fuel":1000000},"module":{"oci":"` + address + `/acme/` + c.name + `:1","follow":true}}`)
		}
		w.create(t, c.object)
	}
	// A plugin that never had a module that can be loaded.
	push("never", "host/testdata/unknownfunction.wasm", "")
	never := &v1alpha1.NodeHook{ObjectMeta: metav1.ObjectMeta{Name: "never"}}
	never.Spec.Raw = []byte(`{"module":{"oci":"` + address + `/acme/never:1"}}`)
	w.create(t, never)
	for _, c := range cases {
		resolved(c.object, "True/Resolved", first[c.name])
	}
	for _, c := range cases {
		push(c.name, c.bad, "")
	}
	for _, c := range cases {
		if message := resolved(c.object, "False/NotLoadable", first[c.name]); !strings.Contains(message, c.message) {
			t.Errorf("%s: the message is %q, want %q", c.name, message, c.message)
		}
	}
	resolved(never, "False/NotLoadable", "")
	// A further attempt asks for the tag, and neither fetches the module nor loads it.
	blobs, manifests := count("blobs of broken"), count("manifests of broken")
	eventually(t, "a further attempt", func() error {
		if count("manifests of broken") == manifests {
			return errors.New("there was none")
		}
		return nil
	})
	if n := count("blobs of broken"); n != blobs || blobs == 0 {
		t.Errorf("the module was fetched %d times, and %d times afterwards", blobs, n-blobs)
	}
	// A change of the object has it loaded again, and another module as well.
	w.change(t, cases[2].object, func() {
		p, _ := plugin.Of(cases[2].object)
		*p.Raw = spec(`{"grants":["objects"],"module":{"oci":"` + address + `/acme/grant:1","follow":true}}`)
	})
	ref, err := oci.ParseReference(address + "/acme/grant:1")
	if err != nil {
		t.Fatal(err)
	}
	if ref.Digest, err = pusher.Resolve(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	resolved(cases[2].object, "True/Resolved", ref.String())
	for _, c := range cases {
		second := push(c.name, c.good, "second")
		resolved(c.object, "True/Resolved", second)
	}
}
