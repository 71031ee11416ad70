package meta

import (
	"errors"
	"math"
	"strconv"

	"github.com/kubewasm/kubewasm/guest/view"
	"github.com/kubewasm/kubewasm/internal/json"
)

// Duration is a span of time in nanoseconds, like time.Duration: each converts to the other.
type Duration int64

// Spans of time.
const (
	Nanosecond  Duration = 1
	Microsecond          = 1000 * Nanosecond
	Millisecond          = 1000 * Microsecond
	Second               = 1000 * Millisecond
	Minute               = 60 * Second
	Hour                 = 60 * Minute
)

// Seconds returns the duration in seconds.
func (d Duration) Seconds() float64 { return float64(d) / 1e9 }

// String returns the duration in seconds: 1.5s.
func (d Duration) String() string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s"
}

// ParseDuration reads a duration as time.ParseDuration does: 1h15m, 250ms.
func ParseDuration(s string) (d Duration, ok bool) {
	negative := false
	if s != "" && (s[0] == '-' || s[0] == '+') {
		negative = s[0] == '-'
		s = s[1:]
	}
	if s == "0" {
		return 0, true
	}
	if s == "" {
		return 0, false
	}
	var sum uint64
	for s != "" {
		whole, fraction, scale, rest, ok := decimal(s)
		if !ok {
			return 0, false
		}
		n := 0
		for n < len(rest) && rest[n] != '.' && (rest[n] < '0' || rest[n] > '9') {
			n++
		}
		u := unit(rest[:n])
		if u == 0 || whole > 1<<63/u {
			return 0, false
		}
		span := whole * u
		if fraction > 0 {
			span += uint64(float64(fraction) * (float64(u) / scale))
		}
		if sum += span; span > 1<<63 || sum > 1<<63 {
			return 0, false
		}
		s = rest[n:]
	}
	if negative {
		return -Duration(sum), true
	}
	return Duration(sum), sum <= math.MaxInt64
}

// UnmarshalText reads a duration as ParseDuration does, so that a field of a
// plugin's configuration may be one.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, ok := ParseDuration(string(text))
	if !ok {
		return errors.New("want a duration such as 1m30s, got " + strconv.Quote(string(text)))
	}
	*d = parsed
	return nil
}

// unit returns the nanoseconds of a unit, 0 if it does not exist.
func unit(name string) uint64 {
	switch name {
	case "ns":
		return uint64(Nanosecond)
	case "us", "µs", "μs": // U+00B5 and U+03BC.
		return uint64(Microsecond)
	case "ms":
		return uint64(Millisecond)
	case "s":
		return uint64(Second)
	case "m":
		return uint64(Minute)
	case "h":
		return uint64(Hour)
	}
	return 0
}

// decimal reads the number at the beginning of s: whole + fraction/scale.
func decimal(s string) (whole, fraction uint64, scale float64, rest string, ok bool) {
	i := 0
	for ; i < len(s) && s[i] >= '0' && s[i] <= '9'; i++ {
		if whole > 1<<63/10 {
			return 0, 0, 0, "", false
		}
		if whole = whole*10 + uint64(s[i]-'0'); whole > 1<<63 {
			return 0, 0, 0, "", false
		}
	}
	scale, ok = 1, i > 0
	if i < len(s) && s[i] == '.' {
		overflow := false
		for i++; i < len(s) && s[i] >= '0' && s[i] <= '9'; i++ {
			ok = true
			// Digits after those that fit do not count.
			if overflow || fraction > (1<<63-1)/10 {
				overflow = true
				continue
			}
			next := fraction*10 + uint64(s[i]-'0')
			if next > 1<<63 {
				overflow = true
				continue
			}
			fraction, scale = next, scale*10
		}
	}
	return whole, fraction, scale, s[i:], ok
}

// ReadDuration reads a Duration. It is for generated code.
func ReadDuration(v view.Value) Duration {
	if v.JSON {
		d, _ := ParseDuration(json.Value(v.Raw).String())
		return d
	}
	n, _ := v.Field(1)
	return Duration(n)
}
