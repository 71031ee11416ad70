package e2e

import (
	"bytes"
	"context"
	"crypto"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/oci"
)

// versionOf is the annotation by which downgrades are known.
const versionOf = "org.opencontainers.image.version"

// storm is a tag that moves while plugins follow it, at a registry that fails. It knows what
// may be compiled.
type storm struct {
	t    *testing.T
	key  crypto.Signer
	base []byte
	// clean and faulty are references to the same repository: through a server that always
	// answers, for the publisher, and through one that fails, for followers.
	clean, faulty oci.Reference
	publisher     *oci.Client

	mu sync.Mutex
	// signed are the modules by the digests of artifacts with our signature, and versions
	// their versions.
	signed   map[string][]byte
	versions map[string]int
	last     int
}

// version returns a module that no other version has, and its options.
func (s *storm) version(n int) ([]byte, oci.PushOptions) {
	module := append(bytes.Clone(s.base), module(fmt.Sprintf("%09d", n))[8:]...)
	return module, oci.PushOptions{Annotations: map[string]string{versionOf: fmt.Sprintf("1.%d.0", n)}}
}

// publish moves the tag to a version with our signature.
func (s *storm) publish(n int) string {
	s.t.Helper()
	module, opts := s.version(n)
	// The digest is the same everywhere, and known before a follower can see it.
	digest := push(s.t, s.publisher, oci.Reference{Layout: filepath.Join(s.t.TempDir(), "l"), Tag: "1"}, module, opts)
	s.mu.Lock()
	s.signed[digest], s.versions[digest] = module, n
	s.mu.Unlock()
	push(s.t, s.publisher, s.clean, module, opts)
	s.sign(digest, s.key)
	return digest
}

func (s *storm) sign(digest string, key crypto.Signer) {
	s.t.Helper()
	ref := s.clean
	ref.Digest = digest
	if _, err := s.publisher.Sign(s.t.Context(), ref, key, oci.SignOptions{NoBundle: s.last%2 == 0, NoTag: s.last%2 == 1}); err != nil {
		s.t.Fatal(err)
	}
}

// evil moves the tag to a module that we never signed, with a higher version.
func (s *storm) evil() string {
	s.t.Helper()
	module, opts := s.version(s.last + 1_000_000)
	return push(s.t, s.publisher, s.clean, module, opts)
}

// request sends a request to the registry, past the faults, and returns the answer's body.
func (s *storm) request(method, path, contentType string, body []byte) []byte {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, "http://"+s.clean.Registry+"/v2/"+s.clean.Repository+path, bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Accept", "application/vnd.oci.image.manifest.v1+json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 {
		s.t.Fatalf("%s %s: %s, %v: %s", method, path, resp.Status, err, data)
	}
	return data
}

// moves are what happens to the tag. Each is one that an attacker, an accident or a release
// does.
var moves = map[string]func(s *storm){
	"a release": func(s *storm) {
		s.last++
		s.publish(s.last)
	},
	"an unsigned push":          func(s *storm) { s.evil() },
	"the signature of another":  func(s *storm) { key, _ := newKey(s.t); s.sign(s.evil(), key) },
	"a replay of an old one":    func(s *storm) { s.publish(rand.IntN(s.last + 1)) },
	"a replay of the first one": func(s *storm) { s.publish(0) },
	"a signature under the tag of another artifact": func(s *storm) {
		s.last += 2 - s.last%2 // So that the signature is under a tag.
		good := s.publish(s.last)
		signature := s.request(http.MethodGet, "/manifests/"+strings.Replace(good, ":", "-", 1)+".sig", "", nil)
		s.request(http.MethodPut, "/manifests/"+strings.Replace(s.evil(), ":", "-", 1)+".sig", "application/vnd.oci.image.manifest.v1+json", signature)
	},
	"a manifest with our annotations and another module": func(s *storm) {
		module, opts := s.version(s.last)
		push(s.t, s.publisher, s.clean, append(module, 0, 1, 0), opts)
	},
	"a deletion": func(s *storm) {
		s.request(http.MethodDelete, "/manifests/"+push(s.t, s.publisher, s.clean, s.base, oci.PushOptions{}), "", nil)
	},
}

// faults are how the server fails for a while.
var faults = map[string]func(w http.ResponseWriter, r *http.Request, next http.Handler) bool{
	"none": func(http.ResponseWriter, *http.Request, http.Handler) bool { return false },
	"errors": func(w http.ResponseWriter, _ *http.Request, _ http.Handler) bool {
		w.WriteHeader(http.StatusBadGateway)
		return true
	},
	"a limit of the rate": func(w http.ResponseWriter, _ *http.Request, _ http.Handler) bool {
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(http.StatusTooManyRequests)
		return true
	},
	"connections that end": func(http.ResponseWriter, *http.Request, http.Handler) bool { panic(http.ErrAbortHandler) },
	"answers that end early": func(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
		return r.Method == http.MethodGet && truncate(w, r, next, 10)
	},
	"flipped bits": func(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
		return change(w, r, next, func(body []byte) { body[len(body)-1] ^= 1 })
	},
	"the digest of another tag": func(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
		w.Header().Set("Docker-Content-Digest", "sha256:"+strings.Repeat("0", 64))
		return change(w, r, next, func([]byte) {})
	},
}

