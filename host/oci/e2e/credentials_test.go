package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/oci"
)

type auths map[string]any

func user(name, password string) map[string]string {
	return map[string]string{"auth": base64.StdEncoding.EncodeToString([]byte(name + ":" + password))}
}

// secrets returns Secrets of docker's configurations by their names.
func secrets(t *testing.T, all map[string]auths) host.ObjectGetter {
	return host.ObjectGetterFunc(func(_ context.Context, _, name string) (map[string][]byte, error) {
		if all[name] == nil {
			return nil, errors.New("there is no such Secret")
		}
		data, err := json.Marshal(map[string]any{"auths": all[name]})
		if err != nil {
			t.Error(err)
		}
		return map[string][]byte{".dockerconfigjson": data}, nil
	})
}

// TestCredentialsAreFoundAsTheKubeletDoes looks at which users a registry sees, in which order.
func TestCredentialsAreFoundAsTheKubeletDoes(t *testing.T) {
	s := newServer(t, distribution(t, basicAuth(t)), false)
	ref := s.ref(t, "team-a/zone:1")
	port := s.host[strings.LastIndex(s.host, ":"):]
	push(t, newClient(t, oci.Config{Registries: plain(s), DockerConfig: dockerConfig(t, s.host, "us", "secret")}), ref, module("1"), oci.PushOptions{})
	ok, bad := user("us", "secret"), func(name string) map[string]string { return user(name, "wrong") }
	for _, tt := range []struct {
		name  string
		all   map[string]auths
		want  []string // The users that the registry sees until it answers.
		works bool
	}{
		{"two paths of a host", map[string]auths{"a": {s.host + "/team-a": ok, s.host + "/team-b": bad("b")}}, []string{"us"}, true},
		{"a host and another path", map[string]auths{"a": {s.host: ok, s.host + "/team-b": bad("b")}}, []string{"us"}, true},
		{"the longest path comes first", map[string]auths{"a": {s.host: bad("all"), s.host + "/team-a/zone": ok, s.host + "/team-a": bad("a")}}, []string{"us"}, true},
		{"a shorter path is tried after a longer one", map[string]auths{"a": {s.host: ok, s.host + "/team-a": bad("a")}}, []string{"a", "us"}, true},
		{"a path is no beginning of a name", map[string]auths{"a": {s.host + "/team": bad("t"), s.host: ok}}, []string{"us"}, true},
		{"all Secrets are tried", map[string]auths{"a": {s.host: bad("a")}, "b": {s.host: ok}}, []string{"a", "us"}, true},
		{"the longest path of all Secrets", map[string]auths{"a": {s.host: bad("a")}, "b": {s.host + "/team-a": ok}}, []string{"us"}, true},
		{"a Secret that is missing", map[string]auths{"b": {s.host: ok}}, []string{"us"}, true},
		{"a pattern", map[string]auths{"a": {"*.0.0.1" + port: ok}}, []string{"us"}, true},
		{"a host before a pattern", map[string]auths{"a": {"127.*.0.?" + port: bad("p"), s.host: ok}}, []string{"us"}, true},
		{"a pattern of fewer parts", map[string]auths{"a": {"*.1" + port: ok}}, nil, false},
		{"a pattern for another port", map[string]auths{"a": {"*.0.0.1": ok}}, nil, false},
		{"the API's path", map[string]auths{"a": {"https://" + s.host + "/v2/": ok}}, []string{"us"}, true},
		{"the API's path before another", map[string]auths{"a": {"http://" + s.host + "/v1/team-a": ok}}, []string{"us"}, true},
		{"user and password", map[string]auths{"a": {s.host: map[string]string{"username": "us", "password": "secret", "auth": ""}}}, []string{"us"}, true},
		{"base64 with a line break and without padding", map[string]auths{"a": {s.host: map[string]string{"auth": strings.TrimRight(ok["auth"], "=") + "\n"}}}, []string{"us"}, true},
		{"an entry of others that is malformed", map[string]auths{"a": {"example.com": map[string]any{"auth": 7}, s.host: ok}}, []string{"us"}, true},
		{"nobody", map[string]auths{"a": {"example.com": ok}, "b": {}}, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var mu sync.Mutex
			seen := map[bool][]string{}
			s.setFault(func(_ http.ResponseWriter, r *http.Request, _ http.Handler) bool {
				mu.Lock()
				defer mu.Unlock()
				if name, _, ok := r.BasicAuth(); ok && (len(seen[true]) == 0 || seen[true][len(seen[true])-1] != name) {
					seen[true] = append(seen[true], name)
				}
				return false
			})
			t.Cleanup(func() { s.setFault(nil) })
			ways := map[string]oci.Config{"pull secrets": {Credentials: oci.PullSecrets(secrets(t, tt.all), "ns", "a", "b")}}
			if len(tt.all) == 1 {
				for _, auths := range tt.all {
					data, err := json.Marshal(map[string]any{"auths": auths})
					if err != nil {
						t.Fatal(err)
					}
					ways["docker's configuration"] = oci.Config{DockerConfig: write(t, "config.json", data)}
				}
			}
			for way, cfg := range ways {
				clear(seen)
				cfg.Registries = plain(s)
				client := newClient(t, cfg)
				for range 3 { // The one that works is kept.
					_, err := client.Fetch(t.Context(), ref)
					if (err == nil) != tt.works {
						t.Errorf("%s: %v", way, err)
					}
				}
				if diff := cmp.Diff(tt.want, seen[true]); diff != "" {
					t.Errorf("%s: users (-want +got)\n%s", way, diff)
				}
			}
		})
	}
}

