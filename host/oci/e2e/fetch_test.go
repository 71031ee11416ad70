package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/internal/testkit/refusals"
	"github.com/kubewasm/kubewasm/internal/testkit/self"
)

// module is the smallest module, with a custom section that tells versions apart.
func module(version string) []byte {
	section := append([]byte{7}, "version"...)
	section = append(section, version...)
	return append([]byte("\x00asm\x01\x00\x00\x00"), append([]byte{0, byte(len(section))}, section...)...)
}

func push(t testing.TB, client *oci.Client, ref oci.Reference, module []byte, opts oci.PushOptions) string {
	t.Helper()
	digest, err := client.Push(t.Context(), ref, module, opts)
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

func fetch(t testing.TB, client *oci.Client, ref oci.Reference) *oci.Artifact {
	t.Helper()
	a, err := client.Fetch(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestPushSignFetchAndCopy(t *testing.T) {
	for name, handler := range registries(t) {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, handler, false)
			key, public := newKey(t)
			client := newClient(t, oci.Config{Registries: plain(s)})
			verifier := newClient(t, oci.Config{Registries: plain(s), Trust: []oci.Trust{
				{Repositories: []string{"*"}, AllOf: []oci.Signer{{Name: "us", Key: public}}},
			}})
			annotations := map[string]string{"org.opencontainers.image.version": "1.2.0"}
			for _, image := range []bool{false, true} {
				for way, sign := range map[string]oci.SignOptions{"tag": {NoBundle: true}, "bundle": {NoTag: true}, "both": {}} {
					ref := s.ref(t, fmt.Sprintf("acme/zone:%v-%s", image, way))
					content := module(fmt.Sprint(image, way))
					digest := push(t, client, ref, content, oci.PushOptions{Image: image, Annotations: annotations})
					var refused *oci.TrustError
					if _, err := verifier.Fetch(t.Context(), ref); !errors.As(err, &refused) {
						t.Fatalf("before it is signed: %v, want a TrustError", err)
					}
					if signed, err := client.Sign(t.Context(), ref, key, sign); err != nil || signed != digest {
						t.Fatalf("signed %s, %v, want %s", signed, err, digest)
					}
					want := &oci.Artifact{Module: content, Digest: digest, Annotations: annotations, SignedBy: []string{"us"}}
					if diff := cmp.Diff(want, fetch(t, verifier, ref)); diff != "" {
						t.Errorf("%s (-want +got)\n%s", ref, diff)
					}
					// To a layout, to another repository from there, and the signature is there.
					layout := oci.Reference{Layout: t.TempDir(), Tag: "1"}
					again := s.ref(t, fmt.Sprintf("copies/zone:%v-%s", image, way))
					for _, pair := range [][2]oci.Reference{{ref, layout}, {layout, again}} {
						if got, err := client.Copy(t.Context(), pair[0], pair[1]); err != nil || got != digest {
							t.Fatalf("copy: %s, %v, want %s", got, err, digest)
						}
						if diff := cmp.Diff(want, fetch(t, verifier, pair[1])); diff != "" {
							t.Errorf("%s (-want +got)\n%s", pair[1], diff)
						}
					}
					// A tar of the layout is one, too.
					archive := oci.Reference{Layout: tarOf(t, layout.Layout), Tag: "1"}
					if diff := cmp.Diff(want, fetch(t, verifier, archive)); diff != "" {
						t.Errorf("%s (-want +got)\n%s", archive, diff)
					}
				}
			}
		})
	}
}

func TestPushIsReproducible(t *testing.T) {
	a, b := newServer(t, ggcr(), false), newServer(t, distribution(t, nil), false)
	client := newClient(t, oci.Config{Registries: plain(a, b)})
	for _, image := range []bool{false, true} {
		opts := oci.PushOptions{Image: image, Annotations: map[string]string{"b": "2", "a": "1"}}
		first, second := push(t, client, a.ref(t, "zone:1"), module("1"), opts), push(t, client, b.ref(t, "other:2"), module("1"), opts)
		if first != second {
			t.Errorf("image %v: digests are %s and %s", image, first, second)
		}
	}
}

