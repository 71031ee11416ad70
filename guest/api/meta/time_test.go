package meta_test

import (
	"math"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/guest/api/meta"
)

func FuzzParseTime(f *testing.F) {
	for _, s := range []string{"2026-11-21T03:07:16Z", "2024-02-29T23:59:59.123456Z", "2023-02-29T00:00:00Z", "0000-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999+23:59", "1970-01-01T00:00:00-00:01", "2000-02-29T00:00:00Z", "1900-02-28T24:00:00Z", "0001-01-01T00:00:00Z", "2026-11-21T03:07:16.Z", "2026-11-21T03:07:16,5Z"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, ok := meta.ParseTime(s)
		want, err := time.Parse(time.RFC3339, s)
		if ok && err != nil {
			t.Fatalf("%q is no time: %v", s, err)
		}
		if !ok {
			// The package time reads more than RFC 3339 has, such as a comma.
			if err == nil && want.Format(time.RFC3339Nano) == s {
				t.Fatalf("%q is refused", s)
			}
			return
		}
		if got.Unix() != want.Unix() || got.Nanosecond() != want.Nanosecond() || got.IsZero() != want.IsZero() {
			t.Fatalf("%q is %d.%09d, want %d.%09d", s, got.Unix(), got.Nanosecond(), want.Unix(), want.Nanosecond())
		}
		if y := want.UTC().Year(); got.IsZero() || y < 0 || y > 9999 {
			return
		}
		if text := want.UTC().Format(time.RFC3339Nano); got.String() != text {
			t.Fatalf("%q is written as %q, want %q", s, got, text)
		}
	})
}

func TestEveryDayOfEightCenturies(t *testing.T) {
	for day := time.Date(1600, 1, 1, 12, 0, 0, 0, time.UTC); day.Year() < 2400; day = day.AddDate(0, 0, 1) {
		got, ok := meta.ParseTime(day.Format(time.RFC3339))
		if !ok || got.Unix() != day.Unix() || got.String() != day.Format(time.RFC3339) {
			t.Fatalf("%s is %s, %d, want %d", day.Format(time.RFC3339), got, got.Unix(), day.Unix())
		}
	}
}

func TestTimesAreCompared(t *testing.T) {
	early, late := meta.Unix(10, 500), meta.Unix(12, 0)
	if !early.Before(late) || late.Before(early) || early.Before(early) || !early.Before(meta.Unix(10, 501)) {
		t.Error("Before is wrong")
	}
	if got, want := late.Sub(early), 2*meta.Second-500; got != want {
		t.Errorf("difference %s, want %s", got, want)
	}
}

func FuzzParseDuration(f *testing.F) {
	for _, s := range []string{"1h15m30.918273645s", "250ms", "-1.5h", "0", "", "+5s", ".5s", "1", "1x", "9223372036854775807ns", "9223372036854775808ns", "-9223372036854775808ns", "1.0000000000000000000001s", "3µs3μs", "2562048h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, ok := meta.ParseDuration(s)
		want, err := time.ParseDuration(s)
		if ok != (err == nil) || ok && time.Duration(got) != want {
			t.Fatalf("%q is %d, %v, want %d, %v", s, got, ok, want, err)
		}
	})
}

func TestDurationsInConfigurations(t *testing.T) {
	d := meta.Second
	if err := d.UnmarshalText([]byte("1m30s")); err != nil || d != 90*meta.Second {
		t.Errorf("got %s, %v", d, err)
	}
	if err := d.UnmarshalText([]byte("soon")); err == nil || err.Error() != `want a duration such as 1m30s, got "soon"` || d != 90*meta.Second {
		t.Errorf("got %s, %v", d, err)
	}
}

func TestDurationsAreWrittenInSeconds(t *testing.T) {
	for d, want := range map[meta.Duration]string{0: "0s", 1500 * meta.Millisecond: "1.5s", -meta.Hour: "-3600s", math.MaxInt64: "9223372036.854776s"} {
		if got := d.String(); got != want {
			t.Errorf("%d is %s, want %s", d, got, want)
		}
	}
}
