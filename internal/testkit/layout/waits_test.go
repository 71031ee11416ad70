package layout_test

import (
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// waits matches the end of a wait in seconds: a deadline, a timer, or a context that ends.
var waits = regexp.MustCompile(`(?:time\.Now\(\)\.Add|time\.After|WithTimeout|PollUntilContextTimeout)\([^;]*?(?:([0-9]+) ?\* ?)?time\.Second\b`)

// isShort reports whether a line of a test waits for at least a second and less than a minute.
func isShort(line string) bool {
	m := waits.FindStringSubmatch(line)
	if m == nil {
		return false
	}
	n, err := strconv.Atoi(m[1])
	return m[1] == "" || err == nil && n < 60
}

// TestTestsWaitForAtLeastAMinute fails for a test that gives what must come less than a minute, which
// a busy machine needs now and then. What is expected to end without it takes less than a second.
func TestTestsWaitForAtLeastAMinute(t *testing.T) {
	list := exec.CommandContext(t.Context(), "git", "grep", "-nE", `time\.Second\b`, "--", "*_test.go")
	list.Dir = "../../.."
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	known := []string{
		"admission/monitor_test.go",              // Policies get a part of the request's time, which the test waits for.
		"admission/monitor_test.go",              // The same.
		"admission/monitor_test.go",              // The same.
		"host/oci/e2e/policies_test.go",          // The end of it is one of two results.
		"internal/clusterplugins/settle_test.go", // In a bubble of synctest.
	}
	var found []string
	for line := range strings.Lines(string(out)) {
		file, rest, _ := strings.Cut(line, ":")
		if _, text, _ := strings.Cut(rest, ":"); isShort(text) && file != "internal/testkit/layout/waits_test.go" {
			found = append(found, file)
			if len(found) > len(known) {
				t.Logf("at %s", line)
			}
		}
	}
	if diff := cmp.Diff(known, found); diff != "" {
		t.Errorf("files with a wait of less than a minute (-known +found):\n%s", diff)
	}
}

func TestShortWaitsAreFound(t *testing.T) {
	for line, want := range map[string]bool{
		"for deadline := time.Now().Add(20 * time.Second); ; {":           true,
		"case <-time.After(time.Second):":                                 true,
		"ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)": true,
		"case <-time.After(60 * time.Second):":                            false,
		"case <-time.After(time.Minute):":                                 false,
		"case <-time.After(50 * time.Millisecond):":                       false,
		"time.Sleep(time.Second)":                                         false,
	} {
		if got := isShort(line); got != want {
			t.Errorf("%s: %t, want %t", line, got, want)
		}
	}
}