func TestFetchWithCredentials(t *testing.T) {
	issuer := newTokens(t)
	secured := map[string]*server{
		"basic": newServer(t, distribution(t, basicAuth(t)), false),
		"token": newServer(t, distribution(t, issuer.auth(t)), false),
	}
	for name, s := range secured {
		t.Run(name, func(t *testing.T) {
			secret := func(_ context.Context, namespace, name string) (map[string][]byte, error) {
				if namespace != "ns" || name != "pull" {
					return nil, fmt.Errorf("there is no %s/%s", namespace, name)
				}
				return map[string][]byte{".dockerconfigjson": dockerAuths(t, s.host, "us", "secret")}, nil
			}
			ref := s.ref(t, "acme/zone:1")
			reached := append(plain(s), oci.Registry{Host: strings.TrimPrefix(issuer.URL, "http://"), PlainHTTP: true})
			for way, cfg := range map[string]oci.Config{
				"docker config": {DockerConfig: dockerConfig(t, s.host, "us", "secret")},
				"a pull secret": {Credentials: oci.PullSecrets(host.ObjectGetterFunc(secret), "ns", "pull")},
				"the program": {Credentials: func(context.Context, string) ([]oci.Credential, error) {
					return []oci.Credential{{Username: "them", Password: "other"}, {Username: "us", Password: "secret"}}, nil
				}},
				"a helper":       {DockerConfig: helper(t, s.host, "us", "secret")},
				"the other file": {DockerConfig: dockerConfig(t, s.host, "us", "wrong"), Credentials: oci.PullSecrets(host.ObjectGetterFunc(secret), "ns", "pull")},
			} {
				cfg.Registries = reached
				client := newClient(t, cfg)
				push(t, client, ref, module(way), oci.PushOptions{})
				if got := fetch(t, client, ref); !bytes.Equal(got.Module, module(way)) {
					t.Errorf("%s: another module", way)
				}
			}
			for way, cfg := range map[string]oci.Config{
				"no credentials":    {},
				"a wrong password":  {DockerConfig: dockerConfig(t, s.host, "us", "wrong")},
				"those of others":   {DockerConfig: dockerConfig(t, "example.com", "us", "secret")},
				"a missing secret":  {Credentials: oci.PullSecrets(host.ObjectGetterFunc(secret), "ns", "other")},
				"a missing helper":  {DockerConfig: write(t, "config.json", []byte(`{"credHelpers":{"`+s.host+`":"kubewasm-absent"}}`))},
				"a broken document": {DockerConfig: write(t, "config.json", []byte(`{"auths":`))},
			} {
				cfg.Registries, cfg.CacheDir = reached, t.TempDir()
				_, err := newClient(t, cfg).Fetch(t.Context(), ref)
				if err == nil || strings.Contains(err.Error(), "secret,") || strings.Contains(err.Error(), "wrong") {
					t.Errorf("%s: %v, want an error without the password", way, err)
				}
			}
		})
	}
	if issuer.issued == 0 {
		t.Error("no token was issued")
	}
}

// helper returns a configuration of docker with a helper for credentials.
func helper(t *testing.T, host, user, password string) string {
	t.Helper()
	dir := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\ncat >/dev/null\necho '{\"ServerURL\":%q,\"Username\":%q,\"Secret\":%q}'\n", host, user, password)
	if err := os.WriteFile(dir+"/docker-credential-kubewasm-test", []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	return write(t, "config.json", []byte(`{"credHelpers":{"`+host+`":"kubewasm-test"}}`))
}

func TestFetchWithTLS(t *testing.T) {
	s := newServer(t, distribution(t, nil), true)
	ref := s.ref(t, "zone:1")
	trusting := oci.Config{Registries: []oci.Registry{{Host: s.host, CAFile: s.caFile(t)}}}
	push(t, newClient(t, trusting), ref, module("1"), oci.PushOptions{})
	fetch(t, newClient(t, trusting), ref)
	if _, err := newClient(t, oci.Config{}).Fetch(t.Context(), ref); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("without the CA: %v", err)
	}
	without := newServer(t, ggcr(), false).ref(t, "zone:1")
	if _, err := newClient(t, oci.Config{}).Fetch(t.Context(), without); err == nil || !strings.Contains(err.Error(), "it speaks plain http: set plainHTTP for "+without.Registry) {
		t.Errorf("a registry without TLS: %v", err)
	}
	if n := len(s.came()); n > 20 {
		t.Errorf("%d requests: a certificate is not tried again", n)
	}

	// One that wants a certificate of the client.
	certificate := s.TLS.Certificates[0]
	mutual := httptest.NewUnstartedServer(s.Config.Handler)
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	mutual.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, Certificates: []tls.Certificate{certificate}}
	mutual.StartTLS()
	t.Cleanup(mutual.Close)
	at := &server{Server: mutual, host: strings.TrimPrefix(mutual.URL, "https://")}
	cert, key := keyPair(t)
	ref = at.ref(t, "zone:1")
	fetch(t, newClient(t, oci.Config{Registries: []oci.Registry{{Host: at.host, CAFile: s.caFile(t), CertFile: cert, KeyFile: key}}}), ref)
	if _, err := newClient(t, oci.Config{Registries: []oci.Registry{{Host: at.host, CAFile: s.caFile(t)}}}).Fetch(t.Context(), ref); err == nil {
		t.Error("without a certificate of the client it works")
	}
}

