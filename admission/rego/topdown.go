package rego

import (
	"bytes"
	"context"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// errUndefined is the error of a builtin of OPA without a result, and errFault that of one that
// panicked. errFault ends the call.
var (
	errUndefined = errors.New("undefined")
	errFault     = errors.New("the builtin of OPA panicked")
)

// fromOPA returns a builtin of OPA's evaluator. Nothing can stop it, so bound pays for it before it
// begins, or returns errTooMuch. It may change the arguments.
func fromOPA(name string, bound func(c *call, args []any) error) builtin {
	f := topdown.GetBuiltin(name)
	if f == nil {
		panic("OPA has no builtin " + name)
	}
	return func(c *call, args []any) (result any, err error) {
		if err := bound(c, args); err != nil {
			return nil, err
		}
		t := terms{call: c}
		operands := make([]*ast.Term, len(args))
		for i, arg := range args {
			if operands[i], err = t.term(arg); err != nil {
				return nil, err
			}
		}
		bctx := topdown.BuiltinContext{Context: context.Background()}
		if now, err := c.evaluation.now(); err == nil {
			bctx.Time = ast.NumberTerm(json.Number(strconv.FormatInt(now.UnixNano(), 10)))
		}
		defer func() {
			if r := recover(); r != nil {
				result, err = nil, fmt.Errorf("%w: %v", errFault, r)
			}
		}()
		defined := false
		err = f(bctx, operands, func(term *ast.Term) (err error) {
			defined = true
			result, err = t.value(term.Value, 0)
			return err
		})
		if err == nil && !defined {
			err = errUndefined
		}
		return result, err
	}
}

// maxTerms is the maximum number of values in the arguments or the result of a builtin of OPA, whose
// values take several times the memory of ours.
const maxTerms = 1 << 17

// maxNumberBytes is the maximum length of a number in the arguments, and maxExponentBytes that of its
// exponent: OPA computes all digits of some.
const maxNumberBytes, maxExponentBytes = 1 << 10, 6

// terms converts values to those of OPA and back.
type terms struct {
	call  *call
	count int
}

// pay pays for a value.
func (t *terms) pay() error {
	if t.count%valuesPaid == 0 {
		t.call.work(valuesPaid * 4 * valueWork)
	}
	if t.count++; t.count > maxTerms {
		return errTooMuch
	}
	return nil
}

func (t *terms) term(v any) (*ast.Term, error) {
	if err := t.pay(); err != nil {
		return nil, err
	}
	list := func(values []any) ([]*ast.Term, error) {
		items := make([]*ast.Term, len(values))
		for i, v := range values {
			var err error
			if items[i], err = t.term(v); err != nil {
				return nil, err
			}
		}
		return items, nil
	}
	switch v := v.(type) {
	case nil:
		return ast.NullTerm(), nil
	case bool:
		return ast.BooleanTerm(v), nil
	case string:
		return ast.StringTerm(v), nil
	case number:
		if len(v) > maxNumberBytes || len(v)-strings.IndexAny(string(v), "eE") > maxExponentBytes && strings.ContainsAny(string(v), "eE") {
			return nil, errTooMuch
		}
		return ast.NumberTerm(json.Number(v)), nil
	case []any:
		items, err := list(v)
		return ast.ArrayTerm(items...), err
	case set:
		items, err := list(v)
		return ast.SetTerm(items...), err
	case object:
		items := make([][2]*ast.Term, len(v))
		for i, e := range v {
			pair, err := list([]any{e.key, e.value})
			if err != nil {
				return nil, err
			}
			items[i] = [2]*ast.Term(pair)
		}
		return ast.ObjectTerm(items...), nil
	}
	return nil, fmt.Errorf("a value is %T", v)
}

func (t *terms) value(v ast.Value, depth int) (any, error) {
	if depth > maxValueDepth {
		return nil, errTooMuch
	}
	if err := t.pay(); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case ast.Null:
		return nil, nil
	case ast.Boolean:
		return bool(v), nil
	case ast.String:
		return string(v), nil
	case ast.Number:
		return number(v), nil
	case *ast.Array:
		items := make([]any, v.Len())
		for i := range items {
			var err error
			if items[i], err = t.value(v.Elem(i).Value, depth+1); err != nil {
				return nil, err
			}
		}
		return items, nil
	case ast.Set:
		items := make(set, 0, v.Len())
		err := v.Iter(func(e *ast.Term) error {
			item, err := t.value(e.Value, depth+1)
			items = append(items, item)
			return err
		})
		return newSet(items), err
	case ast.Object:
		items := make(object, 0, v.Len())
		err := v.Iter(func(key, value *ast.Term) error {
			k, err := t.value(key.Value, depth+1)
			if err != nil {
				return err
			}
			of, err := t.value(value.Value, depth+1)
			items = append(items, entry{k, of})
			return err
		})
		return newObject(items), err
	}
	return nil, fmt.Errorf("a value of OPA is %T", v)
}

