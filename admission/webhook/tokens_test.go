package webhook

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/kubewasm/kubewasm/admission"
)

const (
	issuer   = "https://kubernetes.default.svc.cluster.local"
	audience = "https://webhook.kubewasm.svc:443/validate"
)

// signer signs tokens as an API server does.
type signer struct {
	key  crypto.Signer
	name string
}

func newSigner(t *testing.T, name string, kind jose.SignatureAlgorithm) *signer {
	t.Helper()
	var key crypto.Signer
	var err error
	if kind == jose.RS256 {
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	} else {
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &signer{key, name}
}

func (s *signer) algorithm() jose.SignatureAlgorithm {
	if _, ok := s.key.(*rsa.PrivateKey); ok {
		return jose.RS256
	}
	return jose.ES256
}

// token returns a token with claims, in JSON.
func (s *signer) token(t *testing.T, claims map[string]any) string {
	t.Helper()
	options := (&jose.SignerOptions{}).WithType("JWT").WithHeader("kid", s.name)
	signing, err := jose.NewSigner(jose.SigningKey{Algorithm: s.algorithm(), Key: s.key}, options)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(signing).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// keySetOf returns the public keys of signers as a JWK Set.
func keySetOf(t *testing.T, signers ...*signer) []byte {
	t.Helper()
	var set jose.JSONWebKeySet
	for _, s := range signers {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: s.key.Public(), KeyID: s.name, Algorithm: string(s.algorithm()), Use: "sig"})
	}
	data, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// bound returns the claims of a token that an API server of 1.37 issues for a webhook
// configuration, of kind "validating" or "mutating", with changes; nil takes a claim away.
func bound(kind string, changes map[string]any) map[string]any {
	now := time.Now()
	claims := map[string]any{
		"iss": issuer, "aud": []string{audience}, "sub": "system:serviceaccount:kube-system:webhook-auth",
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(10 * time.Minute).Unix(), "jti": "1",
		"kubernetes.io": map[string]any{
			"namespace": "kube-system", "serviceaccount": map[string]any{"name": "webhook-auth", "uid": "u"},
			kind + "webhookconfiguration": map[string]any{"name": "kubewasm-webhook", "uid": "u"},
			"attestations":                map[string]any{"admissionReviewAPIGroups": []string{"*"}},
		},
	}
	for name, value := range changes {
		if value == nil {
			delete(claims, name)
			continue
		}
		claims[name] = value
	}
	return claims
}

func serverOf(t *testing.T, cfg TokenConfig) (*Server, http.Handler) {
	t.Helper()
	s, err := New(Config{Engine: admission.NewEngine(), Tokens: &cfg})
	if err != nil {
		t.Fatal(err)
	}
	return s, s.Handler()
}

// ask sends a review of a group to a path and returns the code of the answer, and the
// message if the request is refused or denied.
func ask(t *testing.T, h http.Handler, path, group string, authorization ...string) (int, string) {
	t.Helper()
	body := `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","resource":{"group":"` + group + `","version":"v1","resource":"things"},"operation":"CREATE","object":{}}}`
	if strings.HasPrefix(path, "/convert") {
		body = `{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","request":{"uid":"u","desiredAPIVersion":"g/v1","objects":[]}}`
	}
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for _, value := range authorization {
		r.Header.Add("Authorization", value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	var answer struct {
		Message  string
		Response struct {
			Allowed bool
			Status  struct {
				Message string
				Code    int
			}
		}
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	if w.Code == http.StatusUnauthorized && w.Header().Get("WWW-Authenticate") == "" {
		t.Error("401 does not say how to authenticate")
	}
	if w.Code == http.StatusOK && answer.Response.Status.Code != 0 {
		return answer.Response.Status.Code, answer.Response.Status.Message
	}
	return w.Code, answer.Message
}

func TestTokens(t *testing.T) {
	rs, es, stranger := newSigner(t, "rs", jose.RS256), newSigner(t, "es", jose.ES256), newSigner(t, "rs", jose.RS256)
	keys := keySetOf(t, rs, es)
	required := TokenConfig{
		Required: true, Issuer: issuer, Audiences: []string{audience, "https://webhook.example.com/validate"},
		Keys:     func(context.Context) ([]byte, error) { return keys, nil },
		Subjects: []string{"system:serviceaccount:kube-system:caller"},
	}
	only := required
	only.Configurations = []string{"other"}
	optional := required
	optional.Required = false
	kubernetes := func(claims map[string]any) map[string]any { return map[string]any{"kubernetes.io": claims} }
	past := func(d time.Duration) int64 { return time.Now().Add(-d).Unix() }
	hmac, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: []byte("0123456789abcdef0123456789abcdef")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	symmetric, err := jwt.Signed(hmac).Claims(bound("validating", nil)).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	const refused = "the bearer token is refused: "
	good := rs.token(t, bound("validating", nil))
	for _, test := range []struct {
		name          string
		cfg           TokenConfig
		path, group   string
		authorization []string
		code          int
		message       string
	}{
		{"a token for a validating webhook", required, "/validate", "apps", []string{"Bearer " + good}, 200, ""},
		{"one of another key", required, "/validate", "", []string{"bearer  " + es.token(t, bound("validating", nil))}, 200, ""},
		{"one for a mutating webhook", required, "/mutate", "apps", []string{"Bearer " + rs.token(t, bound("mutating", nil))}, 200, ""},
		{"one for another audience of ours", required, "/validate", "apps", []string{"Bearer " + rs.token(t, bound("validating", map[string]any{"aud": "https://webhook.example.com/validate"}))}, 200, ""},
		{"one of a subject that needs not be bound", required, "/mutate", "apps", []string{"Bearer " + rs.token(t, bound("", map[string]any{"sub": "system:serviceaccount:kube-system:caller", "kubernetes.io": nil}))}, 200, ""},
		{"one that attests the group", required, "/validate", "apps", []string{"Bearer " + rs.token(t, bound("validating", kubernetes(map[string]any{
			"validatingwebhookconfiguration": map[string]any{"name": "n"}, "attestations": map[string]any{"admissionReviewAPIGroups": []string{"apps"}},
		})))}, 200, ""},
		{"one that attests another group", required, "/validate", "", []string{"Bearer " + rs.token(t, bound("validating", kubernetes(map[string]any{
			"validatingwebhookconfiguration": map[string]any{"name": "n"}, "attestations": map[string]any{"admissionReviewAPIGroups": []string{"apps"}},
		})))}, 403, `the bearer token of the request is not for reviews of the API group ""`},
		{"one that attests another group, to a mutating webhook", required, "/mutate/x", "batch", []string{"Bearer " + rs.token(t, bound("mutating", kubernetes(map[string]any{
			"mutatingwebhookconfiguration": map[string]any{"name": "n"}, "attestations": map[string]any{"admissionReviewAPIGroups": []string{"apps"}},
		})))}, 404, "there is no such policy"},
		{"one that attests nothing", required, "/validate", "apps", []string{"Bearer " + rs.token(t, bound("validating", kubernetes(map[string]any{"validatingwebhookconfiguration": map[string]any{"name": "n"}})))}, 401, refused + "it attests no API groups"},
		{"one that any Pod can have", required, "/validate", "apps", []string{"Bearer " + rs.token(t, bound("validating", kubernetes(map[string]any{"pod": map[string]any{"name": "web"}})))}, 401, refused + "it is not bound to a ValidatingWebhookConfiguration, and its subject is not exempt"},
		{"one for the other kind of webhook", required, "/mutate", "apps", []string{"Bearer " + good}, 401, refused + "it is not bound to a MutatingWebhookConfiguration, and its subject is not exempt"},
		{"one for both kinds of webhook", required, "/validate", "apps", []string{"Bearer " + rs.token(t, bound("validating", kubernetes(map[string]any{
			"validatingwebhookconfiguration": map[string]any{"name": "n"}, "mutatingwebhookconfiguration": map[string]any{"name": "n"},
		})))}, 401, refused + "it is not bound to a ValidatingWebhookConfiguration, and its subject is not exempt"},
		{"one for another configuration", only, "/validate", "apps", []string{"Bearer " + good}, 401, refused + `it is bound to the ValidatingWebhookConfiguration "kubewasm-webhook"`},
		{"another issuer", required, "/validate", "apps", []string{"Bearer " + rs.token(t, bound("validating", map[string]any{"iss": "https://other"}))}, 401, refused + "it has a different issuer"},
		{"another audience", required, "/validate", "apps", []string{"Bearer " + rs.token(t, bound("validating", map[string]any{"aud": []string{issuer}}))}, 401, refused + "it has a different audience"},
		{"no audience", required, "/validate", "apps", []string{"Bearer " + rs.token(t, bound("validating", map[string]any{"aud": nil}))}, 401, refused + "it has a different audience"},
		{"an expired one", required, "/validate", "apps", []string{"Bearer " + rs.token(t, bound("validating", map[string]any{"exp": past(2 * time.Minute)}))}, 401, refused + "it has expired"},
		{"one that does not expire", required, "/validate", "apps", []string{"Bearer " + rs.token(t, bound("validating", map[string]any{"exp": nil}))}, 401, refused + "it does not expire"},
		{"one that is not valid yet", required, "/validate", "apps", []string{"Bearer " + rs.token(t, bound("validating", map[string]any{"nbf": past(-2 * time.Minute)}))}, 401, refused + "it is not valid yet"},
		{"another signature", required, "/validate", "apps", []string{"Bearer " + stranger.token(t, bound("validating", nil))}, 401, refused + "its signature is not the issuer's"},
		{"an unknown key", required, "/validate", "apps", []string{"Bearer " + newSigner(t, "new", jose.ES256).token(t, bound("validating", nil))}, 401, refused + "the issuer has no key with its id"},
		{"a secret as the key", required, "/validate", "apps", []string{"Bearer " + symmetric}, 401, refused + "it is not a signed token of an API server"},
		{"no signature", required, "/validate", "apps", []string{"Bearer " + good[:strings.LastIndexByte(good, '.')+1]}, 401, refused},
		{"no token at all", required, "/validate", "apps", []string{"Bearer x"}, 401, refused + "it is not a signed token of an API server"},
		{"an empty token", required, "/validate", "apps", []string{"Bearer "}, 401, "a bearer token is required"},
		{"another scheme", required, "/validate", "apps", []string{"Basic " + good}, 401, "a bearer token is required"},
		{"two tokens", required, "/validate", "apps", []string{"Bearer " + good, "Bearer " + good}, 401, "a bearer token is required"},
		{"nothing", required, "/validate", "apps", nil, 401, "a bearer token is required"},
		{"nothing, by the path of a policy", required, "/validate/x", "apps", nil, 401, "a bearer token is required"},
		{"nothing, where it is not required", optional, "/validate", "apps", nil, 200, ""},
		{"an expired one, where it is not required", optional, "/validate", "apps", []string{"Bearer " + rs.token(t, bound("validating", map[string]any{"exp": past(time.Hour)}))}, 401, refused + "it has expired"},
		{"a conversion, for which an API server has no token", required, "/convert", "", nil, 200, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, h := serverOf(t, test.cfg)
			if code, message := ask(t, h, test.path, test.group, test.authorization...); code != test.code || !strings.HasPrefix(message, test.message) {
				t.Errorf("answer is %d %s\nwant      %d %s", code, message, test.code, test.message)
			}
		})
	}
}

// clock is a time that the test changes.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

func TestKeysOfTheIssuerChange(t *testing.T) {
	first, second := newSigner(t, "first", jose.ES256), newSigner(t, "second", jose.ES256)
	time0 := &clock{t: time.Now()}
	asked, keys, failure := 0, keySetOf(t, first), error(nil)
	s, h := serverOf(t, TokenConfig{Required: true, Issuer: issuer, Audiences: []string{audience}, Keys: func(context.Context) ([]byte, error) {
		asked++
		return keys, failure
	}})
	s.tokens.now = time0.now
	expect := func(signer *signer, code, asks int) {
		t.Helper()
		token := signer.token(t, bound("validating", map[string]any{"exp": time0.now().Add(time.Minute).Unix()}))
		if got, message := ask(t, h, "/validate", "", "Bearer "+token); got != code {
			t.Errorf("answer is %d %s, want %d", got, message, code)
		}
		s.tokens.keys.asking.Lock() // Keys that are asked for beside the request have come.
		defer s.tokens.keys.asking.Unlock()
		if asked != asks {
			t.Errorf("keys were asked for %d times, want %d", asked, asks)
		}
	}
	failure = errors.New("no connection")
	expect(first, http.StatusServiceUnavailable, 1)
	expect(first, http.StatusServiceUnavailable, 1) // Not again and again.
	failure = nil
	time0.add(keysPause)
	expect(first, http.StatusOK, 2)
	expect(second, http.StatusUnauthorized, 2)
	keys = keySetOf(t, first, second)
	time0.add(keysPause)
	expect(second, http.StatusOK, 3)
	expect(first, http.StatusOK, 3)
	keys = keySetOf(t, second)
	time0.add(keysFresh + time.Second)
	expect(first, http.StatusOK, 4) // It is asked beside the request.
	expect(first, http.StatusUnauthorized, 4)
	failure = errors.New("no connection")
	time0.add(keysUsable)
	expect(second, http.StatusServiceUnavailable, 5)
}

func TestKeys(t *testing.T) {
	s := newSigner(t, "k", jose.ES256)
	der, err := x509.MarshalPKIXPublicKey(s.key.Public())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "keys.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	issuing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/openid/v1/jwks" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(keySetOf(t, s))
	}))
	defer issuing.Close()
	for name, keys := range map[string]func(context.Context) ([]byte, error){
		"a file in PEM": KeysFile(file), "a URL": KeysURL(issuing.Client(), issuing.URL+"/openid/v1/jwks"),
	} {
		t.Run(name, func(t *testing.T) {
			_, h := serverOf(t, TokenConfig{Required: true, Issuer: issuer, Audiences: []string{audience}, Keys: keys})
			if code, message := ask(t, h, "/validate", "", "Bearer "+s.token(t, bound("validating", nil))); code != http.StatusOK {
				t.Errorf("answer is %d %s", code, message)
			}
		})
	}
	if _, err := KeysURL(issuing.Client(), issuing.URL)(t.Context()); err == nil || !strings.HasSuffix(err.Error(), "404 Not Found") {
		t.Errorf("error is %v", err)
	}
	private, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: s.key, KeyID: "k"}}})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"{":             "read a JWK Set: unexpected end of JSON input",
		`{"keys":[]}`:   "there is no public key for signatures",
		string(private): "there is no public key for signatures",
		"-----BEGIN X-----\nAAAA\n-----END X-----\n": `read a public key of type "X": `,
		strings.Repeat(" ", maxKeysBytes+1):          "keys have more than 1048576 bytes",
	} {
		if keys, err := parseKeys([]byte(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("parseKeys(%.40q) = %v, %v; want %s", text, keys, err, want)
		}
	}
}

