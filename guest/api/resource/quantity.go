package resource

import (
	"errors"
	"math"
	"math/bits"
	"strconv"
	"strings"

	"github.com/kubewasm/kubewasm/guest/internal/wire"
	"github.com/kubewasm/kubewasm/guest/view"
	"github.com/kubewasm/kubewasm/internal/json"
)

// Quantity is an amount of something, exactly: any number of digits, down to a
// nano. The zero value is 0.
type Quantity struct {
	// The amount is value * 10^scale, unless it is large. scale is -9 at least.
	value int64
	scale int32
	// Format is the format of String.
	Format Format
	// large is the amount if it is not nil. It never changes.
	large *decimal
}

// Format is the format of a Quantity as text.
type Format uint8

// The formats.
const (
	DecimalSI       Format = iota // 12M is 12 * 10^6.
	BinarySI                      // 12Mi is 12 * 2^20.
	DecimalExponent               // 12e6 is 12 * 10^6.
)

// The exponents of the smallest and the largest suffix, n and E.
const (
	nano = -9
	exa  = 18
)

// maxScale is the largest exponent that Parse accepts. A quantity of so many digits is none of
// Kubernetes, but costs time and memory.
const maxScale = 10_000

// The mistakes that Parse finds, with the texts of apimachinery.
var (
	errFormatWrong = errors.New("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")
	errNumeric     = errors.New("unable to parse numeric part of quantity")
	errSuffix      = errors.New("unable to parse quantity's suffix")
)

// New returns the Quantity value.
func New(value int64, format Format) Quantity { return Quantity{value: value, Format: format} }

// NewMilli returns the Quantity value/1000.
func NewMilli(value int64, format Format) Quantity {
	return Quantity{value: value, scale: -3, Format: format}
}

// MustParse is Parse for a constant. It panics if s is no quantity.
func MustParse(s string) Quantity {
	q, err := Parse(s)
	if err != nil {
		panic("kubewasm: quantity " + s + ": " + err.Error())
	}
	return q
}

// Parse reads a quantity as the API server does: less than a nano becomes a nano, and a quantity
// with a binary suffix is at most 1<<63-1. It refuses two forms that the API server accepts: a
// suffix without digits, and an exponent above 10,000.
func Parse(s string) (Quantity, error) {
	if s == "" {
		return Quantity{}, errFormatWrong
	}
	negative := s[0] == '-'
	if negative || s[0] == '+' {
		s = s[1:]
	}
	whole, rest := span(s)
	fraction := ""
	if rest != "" && rest[0] == '.' {
		fraction, rest = span(rest[1:])
	}
	base, exponent, format, err := suffix(rest)
	if err != nil {
		return Quantity{}, err
	}
	if whole == "" && fraction == "" {
		return Quantity{}, errNumeric
	}
	whole = strings.TrimLeft(whole, "0")
	if exponent > maxScale || len(whole)+len(fraction) > maxScale {
		return Quantity{}, errNumeric
	}

	q := Quantity{Format: format}
	if base == 10 && len(whole)+len(fraction) <= 18 && exponent-int64(len(fraction)) >= nano {
		for _, part := range [2]string{whole, fraction} {
			for i := range len(part) {
				q.value = q.value*10 + int64(part[i]-'0')
			}
		}
		q.scale = int32(exponent) - int32(len(fraction))
	} else if base == 2 && len(whole) <= 18 && fraction == "" && shift(&q.value, whole, exponent) {
	} else {
		q.parseLarge(whole, fraction, base, exponent)
	}
	if negative {
		q.Neg()
	}
	return q, nil
}

// span returns the digits that s begins with, and the rest.
func span(s string) (digits, rest string) {
	i := 0
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	return s[:i], s[i:]
}

// suffix reads the suffix of a number: it is base^exponent. The exponent of base 2
// is not negative.
func suffix(s string) (base int, exponent int64, format Format, err error) {
	switch len(s) {
	case 0:
		return 10, 0, DecimalSI, nil
	case 1:
		if i := strings.IndexByte("num kMGTPE", s[0]); i >= 0 && s[0] != ' ' {
			return 10, int64(i)*3 - 9, DecimalSI, nil
		}
	case 2:
		if i := strings.IndexByte("KMGTPE", s[0]); i >= 0 && s[1] == 'i' {
			return 2, int64(i)*10 + 10, BinarySI, nil
		}
	}
	// Letters, a sign and digits, in this order.
	i := 0
	for i < len(s) && strings.IndexByte("eEinumkKMGTP", s[i]) >= 0 {
		i++
	}
	letters := i
	if i < len(s) && (s[i] == '+' || s[i] == '-') {
		i++
	}
	if _, rest := span(s[i:]); rest != "" {
		return 0, 0, 0, errFormatWrong
	}
	if letters != 1 || s[0] != 'e' && s[0] != 'E' {
		return 0, 0, 0, errSuffix
	}
	exponent, err = strconv.ParseInt(s[1:], 10, 32)
	if err != nil {
		return 0, 0, 0, errSuffix
	}
	return 10, exponent, DecimalExponent, nil
}

