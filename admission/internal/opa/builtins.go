package opa

import (
	"cmp"
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
	"math/big"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/blang/semver/v4"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/internal/json/jsonpatch"
	"github.com/kubewasm/kubewasm/internal/yamlsize"
)

// builtin is a function of Rego that modules do not have in themselves. An error
// makes its expression undefined, but for errTooMuch.
type builtin func(c *call, args []any) (any, error)

// builtins are those that policies find here. What needs a network, files, keys or
// other objects is not among them, and neither is what a module has in itself.
var builtins = map[string]builtin{
	"sprintf":                  sprintf,
	"json.patch":               jsonPatch,
	"yaml.is_valid":            yamlIsValid,
	"yaml.marshal":             yamlMarshal,
	"yaml.unmarshal":           yamlUnmarshal,
	"base64url.encode_no_pad":  text(func(s string) (any, error) { return base64.RawURLEncoding.EncodeToString([]byte(s)), nil }),
	"hex.encode":               text(func(s string) (any, error) { return hex.EncodeToString([]byte(s)), nil }),
	"hex.decode":               text(func(s string) (any, error) { b, err := hex.DecodeString(s); return string(b), err }),
	"urlquery.encode":          text(func(s string) (any, error) { return url.QueryEscape(s), nil }),
	"urlquery.decode":          text(func(s string) (any, error) { return url.QueryUnescape(s) }),
	"urlquery.encode_object":   urlEncodeObject,
	"urlquery.decode_object":   urlDecodeObject,
	"crypto.md5":               text(func(s string) (any, error) { return fmt.Sprintf("%x", md5.Sum([]byte(s))), nil }),
	"crypto.sha1":              text(func(s string) (any, error) { return fmt.Sprintf("%x", sha1.Sum([]byte(s))), nil }),
	"crypto.sha256":            text(func(s string) (any, error) { return fmt.Sprintf("%x", sha256.Sum256([]byte(s))), nil }),
	"crypto.hmac.md5":          texts(func(a []string) (any, error) { return mac(md5.New, a[0], a[1]), nil }),
	"crypto.hmac.sha1":         texts(func(a []string) (any, error) { return mac(sha1.New, a[0], a[1]), nil }),
	"crypto.hmac.sha256":       texts(func(a []string) (any, error) { return mac(sha256.New, a[0], a[1]), nil }),
	"crypto.hmac.sha512":       texts(func(a []string) (any, error) { return mac(sha512.New, a[0], a[1]), nil }),
	"crypto.hmac.equal":        texts(func(a []string) (any, error) { return hmac.Equal([]byte(a[0]), []byte(a[1])), nil }),
	"glob.quote_meta":          text(func(s string) (any, error) { return globQuote.Replace(s), nil }),
	"regex.split":              regexSplit,
	"regex.replace":            regexReplace,
	"regex.find_n":             regexFindN,
	"semver.is_valid":          semverIsValid,
	"semver.compare":           semverCompare,
	"strings.any_prefix_match": anyMatch(strings.HasPrefix),
	"strings.any_suffix_match": anyMatch(strings.HasSuffix),
	"strings.count":            texts(func(a []string) (any, error) { return strings.Count(a[0], a[1]), nil }),
	"strings.split_n":          splitN,
	"indexof_n":                texts(indexOfN),
	"numbers.range_step":       rangeStep,
	"net.cidr_is_valid": func(_ *call, a []any) (any, error) {
		s, _ := a[0].(string)
		_, _, err := net.ParseCIDR(s)
		return err == nil, nil
	},
	"net.cidr_expand":        text(cidrExpand),
	"object.subset":          objectSubsetOf,
	"units.parse":            text(parseUnits),
	"units.parse_bytes":      text(parseBytes),
	"time.now_ns":            func(*call, []any) (any, error) { return time.Now().UnixNano(), nil },
	"time.parse_rfc3339_ns":  text(func(s string) (any, error) { return nanos(time.Parse(time.RFC3339, s)) }),
	"time.parse_ns":          texts(func(a []string) (any, error) { return nanos(time.Parse(layout(a[0]), a[1])) }),
	"time.format":            formatTime,
	"time.parse_duration_ns": text(func(s string) (any, error) { d, err := time.ParseDuration(s); return d.Nanoseconds(), err }),
	"time.date":              moment(func(t time.Time) any { y, m, d := t.Date(); return []any{y, int(m), d} }),
	"time.clock":             moment(func(t time.Time) any { h, m, s := t.Clock(); return []any{h, m, s} }),
	"time.weekday":           moment(func(t time.Time) any { return t.Weekday().String() }),
	"time.add_date":          addDate,
	"trace":                  func(*call, []any) (any, error) { return true, nil },
	"internal.print":         func(*call, []any) (any, error) { return true, nil },
	"opa.runtime":            func(*call, []any) (any, error) { return object{}, nil },
}

