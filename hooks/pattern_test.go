package hooks

import (
	"strings"
	"testing"
)

// FuzzMatchPath holds that a pattern that may be granted stands for nothing
// outside of the directory that it begins with.
func FuzzMatchPath(f *testing.F) {
	for _, seed := range [][2]string{
		{"/var/lib/models/**", "/var/lib/models/a/b"}, {"/var/lib/models/**", "/var/lib/models"}, {"/a/*/c", "/a/b/c"}, {"/dev/nvidia*", "/dev/nvidia0"}, {"/a/b*/**", "/a/bc/d"}, {"/a", "/a"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, pattern, p string) {
		if checkPath(pattern) != nil || !cleanPath(p) || !matchPath(pattern, p) {
			return
		}
		beginning, _, wild := strings.Cut(pattern, "*")
		if !strings.HasPrefix(p, beginning) || !wild && p != pattern {
			t.Errorf("%q stands for %q", pattern, p)
		}
		if below := strings.HasSuffix(pattern, "/**"); !below && strings.Count(p, "/") != strings.Count(pattern, "/") || below && strings.Count(p, "/") < strings.Count(pattern, "/") {
			t.Errorf("%q stands for %q", pattern, p)
		}
	})
}
