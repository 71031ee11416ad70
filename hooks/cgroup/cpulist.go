package cgroup

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// maxListed is one more than the largest number of a CPU or node: CONFIG_NR_CPUS
// is at most 8192.
const maxListed = 8192

// list is a set of CPUs or memory nodes.
type list [maxListed / 64]uint64

// parseList parses the kernel's list format, "0-3,8": bitmap_parselist without the strides, never
// written by the kernel. An empty string is an empty list.
func parseList(s string) (*list, error) {
	l := new(list)
	if s == "" {
		return l, nil
	}
	for item := range strings.SplitSeq(s, ",") {
		from, to, isRange := strings.Cut(item, "-")
		first, err := parseListed(from)
		last := first
		if err == nil && isRange {
			last, err = parseListed(to)
		}
		if err != nil || first > last {
			return nil, fmt.Errorf("%.100q is not a list of numbers below %d like \"0-3,8\"", s, maxListed)
		}
		l.add(first, last)
	}
	return l, nil
}

// add adds the numbers from first to last, a word at a time: since a guest may repeat "0-8191" up
// to the maximum length of a decision.
func (l *list) add(first, last uint64) {
	for word := first / 64; word <= last/64; word++ {
		mask := ^uint64(0)
		if word == first/64 {
			mask <<= first % 64
		}
		if word == last/64 {
			mask &= ^uint64(0) >> (63 - last%64)
		}
		l[word] |= mask
	}
}

func parseListed(s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err == nil && n >= maxListed {
		err = strconv.ErrRange
	}
	return n, err
}

// contains reports whether m is a subset of l.
func (l *list) contains(m *list) bool {
	for i := range l {
		if m[i]&^l[i] != 0 {
			return false
		}
	}
	return true
}

func (l *list) union(m *list) *list {
	u := *l
	for i := range u {
		u[i] |= m[i]
	}
	return &u
}

// String returns the list in the kernel's notation.
func (l *list) String() string {
	var b []byte
	for n := l.next(0, false); n < maxListed; {
		end := l.next(n, true)
		if len(b) > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(n), 10)
		if end-n > 1 {
			b = append(b, '-')
			b = strconv.AppendInt(b, int64(end-1), 10)
		}
		n = l.next(end, false)
	}
	return string(b)
}

// next returns the first number from n on that is listed, or that is not listed if skip is set. It
// returns maxListed if there is none.
func (l *list) next(n int, skip bool) int {
	for n < maxListed {
		word := l[n/64]
		if skip {
			word = ^word
		}
		if word >>= n % 64; word != 0 {
			return n + bits.TrailingZeros64(word)
		}
		n = (n/64 + 1) * 64
	}
	return maxListed
}