// TestFetchThroughAProxy runs itself in another process: Go reads the variables of proxies
// once.
func TestFetchThroughAProxy(t *testing.T) {
	const host = "registry.test"
	cfg := oci.Config{Registries: []oci.Registry{{Host: host, PlainHTTP: true}}}
	if os.Getenv("HTTP_PROXY") != "" {
		fetch(t, newClient(t, cfg), oci.Reference{Registry: host, Repository: "zone", Tag: "1"})
		return
	}
	s := newServer(t, ggcr(), false)
	push(t, newClient(t, oci.Config{Registries: plain(s)}), s.ref(t, "zone:1"), module("1"), oci.PushOptions{})
	s.came()
	child := self.Command(t, []string{"HTTP_PROXY=" + s.URL, "NO_PROXY="}, "-test.run=^TestFetchThroughAProxy$")
	if out, err := child.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if len(s.came()) == 0 {
		t.Error("the proxy was not asked")
	}
}

// TestDockerHub reaches a registry by the names of Docker Hub, which sends those without a
// token to another host. It gives tokens to pull to all, and to push to those with a
// password. Like TestFetchThroughAProxy, it runs itself in another process.
func TestDockerHub(t *testing.T) {
	if os.Getenv("HTTP_PROXY") == "" {
		issuer := newTokens(t)
		issuer.realm, issuer.anonymous = "http://auth.docker.io/token", true
		registry := distribution(t, issuer.auth(t))
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.Host {
			case "registry-1.docker.io":
				registry.ServeHTTP(w, r)
			case "auth.docker.io":
				issuer.serve(w, r)
			default:
				w.WriteHeader(http.StatusBadGateway)
			}
		}))
		defer proxy.Close()
		child := self.Command(t, []string{"HTTP_PROXY=" + proxy.URL, "NO_PROXY="}, "-test.run=^TestDockerHub$")
		if out, err := child.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	for name, registries := range map[string][]oci.Registry{
		"docker.io":            {{Host: "docker.io", PlainHTTP: true}},
		"registry-1.docker.io": {{Host: "registry-1.docker.io", PlainHTTP: true}},
	} {
		registries = append(registries, oci.Registry{Host: "auth.docker.io", PlainHTTP: true})
		ref := oci.Reference{Registry: "docker.io", Repository: "acme/zone", Tag: "1"}
		anonymous := newClient(t, oci.Config{Registries: registries})
		if _, err := anonymous.Push(t.Context(), ref, module("1"), oci.PushOptions{}); err == nil || !strings.Contains(err.Error(), "answered 401") {
			t.Errorf("%s: a push without a password: %v", name, err)
		}
		// docker login writes this name.
		login := dockerConfig(t, "https://index.docker.io/v1/", "us", "secret")
		push(t, newClient(t, oci.Config{Registries: registries, DockerConfig: login}), ref, module("1"), oci.PushOptions{})
		if a := fetch(t, anonymous, ref); !bytes.Equal(a.Module, module("1")) {
			t.Errorf("%s: another module", name)
		}
	}
}

