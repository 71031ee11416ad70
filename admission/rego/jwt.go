package rego

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	stdjson "encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

var errToken = errors.New("no token that can be read")

const (
	// maxTokenBytes is the maximum length of a token, and of the keys for it.
	maxTokenBytes = 64 << 10
	// maxKeys is the maximum number of keys, and maxRSABits the maximum length of an RSA key.
	maxKeys    = 64
	maxRSABits = 8192
	// keyWork is the cost of reading a key, and signatureWork that of checking a signature.
	keyWork, signatureWork = 100_000, 500_000
)

// token is a JSON Web Token.
type token struct {
	header, payload, signature string // Still encoded.
	decoded                    object // The header.
}

// readToken splits a token into its parts and reads its header.
func readToken(c *call, text string) (*token, error) {
	if len(text) > maxTokenBytes {
		return nil, errTooMuch
	}
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return nil, errToken
	}
	t := &token{header: parts[0], payload: parts[1], signature: parts[2]}
	raw, err := decodeBase64URL(t.header)
	if err != nil {
		return nil, err
	}
	if t.decoded, err = jsonObject(c, raw); err != nil {
		return nil, err
	}
	if _, encrypted := t.decoded.get("enc"); encrypted {
		return nil, errToken
	}
	return t, nil
}

// decodeBase64URL decodes text that may be padded.
func decodeBase64URL(s string) (string, error) {
	if !strings.HasSuffix(s, "=") {
		s += strings.Repeat("=", -len(s)&3)
	}
	raw, err := base64.URLEncoding.DecodeString(s)
	return string(raw), err
}

// jsonObject reads an object of JSON.
func jsonObject(c *call, raw string) (object, error) {
	if !stdjson.Valid([]byte(raw)) {
		return nil, errToken
	}
	v, err := parseValue(c, raw)
	if err != nil {
		return nil, err
	}
	o, ok := v.(object)
	if !ok {
		return nil, errToken
	}
	return o, nil
}

// maxTokens is the maximum depth of nested tokens.
const maxTokens = 16

// jwtDecode returns the header, the payload and the signature of a token, or of the innermost token
// in it.
func jwtDecode(c *call, args []any) (any, error) {
	text, ok := args[0].(string)
	if !ok {
		return nil, errArguments
	}
	for range maxTokens {
		t, err := readToken(c, text)
		if err != nil {
			return nil, err
		}
		raw, err := decodeBase64URL(t.payload)
		if err != nil {
			return nil, err
		}
		if kind, _ := t.decoded.get("cty"); kind == "JWT" {
			text = strings.Trim(raw, `"'`)
			continue
		}
		payload, err := jsonObject(c, raw)
		if err != nil {
			return nil, err
		}
		signature, err := decodeBase64URL(t.signature)
		if err != nil {
			return nil, err
		}
		return []any{t.decoded, payload, hex.EncodeToString([]byte(signature))}, nil
	}
	return nil, errTooMuch
}

// algorithm is a signature algorithm of tokens.
type algorithm struct {
	// kind is HS, RS, PS, ES or Ed.
	kind string
	hash crypto.Hash
}

var algorithms = map[string]algorithm{
	"HS256": {"HS", crypto.SHA256}, "HS384": {"HS", crypto.SHA384}, "HS512": {"HS", crypto.SHA512},
	"RS256": {"RS", crypto.SHA256}, "RS384": {"RS", crypto.SHA384}, "RS512": {"RS", crypto.SHA512},
	"PS256": {"PS", crypto.SHA256}, "PS384": {"PS", crypto.SHA384}, "PS512": {"PS", crypto.SHA512},
	"ES256": {"ES", crypto.SHA256}, "ES384": {"ES", crypto.SHA384}, "ES512": {"ES", crypto.SHA512},
	"EdDSA": {kind: "Ed"},
}