// shift sets value to whole * 2^exponent, and reports whether that fits.
func shift(value *int64, whole string, exponent int64) bool {
	var v int64
	for i := range len(whole) {
		v = v*10 + int64(whole[i]-'0')
	}
	if bits.Len64(uint64(v))+int(exponent) > 63 {
		return false
	}
	*value = v << exponent
	return true
}

// parseLarge sets q to whole.fraction * base^exponent.
func (q *Quantity) parseLarge(whole, fraction string, base int, exponent int64) {
	d := decimal{digits: parseNatural(whole + fraction), scale: -int32(len(fraction))}
	if base == 2 {
		for ; exponent > 0; exponent -= 10 {
			d.digits = d.digits.times(1024)
		}
	} else if exponent < -maxScale-18 {
		d.scale = -maxScale - 18 // Less than a nano, whatever the digits are.
	} else {
		d.scale += int32(exponent)
	}
	d = d.round(nano)
	if q.Format == BinarySI {
		if d.cmp(decimalOf(math.MaxInt64, 0)) > 0 {
			d = decimalOf(math.MaxInt64, 0)
		}
		if len(d.digits) > 0 && d.cmp(decimalOf(1, 0)) < 0 {
			q.Format = DecimalSI
		}
	}
	q.set(d)
}

// decimal returns the amount of q.
func (q Quantity) decimal() decimal {
	if q.large != nil {
		return *q.large
	}
	return decimalOf(q.value, q.scale)
}

// set sets the amount of q, to a small one if it fits.
func (q *Quantity) set(d decimal) {
	if value, ok := d.digits.uint64(); ok && value <= math.MaxInt64 {
		q.value, q.scale, q.large = int64(value), d.scale, nil
		if d.negative {
			q.value = -q.value
		}
		return
	}
	q.value, q.scale, q.large = 0, 0, &d
}

// IsZero reports whether q is 0.
func (q Quantity) IsZero() bool { return q.Sign() == 0 }

// Sign returns -1, 0 or 1, as q is less than 0, 0 or more.
func (q Quantity) Sign() int {
	switch {
	case q.large != nil:
		return q.large.sign()
	case q.value < 0:
		return -1
	case q.value > 0:
		return 1
	}
	return 0
}

// Cmp returns -1, 0 or 1, as q is less than r, the same amount or more.
func (q Quantity) Cmp(r Quantity) int {
	if q.large == nil && r.large == nil {
		a, b, ok := q.value, r.value, true
		if q.scale > r.scale {
			a, ok = scaleUp(a, q.scale-r.scale)
		} else if q.scale < r.scale {
			b, ok = scaleUp(b, r.scale-q.scale)
		}
		if ok {
			switch {
			case a < b:
				return -1
			case a > b:
				return 1
			}
			return 0
		}
	}
	return q.decimal().cmp(r.decimal())
}

// CmpInt64 is Cmp for a whole number.
func (q Quantity) CmpInt64(n int64) int { return q.Cmp(Quantity{value: n}) }

// Equal reports whether q and r are the same amount, regardless of the format.
func (q Quantity) Equal(r Quantity) bool { return q.Cmp(r) == 0 }

// Add adds r to q. A q of 0 takes the format of r.
func (q *Quantity) Add(r Quantity) {
	if q.IsZero() {
		q.Format = r.Format
	}
	if q.large == nil && r.large == nil && q.addSmall(r.value, r.scale) {
		return
	}
	q.set(q.decimal().add(r.decimal()))
}

// Sub subtracts r from q. A q of 0 takes the format of r.
func (q *Quantity) Sub(r Quantity) {
	r.Neg()
	q.Add(r)
}

// addSmall adds value * 10^scale, and reports whether the sum fits.
func (q *Quantity) addSmall(value int64, scale int32) bool {
	a, b, ok := q.value, value, true
	switch {
	case value == 0:
		return true
	case q.value == 0:
		q.value, q.scale = value, scale
		return true
	case q.scale > scale:
		a, ok = scaleUp(a, q.scale-scale)
	case q.scale < scale:
		b, ok = scaleUp(b, scale-q.scale)
	}
	sum := a + b
	// The sum of two numbers with one sign has that sign.
	if !ok || (a < 0) == (b < 0) && (sum < 0) != (a < 0) {
		return false
	}
	q.value, q.scale = sum, min(q.scale, scale)
	return true
}

// Neg makes q its negative.
func (q *Quantity) Neg() {
	if q.large != nil || q.value == math.MinInt64 {
		d := q.decimal()
		d.negative = !d.negative
		q.set(d)
		return
	}
	q.value = -q.value
}

