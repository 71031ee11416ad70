package resource

import "math/bits"

// decimal is a number of any length: digits * 10^scale. Its methods do not change
// it. The packages math/big and gopkg.in/inf.v0 would add fmt and more to each
// guest that reads a quantity.
type decimal struct {
	negative bool
	digits   natural
	scale    int32
}

func decimalOf(value int64, scale int32) decimal {
	magnitude := uint64(value)
	if value < 0 {
		magnitude = -magnitude
	}
	return decimal{negative: value < 0, digits: naturalOf(magnitude), scale: scale}
}

func (d decimal) sign() int {
	switch {
	case len(d.digits) == 0:
		return 0
	case d.negative:
		return -1
	}
	return 1
}

// shiftTo returns the digits that d has at a scale that is not larger.
func (d decimal) shiftTo(scale int32) natural { return d.digits.shift(d.scale - scale) }

func (d decimal) cmp(e decimal) int {
	if s, t := d.sign(), e.sign(); s != t {
		if s < t {
			return -1
		}
		return 1
	}
	scale := min(d.scale, e.scale)
	c := d.shiftTo(scale).cmp(e.shiftTo(scale))
	if d.negative {
		return -c
	}
	return c
}

func (d decimal) add(e decimal) decimal {
	scale := min(d.scale, e.scale)
	a, b := d.shiftTo(scale), e.shiftTo(scale)
	switch {
	case d.negative == e.negative:
		return decimal{d.negative, a.plus(b), scale}
	case a.cmp(b) >= 0:
		return decimal{d.negative, a.minus(b), scale}
	}
	return decimal{e.negative, b.minus(a), scale}
}

// round returns d at a scale that is not less, rounded away from 0.
func (d decimal) round(scale int32) decimal {
	by := scale - d.scale
	if by <= 0 {
		return d
	}
	n, exact := d.digits, true
	for ; by > 0 && len(n) > 0; by -= 9 {
		var rest uint32
		n, rest = n.divide(uint32(powers[min(by, 9)]))
		exact = exact && rest == 0
	}
	if !exact {
		n = n.plus(natural{1})
	}
	return decimal{d.negative, n, scale}
}

// append appends d as strconv.ParseFloat reads it.
func (d decimal) append(b []byte) []byte {
	if d.negative {
		b = append(b, '-')
	}
	b = append(d.digits.append(b), 'e')
	scale := uint64(d.scale)
	if d.scale < 0 {
		b = append(b, '-')
		scale = -scale
	}
	return naturalOf(scale).append(append(b, '0'))
}

// natural is a natural number, in digits of base 1,000,000,000 with the least
// first and without zeros at the end.
type natural []uint32

const base = 1_000_000_000

// powers are the powers of ten.
var powers = [...]uint64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18}

func naturalOf(v uint64) natural {
	var n natural
	for ; v > 0; v /= base {
		n = append(n, uint32(v%base))
	}
	return n
}

// parseNatural reads decimal digits.
func parseNatural(s string) natural {
	n := make(natural, 0, len(s)/9+1)
	for end := len(s); end > 0; end -= 9 {
		var digit uint32
		for _, c := range s[max(end-9, 0):end] {
			digit = digit*10 + uint32(c-'0')
		}
		n = append(n, digit)
	}
	return n.trim()
}

// trim removes the zeros at the end.
func (n natural) trim() natural {
	for len(n) > 0 && n[len(n)-1] == 0 {
		n = n[:len(n)-1]
	}
	return n
}

// uint64 returns n, and whether it fits.
func (n natural) uint64() (v uint64, ok bool) {
	for i := len(n) - 1; i >= 0; i-- {
		high, low := bits.Mul64(v, base)
		sum, carry := bits.Add64(low, uint64(n[i]), 0)
		if high != 0 || carry != 0 {
			return 0, false
		}
		v = sum
	}
	return v, true
}

func (n natural) cmp(m natural) int {
	if len(n) != len(m) {
		if len(n) < len(m) {
			return -1
		}
		return 1
	}
	for i := len(n) - 1; i >= 0; i-- {
		switch {
		case n[i] < m[i]:
			return -1
		case n[i] > m[i]:
			return 1
		}
	}
	return 0
}

func (n natural) plus(m natural) natural {
	if len(n) < len(m) {
		n, m = m, n
	}
	sum := make(natural, 0, len(n)+1)
	carry := uint32(0)
	for i, digit := range n {
		digit += carry
		if i < len(m) {
			digit += m[i]
		}
		if carry = 0; digit >= base {
			digit, carry = digit-base, 1
		}
		sum = append(sum, digit)
	}
	return append(sum, carry).trim()
}

// minus returns n - m, which is not negative.
func (n natural) minus(m natural) natural {
	difference := make(natural, 0, len(n))
	borrow := uint32(0)
	for i, digit := range n {
		sub := borrow
		if i < len(m) {
			sub += m[i]
		}
		if borrow = 0; digit < sub {
			digit, borrow = digit+base, 1
		}
		difference = append(difference, digit-sub)
	}
	return difference.trim()
}

func (n natural) times(factor uint32) natural {
	product := make(natural, 0, len(n)+1)
	carry := uint64(0)
	for _, digit := range n {
		carry += uint64(digit) * uint64(factor)
		product = append(product, uint32(carry%base))
		carry /= base
	}
	return append(product, uint32(carry)).trim()
}

func (n natural) product(m natural) natural {
	var sum natural
	for i := len(m) - 1; i >= 0; i-- {
		sum = append(natural{0}, sum...).trim().plus(n.times(m[i]))
	}
	return sum
}

// divide returns n / divisor and the remainder.
func (n natural) divide(divisor uint32) (quotient natural, rest uint32) {
	quotient = make(natural, len(n))
	var r uint64
	for i := len(n) - 1; i >= 0; i-- {
		r = r*base + uint64(n[i])
		quotient[i] = uint32(r / uint64(divisor))
		r %= uint64(divisor)
	}
	return quotient.trim(), uint32(r)
}

// shift returns n * 10^by.
func (n natural) shift(by int32) natural {
	if by <= 0 || len(n) == 0 {
		return n
	}
	shifted := make(natural, by/9, int(by/9)+len(n)+1)
	return append(shifted, n.times(uint32(powers[by%9]))...)
}

// append appends the decimal digits of n.
func (n natural) append(b []byte) []byte {
	if len(n) == 0 {
		return append(b, '0')
	}
	for i := len(n) - 1; i >= 0; i-- {
		var digits [9]byte
		v := n[i]
		for j := range digits {
			digits[8-j] = byte('0' + v%10)
			v /= 10
		}
		j := 0
		if i == len(n)-1 {
			for digits[j] == '0' {
				j++
			}
		}
		b = append(b, digits[j:]...)
	}
	return b
}