// verifies reports whether signature is valid for the text and the key.
func (a algorithm) verifies(key any, text, signature string) bool {
	digest := []byte(text)
	if a.hash != 0 && a.kind != "HS" {
		h := a.hash.New()
		h.Write(digest)
		digest = h.Sum(nil)
	}
	switch key := key.(type) {
	case []byte:
		if a.kind != "HS" {
			return false
		}
		m := hmac.New(a.hash.New, key)
		m.Write([]byte(text))
		return hmac.Equal([]byte(signature), m.Sum(nil))
	case *rsa.PublicKey:
		switch a.kind {
		case "RS":
			return rsa.VerifyPKCS1v15(key, a.hash, digest, []byte(signature)) == nil
		case "PS":
			return rsa.VerifyPSS(key, a.hash, digest, []byte(signature), nil) == nil
		}
	case *ecdsa.PublicKey:
		n := len(signature) / 2
		return a.kind == "ES" && ecdsa.Verify(key, digest, new(big.Int).SetBytes([]byte(signature[:n])), new(big.Int).SetBytes([]byte(signature[n:])))
	case ed25519.PublicKey:
		return a.kind == "Ed" && len(key) == ed25519.PublicKeySize && ed25519.Verify(key, digest, []byte(signature))
	}
	return false
}

// tokenKey is a key that verifies tokens.
type tokenKey struct {
	algorithm, id string // Empty if the header has none.
	key           any
}