func TestMirrors(t *testing.T) {
	origin, mirror := newServer(t, ggcr(), false), newServer(t, distribution(t, nil), false)
	client := newClient(t, oci.Config{Registries: plain(origin, mirror)})
	push(t, client, origin.ref(t, "acme/zone:1"), module("1"), oci.PushOptions{})
	push(t, client, mirror.ref(t, "cache/acme/zone:1"), module("1"), oci.PushOptions{})
	push(t, client, origin.ref(t, "acme/zone:2"), module("2"), oci.PushOptions{})
	mirrored := newClient(t, oci.Config{Registries: []oci.Registry{
		{Host: origin.host, PlainHTTP: true, Mirrors: []string{mirror.host + "/cache"}}, {Host: mirror.host, PlainHTTP: true},
	}})
	origin.came()
	fetch(t, mirrored, origin.ref(t, "acme/zone:1"))
	if came := origin.came(); len(came) != 0 {
		t.Errorf("what the mirror has was asked of the registry: %v", came)
	}
	if a := fetch(t, mirrored, origin.ref(t, "acme/zone:2")); !bytes.Equal(a.Module, module("2")) {
		t.Error("what the mirror does not have is another module")
	}
	mirror.setFault(func(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
		if strings.Contains(r.URL.Path, "/blobs/") {
			_, _ = w.Write(module("3"))
			return true
		}
		return false
	})
	if a := fetch(t, mirrored, origin.ref(t, "acme/zone:1")); !bytes.Equal(a.Module, module("1")) {
		t.Error("a mirror with corrupt content was believed")
	}
	mirror.Close()
	fetch(t, mirrored, origin.ref(t, "acme/zone:1"))
}

func TestFetchSurvivesFaults(t *testing.T) {
	table := refusals.New(t, "Transfers")
	s := newServer(t, distribution(t, nil), false)
	ref := s.ref(t, "acme/zone:1")
	content := bytes.Repeat(module("1"), 10_000)
	push(t, newClient(t, oci.Config{Registries: plain(s)}), ref, content, oci.PushOptions{})
	isBlob := func(r *http.Request) bool {
		return r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/")
	}
	storage := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" || r.Header.Get("Referer") != "" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		_, _ = w.Write(content)
	}))
	defer storage.Close()
	for _, tt := range []struct {
		name string
		// fault answers request n, counted for blobs and for all others.
		fault func(w http.ResponseWriter, r *http.Request, next http.Handler, n int) bool
		want  string // Empty: it is fetched all the same.
	}{
		{"a blob ends early once", func(w http.ResponseWriter, r *http.Request, next http.Handler, n int) bool {
			return isBlob(r) && n == 1 && truncate(w, r, next, 1000)
		}, ""},
		{"a blob always ends early", func(w http.ResponseWriter, r *http.Request, next http.Handler, _ int) bool {
			return isBlob(r) && truncate(w, r, next, 1000)
		}, "it ended early after"},
		{"a blob has other bytes", func(w http.ResponseWriter, r *http.Request, _ http.Handler, _ int) bool {
			if isBlob(r) {
				_, _ = w.Write(bytes.Repeat([]byte("x"), len(content)))
			}
			return isBlob(r)
		}, "content has the digest"},
		{"a blob is longer", func(w http.ResponseWriter, r *http.Request, _ http.Handler, _ int) bool {
			if isBlob(r) {
				w.(http.Flusher).Flush()
				_, _ = w.Write(append(content, 0))
			}
			return isBlob(r)
		}, "it has more than the"},
		{"the manifest is of another digest", func(w http.ResponseWriter, r *http.Request, next http.Handler, _ int) bool {
			if r.Method != http.MethodHead || !strings.HasSuffix(r.URL.Path, "/manifests/1") {
				return false
			}
			w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
			w.Header().Set("Docker-Content-Digest", "sha256:"+strings.Repeat("0", 64))
			w.Header().Set("Content-Length", "100")
			return true
		}, "not found"},
		{"the digest is of another algorithm", func(w http.ResponseWriter, r *http.Request, next http.Handler, _ int) bool {
			if !strings.HasSuffix(r.URL.Path, "/manifests/1") {
				return false
			}
			w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
			w.Header().Set("Docker-Content-Digest", "sha512:"+strings.Repeat("0", 128))
			w.Header().Set("Content-Length", "100")
			return true
		}, "want sha256: and 64"},
		{"HEAD has no digest", func(w http.ResponseWriter, r *http.Request, next http.Handler, _ int) bool {
			recorder := httptest.NewRecorder()
			next.ServeHTTP(recorder, r)
			for key, values := range recorder.Header() {
				if key != "Docker-Content-Digest" {
					w.Header()[key] = values
				}
			}
			w.WriteHeader(recorder.Code)
			_, _ = recorder.Body.WriteTo(w)
			return true
		}, ""},
		{"HEAD is not allowed", func(w http.ResponseWriter, r *http.Request, _ http.Handler, _ int) bool {
			if r.Method == http.MethodHead {
				w.WriteHeader(http.StatusMethodNotAllowed)
			}
			return r.Method == http.MethodHead
		}, ""},
		{"the registry is overloaded for a while", func(w http.ResponseWriter, _ *http.Request, _ http.Handler, n int) bool {
			if n <= 2 {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			return n <= 2
		}, ""},
		{"the registry limits the rate once", func(w http.ResponseWriter, _ *http.Request, _ http.Handler, n int) bool {
			if n == 1 {
				w.Header().Set("Retry-After", "0")
				w.WriteHeader(http.StatusTooManyRequests)
			}
			return n == 1
		}, ""},
		{"the registry limits the rate for hours", func(w http.ResponseWriter, _ *http.Request, _ http.Handler, _ int) bool {
			w.Header().Set("Retry-After", "36000")
			w.WriteHeader(http.StatusTooManyRequests)
			return true
		}, "answered 429 Too Many Requests"},
		{"a blob is in a storage elsewhere", func(w http.ResponseWriter, r *http.Request, _ http.Handler, _ int) bool {
			if isBlob(r) {
				http.Redirect(w, r, storage.URL+"/blob?signature=secret", http.StatusTemporaryRedirect)
			}
			return isBlob(r)
		}, "plain http to"},
		{"the connection ends", func(w http.ResponseWriter, _ *http.Request, _ http.Handler, n int) bool {
			if n == 1 {
				panic(http.ErrAbortHandler)
			}
			return false
		}, ""},
		{"the registry is a page for people", func(w http.ResponseWriter, _ *http.Request, _ http.Handler, _ int) bool {
			w.Header().Set("Content-Type", "text/html")
			_, _ = w.Write([]byte("<html>Log in</html>"))
			return true
		}, "read manifest: invalid character"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client := newClient(t, oci.Config{Registries: plain(s)})
			var mu sync.Mutex
			all, blobs := 0, 0
			s.setFault(func(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
				mu.Lock()
				count := &all
				if isBlob(r) {
					count = &blobs
				}
				*count++
				n := *count
				mu.Unlock()
				return tt.fault(w, r, next, n)
			})
			a, err := client.Fetch(t.Context(), ref)
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want == "" && !bytes.Equal(a.Module, content):
				t.Error("another module")
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "signature=")):
				t.Errorf("got %v, want %q", err, tt.want)
			case tt.want != "":
				table.Add(tt.name, err)
			}
		})
	}
}

