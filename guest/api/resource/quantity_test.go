package resource_test

import (
	"encoding/json"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	apimachinery "k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubewasm/kubewasm/guest/api/resource"
)

// rational returns the amount of a quantity of apimachinery.
func rational(q apimachinery.Quantity) *big.Rat {
	d := q.DeepCopy()
	r, ok := new(big.Rat).SetString(d.AsDec().String())
	if !ok {
		panic(q.String())
	}
	return r
}

// scaled is what ScaledValue returns: r / 10^scale, rounded away from 0.
func scaled(r *big.Rat, scale int) int64 {
	r = new(big.Rat).Mul(r, new(big.Rat).SetFrac(big.NewInt(1), big.NewInt(1)))
	ten := big.NewRat(10, 1)
	for ; scale > 0; scale-- {
		r.Quo(r, ten)
	}
	for ; scale < 0; scale++ {
		r.Mul(r, ten)
	}
	q, rest := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
	q.Add(q, big.NewInt(int64(rest.Sign())))
	switch {
	case q.IsInt64():
		return q.Int64()
	case q.Sign() < 0:
		return math.MinInt64
	}
	return math.MaxInt64
}

// same fails the test if the two are not the same amount, in format, value and
// text.
func same(t *testing.T, what string, got resource.Quantity, want apimachinery.Quantity) {
	t.Helper()
	r := rational(want)
	text := got.String()
	back, err := apimachinery.ParseQuantity(text)
	if err != nil || rational(back).Cmp(r) != 0 {
		// A binary quantity is capped when it is parsed.
		if got.Format != resource.BinarySI || new(big.Rat).Abs(r).Cmp(new(big.Rat).SetInt64(math.MaxInt64)) <= 0 {
			t.Fatalf("%s is %s, want %s", what, text, r)
		}
	}
	b, suffix := want.CanonicalizeBytes(nil)
	canonical := string(b) + string(suffix)
	// apimachinery forgets a suffix that is not there: 1e21 becomes 1.
	if q, err := apimachinery.ParseQuantity(canonical); err == nil && rational(q).Cmp(r) == 0 && text != canonical {
		t.Fatalf("%s is written %s, want %s", what, text, canonical)
	}
	for _, scale := range []int{0, -3, -9, 3, 12, -1} {
		if got, want := got.ScaledValue(int32(scale)), scaled(r, scale); got != want {
			t.Fatalf("%s at scale %d is %d, want %d", what, scale, got, want)
		}
	}
	if got.Value() != scaled(r, 0) || got.MilliValue() != scaled(r, -3) {
		t.Fatalf("%s: Value %d, MilliValue %d", what, got.Value(), got.MilliValue())
	}
	if n, ok := got.AsInt64(); ok != (r.IsInt() && r.Num().IsInt64()) || ok && n != r.Num().Int64() {
		t.Fatalf("%s: AsInt64 is %d, %v", what, n, ok)
	}
	if got.Sign() != r.Sign() || got.IsZero() != (r.Sign() == 0) {
		t.Fatalf("%s: sign %d, want %d", what, got.Sign(), r.Sign())
	}
	wantFloat, _ := r.Float64()
	if f := got.AsApproximateFloat64(); math.Abs(f-wantFloat) > math.Abs(wantFloat)*1e-12 {
		t.Fatalf("%s is about %g, want %g", what, f, wantFloat)
	}
}

var seeds = []string{
	"0", "1", "-1", "+1", "100m", "1500m", "0.5", ".5", "5.", ".", "-", "1Ki", "1.5Gi", "0.1Ki", "1023", "1024", "1024Ki", "16Gi", "1025Mi", "-1.5Ki",
	"12e6", "12E6", "1E", "1E-3", "1e-10", "1e-30", "1n", "0.1n", "-0.1n", "999999999999999999", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "18446744073709551616",
	"1e18", "1e21", "1e100", "8Ei", "7Ei", "9Ei", "100Ei", "9223372036854775807Ki", "123456789.987654321", "123456789012345678901234567890.123456789012", "0.000000001", "0.0000000011",
	"1 ", " 1", "1x", "e", "1e", "1ee5", "1i", "1Kii", "1mm", "1e+5", "1e5.5", "--1", "1.1.1", "000", "00012", "1e9999", "1e4294967296", "0Ki", "0e5", "e-10", ".e-10", "Ei", "Ki", "1u", "1500u",
}