// readKeys reads the keys of a certificate, a public key, a JSON Web Key or a set of JSON Web Keys.
func readKeys(c *call, text string) ([]tokenKey, error) {
	if len(text) > maxTokenBytes {
		return nil, errTooMuch
	}
	c.work(keyWork)
	if block, rest := pem.Decode([]byte(text)); block != nil {
		if len(rest) != 0 {
			return nil, errToken
		}
		var key any
		switch block.Type {
		case "CERTIFICATE":
			cert, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return nil, err
			}
			key = cert.PublicKey
		case "PUBLIC KEY":
			var err error
			if key, err = x509.ParsePKIXPublicKey(block.Bytes); err != nil {
				return nil, err
			}
		default:
			return nil, errToken
		}
		return []tokenKey{{key: key}}, checkKey(key)
	}
	o, err := jsonObject(c, text)
	if err != nil {
		return nil, err
	}
	members := []any{o}
	if set, ok := o.get("keys"); ok {
		if members, ok = set.([]any); !ok {
			return nil, errToken
		}
	}
	if len(members) > maxKeys {
		return nil, errTooMuch
	}
	keys := []tokenKey{}
	for _, member := range members {
		c.work(keyWork)
		o, ok := member.(object)
		if !ok {
			return nil, errToken
		}
		key, err := o.webKey()
		if err != nil {
			return nil, err
		}
		if err := checkKey(key.key); err != nil {
			return nil, err
		}
		if _, known := algorithms[key.algorithm]; known || key.algorithm == "" {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// checkKey returns errTooMuch for a key whose signatures take too long to check.
func checkKey(key any) error {
	if k, ok := key.(*rsa.PublicKey); ok && k.N.BitLen() > maxRSABits {
		return errTooMuch
	}
	return nil
}

var curves = map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384(), "P-521": elliptic.P521()}

// webKey reads a JSON Web Key. A private key verifies nothing.
func (o object) webKey() (key tokenKey, err error) {
	text := func(name string) string {
		v, _ := o.get(name)
		s, _ := v.(string)
		return s
	}
	number := func(name string) []byte {
		raw, decodeErr := base64.RawURLEncoding.DecodeString(strings.TrimRight(text(name), "="))
		if decodeErr != nil || len(raw) == 0 {
			err = errToken
		}
		return raw
	}
	key = tokenKey{algorithm: text("alg"), id: text("kid")}
	_, private := o.get("d")
	switch text("kty") {
	case "RSA":
		e := new(big.Int).SetBytes(number("e"))
		if !e.IsInt64() || e.Int64() > 1<<31-1 {
			return key, errToken
		}
		key.key = &rsa.PublicKey{N: new(big.Int).SetBytes(number("n")), E: int(e.Int64())}
	case "EC":
		curve, ok := curves[text("crv")]
		if !ok {
			return key, errToken
		}
		size := (curve.Params().BitSize + 7) / 8
		x, y := number("x"), number("y")
		if len(x) > size || len(y) > size {
			return key, errToken
		}
		point := make([]byte, 1+2*size)
		point[0] = 4 // Uncompressed point.
		copy(point[1+size-len(x):], x)
		copy(point[1+2*size-len(y):], y)
		if key.key, err = ecdsa.ParseUncompressedPublicKey(curve, point); err != nil {
			return key, err
		}
	case "OKP":
		if text("crv") != "Ed25519" {
			return key, errToken
		}
		key.key = ed25519.PublicKey(number("x"))
	case "oct":
		key.key = number("k")
	default:
		return key, errToken
	}
	if private {
		key.key = nil
	}
	return key, err
}

// tokenHeader holds the parameters used from the header of a token.
type tokenHeader struct{ algorithm, id, kind string }

// parsed returns the header, and reports whether all critical parameters in it are known. In a
// readable header, the parameters of tokenHeader are strings.
func (t *token) parsed() (h tokenHeader, valid bool, err error) {
	critical := map[string]bool{}
	for _, e := range t.decoded {
		s, ok := e.value.(string)
		switch e.key {
		case "alg":
			h.algorithm = s
		case "kid":
			h.id = s
		case "cty":
			h.kind = s
		case "typ":
		case "crit":
			var list []any
			list, ok = e.value.([]any)
			for _, name := range list {
				if name, isText := name.(string); isText {
					critical[name] = true
				} else {
					break
				}
			}
			ok = ok && len(critical) != 0
		default:
			ok = true
		}
		if !ok {
			return h, false, errToken
		}
	}
	valid = h.algorithm != ""
	for _, e := range t.decoded {
		if !slices.Contains([]string{"alg", "kid", "cty", "typ", "crit"}, e.key.(string)) && critical[e.key.(string)] {
			valid = false
		}
	}
	return h, valid, nil
}

// verifiedBy reports whether the token is signed by one of the keys. If a key has the ID named by
// the header, only that key counts. Otherwise, every key for the header's algorithm, or for any
// algorithm, is tried. A key of the wrong kind for a never verifies.
func (t *token) verifiedBy(c *call, keys []tokenKey, h tokenHeader, a algorithm) (bool, error) {
	signature, err := decodeBase64URL(t.signature)
	if err != nil {
		return false, err
	}
	text := t.header + "." + t.payload
	if i := slices.IndexFunc(keys, func(k tokenKey) bool { return h.id != "" && k.id == h.id }); i >= 0 {
		c.work(signatureWork + len(text)*byteWork)
		return a.verifies(keys[i].key, text, signature), nil
	}
	for _, k := range keys {
		if k.algorithm != "" && k.algorithm != h.algorithm {
			continue
		}
		c.work(signatureWork + len(text)*byteWork)
		if a.verifies(k.key, text, signature) {
			return true, nil
		}
	}
	return false, nil
}

// jwtVerify returns a builtin that verifies tokens of one algorithm.
func jwtVerify(name string) builtin {
	a := algorithms[name]
	return func(c *call, args []any) (any, error) {
		list, err := stringsOf(args)
		if err != nil {
			return nil, err
		}
		if a.kind == "HS" {
			parts := strings.Split(list[0], ".")
			if len(parts) != 3 {
				return nil, errToken
			}
			signature, err := decodeBase64URL(parts[2])
			if err != nil {
				return nil, err
			}
			return a.verifies([]byte(list[1]), parts[0]+"."+parts[1], signature), nil
		}
		if len(list[0]) > maxTokenBytes {
			return nil, errTooMuch
		}
		keys, err := readKeys(c, list[1])
		if err != nil {
			return nil, err
		}
		t, err := readToken(c, list[0])
		if err != nil {
			return nil, err
		}
		h, _, err := t.parsed()
		if err != nil {
			return nil, err
		}
		return t.verifiedBy(c, keys, h, a)
	}
}

// constraints are the constraints on a token.
type constraints struct {
	keys                        []tokenKey
	algorithm, issuer, audience string
	// time is in nanoseconds.
	time float64
}

func readConstraints(c *call, o object) (*constraints, error) {
	r, timed, secret := &constraints{}, false, ""
	for _, e := range o {
		s, ok := e.value.(string)
		switch e.key {
		case "cert":
			keys, err := readKeys(c, s)
			if err != nil {
				return nil, err
			}
			r.keys = keys
		case "secret":
			secret = s
		case "alg":
			r.algorithm = s
		case "iss":
			r.issuer = s
		case "aud":
			r.audience = s
		case "time":
			var n number
			if n, ok = e.value.(number); ok {
				var err error
				if r.time, err = strconv.ParseFloat(string(n), 64); err != nil || r.time < 0 {
					return nil, errArguments
				}
				timed = true
			}
		default:
			ok = false
		}
		if !ok {
			return nil, errArguments
		}
	}
	if (r.keys != nil) == (secret != "") {
		return nil, errArguments // Exactly one of the two is required.
	}
	if secret != "" {
		r.keys = []tokenKey{{key: []byte(secret)}}
	}
	if !timed {
		now, err := c.evaluation.now()
		if err != nil {
			return nil, fmt.Errorf("io.jwt.decode_verify without the constraint time: %w", err)
		}
		r.time = float64(now.UnixNano())
	}
	return r, nil
}

// jwtDecodeVerify returns whether a token satisfies the constraints, with its header and payload if
// it does.
func jwtDecodeVerify(c *call, args []any) (any, error) {
	text, ok := args[0].(string)
	o, ok2 := args[1].(object)
	if !ok || !ok2 {
		return nil, errArguments
	}
	r, err := readConstraints(c, o)
	if err != nil {
		return nil, err
	}
	unverified := []any{false, object{}, object{}}
	for range maxTokens {
		t, err := readToken(c, text)
		if err != nil {
			return nil, err
		}
		h, valid, err := t.parsed()
		if err != nil {
			return nil, err
		}
		a, known := algorithms[h.algorithm]
		if !valid || r.algorithm != "" && r.algorithm != h.algorithm {
			return unverified, nil
		}
		if verified, err := t.verifiedBy(c, r.keys, h, a); err != nil {
			return nil, err
		} else if !verified || !known {
			return unverified, nil
		}
		raw, err := decodeBase64URL(t.payload)
		if err != nil {
			return nil, err
		}
		if strings.EqualFold(h.kind, "JWT") {
			text = raw
			continue
		}
		payload, err := jsonObject(c, raw)
		if err != nil {
			return nil, err
		}
		if ok, err := r.allow(payload); err != nil {
			return nil, err
		} else if !ok {
			return unverified, nil
		}
		return []any{true, t.decoded, payload}, nil
	}
	return nil, errTooMuch
}

// allow reports whether the claims of a payload satisfy the constraints.
func (r *constraints) allow(payload object) (bool, error) {
	if r.issuer != "" {
		issuer, _ := payload.get("iss")
		if issuer != r.issuer {
			return false, nil
		}
	}
	audience, ok := payload.get("aud")
	if ok && audience != any(r.audience) && !contains(elements(audience), r.audience) || !ok && r.audience != "" {
		return false, nil
	}
	now := number(strconv.FormatFloat(r.time/1e9, 'g', -1, 64))
	if exp, ok := payload.get("exp"); ok {
		if !isOf[number](exp) {
			return false, errToken
		}
		if compareNumbers(now, exp.(number)) >= 0 {
			return false, nil
		}
	}
	if nbf, ok := payload.get("nbf"); ok {
		if !isOf[number](nbf) {
			return false, errToken
		}
		if compareNumbers(now, nbf.(number)) < 0 {
			return false, nil
		}
	}
	return true, nil
}
