package e2e

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/distribution/distribution/v3/configuration"
	_ "github.com/distribution/distribution/v3/registry/auth/htpasswd"
	_ "github.com/distribution/distribution/v3/registry/auth/token"
	"github.com/distribution/distribution/v3/registry/handlers"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/inmemory"
	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/sirupsen/logrus"
	"golang.org/x/crypto/bcrypt"

	"github.com/kubewasm/kubewasm/host/oci"
)

func init() {
	logrus.SetOutput(io.Discard)
}

// server is a registry behind a handler that can be told to fail.
type server struct {
	*httptest.Server
	// host is its address, for references.
	host string

	mu sync.Mutex
	// fault answers a request instead of the registry, and reports whether it did.
	fault func(w http.ResponseWriter, r *http.Request, next http.Handler) bool
	// requests are those that came since they were last asked for: method and path.
	requests []string
}

func newServer(t testing.TB, next http.Handler, tls bool) *server {
	t.Helper()
	s := &server{}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		fault := s.fault
		s.requests = append(s.requests, r.Method+" "+r.URL.Path)
		s.mu.Unlock()
		if fault == nil || !fault(w, r, next) {
			next.ServeHTTP(w, r)
		}
	})
	if tls {
		s.Server = httptest.NewTLSServer(handler)
	} else {
		s.Server = httptest.NewServer(handler)
	}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(s.Close)
	s.host = strings.TrimPrefix(strings.TrimPrefix(s.URL, "http://"), "https://")
	return s
}

func (s *server) setFault(fault func(w http.ResponseWriter, r *http.Request, next http.Handler) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// came returns the requests since the last call.
func (s *server) came() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.requests = nil }()
	return s.requests
}

// ref returns a reference to a repository of the server.
func (s *server) ref(t testing.TB, rest string) oci.Reference {
	t.Helper()
	ref, err := oci.ParseReference(s.host + "/" + rest)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// caFile returns a file with the certificate of a server with TLS.
func (s *server) caFile(t *testing.T) string {
	t.Helper()
	return write(t, "ca.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

func write(t testing.TB, name string, data []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// distribution returns the registry of the distribution project, in memory. It has no API
// for referrers, so they are under a tag.
func distribution(t testing.TB, auth configuration.Auth) http.Handler {
	t.Helper()
	config := &configuration.Configuration{
		Storage: configuration.Storage{"inmemory": configuration.Parameters{}, "delete": configuration.Parameters{"enabled": true}},
		Auth:    auth,
	}
	config.HTTP.Secret = "secret"
	config.Catalog.MaxEntries = 100
	app := handlers.NewApp(t.Context(), config)
	t.Cleanup(func() { _ = app.Shutdown() })
	return app
}

// ggcr returns the registry of go-containerregistry, with the API for referrers.
func ggcr() http.Handler {
	return registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithReferrersSupport(true))
}

// registries are the registries that tests run against.
func registries(t *testing.T) map[string]http.Handler {
	return map[string]http.Handler{"distribution": distribution(t, nil), "go-containerregistry": ggcr()}
}

// basicAuth wants the user and the password us and secret.
func basicAuth(t *testing.T) configuration.Auth {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	return configuration.Auth{"htpasswd": configuration.Parameters{
		"realm": "test", "path": write(t, "htpasswd", []byte("us:"+string(hash)+"\n")),
	}}
}

// tokens is a server of tokens for the registry of the distribution project.
type tokens struct {
	*httptest.Server
	key *ecdsa.PrivateKey
	// realm is where the registry sends those without a token. Default: the server.
	realm string
	// anonymous says that tokens to pull need no credentials.
	anonymous bool

	mu     sync.Mutex
	issued int
}

func newTokens(t *testing.T) *tokens {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s := &tokens{key: key}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

// auth is the configuration of a registry that takes the tokens.
func (s *tokens) auth(t *testing.T) configuration.Auth {
	t.Helper()
	keys, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &s.key.PublicKey, KeyID: "key", Algorithm: "ES256", Use: "sig"}}})
	if err != nil {
		t.Fatal(err)
	}
	return configuration.Auth{"token": configuration.Parameters{
		"realm": cmp.Or(s.realm, s.URL+"/token"), "issuer": "issuer", "service": "registry", "jwks": write(t, "jwks.json", keys),
	}}
}

func (s *tokens) serve(w http.ResponseWriter, r *http.Request) {
	user, password, given := r.BasicAuth()
	known := user == "us" && password == "secret"
	if !known && (given || !s.anonymous) {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	s.mu.Lock()
	s.issued++
	s.mu.Unlock()
	type access struct {
		Type    string   `json:"type"`
		Name    string   `json:"name"`
		Actions []string `json:"actions"`
	}
	var granted []access
	for _, scope := range r.URL.Query()["scope"] {
		for one := range strings.FieldsSeq(scope) {
			if parts := strings.Split(one, ":"); len(parts) == 3 {
				actions := slices.DeleteFunc(strings.Split(parts[2], ","), func(action string) bool { return !known && action != "pull" })
				granted = append(granted, access{parts[0], parts[1], actions})
			}
		}
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: s.key, KeyID: "key"}}, (&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	now := time.Now()
	token, err := jwt.Signed(signer).Claims(map[string]any{
		"iss": "issuer", "sub": "us", "aud": "registry", "exp": now.Add(time.Hour).Unix(), "nbf": now.Add(-time.Minute).Unix(),
		"iat": now.Unix(), "jti": "1", "access": granted,
	}).Serialize()
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"token": token, "expires_in": 3600})
}

// dockerConfig writes a configuration of docker with a user for a host.
func dockerConfig(t *testing.T, host, user, password string) string {
	t.Helper()
	return write(t, "config.json", dockerAuths(t, host, user, password))
}

func dockerAuths(t *testing.T, host, user, password string) []byte {
	t.Helper()
	data, err := json.Marshal(map[string]any{"auths": map[string]any{host: map[string]string{
		"auth": base64.StdEncoding.EncodeToString([]byte(user + ":" + password)),
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func newClient(t testing.TB, cfg oci.Config) *oci.Client {
	t.Helper()
	t.Setenv("DOCKER_CONFIG", t.TempDir()) // Not that of the machine.
	client, err := oci.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// plain is the configuration for servers without TLS.
func plain(servers ...*server) (list []oci.Registry) {
	for _, s := range servers {
		list = append(list, oci.Registry{Host: s.host, PlainHTTP: true})
	}
	return list
}

func newKey(t testing.TB) (*ecdsa.PrivateKey, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return key, string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}