func FuzzParse(f *testing.F) {
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := resource.Parse(s)
		if len(s) > 60 || strings.ContainsAny(s, "eE") && len(s) > 6 {
			return // apimachinery takes 10^2000000000 literally.
		}
		want, wantErr := apimachinery.ParseQuantity(s)
		if (err == nil) != (wantErr == nil) {
			if err != nil && (strings.ContainsAny(s, "eE") || !strings.ContainsAny(s, "0123456789")) {
				return // An exponent that is too large, or nothing that has one.
			}
			t.Fatalf("%q: %v, want %v", s, err, wantErr)
		}
		if err == nil {
			same(t, s, got, want)
		}
	})
}

func random(r *rand.Rand) string {
	var b strings.Builder
	if r.IntN(4) == 0 {
		b.WriteByte('-')
	}
	digits := func(n int) {
		for range n {
			b.WriteByte(byte('0' + r.IntN(10)))
		}
	}
	digits(1 + r.IntN(6)*r.IntN(6))
	if r.IntN(3) == 0 {
		b.WriteByte('.')
		digits(1 + r.IntN(10))
	}
	b.WriteString([]string{"", "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "e-3", "E2", "e40"}[r.IntN(21)])
	return b.String()
}

func TestArithmeticAsApimachinery(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 15_000 {
		a, b := random(r), random(r)
		p, q := resource.MustParse(a), resource.MustParse(b)
		x, y := apimachinery.MustParse(a), apimachinery.MustParse(b)
		same(t, a, p, x)
		if got, want := p.Cmp(q), x.Cmp(y); got != want || p.Equal(q) != (want == 0) {
			t.Fatalf("%s compared with %s: %d, want %d", a, b, got, want)
		}
		if got, want := p.CmpInt64(1000), x.CmpInt64(1000); got != want {
			t.Fatalf("%s compared with 1000: %d, want %d", a, got, want)
		}
		sum, wantSum := p, x.DeepCopy()
		sum.Add(q)
		wantSum.Add(y)
		same(t, a+" + "+b, sum, wantSum)
		difference, wantDifference := p, x.DeepCopy()
		difference.Sub(q)
		wantDifference.Sub(y)
		same(t, a+" - "+b, difference, wantDifference)
		p.Neg()
		x.Neg()
		same(t, "-"+a, p, x)
		n := r.Int64() >> r.IntN(64)
		q.Mul(n)
		product := new(big.Rat).Mul(rational(y), new(big.Rat).SetInt64(n))
		if got := q.ScaledValue(-9); got != scaled(product, -9) {
			t.Fatalf("%s * %d is %d n, want %s", b, n, got, product)
		}
		// What was not changed is as it was.
		same(t, b, resource.MustParse(b), apimachinery.MustParse(b))
	}
}

func TestSmallestNumbers(t *testing.T) {
	q := resource.New(math.MinInt64, resource.DecimalSI)
	q.Neg()
	if got := q.String(); got != "9223372036854775808" {
		t.Errorf("got %s", got)
	}
	q.Sub(resource.New(1, resource.DecimalSI))
	if n, ok := q.AsInt64(); n != math.MaxInt64 || !ok {
		t.Errorf("got %d, %v", n, ok)
	}
	if got := resource.NewMilli(math.MinInt64, resource.DecimalSI).Cmp(resource.New(math.MinInt64, resource.DecimalSI)); got != 1 {
		t.Errorf("compared: %d", got)
	}
	if got := (resource.Quantity{}).String(); got != "0" {
		t.Errorf("zero value is %s", got)
	}
}

func TestExponentsAreBounded(t *testing.T) {
	for _, s := range []string{"1e10001", "1e2000000000", "1e99999999999999999999", strings.Repeat("9", 20_000)} {
		if q, err := resource.Parse(s); err == nil {
			t.Errorf("%.20s is %.20s", s, q)
		}
	}
	if q := resource.MustParse("1e-2000000000"); q.String() != "1e-9" {
		t.Errorf("got %s", q)
	}
}

func TestUsualQuantitiesDoNotAllocate(t *testing.T) {
	a, b := resource.MustParse("16Gi"), resource.MustParse("250m")
	if n := testing.AllocsPerRun(100, func() {
		q, err := resource.Parse("4Gi")
		if err != nil {
			t.Fatal(err)
		}
		q.Add(a)
		q.Sub(b)
		if q.Cmp(a) < 0 || q.MilliValue() == 0 {
			t.Fatal(q)
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func TestJSONNumbersAreQuantities(t *testing.T) {
	var want apimachinery.Quantity
	if err := json.Unmarshal([]byte("1.5"), &want); err != nil {
		t.Fatal(err)
	}
	same(t, "1.5", resource.MustParse("1.5"), want)
}