func sorted(names []string) []string {
	slices.Sort(names)
	return names
}

var errArguments = errors.New("arguments are of another type")

// errTooMuch ends the call: a builtin cannot be stopped as a guest can, so what
// would take long is not begun. To be undefined would be worse, since a policy may
// take that for a yes.
var errTooMuch = errors.New("it would take too much time or memory")

// call is a call of a builtin: what it may cost.
type call struct {
	// spend takes fuel of the policy's call, and does not return if there is none
	// or the time is over.
	spend func(fuel int64)
	// limit is how many bytes the arguments, the result and what is made of them on
	// the way may have: Limits.ResultBytes.
	limit int
}

// The work of builtins is counted in nanoseconds, as it is on an ordinary machine.
const fuelPerNanosecond = 2

// work pays for work before it is done. What takes more than about a millisecond
// is done, and paid, in parts.
func (c *call) work(nanoseconds int) { c.spend(int64(nanoseconds) * fuelPerNanosecond) }

// byteWork is what any builtin takes for a byte of its arguments.
const byteWork = 8

// maxWork is how many steps a builtin may take whose time is not in proportion to
// its arguments: some 100 ms.
const maxWork = 10_000_000

// affordable returns errTooMuch for a product that is more than maxWork.
func affordable(a, b int) error {
	if a > 0 && b > maxWork/a {
		return errTooMuch
	}
	return nil
}

// text is a builtin of one string.
func text(f func(s string) (any, error)) builtin {
	return func(_ *call, args []any) (any, error) {
		s, ok := args[0].(string)
		if !ok {
			return nil, errArguments
		}
		return f(s)
	}
}

// texts is a builtin of strings.
func texts(f func(args []string) (any, error)) builtin {
	return func(_ *call, args []any) (any, error) {
		list, err := stringsOf(args)
		if err != nil {
			return nil, err
		}
		return f(list)
	}
}

// stringsOf returns the strings of a list, a set, or one string.
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

// hasWideVerb reports whether a format has a verb whose width, precision or argument
// has four digits or is an argument itself.
func hasWideVerb(format string) bool {
	for {
		_, rest, found := strings.Cut(format, "%")
		if !found {
			return false
		}
		digits := 0
		end := strings.IndexFunc(rest, func(r rune) bool {
			if digits++; r < '0' || r > '9' {
				digits = 0
			}
			return digits == 4 || r == '*' || r == '%' || 'a' <= r|0x20 && r|0x20 <= 'z'
		})
		if end < 0 {
			return false
		}
		if c := rest[end]; c == '*' || '0' <= c && c <= '9' {
			return true
		}
		format = rest[end:]
		if format[0] == '%' {
			format = format[1:]
		}
	}
}