// length returns a bound for strings: each has at most n bytes, and costs work for each byte.
func length(n, work int) func(c *call, args []any) error {
	return func(c *call, args []any) error {
		for _, arg := range args {
			if s, ok := arg.(string); ok {
				if len(s) > n {
					return errTooMuch
				}
				c.work(len(s) * work)
			}
		}
		return nil
	}
}

// maxVersionBytes is the maximum length of a version.
const maxVersionBytes = 4 << 10

// maxDurationBytes is the maximum length of a duration. OPA takes a longer one apart by a regular
// expression for each unit.
const maxDurationBytes = 1 << 10

// duration bounds a duration.
func duration(c *call, args []any) error {
	if s, ok := args[0].(string); !ok || len(s) > maxDurationBytes {
		return errArguments
	}
	return nil
}

// maxZoneBytes is the maximum length of a time zone's name, and zoneWork the cost of reading a
// zone.
const (
	maxZoneBytes = 64
	zoneWork     = 100_000
)

// moment bounds moments: nanoseconds, or a list of nanoseconds, a time zone and a layout.
func moment(c *call, args []any) error {
	for _, arg := range args {
		list, _ := arg.([]any)
		at := arg
		if len(list) != 0 {
			at = list[0]
		}
		// OPA computes all digits of a number.
		if n, ok := at.(number); ok {
			if _, err := n.int64(); err != nil {
				return errArguments
			}
		}
		if len(list) < 2 {
			continue
		}
		if zone, ok := list[1].(string); !ok || len(zone) > maxZoneBytes {
			return errArguments // No zone has a name that long.
		}
		c.work(zoneWork)
		if err := length(8<<20, 4*byteWork)(c, list[2:]); err != nil {
			return err
		}
	}
	return nil
}

const (
	// maxQuantityBytes is the maximum length of a quantity.
	maxQuantityBytes = 1 << 10
	// maxQuantityExponent is the maximum exponent of a quantity, all of whose digits are computed.
	// OPA accepts six digits, which take minutes.
	maxQuantityExponent = 10_000
	// quantityWork is the cost of computing a digit of a quantity.
	quantityWork = 200
)

// quantity bounds a quantity by the exponents in it.
func quantity(c *call, args []any) error {
	s, _ := args[0].(string)
	if len(s) > maxQuantityBytes {
		return errTooMuch
	}
	digits := len(s)
	for i := range len(s) {
		if s[i]|0x20 != 'e' {
			continue
		}
		exponent := 0
		for _, b := range []byte(strings.TrimLeft(s[i+1:], `+-"`)) {
			if b < '0' || b > '9' {
				break
			}
			exponent = min(10*exponent+int(b-'0'), maxQuantityExponent+1)
		}
		if exponent > maxQuantityExponent {
			return errTooMuch
		}
		digits += exponent
	}
	c.work(digits * quantityWork)
	return nil
}

// maxNetworks is the maximum number of networks to merge or compare.
const maxNetworks = 1 << 16

// networkWork is the cost of reading a network, or of comparing two.
const networkWork = 200

func free(*call, []any) error { return nil }

// cidrExpand bounds the addresses of a network.
func cidrExpand(c *call, args []any) error {
	s, _ := args[0].(string)
	prefix, err := netip.ParsePrefix(s)
	if err != nil {
		return nil //nolint:nilerror // OPA's builtin reports it, or knows a form that netip does not.
	}
	bits := prefix.Addr().BitLen() - prefix.Bits()
	if bits > 16 {
		return errTooMuch
	}
	c.work(networkWork << bits)
	return nil
}

// cidrMerge bounds the networks to merge: OPA takes each merged one out of a list.
func cidrMerge(c *call, args []any) error {
	n := len(elements(args[0]))
	if n > maxNetworks {
		return errTooMuch
	}
	c.work(n*20*networkWork + n*n/25)
	return nil
}

// cidrContainsMatches bounds the pairs to compare.
func cidrContainsMatches(c *call, args []any) error {
	pairs := 1
	for _, arg := range args {
		n := max(1, len(elements(arg)))
		if o, ok := arg.(object); ok {
			n = max(1, len(o))
		}
		if n > maxNetworks {
			return errTooMuch
		}
		pairs *= n
	}
	if pairs > maxWork/networkWork {
		return errTooMuch
	}
	c.work(pairs*4*networkWork + sortWork(pairs))
	return nil
}

const (
	// maxTokenBytes is the maximum length of a token, and of the keys for it.
	maxTokenBytes = 64 << 10
	// maxTokens is the depth of nested tokens that fit into maxTokenBytes.
	maxTokens = 32
	// maxKeys is the maximum number of keys, and maxRSABits the maximum length of an RSA key.
	maxKeys    = 64
	maxRSABits = 8192
	// keyWork is the cost of reading a key, and signatureWork that of checking a signature.
	keyWork, signatureWork = 100_000, 500_000
)

// tokenDecode bounds a token.
func tokenDecode(c *call, args []any) error {
	text, _ := args[0].(string)
	if len(text) > maxTokenBytes {
		return errTooMuch
	}
	c.work(len(text) * 8 * byteWork)
	return nil
}

// tokenVerify bounds a token and the keys for it.
func tokenVerify(c *call, args []any) error {
	if err := tokenDecode(c, args); err != nil {
		return err
	}
	text, _ := args[1].(string)
	keys, err := keysOf(c, text)
	c.work(keys * signatureWork)
	return err
}

// tokenDecodeVerify bounds a token, which may have others in it, and the keys of the constraints.
// Without the constraint time, it needs the grant for the time.
func tokenDecodeVerify(c *call, args []any) error {
	if err := tokenDecode(c, args); err != nil {
		return err
	}
	o, _ := args[1].(object)
	cert, _ := o.get("cert")
	text, _ := cert.(string)
	keys, err := keysOf(c, text)
	if err != nil {
		return err
	}
	if _, timed := o.get("time"); !timed {
		if _, err := c.evaluation.now(); err != nil {
			return fmt.Errorf("io.jwt.decode_verify without the constraint time: %w", err)
		}
	}
	token, _ := args[0].(string)
	header, _, _ := strings.Cut(token, ".")
	raw, _ := base64.RawURLEncoding.DecodeString(strings.TrimRight(header, "="))
	tokens := 1
	if bytes.Contains(raw, []byte("cty")) || bytes.Contains(raw, []byte(`\`)) {
		tokens = maxTokens
	}
	c.work(max(1, keys) * tokens * signatureWork)
	return nil
}

// keysOf returns the number of keys in a certificate, a public key, a JSON Web Key or a set of them.
// It returns errTooMuch if one of them is so long that a signature takes too long to check.
func keysOf(c *call, text string) (int, error) {
	if len(text) > maxTokenBytes {
		return 0, errTooMuch
	}
	c.work(keyWork + len(text)*certificateWork)
	if block, _ := pem.Decode([]byte(text)); block != nil {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			return 1, checkKey(cert.PublicKey)
		}
		key, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return 0, nil //nolint:nilerror // OPA's builtin reports it.
		}
		return 1, checkKey(key)
	}
	// Keys are counted by a member that each has, wherever a reader of JSON finds them: one may take
	// the first of two equal names, and another the last.
	keys, name := 0, ""
	for d := json.NewDecoder(strings.NewReader(text)); ; {
		token, err := d.Token()
		if err != nil {
			break // OPA's builtin reports it.
		}
		value, ok := token.(string)
		switch {
		case !ok:
			name = ""
		case name == "":
			name = strings.ToLower(value)
			if name == "kty" {
				keys++
			}
		default:
			// Of the members of RSA keys that are numbers, none is longer than the modulus.
			if len(name) <= 2 && name != "k" && len(value) > maxRSABits/6+8 {
				return 0, errTooMuch
			}
			name = ""
		}
	}
	if keys > maxKeys {
		return 0, errTooMuch
	}
	c.work(keys * keyWork)
	return keys, nil
}

// checkKey returns errTooMuch for a key whose signatures take too long to check.
func checkKey(key any) error {
	if k, ok := key.(*rsa.PublicKey); ok && k.N.BitLen() > maxRSABits {
		return errTooMuch
	}
	return nil
}

const (
	// maxCertificatesBytes is the maximum length of all certificates together, and certificateWork
	// the cost of reading a byte of them.
	maxCertificatesBytes, certificateWork = 512 << 10, 400
	// maxVerified is the maximum number of certificates to verify, and maxPolicies that of policies
	// in one of them.
	maxVerified, maxPolicies = 16, 100
	// maxPrivateKeyBytes is the maximum length of all private keys together, and privateKeyWork the
	// cost of reading them: crypto/x509 computes with them.
	maxPrivateKeyBytes, privateKeyWork = 8 << 10, 50_000_000
)

// certificates bounds certificates to read.
var certificates = length(maxCertificatesBytes, certificateWork)

// chain bounds certificates to verify, by their number and their keys.
func chain(c *call, args []any) error {
	if err := certificates(c, args[:1]); err != nil {
		return err
	}
	text, _ := args[0].(string)
	raw := []byte(text)
	if !bytes.HasPrefix(raw, []byte("-----BEGIN")) {
		raw, _ = base64.StdEncoding.DecodeString(text)
	}
	der := raw
	if bytes.HasPrefix(raw, []byte("-----BEGIN")) {
		der = nil
		for block, rest := pem.Decode(raw); block != nil; block, rest = pem.Decode(rest) {
			der = append(der, block.Bytes...)
		}
	}
	certs, err := x509.ParseCertificates(der)
	if err != nil {
		return nil //nolint:nilerror // OPA's builtin returns that they are not verified.
	}
	if len(certs) > maxVerified {
		return errTooMuch
	}
	for _, cert := range certs {
		if err := checkKey(cert.PublicKey); err != nil || len(cert.Policies)+len(cert.PolicyMappings) > maxPolicies {
			return errTooMuch
		}
	}
	c.work(len(certs) * len(certs) * signatureWork)
	return nil
}

// chainWithOptions is chain with options. Without CurrentTime, it needs the grant for the time.
func chainWithOptions(c *call, args []any) error {
	o, ok := args[1].(object)
	if !ok {
		return errArguments
	}
	if limit, ok := o.get("MaxConstraintComparisons"); ok {
		n, _ := limit.(number)
		if i, err := n.int64(); err != nil || i > maxWork/10 {
			return errTooMuch
		}
	}
	if _, timed := o.get("CurrentTime"); !timed {
		now, err := c.evaluation.now()
		if err != nil {
			return fmt.Errorf("crypto.x509.parse_and_verify_certificates_with_options without CurrentTime: %w", err)
		}
		args[1] = newObject(append(append(object{}, o...), entry{"CurrentTime", number(strconv.FormatInt(now.UnixNano(), 10))}))
	}
	return chain(c, args)
}

// privateKeys bounds private keys to read; the last argument has them.
func privateKeys(c *call, args []any) error {
	text, _ := args[len(args)-1].(string)
	if len(text) > maxPrivateKeyBytes {
		return errTooMuch
	}
	c.work(privateKeyWork)
	return certificates(c, args)
}
