package meta

import (
	"strconv"

	"github.com/kubewasm/kubewasm/guest/view"
	"github.com/kubewasm/kubewasm/internal/json"
)

// Time is a point in time, a Time or a MicroTime of Kubernetes. The zero value is
// no time at all. The package time of the standard library would add 130 KB to
// each guest, so views do not return its types; in a plugin that has it anyway,
//
//	time.Unix(t.Unix(), int64(t.Nanosecond()))
//
// is the same point in time.
type Time struct {
	// seconds since the beginning of the year 1, as in the package time.
	seconds int64
	nanos   int32
}

// unixEpoch is the beginning of 1970.
const unixEpoch = 62135596800

// Unix returns the Time so many seconds and nanoseconds after the beginning of
// 1970 in UTC.
func Unix(seconds int64, nanos int32) Time { return Time{seconds + unixEpoch, nanos} }

// IsZero reports whether there is no time.
func (t Time) IsZero() bool { return t == Time{} }

// Unix returns the seconds since the beginning of 1970 in UTC.
func (t Time) Unix() int64 { return t.seconds - unixEpoch }

// Nanosecond returns the nanoseconds within the second.
func (t Time) Nanosecond() int { return int(t.nanos) }

// Before reports whether t is earlier than u.
func (t Time) Before(u Time) bool {
	return t.seconds < u.seconds || t.seconds == u.seconds && t.nanos < u.nanos
}

// Sub returns the duration t-u. It is right for differences of less than 292 years.
func (t Time) Sub(u Time) Duration {
	return Duration((t.seconds-u.seconds)*1e9 + int64(t.nanos-u.nanos))
}

// String returns the time in UTC in the format of RFC 3339, empty if there is none.
func (t Time) String() string {
	if t.IsZero() {
		return ""
	}
	days, second := t.seconds/86400, t.seconds%86400
	if second < 0 {
		days, second = days-1, second+86400
	}
	year, month, day := date(days)
	b := make([]byte, 0, len("2006-01-02T15:04:05.999999999Z"))
	b = append(digits(b, int64(year), 4), '-')
	b = append(digits(b, int64(month), 2), '-')
	b = append(digits(b, int64(day), 2), 'T')
	b = append(digits(b, second/3600, 2), ':')
	b = append(digits(b, second/60%60, 2), ':')
	b = digits(b, second%60, 2)
	if t.nanos != 0 {
		b = digits(append(b, '.'), int64(t.nanos), 9)
		for b[len(b)-1] == '0' {
			b = b[:len(b)-1]
		}
	}
	return string(append(b, 'Z'))
}

// digits appends n with at least width digits.
func digits(b []byte, n int64, width int) []byte {
	s := strconv.FormatInt(n, 10)
	for range width - len(s) {
		b = append(b, '0')
	}
	return append(b, s...)
}

// daysBefore returns the number of days from the beginning of the year 1 to a
// date. The year begins with March, so that a leap day is its last.
func daysBefore(year, month, day int) int64 {
	y, m := int64(year), int64(month)
	if m <= 2 {
		y, m = y-1, m+12
	}
	// 306 days are from March to December.
	return 365*y + floor(y, 4) - floor(y, 100) + floor(y, 400) + (153*(m-3)+2)/5 + int64(day) - 1 - 306
}

func floor(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// date is the reverse of daysBefore.
func date(days int64) (year, month, day int) {
	days += 306
	const era = 146097 // Days of 400 years.
	e := floor(days, era)
	d := days - e*era
	y := (d - d/1460 + d/36524 - d/146096) / 365
	d -= 365*y + y/4 - y/100
	m := (5*d + 2) / 153
	day = int(d - (153*m+2)/5 + 1)
	year, month = int(y+e*400), int(m+3)
	if month > 12 {
		year, month = year+1, month-12
	}
	return year, month, day
}

// ParseTime reads a time in the format of RFC 3339, with any fraction and zone.
func ParseTime(s string) (t Time, ok bool) {
	if len(s) < len("2006-01-02T15:04:05Z") || s[4] != '-' || s[7] != '-' || s[10] != 'T' || s[13] != ':' || s[16] != ':' {
		return Time{}, false
	}
	ok = true
	part := func(s string, low, high int) int {
		n := 0
		for i := range len(s) {
			d := int(s[i]) - '0'
			ok = ok && d >= 0 && d <= 9
			n = n*10 + d
		}
		ok = ok && low <= n && n <= high
		return n
	}
	year, month := part(s[:4], 0, 9999), part(s[5:7], 1, 12)
	if !ok {
		return Time{}, false
	}
	day := part(s[8:10], 1, daysIn(year, month))
	t.seconds = daysBefore(year, month, day)*86400 + int64(part(s[11:13], 0, 23)*3600+part(s[14:16], 0, 59)*60+part(s[17:19], 0, 59))
	s = s[19:]
	if s[0] == '.' {
		i, unit := 1, int32(1e8)
		for ; i < len(s) && s[i] >= '0' && s[i] <= '9'; i++ {
			t.nanos += int32(s[i]-'0') * unit
			unit /= 10
		}
		ok = ok && i > 1
		s = s[i:]
	}
	if s != "Z" {
		if len(s) != len("+07:00") || s[0] != '+' && s[0] != '-' || s[3] != ':' {
			return Time{}, false
		}
		offset := int64(part(s[1:3], 0, 23)*3600 + part(s[4:6], 0, 59)*60)
		if s[0] == '+' {
			offset = -offset
		}
		t.seconds += offset
	}
	if !ok {
		return Time{}, false
	}
	return t, true
}

func daysIn(year, month int) int {
	switch month {
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	case 4, 6, 9, 11:
		return 30
	}
	return 31
}

// ReadTime reads a Time, which has whole seconds. It is for generated code.
func ReadTime(v view.Value) Time {
	t := ReadMicroTime(v)
	if !v.JSON {
		t.nanos = 0
	}
	return t
}

// ReadMicroTime reads a MicroTime. It is for generated code.
func ReadMicroTime(v view.Value) Time {
	if v.JSON {
		t, _ := ParseTime(json.Value(v.Raw).String())
		return t
	}
	if len(v.Raw) == 0 {
		return Time{} // So does Kubernetes encode the zero time.
	}
	seconds, _ := v.Field(1)
	nanos, _ := v.Field(2)
	return Unix(int64(seconds), int32(nanos)/1000*1000)
}