// sprintf formats as OPA does: numbers as integers or floats, strings as they are,
// everything else as Rego writes it.
func sprintf(c *call, args []any) (any, error) {
	format, ok := args[0].(string)
	list, ok2 := args[1].([]any)
	if !ok || !ok2 {
		return nil, errArguments
	}
	if hasWideVerb(format) {
		return nil, errTooMuch
	}
	values := make([]any, len(list))
	longest := 999 // The widest verb.
	for i, v := range list {
		switch v := v.(type) {
		case string:
			values[i] = v
			longest = max(longest, len(v))
		case number:
			longest = max(longest, len(v))
			if len(v) > maxDigits {
				values[i] = string(v)
			} else if n, ok := new(big.Int).SetString(string(v), 10); ok && n.IsInt64() {
				values[i] = n.Int64()
			} else if ok {
				values[i] = n
			} else if f, err := strconv.ParseFloat(string(v), 64); err == nil {
				values[i] = f
			} else {
				values[i] = string(v)
			}
		default:
			text, err := formatValue(v, c.limit)
			if err != nil {
				return nil, err
			}
			values[i], longest = text, max(longest, len(text))
		}
	}
	// A verb may name its argument, so that each may be of the longest.
	verbs := strings.Count(format, "%")
	if err := affordable(verbs, longest); err != nil {
		return nil, err
	}
	c.work(verbs * longest)
	return fmt.Sprintf(format, values...), nil
}

func jsonPatch(c *call, args []any) (any, error) {
	document, err := toJSON(args[0], c.limit)
	if err != nil {
		return nil, err
	}
	patch, err := toJSON(args[1], c.limit)
	if err != nil {
		return nil, err
	}
	pay := jsonpatch.Pay(func(work int) error { c.work(work); return nil })
	out, err := pay.Apply(document, patch)
	if errors.Is(err, jsonpatch.ErrTooMuch) {
		return nil, fmt.Errorf("%w: %w", errTooMuch, err)
	}
	if err != nil {
		return nil, err
	}
	return parseValue(c, string(out))
}

func yamlIsValid(c *call, args []any) (any, error) {
	_, err := yamlUnmarshal(c, args)
	if errors.Is(err, errTooMuch) {
		return nil, err
	}
	return err == nil, nil
}

// yamlWork is what it takes to read or to write a byte of YAML.
const yamlWork = 500

func yamlMarshal(c *call, args []any) (any, error) {
	raw, err := toJSON(args[0], c.limit)
	if err != nil {
		return nil, err
	}
	if err := affordable(len(raw), yamlWork/50); err != nil {
		return nil, err
	}
	c.work(len(raw) * yamlWork)
	out, err := yaml.JSONToYAML(raw)
	return string(out), err
}

