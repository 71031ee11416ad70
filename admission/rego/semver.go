package rego

import (
	"cmp"
	"errors"
	"strconv"
	"strings"
)

// maxVersionBytes is the maximum length of a version.
const maxVersionBytes = 4 << 10

// version is a version by Semantic Versioning. As in OPA, it may have a leading v.
type version struct {
	numbers    [3]int64
	preRelease string
}

var errVersion = errors.New("no version")

func parseVersion(s string) (v version, err error) {
	if len(s) > maxVersionBytes {
		return v, errTooMuch
	}
	s = strings.TrimPrefix(s, "v")
	s, metadata, hasMetadata := strings.Cut(s, "+")
	s, preRelease, hasPreRelease := strings.Cut(s, "-")
	if hasMetadata && !areIdentifiers(metadata, false) || hasPreRelease && !areIdentifiers(preRelease, true) {
		return v, errVersion
	}
	parts := strings.Split(s, ".")
	if len(parts) != len(v.numbers) {
		return v, errVersion
	}
	for i, part := range parts {
		if !isDigits(part) || len(part) > 1 && part[0] == '0' {
			return v, errVersion
		}
		if v.numbers[i], err = strconv.ParseInt(part, 10, 64); err != nil {
			return v, err
		}
	}
	v.preRelease = preRelease
	return v, nil
}

// areIdentifiers reports whether s consists of identifiers separated by dots. In a pre-release, a
// numeric identifier has no leading zero.
func areIdentifiers(s string, preRelease bool) bool {
	for identifier := range strings.SplitSeq(s, ".") {
		if identifier == "" || strings.ContainsFunc(identifier, func(r rune) bool {
			return r != '-' && (r < '0' || r > '9') && (r|0x20 < 'a' || r|0x20 > 'z')
		}) {
			return false
		}
		if preRelease && len(identifier) > 1 && identifier[0] == '0' && isDigits(identifier) {
			return false
		}
	}
	return true
}

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// compare returns -1, 0 or 1 in the order of versions.
func (v *version) compare(w *version) int {
	for i := range v.numbers {
		if d := cmp.Compare(v.numbers[i], w.numbers[i]); d != 0 {
			return d
		}
	}
	switch {
	case v.preRelease == w.preRelease:
		return 0
	case v.preRelease == "":
		return 1
	case w.preRelease == "":
		return -1
	}
	a, b := strings.Split(v.preRelease, "."), strings.Split(w.preRelease, ".")
	for i := range min(len(a), len(b)) {
		if d := compareIdentifiers(a[i], b[i]); d != 0 {
			return d
		}
	}
	return cmp.Compare(len(a), len(b))
}

// compareIdentifiers orders numbers before texts.
func compareIdentifiers(a, b string) int {
	x, y := isDigits(a), isDigits(b)
	switch {
	case x && y:
		n, _ := strconv.Atoi(a) // As in OPA, numbers that do not fit are the largest.
		m, _ := strconv.Atoi(b)
		return cmp.Compare(n, m)
	case x != y:
		return boolInt(y) - boolInt(x)
	}
	return strings.Compare(a, b)
}

func semverIsValid(_ *call, args []any) (any, error) {
	s, ok := args[0].(string)
	_, err := parseVersion(s)
	if errors.Is(err, errTooMuch) {
		return nil, err
	}
	return ok && err == nil, nil
}

func semverCompare(_ *call, args []any) (any, error) {
	list, err := stringsOf(args)
	if err != nil {
		return nil, err
	}
	a, err := parseVersion(list[0])
	if err != nil {
		return nil, err
	}
	b, err := parseVersion(list[1])
	if err != nil {
		return nil, err
	}
	return a.compare(&b), nil
}
