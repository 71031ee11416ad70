package clusterplugins_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/internal/apiserver"
	"github.com/kubewasm/kubewasm/internal/clusterplugins"
	"github.com/kubewasm/kubewasm/internal/testkit/listserver"
)

// texts is an API server with a NodeHook, an AdmissionPolicy, a Secret and a ConfigMap.
type texts struct {
	*listserver.Server
	objects map[string]*atomic.Pointer[string]
	refuses atomic.Bool
	applied chan []clusterplugins.Object
	secrets clusterplugins.Secrets
}

// newTexts follows the plugins of an API server until the test ends.
func newTexts(t *testing.T) *texts {
	t.Helper()
	s := &texts{objects: map[string]*atomic.Pointer[string]{}, applied: make(chan []clusterplugins.Object, 64)}
	var resources []*listserver.Resource
	for _, of := range []struct{ group, resource, kind, metadata string }{
		{"kubewasm.dev", "nodehooks", "NodeHook", `"name":"hook"`},
		{"kubewasm.dev", "admissionpolicies", "AdmissionPolicy", `"name":"policy","namespace":"shop"`},
		{"", "secrets", "Secret", `"name":"s","namespace":"shop"`},
		{"", "configmaps", "ConfigMap", `"name":"c","namespace":"shop"`},
	} {
		object := new(atomic.Pointer[string])
		object.Store(new(`"spec":{}`))
		s.objects[of.resource] = object
		version := "v1"
		if of.group != "" {
			version = "v1alpha1"
		}
		resources = append(resources, &listserver.Resource{
			GroupVersionResource: schema.GroupVersionResource{Group: of.group, Version: version, Resource: of.resource}, Kind: of.kind, Namespaced: true, N: 1,
			Object: func(dst []byte, _, changes int) []byte {
				return fmt.Appendf(dst, `{"metadata":{%%s,%s,"uid":"u","generation":%d},%s}`, of.metadata, changes+1, *object.Load())
			},
		})
	}
	s.Server = listserver.New(resources...)
	s.Fault = func(w http.ResponseWriter, r *http.Request) bool {
		refuses := s.refuses.Load() && strings.HasSuffix(r.URL.Path, "/secrets")
		if refuses {
			listserver.Fail(w, http.StatusForbidden, "Forbidden", "secrets is forbidden")
		}
		return refuses
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	watch := clusterplugins.New(clusterplugins.Config{
		Client: apiserver.Wrap(server.URL, server.Client()), Name: "node", Secrets: &s.secrets, Logger: slog.New(slog.DiscardHandler),
		Resources: []clusterplugins.Resource{clusterplugins.NodeHooks, clusterplugins.AdmissionPolicies},
		Apply:     func(objects []clusterplugins.Object) { s.applied <- objects },
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	running.Go(func() { watch.Run(ctx) })
	return s
}

// put changes an object, the members after its metadata.
func (s *texts) put(resource, members string) {
	s.objects[resource].Store(&members)
	s.Change(resource, 0)
}

// data is a Secret with a text under the key k.
func data(text string) string {
	return fmt.Sprintf(`"data":{"k":%q}`, base64.StdEncoding.EncodeToString([]byte(text)))
}

// until waits until the settings of a kind are as wanted: the spec, or a part of the error.
func (s *texts) until(t *testing.T, kind, want string) (is clusterplugins.Object) {
	t.Helper()
	deadline := time.After(time.Minute)
	last := "nothing"
	for {
		select {
		case objects := <-s.applied:
			for i := range objects {
				if objects[i].Kind != kind {
					continue
				}
				spec, err := objects[i].Settings()
				if last = string(spec); err != nil {
					last = err.Error()
				}
				if last == want || err != nil && strings.Contains(last, want) {
					return objects[i]
				}
			}
		case <-deadline:
			t.Fatalf("the settings are %s, want %s", last, want)
		}
	}
}

// TestGuestConfigFrom holds what guestConfigFrom gives a plugin, when, and what it refuses.
func TestGuestConfigFrom(t *testing.T) {
	t.Parallel()
	s := newTexts(t)
	from := func(members, list string) string {
		return fmt.Sprintf(`"spec":{"module":{"oci":"a:1"},%s"guestConfigFrom":[%s]}`, members, list)
	}
	const secret, config = `{"secret":{"namespace":"shop","name":"s","key":"k"}`, `{"configMap":{"namespace":"shop","name":"c","key":"k"}`
	s.put("secrets", data(`{"token":"hunter22"}`))
	s.put("configmaps", `"data":{"k":"a text"}`)

	// The whole, and members.
	s.put("nodehooks", from("", secret+`}`))
	s.until(t, "NodeHook", `{"guestConfig":{"token":"hunter22"},"module":{"oci":"a:1"}}`)
	s.put("nodehooks", from("", config+`}`))
	kept := s.until(t, "NodeHook", `{"guestConfig":"a text","module":{"oci":"a:1"}}`)
	s.put("nodehooks", from(`"guestConfig":{"a":1},`, config+`,"member":"b"},`+secret+`,"member":"c"}`))
	before := s.until(t, "NodeHook", `{"guestConfig":{"a":1,"b":"a text","c":"{\"token\":\"hunter22\"}"},"module":{"oci":"a:1"}}`)

	// A change of the Secret counts at once, and is another version for processes.
	s.put("secrets", data("other-password"))
	after := s.until(t, "NodeHook", `{"guestConfig":{"a":1,"b":"a text","c":"other-password"},"module":{"oci":"a:1"}}`)
	if before.Generation != after.Generation || before.Serves(&after) || !after.Same(&after) {
		t.Errorf("generations %d and %d; the processes that serve one serve the other: %v", before.Generation, after.Generation, before.Serves(&after))
	}
	// What is kept over a restart has texts of ConfigMaps alone.
	for object, want := range map[*clusterplugins.Object]string{&kept: `{"guestConfig":"a text","module":{"oci":"a:1"}}`, &after: "has not sent the texts"} {
		text, err := json.Marshal(object)
		var again clusterplugins.Object
		if err := errors.Join(err, json.Unmarshal(text, &again)); err != nil {
			t.Fatal(err)
		}
		spec, err := again.Settings()
		if bytes.Contains(text, []byte("password")) || string(spec) != want && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("kept is %s, with the settings %s and the error %v, want %s", text, spec, err, want)
		}
	}

	// Messages do not tell a Secret, neither one of before.
	of := clusterplugins.Process{Secrets: &s.secrets}
	message := of.Secrets.Mask(`parse "other-password": expected {, as in {"token":"hunter22"}: hunter22 is bad`)
	if want := `parse "(secret)": expected {, as in (secret): (secret) is bad`; message != want {
		t.Errorf("masked is %s, want %s", message, want)
	}
	var out bytes.Buffer
	logger := slog.New(s.secrets.Handler(slog.NewTextHandler(&out, nil))).With("a", "hunter22")
	logger.WithGroup("g").Error("hunter22", "err", errors.New("other-password"), slog.Group("b", "c", "hunter22"), "n", 1)
	if text := out.String(); strings.Contains(text, "hunter22") || strings.Contains(text, "password") || strings.Count(text, "(secret)") != 4 || !strings.Contains(text, "g.n=1") {
		t.Errorf("the log has %s", text)
	}

	// What is not there, or is wrong, says so.
	s.put("secrets", `"data":{"other":"YQ=="}`)
	missing := s.until(t, "NodeHook", `guestConfigFrom[1].secret: Secret shop/s has no key "k"`)
	if spec, _ := missing.Settings(); strings.Contains(string(spec), "guestConfigFrom") {
		t.Errorf("without a text the settings are %s", spec)
	}
	s.put("secrets", data(strings.Repeat("x", 64<<10+1)))
	s.until(t, "NodeHook", `has 65537 bytes under the key "k", more than 65536`)
	s.Delete("secrets", 0)
	s.until(t, "NodeHook", `guestConfigFrom[1].secret: Secret shop/s does not exist`)
	for list, want := range map[string]string{
		secret + `},` + config + `,"member":"a"}`:              "guestConfigFrom[0].member is empty",
		config + `,"member":"a"},` + config + `,"member":"a"}`: `guestConfigFrom[1].member is "a", which guestConfig has already`,
		`{"member":"a"}`:                             "guestConfigFrom[0]: set one of configMap and secret",
		`{"secret":{"name":"s","key":"k"}}`:          "guestConfigFrom[0].secret.namespace is empty",
		`{"secret":{"namespace":"shop","name":"s"}}`: "guestConfigFrom[0].secret: set name and key",
		`{"file":"a"}`:                               "file",
		strings.TrimSuffix(strings.Repeat(config+`,"member":"a"},`, 9), ","): "has 9 elements, want at most 8",
		`{"configMap":{"namespace":"shop","name":"none","key":"k"}}`:         "ConfigMap shop/none does not exist",
	} {
		s.put("nodehooks", from("", list))
		s.until(t, "NodeHook", want)
	}

	// A policy of a namespace has texts of its own alone, by default.
	s.put("admissionpolicies", from("", `{"configMap":{"name":"c","key":"k"}}`))
	s.until(t, "AdmissionPolicy", `{"guestConfig":"a text","module":{"oci":"a:1"}}`)
	s.put("admissionpolicies", from("", `{"configMap":{"namespace":"kube-system","name":"c","key":"k"}}`))
	s.until(t, "AdmissionPolicy", `guestConfigFrom[0].configMap.namespace is "kube-system", and the policy is of "shop"`)
}

// TestGuestConfigOfARollout holds that a revision has its own texts, also as a shadow, and that rights
// which are missing are named.
func TestGuestConfigOfARollout(t *testing.T) {
	t.Parallel()
	s := newTexts(t)
	s.put("configmaps", `"data":{"k":"a text","n":"another"}`)
	version := func(number int, key string) string {
		return fmt.Sprintf(`{"revision":%d,"generation":%d,"spec":{"module":{"oci":"a:%d"},"guestConfigFrom":[{"configMap":{"namespace":"shop","name":"c","key":%q}}]}}`, number, number, number, key)
	}
	s.put("nodehooks", fmt.Sprintf(`"spec":{"module":{"oci":"a:2"},"rollout":{}},"status":{"rollout":{"stable":%s,"candidate":%s,"trial":2,"mode":"Shadow","below":4294967296}}`, version(1, "k"), version(2, "n")))
	s.until(t, "NodeHook", `{"guestConfig":"a text","module":{"oci":"a:1"},"shadow":{"guestConfig":"another","module":{"oci":"a:2"},"rate":1}}`)
	s.refuses.Store(true)
	s.put("nodehooks", `"spec":{"module":{"oci":"a:1"},"guestConfigFrom":[{"secret":{"namespace":"shop","name":"s","key":"k"}}]}`)
	s.until(t, "NodeHook", "guestConfigFrom[0].secret: Secret shop/s cannot be read: ")
}