func yamlUnmarshal(c *call, args []any) (any, error) {
	s, ok := args[0].(string)
	if !ok {
		return nil, errArguments
	}
	if err := affordable(len(s), yamlWork/50); err != nil {
		return nil, err
	}
	c.work(len(s) * yamlWork)
	if err := yamlsize.Check([]byte(s), c.limit); errors.Is(err, yamlsize.ErrTooLong) {
		return nil, fmt.Errorf("%w: %w", errTooMuch, err)
	} else if err != nil {
		return nil, err
	}
	out, err := yaml.YAMLToJSON([]byte(s))
	if err != nil {
		return nil, err
	}
	return parseValue(c, string(out))
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

// splitN returns the first n parts of a text or, if n is negative, the last ones.
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
		if n[i], err = v.int64(); err != nil || n[i] > maxRange || n[i] < -maxRange {
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

// maxRange keeps the ends of a range where their difference is a number, too.
const maxRange = 1 << 60

// cidrExpand returns the addresses of a network, as a set.
func cidrExpand(s string) (any, error) {
	prefix, err := netip.ParsePrefix(s)
	if err != nil {
		return nil, err
	}
	prefix = prefix.Masked()
	if prefix.Addr().BitLen()-prefix.Bits() > 16 {
		return nil, errTooMuch
	}
	var addresses set
	for a := prefix.Addr(); a.IsValid() && prefix.Contains(a); a = a.Next() {
		addresses = append(addresses, a.String())
	}
	return newSet(addresses), nil
}

var globQuote = strings.NewReplacer(`*`, `\*`, `?`, `\?`, `\`, `\\`, `[`, `\[`, `]`, `\]`, `{`, `\{`, `}`, `\}`)

// maxVersionBytes is how long a version may be, each part of which is a number or a
// text.
const maxVersionBytes = 4 << 10

func parseVersion(s string) (semver.Version, error) {
	if len(s) > maxVersionBytes {
		return semver.Version{}, errTooMuch
	}
	return semver.Parse(s)
}

func semverIsValid(_ *call, args []any) (any, error) {
	s, ok := args[0].(string)
	_, err := parseVersion(s)
	if errors.Is(err, errTooMuch) {
		return nil, err
	}
	return ok && err == nil, nil
}

func semverCompare(_ *call, args []any) (any, error) {
	list, err := stringsOf(args)
	if err != nil {
		return nil, err
	}
	a, err := parseVersion(list[0])
	if err != nil {
		return nil, err
	}
	b, err := parseVersion(list[1])
	if err != nil {
		return nil, err
	}
	return a.Compare(b), nil
}

// wordBytes is how many bytes are compared in a step.
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

// size is how many steps it takes to compare a value: one for each that is in it, and
// for each word of long ones.
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

// subset reports whether all of sub is in super.
func subset(super, sub any) (any, error) {
	switch sub := sub.(type) {
	case object:
		o, ok := super.(object)
		if !ok {
			return nil, errArguments
		}
		return objectSubset(o, sub), nil
	case set:
		switch super := super.(type) {
		case set:
			return !slices.ContainsFunc(sub, func(v any) bool { return !contains(super, v) }), nil
		case []any:
			return !slices.ContainsFunc(sub, func(v any) bool { return !contains(super, v) }), nil
		}
	case []any:
		list, ok := super.([]any)
		if !ok {
			return nil, errArguments
		}
		for i := 0; i+len(sub) <= len(list); i++ {
			if slices.CompareFunc(list[i:i+len(sub)], sub, compare) == 0 {
				return true, nil
			}
		}
		return false, nil
	}
	return nil, errArguments
}

func contains(list []any, v any) bool {
	return slices.ContainsFunc(list, func(x any) bool { return compare(x, v) == 0 })
}

func objectSubset(super, sub object) bool {
	for _, e := range sub {
		i := slices.IndexFunc(super, func(x entry) bool { return compare(x.key, e.key) == 0 })
		if i < 0 {
			return false
		}
		if inner, ok := e.value.(object); ok {
			if outer, ok := super[i].value.(object); ok && objectSubset(outer, inner) {
				continue
			}
			return false
		}
		if ok, err := subset(super[i].value, e.value); err == nil && ok == true {
			continue
		}
		if compare(super[i].value, e.value) != 0 {
			return false
		}
	}
	return true
}

// The factors of units. Those with a letter of one case only stand for both.
var (
	decimal = map[string]int64{"": 1, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15, "e": 1e18}
	powers  = map[string]int64{"ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40, "pi": 1 << 50, "ei": 1 << 60}
)

// splitUnit takes a quantity apart: the number, and what stands behind it.
func splitUnit(s string) (*big.Rat, string, error) {
	if len(s) > 100 {
		return nil, "", errArguments
	}
	s = strings.Trim(s, `"`)
	end := strings.IndexFunc(s, func(r rune) bool { return !strings.ContainsRune("0123456789.+-", r) })
	if end < 0 {
		end = len(s)
	}
	n, ok := new(big.Rat).SetString(s[:end])
	if !ok {
		return nil, "", errArguments
	}
	return n, s[end:], nil
}

func parseUnits(s string) (any, error) {
	n, unit, err := splitUnit(s)
	if err != nil {
		return nil, err
	}
	if unit == "m" {
		return ratNumber(n.Mul(n, big.NewRat(1, 1000))), nil
	}
	factor, ok := decimal[strings.ToLower(unit)]
	if !ok {
		if factor, ok = powers[strings.ToLower(unit)]; !ok {
			return nil, errArguments
		}
	}
	return ratNumber(n.Mul(n, new(big.Rat).SetInt64(factor))), nil
}

func parseBytes(s string) (any, error) {
	n, unit, err := splitUnit(s)
	if err != nil {
		return nil, err
	}
	unit = strings.TrimSuffix(strings.ToLower(unit), "b")
	factor, ok := decimal[unit]
	if !ok {
		if factor, ok = powers[unit]; !ok {
			return nil, errArguments
		}
	}
	n.Mul(n, new(big.Rat).SetInt64(factor))
	return number(new(big.Int).Quo(n.Num(), n.Denom()).String()), nil
}

// ratNumber writes a number that units.parse returns.
func ratNumber(r *big.Rat) number {
	if r.IsInt() {
		return number(r.Num().String())
	}
	return number(r.FloatString(10))
}

func nanos(t time.Time, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	if year := t.Year(); year < 1678 || year > 2261 {
		return nil, errors.New("time does not fit into nanoseconds")
	}
	return t.UnixNano(), nil
}

// layouts are the names that policies may use for layouts.
var layouts = map[string]string{
	"ANSIC": time.ANSIC, "UnixDate": time.UnixDate, "RubyDate": time.RubyDate, "RFC822": time.RFC822, "RFC822Z": time.RFC822Z,
	"RFC850": time.RFC850, "RFC1123": time.RFC1123, "RFC1123Z": time.RFC1123Z, "RFC3339": time.RFC3339, "RFC3339Nano": time.RFC3339Nano,
}

func layout(text string) string { return cmp.Or(layouts[text], text) }

// formatTime writes a moment, whose third part is the layout if it has one.
func formatTime(c *call, args []any) (any, error) {
	t, err := timeOf(c, args[0])
	if err != nil {
		return nil, err
	}
	text := ""
	if list, ok := args[0].([]any); ok && len(list) > 2 {
		if text, ok = list[2].(string); !ok {
			return nil, errArguments
		}
	}
	return t.Format(layout(cmp.Or(text, time.RFC3339Nano))), nil
}

// timeOf returns the moment of an argument: nanoseconds, or nanoseconds and a time
// zone.
func timeOf(c *call, v any) (time.Time, error) {
	zone := ""
	if list, ok := v.([]any); ok && len(list) >= 2 {
		name, ok := list[1].(string)
		if !ok {
			return time.Time{}, errArguments
		}
		v, zone = list[0], name
	}
	n, ok := v.(number)
	if !ok {
		return time.Time{}, errArguments
	}
	ns, err := n.int64()
	if err != nil {
		return time.Time{}, err
	}
	t := time.Unix(0, ns).UTC()
	if zone == "" || zone == "UTC" {
		return t, nil
	}
	if len(zone) > maxZoneBytes {
		return time.Time{}, errArguments // No zone has such a name.
	}
	c.work(zoneWork)
	location, err := time.LoadLocation(zone)
	if err != nil {
		return time.Time{}, err
	}
	return t.In(location), nil
}

// maxZoneBytes is how long the name of a time zone may be, and zoneWork what it takes
// to read one.
const (
	maxZoneBytes = 64
	zoneWork     = 100_000
)

// moment is a builtin of a moment.
func moment(f func(t time.Time) any) builtin {
	return func(c *call, args []any) (any, error) {
		t, err := timeOf(c, args[0])
		if err != nil {
			return nil, err
		}
		return f(t), nil
	}
}

func addDate(c *call, args []any) (any, error) {
	t, err := timeOf(c, args[0])
	if err != nil {
		return nil, err
	}
	var n [3]int
	for i := range n {
		v, ok := args[i+1].(number)
		if !ok {
			return nil, errArguments
		}
		part, err := v.int64()
		if err != nil || part > 1e6 || part < -1e6 {
			return nil, errArguments
		}
		n[i] = int(part)
	}
	return nanos(t.AddDate(n[0], n[1], n[2]), nil)
}
