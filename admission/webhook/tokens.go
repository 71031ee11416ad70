package webhook

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/internal/publicerr"
)

// TokenConfig configures the bearer tokens by which a client of the admission webhooks proves to be
// an API server: ServiceAccount tokens of the cluster. They are verified here, without a call of
// the API server.
//
// A signature of the cluster and the right audience are not enough, since every Pod can get a token
// with an audience of its choice. A token must be bound to a webhook configuration by the API
// server that issued it (KEP-6060, from Kubernetes 1.37 on), or be of one of Subjects. A bound
// token is valid for the kind of webhook of its configuration, and for reviews of the API group
// that it attests, or of all groups if that is "*".
type TokenConfig struct {
	// Required refuses requests without a token. Otherwise requests without a token are served, and
	// tokens are verified if present.
	Required bool
	// Issuer is the issuer of the tokens: the --service-account-issuer of the API server.
	// Required.
	Issuer string
	// Audiences lists the accepted audiences, one of which a token must have: the URL in the
	// webhook configuration, or https://NAME.NAMESPACE.svc:PORT/PATH of the Service in it.
	// Required.
	Audiences []string
	// Keys returns the public keys of the issuer: a JWK Set in JSON, as from /openid/v1/jwks of the
	// API server, or keys in PEM. Required. It is called at first, every few minutes, and when a
	// token names an unknown key.
	Keys func(ctx context.Context) ([]byte, error)
	// Configurations are the webhook configurations to which tokens may be bound, by name.
	// Any if empty.
	Configurations []string
	// Subjects are ServiceAccounts whose tokens are accepted even if they are not bound, such as
	// "system:serviceaccount:kube-system:webhook-caller". They are for an API server that gets such
	// a token from its kubeconfig for webhooks.
	Subjects []string
}

// KeysFile returns a function that reads the keys in a file, for TokenConfig.Keys.
func KeysFile(file string) func(ctx context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) { return os.ReadFile(file) }
}

// KeysURL returns a function that gets the keys from a URL by client, for TokenConfig.Keys.
func KeysURL(client *http.Client, url string) func(ctx context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return nil, err
		}
		response, err := client.Do(request)
		if err != nil {
			return nil, err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("get %s: %s", url, response.Status)
		}
		return io.ReadAll(io.LimitReader(response.Body, maxKeysBytes+1))
	}
}

// check returns all mistakes in the configuration.
func (c *TokenConfig) check() (errs []error) {
	if c.Issuer == "" {
		errs = append(errs, errors.New("tokens: issuer is empty"))
	}
	if len(c.Audiences) == 0 || slices.Contains(c.Audiences, "") {
		errs = append(errs, errors.New("tokens: audiences are empty, or one of them is"))
	}
	if c.Keys == nil {
		errs = append(errs, errors.New("tokens: keys are missing"))
	}
	for _, subject := range c.Subjects {
		if parts := strings.Split(subject, ":"); len(parts) != 4 || parts[0] != "system" || parts[1] != "serviceaccount" || parts[2] == "" || parts[3] == "" {
			errs = append(errs, fmt.Errorf("tokens: subjects has %q, want system:serviceaccount:NAMESPACE:NAME", subject))
		}
	}
	return errs
}

// verifier verifies tokens. It is safe for use by several goroutines.
type verifier struct {
	cfg  TokenConfig
	keys issuerKeys
	now  func() time.Time
}

func newVerifier(cfg TokenConfig, logger *slog.Logger) *verifier {
	v := &verifier{cfg: cfg, now: time.Now}
	v.keys.fetch, v.keys.logger, v.keys.now = cfg.Keys, logger, func() time.Time { return v.now() }
	return v
}

// algorithms are the algorithms by which an API server signs tokens, with its own keys or those of
// an external signer (k8s.io/externaljwt).
var algorithms = []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.ES384, jose.ES512}

// kubernetesClaims are the private claims of a ServiceAccount token, as written by
// k8s.io/kubernetes/pkg/serviceaccount.
type kubernetesClaims struct {
	Kubernetes struct {
		Validating   *boundRef           `json:"validatingwebhookconfiguration"`
		Mutating     *boundRef           `json:"mutatingwebhookconfiguration"`
		Attestations map[string][]string `json:"attestations"`
	} `json:"kubernetes.io"`
}

type boundRef struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
}

// attestedGroups is the key of the API groups that an issuer attests.
const attestedGroups = "admissionReviewAPIGroups"

// errNoKeys reports that a token could not be verified at all.
var errNoKeys = errors.New("the keys of the issuer are unknown")