// TestTokensOfRepositoriesAreBounded asks for many repositories, as a policy does for images of
// users' choice, at a registry whose tokens are as long as they may be.
func TestTokensOfRepositoriesAreBounded(t *testing.T) {
	var server *httptest.Server
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/token":
			fmt.Fprintf(w, `{"token":%q}`, strings.Repeat("t", 16<<10-1))
		case r.Header.Get("Authorization") == "":
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="x",scope="repository:%s:pull"`, server.URL, strings.Repeat("s", 8<<10)))
			w.WriteHeader(http.StatusUnauthorized)
		default:
			w.Header().Set("Docker-Content-Digest", "sha256:"+strings.Repeat("0", 64))
			w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
			w.Header().Set("Content-Length", "7")
		}
	}))
	defer server.Close()
	registry := strings.TrimPrefix(server.URL, "http://")
	client := newClient(t, oci.Config{Registries: []oci.Registry{{Host: registry, PlainHTTP: true}}})
	resolve := func(from, to int) {
		for i := from; i < to; i++ {
			ref, err := oci.ParseReference(fmt.Sprintf("%s/r%d/x:1", registry, i))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.Resolve(t.Context(), ref); err != nil {
				t.Fatal(err)
			}
		}
	}
	resolve(0, 400) // 6.4 MB of tokens, more than are kept.
	before := heap()
	resolve(400, 1600)
	const room = 4 << 20
	if after := heap(); after > before+room {
		t.Errorf("1200 repositories took %d KB, want at most %d", (after-before)>>10, room>>10)
	}
}

// hostileSignatures is a registry with as many signatures of one manifest as are read, each as
// large as it may be.
func hostileSignatures(t *testing.T, payload int) http.Handler {
	t.Helper()
	blob := func(i int) []byte { return fmt.Appendf(nil, "%0*d", payload, i) }
	const manifestType = "application/vnd.oci.image.manifest.v1+json"
	empty := map[string]any{"mediaType": "application/vnd.oci.empty.v1+json", "digest": sum([]byte("{}")), "size": 2}
	manifest := func(artifactType string, layers ...any) []byte {
		m := map[string]any{"schemaVersion": 2, "mediaType": manifestType, "config": empty, "layers": layers}
		if artifactType != "" {
			m["artifactType"] = artifactType
		}
		text, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	var layers []any
	for i := range 64 {
		layers = append(layers, map[string]any{
			"mediaType": "application/vnd.dev.cosign.simplesigning.v1+json", "digest": sum(blob(i)), "size": payload,
			"annotations": map[string]string{"dev.cosignproject.cosign/signature": "AAAA"},
		})
	}
	root, signatures := manifest("", map[string]any{"mediaType": "application/wasm", "digest": sum(nil), "size": 0}), manifest("", layers...)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, name, _ := strings.Cut(r.URL.Path, "/manifests/")
		switch {
		case name == "1" || name == sum(root):
			w.Header().Set("Content-Type", manifestType)
			w.Header().Set("Docker-Content-Digest", sum(root))
			w.Header().Set("Content-Length", fmt.Sprint(len(root)))
			_, _ = w.Write(root)
		case name != "" && (strings.HasSuffix(name, ".sig") || name == sum(signatures)):
			w.Header().Set("Content-Type", manifestType)
			w.Header().Set("Docker-Content-Digest", sum(signatures))
			w.Header().Set("Content-Length", fmt.Sprint(len(signatures)))
			_, _ = w.Write(signatures)
		case strings.Contains(r.URL.Path, "/blobs/"):
			for i := range 64 {
				if strings.HasSuffix(r.URL.Path, sum(blob(i))) {
					_, _ = w.Write(blob(i))
				}
			}
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	})
}

// TestSignaturesAreReadOneByOne asks eight times at once about 64 signatures, and looks at what is
// held when all are at the last one.
func TestSignaturesAreReadOneByOne(t *testing.T) {
	const questions, payload = 8, 64 << 10
	for name, tt := range map[string]struct {
		payload int
		want    string
	}{
		"as large as may be": {payload, "none of 64 signatures"},
		"larger":             {payload + 1, "want at most 65536"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, hostileSignatures(t, tt.payload), false)
			client := newClient(t, oci.Config{Registries: plain(s)})
			before := heap()
			var held uint64
			var atLast sync.WaitGroup
			atLast.Add(questions)
			measured := sync.OnceFunc(func() { held = heap() })
			last := sum(fmt.Appendf(nil, "%0*d", tt.payload, 63))
			s.setFault(func(_ http.ResponseWriter, r *http.Request, _ http.Handler) bool {
				if strings.HasSuffix(r.URL.Path, last) {
					atLast.Done()
					atLast.Wait()
					measured()
				}
				return false
			})
			_, public := newKey(t)
			var wg sync.WaitGroup
			for range questions {
				wg.Go(func() {
					_, _, err := client.Verify(t.Context(), s.ref(t, "acme/zone:1"), oci.Trust{AllOf: []oci.Signer{{Name: "us", Key: public}}})
					var refusal *oci.TrustError
					if !errors.As(err, &refusal) || !strings.Contains(err.Error(), tt.want) {
						t.Errorf("%.300v, want %q", err, tt.want)
					}
				})
			}
			wg.Wait()
			// A payload each, with buffers of connections.
			if room := uint64(8 << 20); held > before+room {
				t.Errorf("%d questions held %d KB, want at most %d", questions, (held-before)>>10, room>>10)
			}
			if (held != 0) != (tt.payload == payload) {
				t.Errorf("%d bytes were held: payloads of %d bytes are read, and no others", held, payload)
			}
		})
	}
}

// heap returns the bytes of the heap that are in use.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func sum(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }
