package rego

import (
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"math"
	"math/big"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // Without zoneinfo, policies would find no zone.

	"github.com/google/uuid"

	"github.com/kubewasm/kubewasm/host"
)

// builtin is a function of Rego implemented by the host and not by modules. An error other than
// errTooMuch makes the expression undefined.
type builtin func(c *call, args []any) (any, error)

// grantOf maps builtins with varying results to the grants that they need. Otherwise a policy would
// decide on data that it was not granted.
var grantOf = map[string]string{
	"time.now_ns": host.GrantClock,
	"crypto.x509.parse_and_verify_certificates": host.GrantClock,
	"rand.intn":    host.GrantRandom,
	"uuid.rfc4122": host.GrantRandom,
}

// builtins are the builtins offered to policies. It lacks builtins that need a network or a parser
// of another language, and those that modules contain themselves.
var builtins = map[string]builtin{
	"sprintf":                        sprintf,
	"json.patch":                     jsonPatch,
	"yaml.is_valid":                  yamlIsValid,
	"yaml.marshal":                   yamlMarshal,
	"yaml.unmarshal":                 yamlUnmarshal,
	"base64url.encode_no_pad":        text(func(s string) (any, error) { return base64.RawURLEncoding.EncodeToString([]byte(s)), nil }),
	"hex.encode":                     text(func(s string) (any, error) { return hex.EncodeToString([]byte(s)), nil }),
	"hex.decode":                     text(func(s string) (any, error) { b, err := hex.DecodeString(s); return string(b), err }),
	"urlquery.encode":                text(func(s string) (any, error) { return url.QueryEscape(s), nil }),
	"urlquery.decode":                text(func(s string) (any, error) { return url.QueryUnescape(s) }),
	"urlquery.encode_object":         urlEncodeObject,
	"urlquery.decode_object":         urlDecodeObject,
	"crypto.md5":                     text(func(s string) (any, error) { return fmt.Sprintf("%x", md5.Sum([]byte(s))), nil }),
	"crypto.sha1":                    text(func(s string) (any, error) { return fmt.Sprintf("%x", sha1.Sum([]byte(s))), nil }),
	"crypto.sha256":                  text(func(s string) (any, error) { return fmt.Sprintf("%x", sha256.Sum256([]byte(s))), nil }),
	"crypto.hmac.md5":                texts(func(a []string) (any, error) { return mac(md5.New, a[0], a[1]), nil }),
	"crypto.hmac.sha1":               texts(func(a []string) (any, error) { return mac(sha1.New, a[0], a[1]), nil }),
	"crypto.hmac.sha256":             texts(func(a []string) (any, error) { return mac(sha256.New, a[0], a[1]), nil }),
	"crypto.hmac.sha512":             texts(func(a []string) (any, error) { return mac(sha512.New, a[0], a[1]), nil }),
	"crypto.hmac.equal":              texts(func(a []string) (any, error) { return hmac.Equal([]byte(a[0]), []byte(a[1])), nil }),
	"glob.quote_meta":                text(func(s string) (any, error) { return globQuote.Replace(s), nil }),
	"regex.split":                    regexSplit,
	"regex.replace":                  regexReplace,
	"regex.find_n":                   regexFindN,
	"semver.is_valid":                fromOPA("semver.is_valid", length(maxVersionBytes, byteWork)),
	"semver.compare":                 fromOPA("semver.compare", length(maxVersionBytes, byteWork)),
	"strings.any_prefix_match":       anyMatch(strings.HasPrefix),
	"strings.any_suffix_match":       anyMatch(strings.HasSuffix),
	"strings.count":                  texts(func(a []string) (any, error) { return strings.Count(a[0], a[1]), nil }),
	"strings.split_n":                splitN,
	"indexof_n":                      texts(indexOfN),
	"numbers.range_step":             rangeStep,
	"net.cidr_is_valid":              fromOPA("net.cidr_is_valid", free),
	"net.cidr_expand":                fromOPA("net.cidr_expand", cidrExpand),
	"net.cidr_merge":                 fromOPA("net.cidr_merge", cidrMerge),
	"net.cidr_contains_matches":      fromOPA("net.cidr_contains_matches", cidrContainsMatches),
	"object.subset":                  objectSubsetOf,
	"units.parse":                    fromOPA("units.parse", quantity),
	"units.parse_bytes":              fromOPA("units.parse_bytes", quantity),
	"time.now_ns":                    timeNow,
	"time.diff":                      fromOPA("time.diff", moment),
	"time.parse_rfc3339_ns":          fromOPA("time.parse_rfc3339_ns", length(8<<20, 8*byteWork)),
	"time.parse_ns":                  fromOPA("time.parse_ns", length(8<<20, 8*byteWork)),
	"time.format":                    fromOPA("time.format", moment),
	"time.parse_duration_ns":         fromOPA("time.parse_duration_ns", duration),
	"time.date":                      fromOPA("time.date", moment),
	"time.clock":                     fromOPA("time.clock", moment),
	"time.weekday":                   fromOPA("time.weekday", moment),
	"time.add_date":                  fromOPA("time.add_date", moment),
	"io.jwt.decode":                  fromOPA("io.jwt.decode", tokenDecode),
	"io.jwt.decode_verify":           fromOPA("io.jwt.decode_verify", tokenDecodeVerify),
	"io.jwt.verify_rs256":            fromOPA("io.jwt.verify_rs256", tokenVerify),
	"io.jwt.verify_rs384":            fromOPA("io.jwt.verify_rs384", tokenVerify),
	"io.jwt.verify_rs512":            fromOPA("io.jwt.verify_rs512", tokenVerify),
	"io.jwt.verify_ps256":            fromOPA("io.jwt.verify_ps256", tokenVerify),
	"io.jwt.verify_ps384":            fromOPA("io.jwt.verify_ps384", tokenVerify),
	"io.jwt.verify_ps512":            fromOPA("io.jwt.verify_ps512", tokenVerify),
	"io.jwt.verify_es256":            fromOPA("io.jwt.verify_es256", tokenVerify),
	"io.jwt.verify_es384":            fromOPA("io.jwt.verify_es384", tokenVerify),
	"io.jwt.verify_es512":            fromOPA("io.jwt.verify_es512", tokenVerify),
	"io.jwt.verify_hs256":            fromOPA("io.jwt.verify_hs256", length(8<<20, 8*byteWork)),
	"io.jwt.verify_hs384":            fromOPA("io.jwt.verify_hs384", length(8<<20, 8*byteWork)),
	"io.jwt.verify_hs512":            fromOPA("io.jwt.verify_hs512", length(8<<20, 8*byteWork)),
	"io.jwt.verify_eddsa":            fromOPA("io.jwt.verify_eddsa", tokenVerify),
	"crypto.x509.parse_certificates": fromOPA("crypto.x509.parse_certificates", certificates),
	"crypto.x509.parse_and_verify_certificates":              fromOPA("crypto.x509.parse_and_verify_certificates", chain),
	"crypto.x509.parse_and_verify_certificates_with_options": fromOPA("crypto.x509.parse_and_verify_certificates_with_options", chainWithOptions),
	"crypto.x509.parse_certificate_request":                  fromOPA("crypto.x509.parse_certificate_request", certificates),
	"crypto.x509.parse_keypair":                              fromOPA("crypto.x509.parse_keypair", privateKeys),
	"crypto.x509.parse_rsa_private_key":                      fromOPA("crypto.x509.parse_rsa_private_key", privateKeys),
	"crypto.parse_private_keys":                              fromOPA("crypto.parse_private_keys", privateKeys),
	"json.match_schema":                                      jsonMatchSchema,
	"json.verify_schema":                                     jsonVerifySchema,
	"trace":                                                  func(*call, []any) (any, error) { return true, nil },
	"internal.print":                                         func(*call, []any) (any, error) { return true, nil },
	"rand.intn":                                              randIntn,
	"uuid.rfc4122":                                           uuidRandom,
	"uuid.parse":                                             text(uuidParse),
	"uri.parse":                                              text(uriParse),
	"uri.is_valid":                                           uriIsValid,
	"graph.reachable_paths":                                  reachablePaths,
	"json.marshal_with_options":                              jsonMarshalWithOptions,
	"regex.template_match":                                   regexTemplateMatch,
	"cast_array":                                             castArray,
	"cast_set":                                               castSet,
	"cast_string":                                            cast(isOf[string]),
	"cast_boolean":                                           cast(isOf[bool]),
	"cast_object":                                            cast(isOf[object]),
	"cast_null":                                              cast(func(v any) bool { return v == nil }),
}

func sorted(names []string) []string {
	slices.Sort(names)
	return names
}

var errArguments = errors.New("arguments are of another type")

// errTooMuch ends the call: a builtin cannot be stopped as a guest can, so expensive work is
// refused in advance. An undefined result would be worse, since a policy may take that for a yes.
var errTooMuch = errors.New("it would take too much time or memory")

// call is a call of a builtin, with the bounds on its cost.
type call struct {
	// spend takes fuel of the policy's call. It does not return if none is left or the time is
	// over.
	spend func(fuel int64)
	// limit is the maximum length in bytes of the arguments, the result and intermediate values:
	// Limits.ResultBytes.
	limit int
	// evaluation is the evaluation that the call is part of.
	evaluation *evaluation
}

// evaluation holds the values shared by all calls of an evaluation.
type evaluation struct {
	// clock reports whether the policy has the grant for the time.
	clock  bool
	time   time.Time
	random map[string]any
}

// errUngranted ends the call, as errTooMuch does.
var errUngranted = errors.New("the grant \"" + host.GrantClock + "\" is needed for the time")

// now returns the time of the evaluation, which is constant during the evaluation.
func (e *evaluation) now() (time.Time, error) {
	if !e.clock {
		return time.Time{}, errUngranted
	}
	if e.time.IsZero() {
		e.time = time.Now()
	}
	return e.time, nil
}

func timeNow(c *call, _ []any) (any, error) {
	now, err := c.evaluation.now()
	return now.UnixNano(), err
}

// maxRandom is the maximum number of random values in an evaluation.
const maxRandom = 1 << 12

// once returns the random value of a key, which is constant during an evaluation.
func (e *evaluation) once(key string, value func() any) (any, error) {
	if v, ok := e.random[key]; ok {
		return v, nil
	}
	if len(e.random) >= maxRandom || len(key) > maxWork/maxRandom {
		return nil, errTooMuch
	}
	if e.random == nil {
		e.random = map[string]any{}
	}
	e.random[key] = value()
	return e.random[key], nil
}

func randIntn(c *call, args []any) (any, error) {
	name, ok := args[0].(string)
	bound, ok2 := args[1].(number)
	if !ok || !ok2 {
		return nil, errArguments
	}
	n, err := bound.int64()
	if err != nil || n == math.MinInt64 {
		return nil, errArguments
	}
	if n == 0 {
		return 0, nil
	}
	n = max(n, -n)
	return c.evaluation.once(fmt.Sprintf("%s-%d", name, n), func() any { return rand.Int64N(n) })
}

func uuidRandom(c *call, args []any) (any, error) {
	key, err := encodeValue(args[0], c.limit)
	if err != nil {
		return nil, err
	}
	return c.evaluation.once("uuid "+string(key), func() any { return uuid.NewString() })
}

// The work of builtins is counted in nanoseconds, as measured on an ordinary machine.
const fuelPerNanosecond = 2

// work pays for work before it is done. Work of more than about a millisecond is done and paid in
// parts.
func (c *call) work(nanoseconds int) { c.spend(int64(nanoseconds) * fuelPerNanosecond) }

// byteWork is the cost of any builtin for a byte of its arguments.
const byteWork = 8

// maxWork is the maximum number of steps of a builtin whose time is not in proportion to its
// arguments: about 100 ms.
const maxWork = 10_000_000

// affordable returns errTooMuch if the product of a and b exceeds maxWork.
func affordable(a, b int) error {
	if a > 0 && b > maxWork/a {
		return errTooMuch
	}
	return nil
}

// text adapts a function of one string to a builtin.
func text(f func(s string) (any, error)) builtin {
	return func(_ *call, args []any) (any, error) {
		s, ok := args[0].(string)
		if !ok {
			return nil, errArguments
		}
		return f(s)
	}
}

// texts adapts a function of strings to a builtin.
func texts(f func(args []string) (any, error)) builtin {
	return func(_ *call, args []any) (any, error) {
		list, err := stringsOf(args)
		if err != nil {
			return nil, err
		}
		return f(list)
	}
}

// stringsOf returns the strings of a list or a set, or a single string.
func stringsOf(v any) ([]string, error) {
	var items []any
	switch v := v.(type) {
	case string:
		return []string{v}, nil
	case []any:
		items = v
	case set:
		items = v
	default:
		return nil, errArguments
	}
	list := make([]string, len(items))
	for i, item := range items {
		s, ok := item.(string)
		if !ok {
			return nil, errArguments
		}
		list[i] = s
	}
	return list, nil
}

// widestVerb is the largest width, precision or index of an argument that package fmt accepts.
const widestVerb = 1_000_000

// widthOf returns the largest number in a format, and reports whether a verb takes one from the
// arguments.
func widthOf(format string) (widest int, argument bool) {
	n := 0
	for i := range len(format) {
		switch b := format[i]; {
		case b >= '0' && b <= '9':
			n = min(10*n+int(b-'0'), widestVerb)
			widest = max(widest, n)
			continue
		case b == '*':
			argument = true
		}
		n = 0
	}
	return widest, argument
}

// maxFormattedDigits bounds the length of a number to be formatted.
const maxFormattedDigits = 20_000

// sprintf formats as OPA does: numbers as integers or floats, strings unchanged, and all other
// values in the notation of Rego.
func sprintf(c *call, args []any) (any, error) {
	format, ok := args[0].(string)
	list, ok2 := args[1].([]any)
	if !ok || !ok2 {
		return nil, errArguments
	}
	values := make([]any, len(list))
	longest, argument := widthOf(format)
	longest = max(longest, 100)
	for i, v := range list {
		switch v := v.(type) {
		case string:
			values[i] = v
			longest = max(longest, len(v))
		case number:
			if len(v) > maxFormattedDigits {
				return nil, errTooMuch
			}
			longest = max(longest, len(v))
			c.work(len(v) * len(v) / 2000)
			values[i] = v.formatted()
			if n, ok := values[i].(int64); ok && argument && n >= -widestVerb && n <= widestVerb {
				longest = max(longest, int(n), int(-n))
			}
		default:
			text, err := formatValue(v, c.limit)
			if err != nil {
				return nil, err
			}
			values[i], longest = text, max(longest, len(text))
		}
	}
	// Verbs may name their arguments, so each may use the longest one.
	verbs := strings.Count(format, "%")
	if err := affordable(verbs, longest); err != nil {
		return nil, err
	}
	c.work(verbs * longest)
	return fmt.Sprintf(format, values...), nil
}

// formatted returns the number in the form for package fmt.
func (n number) formatted() any {
	text := string(n)
	if strings.ContainsAny(text, ".eE") {
		if f, err := strconv.ParseFloat(text, 64); err == nil {
			return f
		}
		return text
	}
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return i
	}
	if b, ok := new(big.Int).SetString(text, 10); ok {
		return b
	}
	return text
}

func urlEncodeObject(_ *call, args []any) (any, error) {
	o, ok := args[0].(object)
	if !ok {
		return nil, errArguments
	}
	query := url.Values{}
	for _, e := range o {
		key, ok := e.key.(string)
		list, err := stringsOf(e.value)
		if !ok || err != nil {
			return nil, errArguments
		}
		query[key] = list
	}
	return query.Encode(), nil
}

func urlDecodeObject(_ *call, args []any) (any, error) {
	s, ok := args[0].(string)
	if !ok {
		return nil, errArguments
	}
	query, err := url.ParseQuery(s)
	if err != nil {
		return nil, err
	}
	o := object{}
	for key, list := range query {
		o = append(o, entry{key, list})
	}
	return newObject(o), nil
}

// mac returns the HMAC of a message, in hexadecimal.
func mac(h func() hash.Hash, message, key string) string {
	m := hmac.New(h, []byte(key))
	m.Write([]byte(message)) // Never fails.
	return hex.EncodeToString(m.Sum(nil))
}

// splitN returns the first n parts of a text or the last -n parts if n is negative.
func splitN(_ *call, args []any) (any, error) {
	list, err := stringsOf(args[:2])
	if err != nil {
		return nil, err
	}
	count, ok := args[2].(number)
	if !ok {
		return nil, errArguments
	}
	n, err := count.int64()
	if err != nil {
		return nil, err
	}
	if list[1] == "" && len(list[0]) > maxValues || list[1] != "" && strings.Count(list[0], list[1]) >= maxValues {
		return nil, errTooMuch
	}
	parts := strings.Split(list[0], list[1])
	switch whole := int64(len(parts)); {
	case n >= whole || n <= -whole:
		return parts, nil
	case n < 0:
		return parts[whole+n:], nil
	}
	return parts[:n], nil
}

// rangeStep returns the numbers from one to another.
func rangeStep(_ *call, args []any) (any, error) {
	var n [3]int64
	for i := range n {
		v, ok := args[i].(number)
		if !ok {
			return nil, errArguments
		}
		var err error
		if n[i], err = v.int64(); i == 2 && compareNumbers(v, number(strconv.Itoa(maxRange))) > 0 {
			n[i] = maxRange
		} else if err != nil || n[i] > maxRange || n[i] < -maxRange {
			return nil, errTooMuch
		}
	}
	from, to, step := n[0], n[1], n[2]
	if step <= 0 {
		return nil, errArguments
	}
	if from > to {
		step = -step
	}
	if (to-from)/step > maxWork/100 {
		return nil, errTooMuch
	}
	list := []any{}
	for i := from; step > 0 && i <= to || step < 0 && i >= to; i += step {
		list = append(list, i)
	}
	return list, nil
}

// maxRange bounds the ends of a range so that their difference cannot overflow.
const maxRange = 1 << 60

var globQuote = strings.NewReplacer(`*`, `\*`, `?`, `\?`, `\`, `\\`, `[`, `\[`, `]`, `\]`, `{`, `\{`, `}`, `\}`)

// wordBytes is the number of bytes compared in a step.
const wordBytes = 32

func bytesOf(list []string) int {
	n := 0
	for _, s := range list {
		n += len(s)
	}
	return n
}

func anyMatch(match func(s, part string) bool) builtin {
	return func(c *call, args []any) (any, error) {
		list, err := stringsOf(args[0])
		if err != nil {
			return nil, err
		}
		parts, err := stringsOf(args[1])
		if err != nil {
			return nil, err
		}
		steps := len(list)*len(parts) + len(list)*(bytesOf(parts)/wordBytes)
		if steps > maxWork {
			return nil, errTooMuch
		}
		c.work(10 * steps)
		return slices.ContainsFunc(list, func(s string) bool {
			return slices.ContainsFunc(parts, func(part string) bool { return match(s, part) })
		}), nil
	}
}

func indexOfN(args []string) (any, error) {
	text, search := []rune(args[0]), []rune(args[1])
	if len(search) == 0 {
		return nil, errArguments
	}
	if err := affordable(len(text), len(search)); err != nil {
		return nil, err
	}
	found := []any{}
	for i := 0; i+len(search) <= len(text); i++ {
		if slices.Equal(text[i:i+len(search)], search) {
			found = append(found, i)
		}
	}
	return found, nil
}

func objectSubsetOf(c *call, args []any) (any, error) {
	super, sub := size(args[0]), size(args[1])
	if err := affordable(super, sub); err != nil {
		return nil, err
	}
	c.work(10 * super * sub)
	return subset(args[0], args[1])
}

// size is the number of steps for comparing a value: one for each value in it, and for each word of
// long strings.
func size(v any) int {
	n := 1
	switch v := v.(type) {
	case string:
		n += len(v) / wordBytes
	case number:
		n += len(v) / wordBytes
	case []any:
		for _, item := range v {
			n += size(item)
		}
	case set:
		return size([]any(v))
	case object:
		for _, e := range v {
			n += size(e.key) + size(e.value)
		}
	}
	return n
}

// subset reports whether super contains all of sub.
func subset(super, sub any) (any, error) {
	if list, ok := super.([]any); ok && isOf[set](sub) {
		unmatched := len(sub.(set))
		for _, v := range list {
			if contains(sub.(set), v) {
				unmatched-- // As in OPA, a value that occurs twice counts twice.
			}
			if unmatched == 0 {
				return true, nil
			}
		}
		return false, nil
	}
	if rank(super) != rank(sub) || rank(super) < rank([]any{}) {
		return nil, errArguments
	}
	return subsetOfKind(super, sub), nil
}

// subsetOfKind is subset for two objects, two sets or two lists. For other values, it reports
// whether they are equal.
func subsetOfKind(super, sub any) bool {
	switch sub := sub.(type) {
	case object:
		super, ok := super.(object)
		return ok && !slices.ContainsFunc(sub, func(e entry) bool {
			value, ok := super.get(e.key)
			return !ok || !subsetOfKind(value, e.value)
		})
	case set:
		super, ok := super.(set)
		return ok && !slices.ContainsFunc(sub, func(v any) bool { return !contains(super, v) })
	case []any:
		super, ok := super.([]any)
		for i := 0; ok && i+len(sub) <= len(super); i++ {
			if slices.CompareFunc(super[i:i+len(sub)], sub, compare) == 0 {
				return true
			}
		}
		return false
	}
	return compare(super, sub) == 0
}

func contains(list []any, v any) bool {
	return slices.ContainsFunc(list, func(x any) bool { return compare(x, v) == 0 })
}
