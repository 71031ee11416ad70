package sched

import (
	"testing"
	"time"
)

// Failures of Less one after the other make the pauses longer, and one that comes later does not.
func TestPausesOfLess(t *testing.T) {
	now := time.Unix(1, 0)
	var u *unsorted
	for n, test := range []struct {
		by    string
		after time.Duration // After the end of the pause before.
		want  time.Duration
	}{
		{"a", 0, time.Second},
		{"a", 0, 2 * time.Second},
		{"a", time.Second, 4 * time.Second},
		{"a", 4 * time.Second, time.Second},
		{"a", 0, 2 * time.Second},
		{"b", 0, time.Second},
		{"b", 0, 2 * time.Second},
		{"b", 0, 4 * time.Second},
		{"b", 0, 8 * time.Second},
		{"b", 0, 16 * time.Second},
		{"b", 0, 32 * time.Second},
		{"b", 0, time.Minute},
		{"b", time.Second, time.Minute},
		{"b", time.Hour, time.Second},
	} {
		if u != nil {
			now = u.until.Add(test.after)
		}
		if u = u.next(test.by, now); u.pause != test.want || !u.until.Equal(now.Add(test.want)) {
			t.Errorf("failure %d: the pause is %s until %s, want %s", n+1, u.pause, u.until, test.want)
		}
	}
}