// verify returns the API groups that a token is valid for, in reviews by a webhook.
func (v *verifier) verify(ctx context.Context, token, webhook string) (groups []string, err error) {
	parsed, err := jwt.ParseSigned(token, algorithms)
	if err != nil || len(parsed.Headers) != 1 {
		return nil, errors.New("it is not a signed token of an API server")
	}
	keys, err := v.keys.of(ctx, parsed.Headers[0].KeyID)
	if err != nil {
		return nil, err
	}
	var claims jwt.Claims
	var private kubernetesClaims
	err = errors.New("the issuer has no key with its id")
	for _, key := range keys {
		if err = parsed.Claims(key, &claims, &private); err == nil {
			break
		}
		err = errors.New("its signature is not the issuer's")
	}
	if err != nil {
		return nil, err
	}
	if claims.Expiry == nil {
		return nil, errors.New("it does not expire")
	}
	if err := claims.Validate(jwt.Expected{Issuer: v.cfg.Issuer, AnyAudience: v.cfg.Audiences, Time: v.now()}); err != nil {
		return nil, why(err)
	}
	bound, kind := private.Kubernetes.Validating, "ValidatingWebhookConfiguration"
	other := private.Kubernetes.Mutating
	if webhook == "mutate" {
		bound, other, kind = other, bound, "MutatingWebhookConfiguration"
	}
	switch {
	case bound != nil && other == nil:
		groups := private.Kubernetes.Attestations[attestedGroups]
		switch {
		case len(v.cfg.Configurations) != 0 && !slices.Contains(v.cfg.Configurations, bound.Name):
			return nil, fmt.Errorf("it is bound to the %s %.253q", kind, bound.Name)
		case len(groups) == 0 || slices.Contains(groups, ""):
			return nil, errors.New("it attests no API groups")
		}
		return groups, nil
	case slices.Contains(v.cfg.Subjects, claims.Subject):
		return []string{"*"}, nil
	}
	return nil, fmt.Errorf("it is not bound to a %s, and its subject is not exempt", kind)
}

// why describes the mistake in the claims of a token.
func why(err error) error {
	for _, known := range []struct {
		err  error
		text string
	}{
		{jwt.ErrInvalidIssuer, "it has a different issuer"},
		{jwt.ErrInvalidAudience, "it has a different audience"},
		{jwt.ErrExpired, "it has expired"},
		{jwt.ErrNotValidYet, "it is not valid yet"},
		{jwt.ErrIssuedInTheFuture, "it is issued in the future"},
	} {
		if errors.Is(err, known.err) {
			return errors.New(known.text)
		}
	}
	return errors.New("its claims are not valid")
}

// authenticate returns the request with the API groups of its token, or the code and the message of
// a refusal.
func (v *verifier) authenticate(r *http.Request, webhook string) (authenticated *http.Request, code int, message string) {
	header := r.Header.Values("Authorization")
	if len(header) == 0 && !v.cfg.Required {
		return r, 0, ""
	}
	if len(header) != 1 {
		return nil, http.StatusUnauthorized, "a bearer token is required"
	}
	scheme, token, ok := strings.Cut(header[0], " ")
	if token = strings.TrimSpace(token); !ok || !strings.EqualFold(scheme, "Bearer") || token == "" {
		return nil, http.StatusUnauthorized, "a bearer token is required"
	}
	groups, err := v.verify(r.Context(), token, webhook)
	switch {
	case errors.Is(err, errNoKeys):
		return nil, http.StatusServiceUnavailable, "the bearer token cannot be verified: " + publicerr.Words(err)
	case err != nil:
		return nil, http.StatusUnauthorized, "the bearer token is refused: " + publicerr.Words(err)
	}
	return r.WithContext(context.WithValue(r.Context(), groupsKey{}, groups)), 0, ""
}

// groupsKey is the key of the API groups of a request's token.
type groupsKey struct{}

// inGroups asks a policy only about reviews that the request's token is valid for.
type inGroups struct {
	admission.Validator
	admission.Mutator
}

func (g inGroups) Validate(ctx context.Context, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	if refused := outside(ctx, r); refused != nil {
		return refused
	}
	return g.Validator.Validate(ctx, r)
}

func (g inGroups) Mutate(ctx context.Context, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	if refused := outside(ctx, r); refused != nil {
		return refused
	}
	return g.Mutator.Mutate(ctx, r)
}