// change serves a request with another body of the same length.
func change(w http.ResponseWriter, r *http.Request, next http.Handler, body func([]byte)) bool {
	recorder := httptest.NewRecorder()
	next.ServeHTTP(recorder, r)
	for key, values := range recorder.Header() {
		if w.Header().Get(key) == "" {
			w.Header()[key] = values
		}
	}
	w.WriteHeader(recorder.Code)
	data := recorder.Body.Bytes()
	if len(data) != 0 {
		body(data)
	}
	_, _ = w.Write(data)
	return true
}

// checkedSource is a source that reports what a host gets to compile.
type checkedSource struct {
	host.ConditionalSource
	check func(module []byte, digest string)
}

func (s *checkedSource) FetchUnless(ctx context.Context, revision string) ([]byte, string, error) {
	module, current, err := s.ConditionalSource.FetchUnless(ctx, revision)
	if err == nil && module != nil {
		s.check(module, current)
	}
	return module, current, err
}

// TestNothingUnsignedIsCompiledInAStorm moves a tag in every way while plugins follow it and
// the registry fails. What a host gets to compile is always a module with our signature, of
// the digest that was signed, and never an older one. Every call is answered.
func TestNothingUnsignedIsCompiledInAStorm(t *testing.T) {
	registry := distribution(t, nil)
	server, clean := newServer(t, registry, false), newServer(t, registry, false)
	key, public := newKey(t)
	s := &storm{
		t: t, key: key, base: guest(t, "noop"), clean: clean.ref(t, "acme/zone:1"), faulty: server.ref(t, "acme/zone:1"),
		publisher: newClient(t, oci.Config{Registries: plain(clean)}), signed: map[string][]byte{}, versions: map[string]int{},
	}
	s.publish(0)

	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.WithoutCancel(t.Context()))
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	var compiled, refused, failed, calls atomic.Int64
	shared := t.TempDir()
	var plugins []*host.Plugin
	var uses []chan struct{} // One for each plugin: it is called.
	for i, cache := range []string{shared, shared, t.TempDir(), ""} {
		cfg := oci.Config{Registries: plain(server), CacheDir: cache, Trust: []oci.Trust{
			{Repositories: []string{"*"}, AllOf: []oci.Signer{{Name: "us", Key: public}}, RefuseDowngrades: true},
		}}
		newest := 0 // Fetches of a source come one after the other.
		source := &checkedSource{newClient(t, cfg).Source(s.faulty.String()).(host.ConditionalSource), func(module []byte, digest string) {
			s.mu.Lock()
			want, version := s.signed[digest], s.versions[digest]
			s.mu.Unlock()
			compiled.Add(1)
			switch {
			case want == nil:
				t.Errorf("follower %d got %s, which we never signed", i, digest)
			case !bytes.Equal(want, module):
				t.Errorf("follower %d got another module than that of %s", i, digest)
			case version < newest:
				t.Errorf("follower %d got version %d after %d", i, version, newest)
			}
			newest = max(newest, version)
		}}
		p, err := rt.Load(ctx, host.Config{Name: fmt.Sprint("zone", i), Module: host.ModuleConfig{Source: source}}, host.Adapter{Kind: abi.KindScheduler})
		if err != nil {
			t.Fatal(err)
		}
		plugins = append(plugins, p)
		running.Go(func() {
			_ = p.Follow(ctx, host.FollowOptions{Interval: time.Millisecond, Failed: func(err error) {
				if _, ok := errors.AsType[*oci.TrustError](err); ok {
					refused.Add(1)
				} else {
					failed.Add(1)
				}
			}})
		})
		use := make(chan struct{}, 1)
		uses = append(uses, use)
		running.Go(func() {
			for {
				select {
				case <-use:
				case <-ctx.Done():
					return
				}
				inst, err := p.Acquire(ctx)
				if err == nil {
					_, err = inst.Call(ctx, abi.Filter, 0, 0, 0)
					inst.Release()
				}
				if err != nil && ctx.Err() == nil {
					t.Errorf("follower %d: call: %v", i, err)
				}
				calls.Add(1)
			}
		})
	}

	// Each move happens during each fault, and the followers look meanwhile.
	requests := make(chan struct{}, 1)
	look := func() {
		t.Helper()
		for range 5 {
			select {
			case <-requests:
			case <-ctx.Done():
				t.Fatal(ctx.Err())
			}
		}
	}
	for what, fault := range faults {
		server.setFault(func(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
			for _, c := range append(uses, requests) {
				select {
				case c <- struct{}{}:
				default:
				}
			}
			return rand.IntN(3) == 0 && fault(w, r, next)
		})
		for move, do := range moves {
			do(s)
			if look(); t.Failed() {
				t.Fatalf("by %s, with the fault %q", move, what)
			}
		}
	}

	s.last++
	s.publish(s.last)
	final, _ := s.version(s.last)
	about, err := host.Inspect(final)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range plugins {
		for p.Digest() != about.Digest() {
			look()
		}
	}
	stop()
	running.Wait()
	if compiled.Load() == 0 || refused.Load() == 0 || failed.Load() == 0 || calls.Load() == 0 {
		t.Errorf("%d modules, %d refusals, %d failures, %d calls: each must have happened", compiled.Load(), refused.Load(), failed.Load(), calls.Load())
	}
	t.Logf("%d modules, %d refusals, %d failures, %d calls", compiled.Load(), refused.Load(), failed.Load(), calls.Load())
}
