// Package logged holds the lines of logs to the table of events of docs/operating.md:
//
//	log := new(logged.Log)
//	cfg.Logger = log.Logger()
//	…
//	log.Check(t, map[string]int{"loaded the module": 1})
package logged

import (
	"encoding/json"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var event = regexp.MustCompile("(?m)^\\| [^|]+ \\| [^|]+ \\| (?:info|error) \\| `([^`]+)` \\| ([a-z, ]+) \\|$")

// Events returns the keys of log lines by their messages: the table of events of docs/operating.md.
func Events() (map[string][]string, error) {
	_, file, _, _ := runtime.Caller(0)
	text, err := os.ReadFile(filepath.Join(filepath.Dir(file), "../../../docs/operating.md"))
	if err != nil {
		return nil, err
	}
	events := map[string][]string{}
	for _, m := range event.FindAllStringSubmatch(string(text), -1) {
		events[m[1]] = strings.Split(m[2], ", ")
	}
	return events, nil
}

// Log is a log that goroutines write. Its Logger writes to it in JSON.
type Log struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (l *Log) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

// Logger returns a logger of all levels.
func (l *Log) Logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Check compares the lines of the log with the table of events: of each message there are as many
// lines as want has, with the keys of the table. Only serving and digest may be empty: there is
// nothing in service, or nothing was fetched.
func (l *Log) Check(t testing.TB, want map[string]int) {
	t.Helper()
	events, err := Events()
	if err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	log, got := l.text.String(), map[string]int{}
	for line := range strings.Lines(log) {
		var attrs map[string]any
		if err := json.Unmarshal([]byte(line), &attrs); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		message, _ := attrs["msg"].(string)
		keys, ok := events[message]
		if !ok {
			continue
		}
		got[message]++
		for _, key := range []string{"time", "level", "msg"} {
			delete(attrs, key)
		}
		if diff := cmp.Diff(slices.Sorted(slices.Values(keys)), slices.Sorted(maps.Keys(attrs))); diff != "" {
			t.Errorf("keys of %q (-docs/operating.md +got):\n%s", message, diff)
		}
		for key, value := range attrs {
			if value == "" && key != "serving" && key != "digest" {
				t.Errorf("%q has an empty %s", message, key)
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines by message (-want +got):\n%s\n%s", diff, log)
	}
}
