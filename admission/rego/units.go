package rego

import (
	"errors"
	"math/big"
	"strings"
)

// Factors of units.
var (
	decimal = map[string]uint64{"": 1, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15, "e": 1e18}
	powers  = map[string]uint64{"ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40, "pi": 1 << 50, "ei": 1 << 60}
)

var errUnit = errors.New("no quantity")

const (
	// maxQuantityBytes is the maximum length of a quantity.
	maxQuantityBytes = 1 << 10
	// maxQuantityExponent is the maximum exponent of a quantity, all of whose digits are computed.
	// OPA accepts six digits, which take minutes.
	maxQuantityExponent = 10_000
	// quantityWork is the cost of computing a digit of a quantity.
	quantityWork = 200
)

// splitUnit splits a quantity into the number, which may have an exponent, and the text after it.
func splitUnit(c *call, s string) (number, unit string, err error) {
	if len(s) > maxQuantityBytes {
		return "", "", errTooMuch
	}
	s = strings.ReplaceAll(s, `"`, "")
	if strings.Contains(s, " ") {
		return "", "", errUnit
	}
	digit := func(i int) bool { return i < len(s) && s[i] >= '0' && s[i] <= '9' }
	sign := func(i int) bool { return i < len(s) && (s[i] == '+' || s[i] == '-') }
	digits, end := len(s), 0
	for ; end < len(s); end++ {
		if e := s[end]; digit(end) || sign(end) || e == '.' {
			continue
		} else if e|0x20 != 'e' || !digit(end+1) && !sign(end+1) {
			break
		}
		if sign(end + 1) {
			end++
		}
		exponent, length := 0, 0
		for i := end + 1; digit(i); i++ {
			exponent = min(10*exponent+int(s[i]-'0'), maxQuantityExponent+1)
			length++
		}
		if length > 6 {
			return "", "", errUnit
		}
		if exponent > maxQuantityExponent {
			return "", "", errTooMuch
		}
		digits += exponent
	}
	if end == 0 {
		return "", "", errUnit
	}
	c.work(digits * quantityWork)
	return s[:end], s[end:], nil
}

func parseUnits(c *call, args []any) (any, error) {
	s, ok := args[0].(string)
	if !ok {
		return nil, errArguments
	}
	text, unit, err := splitUnit(c, s)
	if err != nil {
		return nil, err
	}
	factor := new(big.Rat)
	switch lower := strings.ToLower(unit); {
	case unit == "m":
		factor.SetFloat64(0.001) // The closest approximation.
	case decimal[lower] != 0:
		factor.SetUint64(decimal[lower])
	case powers[lower] != 0:
		factor.SetUint64(powers[lower])
	default:
		return nil, errUnit
	}
	n, ok := new(big.Rat).SetString(text)
	if !ok {
		return nil, errUnit
	}
	if n.Mul(n, factor); n.IsInt() {
		return number(n.Num().String()), nil
	}
	return number(n.FloatString(10)), nil
}

func parseBytes(c *call, args []any) (any, error) {
	s, ok := args[0].(string)
	if !ok {
		return nil, errArguments
	}
	text, unit, err := splitUnit(c, strings.ToLower(s))
	if err != nil {
		return nil, err
	}
	name := unit
	if len(unit) > 1 {
		name = strings.TrimSuffix(unit, "b")
	}
	factor := decimal[name]
	if factor == 0 {
		factor = powers[name]
	}
	n, ok := new(big.Float).SetString(text)
	if factor == 0 || !ok {
		return nil, errUnit
	}
	total, _ := n.Mul(n, new(big.Float).SetUint64(factor)).Int(nil)
	if total == nil {
		return nil, errUnit
	}
	return number(total.String()), nil
}