// truncate serves a request, and ends its answer after n bytes.
func truncate(w http.ResponseWriter, r *http.Request, next http.Handler, n int) bool {
	recorder := httptest.NewRecorder()
	next.ServeHTTP(recorder, r)
	for key, values := range recorder.Header() {
		w.Header()[key] = values
	}
	w.Header().Set("Content-Length", fmt.Sprint(recorder.Body.Len()))
	w.WriteHeader(recorder.Code)
	_, _ = w.Write(recorder.Body.Bytes()[:n])
	w.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

func TestSlowBodiesEndWithTheTime(t *testing.T) {
	s := newServer(t, ggcr(), false)
	ref := s.ref(t, "zone:1")
	push(t, newClient(t, oci.Config{Registries: plain(s)}), ref, module("1"), oci.PushOptions{})
	ended := make(chan struct{})
	s.setFault(func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if !strings.Contains(r.URL.Path, "/blobs/") {
			return false
		}
		_, _ = w.Write([]byte{0})
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(ended)
		return true
	})
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan error, 1)
	go func() {
		_, err := newClient(t, oci.Config{Registries: plain(s), Timeout: time.Second}).Fetch(ctx, ref)
		got <- err
	}()
	if err := <-got; !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "not complete after 1s") {
		t.Errorf("got %v", err)
	}
	cancel()
	<-ended
}

