package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/admission/kubewarden/capabilities"
	"github.com/kubewasm/kubewasm/admission/kubewarden/ociregistry"
	"github.com/kubewasm/kubewasm/host/oci"
)

// asks returns what a policy may ask that is granted the repositories below acme of a server.
func asks(t *testing.T, s *server, cfg oci.Config) (*capabilities.Caller, *capabilities.Provider) {
	t.Helper()
	cfg.Registries = append(cfg.Registries, plain(s)...)
	provider, err := capabilities.NewProvider(capabilities.Config{Registry: ociregistry.New(newClient(t, cfg)), Bounds: capabilities.Bounds{Timeout: metav1.Duration{Duration: 5 * time.Second}}})
	if err != nil {
		t.Fatal(err)
	}
	return provider.Caller("p", capabilities.Scope{HostCapabilities: []string{"oci/*"}, Repositories: []string{s.host + "/acme/*"}}), provider
}

func imageOf(t *testing.T, s *server, rest string) capabilities.Image {
	t.Helper()
	image, err := capabilities.ParseImage(s.host + "/" + rest)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// What policies ask about artifacts is answered by real registries, and asked once.
func TestPoliciesAskRegistries(t *testing.T) {
	for name, handler := range registries(t) {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, handler, false)
			client := newClient(t, oci.Config{Registries: plain(s)})
			key, public := newKey(t)
			_, other := newKey(t)
			ref := s.ref(t, "acme/zone:1")
			digest := push(t, client, ref, module("1"), oci.PushOptions{Image: true})
			unsigned := push(t, client, s.ref(t, "acme/zone:unsigned"), module("2"), oci.PushOptions{})
			if _, err := client.Sign(t.Context(), ref, key, oci.SignOptions{Annotations: map[string]string{"env": "prod"}}); err != nil {
				t.Fatal(err)
			}
			push(t, client, s.ref(t, "others/zone:1"), module("3"), oci.PushOptions{})

			caller, provider := asks(t, s, oci.Config{CacheDir: t.TempDir()})
			image := imageOf(t, s, "acme/zone:1")
			if got, err := caller.Digest(t.Context(), image); err != nil || got != digest {
				t.Errorf("digest is %s, %v, want %s", got, err, digest)
			}
			var manifest struct{ Layers []json.RawMessage }
			if data, err := caller.Manifest(t.Context(), image); err != nil || json.Unmarshal(data, &manifest) != nil || len(manifest.Layers) != 1 {
				t.Errorf("manifest is %s, %v", data, err)
			}
			answer, err := caller.Config(t.Context(), image, func(manifest []byte, digest string, config []byte) []byte {
				return fmt.Appendf(nil, "%s %t %t", digest, json.Valid(manifest), json.Valid(config))
			})
			if err != nil || string(answer) != digest+" true true" {
				t.Errorf("configuration is %s, %v", answer, err)
			}
			for _, test := range []struct {
				name   string
				image  string
				wanted capabilities.Signatures
				want   string
			}{
				{"signed", "acme/zone:1", capabilities.Signatures{Keys: []string{public}}, ""},
				{"by digest", "acme/zone@" + digest, capabilities.Signatures{Keys: []string{public}}, ""},
				{"with an annotation", "acme/zone:1", capabilities.Signatures{Keys: []string{public}, Annotations: map[string]string{"env": "prod"}}, ""},
				{"with another annotation", "acme/zone:1", capabilities.Signatures{Keys: []string{public}, Annotations: map[string]string{"env": "test"}}, `annotation "env" was signed as "prod"`},
				{"by two, of whom one has", "acme/zone:1", capabilities.Signatures{Keys: []string{public, other}}, "pub_keys[1]"},
				{"not signed", "acme/zone@" + unsigned, capabilities.Signatures{Keys: []string{public}}, "it has no signature"},
				{"a key that is none", "acme/zone:1", capabilities.Signatures{Keys: []string{"x"}}, "key is not PEM"},
				{"by an identity", "acme/zone:1", capabilities.Signatures{Identities: []capabilities.Identity{{Issuer: "i", SubjectPrefix: "https://a/"}}}, "this program has no trusted root of Sigstore"},
				{"by a workflow", "acme/zone:1", capabilities.Signatures{GitHub: &capabilities.GitHub{Owner: "acme"}}, "this program has no trusted root of Sigstore"},
				{"by a certificate that is none", "acme/zone:1", capabilities.Signatures{Certificate: &capabilities.Certificate{PEM: []byte("x")}}, "it is no certificate in PEM"},
				{"nothing wanted", "acme/zone:1", capabilities.Signatures{}, "allOf and anyOf are empty"},
				{"an artifact that there is not", "acme/none:1", capabilities.Signatures{Keys: []string{public}}, "not found"},
				{"a repository that is not granted", "others/zone:1", capabilities.Signatures{Keys: []string{public}}, "it is not in the repositories of its configuration"},
			} {
				t.Run(test.name, func(t *testing.T) {
					got, err := caller.Verify(t.Context(), imageOf(t, s, test.image), test.wanted)
					if test.want == "" && (err != nil || got != digest) || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
						t.Errorf("got %s, %v, want %q", got, err, test.want)
					}
				})
			}
			s.came()
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() {
					if _, err := caller.Verify(t.Context(), image, capabilities.Signatures{Keys: []string{public}}); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if came := s.came(); len(came) != 0 {
				t.Errorf("an answer that is kept was asked for again: %v", came)
			}
			if n := client.CacheBytes(); n != 0 || provider.Stats().Hits < 20 {
				t.Errorf("%d bytes on disk, %+v", n, provider.Stats())
			}
		})
	}
}

// A registry that is slow, away or limits requests is an error within the time of the call, and
// asked again afterwards.
func TestPoliciesAskRegistriesThatFail(t *testing.T) {
	s := newServer(t, ggcr(), false)
	client := newClient(t, oci.Config{Registries: plain(s)})
	digest := push(t, client, s.ref(t, "acme/zone:1"), module("1"), oci.PushOptions{})
	for name, test := range map[string]struct {
		fault func(w http.ResponseWriter, r *http.Request, next http.Handler) bool
		want  string
	}{
		"slow": {func(_ http.ResponseWriter, r *http.Request, _ http.Handler) bool {
			<-r.Context().Done()
			return true
		}, "context deadline exceeded"},
		"limits requests": {func(w http.ResponseWriter, _ *http.Request, _ http.Handler) bool {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusTooManyRequests)
			return true
		}, ""},
		"refuses": {func(w http.ResponseWriter, _ *http.Request, _ http.Handler) bool {
			w.WriteHeader(http.StatusForbidden)
			return true
		}, "answered 403 Forbidden"},
		"a manifest of another digest": {func(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
			if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/manifests/") {
				return false
			}
			return change(w, r, next, func(body []byte) { body[len(body)/2] ^= 1 })
		}, "content has the digest"},
	} {
		t.Run(name, func(t *testing.T) {
			caller, _ := asks(t, s, oci.Config{})
			s.setFault(test.fault)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			_, err := caller.Manifest(ctx, imageOf(t, s, "acme/zone:1"))
			if err == nil || !strings.Contains(err.Error(), test.want) && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error is %v, want %q", err, test.want)
			}
			s.setFault(nil)
			again, _ := asks(t, s, oci.Config{})
			if got, err := again.Digest(t.Context(), imageOf(t, s, "acme/zone:1")); err != nil || got != digest {
				t.Errorf("then the digest is %s, %v", got, err)
			}
		})
	}
}