func TestTokenConfigThatIsWrong(t *testing.T) {
	_, err := New(Config{Engine: admission.NewEngine(), Tokens: &TokenConfig{Audiences: []string{""}, Subjects: []string{"caller"}}})
	const want = `webhook server: configuration: tokens: issuer is empty
tokens: audiences are empty, or one of them is
tokens: keys are missing
tokens: subjects has "caller", want system:serviceaccount:NAMESPACE:NAME`
	if err == nil || err.Error() != want {
		t.Errorf("error is %v\nwant     %s", err, want)
	}
}

// FuzzAuthenticate reads what anybody may send as a token.
func FuzzAuthenticate(f *testing.F) {
	f.Add("Bearer eyJhbGciOiJub25lIn0.e30.")
	f.Add("Bearer eyJhbGciOiJFUzI1NiIsImtpZCI6ImsifQ.eyJpc3MiOiJ4In0.AAAA")
	v := newVerifier(TokenConfig{Required: true, Issuer: issuer, Audiences: []string{audience}, Keys: func(context.Context) ([]byte, error) {
		return []byte(`{"keys":[{"kty":"EC","crv":"P-256","kid":"k","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}`), nil
	}}, nil)
	f.Fuzz(func(t *testing.T, authorization string) {
		r := httptest.NewRequest(http.MethodPost, "/validate", nil)
		r.Header["Authorization"] = []string{authorization}
		if _, code, _ := v.authenticate(r, "validate"); code != http.StatusUnauthorized {
			t.Errorf("%q is answered with %d", authorization, code)
		}
	})
}