func TestTheCacheServesWhileTheRegistryIsAway(t *testing.T) {
	s := newServer(t, distribution(t, nil), false)
	key, public := newKey(t)
	cfg := oci.Config{Registries: plain(s), CacheDir: t.TempDir(), Trust: []oci.Trust{{Repositories: []string{"*"}, AnyOf: []oci.Signer{{Key: public}}}}}
	publisher, ref := newClient(t, oci.Config{Registries: plain(s)}), s.ref(t, "acme/zone:1")
	push(t, publisher, ref, module("1"), oci.PushOptions{})
	if _, err := publisher.Sign(t.Context(), ref, key, oci.SignOptions{}); err != nil {
		t.Fatal(err)
	}
	first := fetch(t, newClient(t, cfg), ref)

	// A warm start asks for the digest, and for nothing else.
	s.came()
	warm := fetch(t, newClient(t, cfg), ref)
	if diff := cmp.Diff(first, warm); diff != "" {
		t.Errorf("a warm start (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]string{"HEAD /v2/acme/zone/manifests/1"}, s.came()); diff != "" {
		t.Errorf("requests of a warm start (-want +got)\n%s", diff)
	}

	// An unsigned artifact under the tag does not become what the cache has for it.
	push(t, publisher, ref, module("2"), oci.PushOptions{})
	var refused *oci.TrustError
	if _, err := newClient(t, cfg).Fetch(t.Context(), ref); !errors.As(err, &refused) {
		t.Errorf("an unsigned artifact: %v, want a TrustError", err)
	}
	s.Close()
	client := newClient(t, cfg)
	source := client.Source(ref.String())
	got, err := source.Fetch(t.Context())
	if err != nil || !bytes.Equal(got, module("1")) {
		t.Fatalf("while the registry is away: %v, want the first module", err)
	}
	if states := client.Sources(); len(states) != 1 || !states[0].Stale || states[0].FromCache != 1 || states[0].Digest != first.Digest {
		t.Errorf("states are %+v, want one that is stale", states)
	}
	if _, _, err := source.(host.ConditionalSource).FetchUnless(t.Context(), first.Digest); err == nil {
		t.Error("following is content with the cache")
	}
	// What the cache never had it does not have.
	if _, err := client.Fetch(t.Context(), s.ref(t, "acme/zone:2")); err == nil || !strings.Contains(err.Error(), "the cache does not have it either") {
		t.Errorf("another tag: %v", err)
	}
	// The signature in the cache is verified again, by the rules of now.
	_, otherKey := newKey(t)
	cfg.Trust[0].AnyOf[0].Key = otherKey
	if _, err := newClient(t, cfg).Fetch(t.Context(), ref); err == nil {
		t.Error("an artifact in the cache is trusted without its signature")
	}
}

func TestAnAnswerThatSaysNoIsNotAway(t *testing.T) {
	s := newServer(t, distribution(t, nil), false)
	cfg := oci.Config{Registries: plain(s), CacheDir: t.TempDir()}
	ref := s.ref(t, "zone:1")
	push(t, newClient(t, cfg), ref, module("1"), oci.PushOptions{})
	fetch(t, newClient(t, cfg), ref)
	for _, status := range []int{http.StatusNotFound, http.StatusUnauthorized, http.StatusForbidden} {
		s.setFault(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) bool {
			w.WriteHeader(status)
			return true
		})
		if a, err := newClient(t, cfg).Fetch(t.Context(), ref); err == nil {
			t.Errorf("%d: got %v, want an error", status, a)
		}
	}
}

func TestManySourcesShareOneClient(t *testing.T) {
	s := newServer(t, distribution(t, nil), false)
	client := newClient(t, oci.Config{Registries: plain(s), CacheDir: t.TempDir(), CacheBytes: 4000, Trust: []oci.Trust{{Repositories: []string{"*"}, Unsigned: true}}})
	for i := range 4 {
		push(t, client, s.ref(t, fmt.Sprintf("p%d:1", i)), module(fmt.Sprint(i)), oci.PushOptions{})
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 10 {
				n := (g + i) % 4
				got, err := client.Source(fmt.Sprintf("%s/p%d:1", s.host, n)).Fetch(t.Context())
				if err != nil || !slices.Equal(got, module(fmt.Sprint(n))) {
					t.Errorf("source %d: %v", n, err)
				}
			}
		})
	}
	wg.Wait()
}