// Mul multiplies q by n.
func (q *Quantity) Mul(n int64) {
	d, factor := q.decimal(), decimalOf(n, 0)
	d.digits, d.negative = d.digits.product(factor.digits), d.negative != factor.negative
	q.set(d)
}

// Value returns q as a whole number, rounded away from 0: one that does not fit becomes the largest
// or the smallest int64.
func (q Quantity) Value() int64 { return q.scaled(0) }

// MilliValue returns q*1000 as Value returns q.
func (q Quantity) MilliValue() int64 { return q.scaled(-3) }

// scaled returns q / 10^scale as Value returns q.
func (q Quantity) scaled(scale int32) int64 {
	if q.large == nil {
		if by := q.scale - scale; by >= 0 {
			if v, ok := scaleUp(q.value, by); ok {
				return v
			}
		} else {
			return scaleDown(q.value, -by)
		}
	}
	d := q.decimal()
	d.scale -= scale
	d = d.round(0)
	v, ok := d.shiftTo(0).uint64()
	switch {
	case d.negative && (!ok || v > 1<<63):
		return math.MinInt64
	case d.negative:
		return -int64(v)
	case !ok || v > math.MaxInt64:
		return math.MaxInt64
	}
	return int64(v)
}

// AsInt64 returns q if it is a whole number that fits.
func (q Quantity) AsInt64() (int64, bool) {
	v := q.Value()
	return v, q.CmpInt64(v) == 0
}

// AsApproximateFloat64 returns approximately q.
func (q Quantity) AsApproximateFloat64() float64 {
	f, _ := strconv.ParseFloat(string(q.decimal().append(nil)), 64)
	return f
}

// scaleUp returns v * 10^by, and whether that fits.
func scaleUp(v int64, by int32) (int64, bool) {
	if v == 0 {
		return 0, true
	}
	if by > 18 {
		return 0, false
	}
	power := int64(powers[by])
	product := v * power
	return product, product/power == v && !(v == math.MinInt64 && by > 0)
}

// scaleDown returns v / 10^by, rounded away from 0.
func scaleDown(v int64, by int32) int64 {
	if by > 18 {
		switch {
		case v > 0:
			return 1
		case v < 0:
			return -1
		}
		return 0
	}
	power := int64(powers[by])
	result, rest := v/power, v%power
	switch {
	case rest > 0:
		result++
	case rest < 0:
		result--
	}
	return result
}

// String returns q in the canonical form of Kubernetes: without a fraction, and
// with the largest suffix that this allows. A quantity of the format BinarySI
// that is no whole number, or less than 1024, is written in DecimalSI.
func (q Quantity) String() string {
	if q.IsZero() {
		return "0"
	}
	d := q.decimal()
	if q.Format == BinarySI && d.scale < 0 {
		if whole := d.round(0); whole.cmp(d) == 0 {
			d = whole
		}
	}
	b := make([]byte, 0, 24)
	if d.negative {
		b = append(b, '-')
	}
	if q.Format == BinarySI && d.scale >= 0 {
		if n := d.shiftTo(0); n.cmp(natural{1024}) >= 0 {
			suffix := 0
			for suffix < 6 {
				quotient, rest := n.divide(1024)
				if rest != 0 {
					break
				}
				n = quotient
				suffix++
			}
			b = n.append(b)
			if suffix > 0 {
				b = append(b, "KMGTPE"[suffix-1], 'i')
			}
			return string(b)
		}
	}
	n, exponent := d.digits, d.scale
	for {
		quotient, rest := n.divide(10)
		if rest != 0 {
			break
		}
		n = quotient
		exponent++
	}
	// The exponents with a name are those of 1000.
	down := exponent - 3*int32(math.Floor(float64(exponent)/3))
	if q.Format != DecimalExponent && exponent-down > exa {
		down = exponent - exa
	}
	b = n.shift(down).append(b)
	switch exponent -= down; {
	case exponent == 0:
	case q.Format == DecimalExponent:
		b = strconv.AppendInt(append(b, 'e'), int64(exponent), 10)
	default:
		b = append(b, "num kMGTPE"[exponent/3+3])
	}
	return string(b)
}

// Read reads a Quantity, 0 if there is none or it makes no sense. It is for
// generated code.
func Read(v view.Value) Quantity {
	if !v.JSON {
		_, text := v.Field(1)
		return read(text)
	}
	value := json.Value(v.Raw)
	switch value.Kind() {
	case json.KindString:
		s := value.String()
		return read([]byte(strings.TrimSpace(s)))
	case json.KindNumber:
		return read(v.Raw)
	}
	return Quantity{}
}

// Append appends a field of type Quantity. It is for generated code.
func Append(b []byte, field uint32, q Quantity) []byte {
	b = wire.AppendBytes(b, field, "")
	start := len(b)
	return wire.EndMessage(wire.AppendBytes(b, 1, q.String()), start)
}

func read(text []byte) Quantity {
	q, _ := Parse(string(text)) // Not kept, so the string is not copied.
	return q
}
