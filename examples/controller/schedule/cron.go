package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// cron is a recurring time: minute, hour, day of the month, month and day of the week, as in
// crontab(5).
type cron struct {
	minutes, hours, days, months, weekdays uint64
	// anyDay and anyWeekday are set for fields that begin with *. If neither is set, a day matches
	// if one of the two fields does.
	anyDay, anyWeekday bool
}

// fields are the fields of a cron expression.
var fields = [5]struct {
	name     string
	min, max int
}{{"minute", 0, 59}, {"hour", 0, 23}, {"day of the month", 1, 31}, {"month", 1, 12}, {"day of the week", 0, 7}}

// parseCron reads an expression of five fields of numbers, ranges, lists and steps.
func parseCron(text string) (cron, error) {
	parts := strings.Fields(text)
	if len(parts) != len(fields) {
		return cron{}, fmt.Errorf("%q has %d fields, want 5", text, len(parts))
	}
	var bits [5]uint64
	var errs []error
	for i, part := range parts {
		for item := range strings.SplitSeq(part, ",") {
			set, err := parseItem(item, fields[i].min, fields[i].max)
			if err != nil {
				errs = append(errs, fmt.Errorf("%q: %s %w", text, fields[i].name, err))
			}
			bits[i] |= set
		}
	}
	c := cron{
		minutes: bits[0], hours: bits[1], days: bits[2], months: bits[3], weekdays: bits[4] | bits[4]>>7&1,
		anyDay: parts[2][0] == '*', anyWeekday: parts[4][0] == '*',
	}
	return c, errors.Join(errs...)
}

// parseItem reads an item of a list: *, N, N-M, each with /STEP.
func parseItem(item string, low, high int) (set uint64, err error) {
	text, stepText, hasStep := strings.Cut(item, "/")
	step := 1
	if hasStep {
		if step, err = strconv.Atoi(stepText); err != nil || step < 1 {
			return 0, fmt.Errorf("%q: the step is not a number of at least 1", item)
		}
	}
	from, to := low, high
	if text != "*" {
		first, last, isRange := strings.Cut(text, "-")
		var err1, err2 error
		from, err1 = strconv.Atoi(first)
		if to = from; isRange {
			to, err2 = strconv.Atoi(last)
		} else if hasStep {
			to = high
		}
		if err1 != nil || err2 != nil || from < low || to > high || from > to {
			return 0, fmt.Errorf("%q: want numbers from %d to %d", item, low, high)
		}
	}
	for i := from; i <= to; i += step {
		set |= 1 << i
	}
	return set, nil
}

// maxDays is the number of days searched for a time: the 29th of February may be 8 years away.
const maxDays = 8*365 + 2

// last returns the last matching time at or before t, in the location of t.
func (c *cron) last(t time.Time) (last time.Time, ok bool) {
	limit := t.Hour()*60 + t.Minute()
	year, month, day := t.Date()
	for back := range maxDays {
		date := time.Date(year, month, day-back, 0, 0, 0, 0, t.Location())
		if c.matches(date) {
			for minute := limit; minute >= 0; minute-- {
				if c.hours>>(minute/60)&1 == 0 {
					minute -= minute % 60 // The hour does not match.
				} else if c.minutes>>(minute%60)&1 != 0 {
					return date.Add(time.Duration(minute) * time.Minute), true
				}
			}
		}
		limit = 24*60 - 1
	}
	return time.Time{}, false
}

// matches reports whether a day matches.
func (c *cron) matches(date time.Time) bool {
	if c.months>>date.Month()&1 == 0 {
		return false
	}
	day, weekday := c.days>>date.Day()&1 != 0, c.weekdays>>date.Weekday()&1 != 0
	if c.anyDay || c.anyWeekday {
		return day && weekday
	}
	return day || weekday
}