// outside returns the denial of a review that the request's token is not valid for.
func outside(ctx context.Context, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	groups, ok := ctx.Value(groupsKey{}).([]string)
	if !ok || slices.Contains(groups, "*") || slices.Contains(groups, r.Resource.Group) {
		return nil
	}
	return &admissionv1.AdmissionResponse{UID: r.UID, Result: &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: fmt.Sprintf("the bearer token of the request is not for reviews of the API group %.253q", r.Resource.Group),
	}}
}

const (
	// maxKeysBytes is the maximum length of an issuer's keys.
	maxKeysBytes = 1 << 20
	// keysTimeout bounds the time of getting them.
	keysTimeout = 5 * time.Second
	// keysFresh is the time for which keys are used without a refresh, and keysUsable the time if a
	// refresh fails.
	keysFresh, keysUsable = 5 * time.Minute, time.Hour
	// keysPause is the time between two requests for keys.
	keysPause = 10 * time.Second
)

// issuerKeys are the keys of an issuer.
type issuerKeys struct {
	fetch  func(ctx context.Context) ([]byte, error)
	logger *slog.Logger
	now    func() time.Time

	current atomic.Pointer[keySet]
	// asking is held by the goroutine that requests keys. asked is the time of the last request.
	asking sync.Mutex
	asked  time.Time
}

// keySet holds the keys of one time.
type keySet struct {
	keys []jose.JSONWebKey
	at   time.Time
}

// of returns the keys with a name: all if name is empty, and none if there is no such key even
// after a refresh.
func (k *issuerKeys) of(ctx context.Context, name string) ([]jose.JSONWebKey, error) {
	set, now := k.current.Load(), k.now()
	if found := set.named(name); len(found) != 0 && now.Sub(set.at) < keysUsable {
		if now.Sub(set.at) > keysFresh && k.asking.TryLock() {
			go func() {
				defer k.asking.Unlock()
				k.ask(context.WithoutCancel(ctx))
			}()
		}
		return found, nil
	}
	k.asking.Lock()
	if k.current.Load() == set { // Otherwise, another goroutine has just asked.
		k.ask(context.WithoutCancel(ctx))
	}
	k.asking.Unlock()
	set = k.current.Load()
	if set == nil || k.now().Sub(set.at) >= keysUsable {
		return nil, errNoKeys
	}
	return set.named(name), nil
}

// ask requests keys, unless that was done a moment ago. The caller must hold k.asking.
func (k *issuerKeys) ask(ctx context.Context) {
	if now := k.now(); now.Sub(k.asked) < keysPause {
		return
	}
	k.asked = k.now()
	ctx, cancel := context.WithTimeout(ctx, keysTimeout)
	defer cancel()
	data, err := k.fetch(ctx)
	var keys []jose.JSONWebKey
	if err == nil {
		keys, err = parseKeys(data)
	}
	if err != nil {
		if k.logger != nil {
			k.logger.Error("get the keys of the token issuer", "err", err)
		}
		return
	}
	k.current.Store(&keySet{keys, k.now()})
}

// named returns the keys with a name.
func (s *keySet) named(name string) []jose.JSONWebKey {
	if s == nil || name == "" && len(s.keys) == 0 {
		return nil
	}
	if name == "" {
		return s.keys
	}
	var found []jose.JSONWebKey
	for _, key := range s.keys {
		// Keys in PEM have no names.
		if key.KeyID == name || key.KeyID == "" {
			found = append(found, key)
		}
	}
	return found
}

// parseKeys reads a JWK Set, or public keys in PEM.
func parseKeys(data []byte) ([]jose.JSONWebKey, error) {
	if len(data) > maxKeysBytes {
		return nil, fmt.Errorf("keys have more than %d bytes", maxKeysBytes)
	}
	if block, rest := pem.Decode(data); block != nil {
		var keys []jose.JSONWebKey
		for ; block != nil; block, rest = pem.Decode(rest) {
			key, err := x509.ParsePKIXPublicKey(block.Bytes)
			if err != nil {
				return nil, fmt.Errorf("read a public key of type %.40q: %w", block.Type, err)
			}
			keys = append(keys, jose.JSONWebKey{Key: key})
		}
		return keys, nil
	}
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(data, &set); err != nil {
		return nil, fmt.Errorf("read a JWK Set: %w", err)
	}
	keys := slices.DeleteFunc(set.Keys, func(key jose.JSONWebKey) bool {
		return !key.IsPublic() || !key.Valid() || key.Use != "" && key.Use != "sig"
	})
	if len(keys) == 0 {
		return nil, errors.New("there is no public key for signatures")
	}
	return keys, nil
}
