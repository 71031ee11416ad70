// Package replaying holds recordings that tests make against replays of them.
package replaying

import (
	"os"
	"strconv"
	"testing"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/recording"
	"github.com/kubewasm/kubewasm/internal/replay"
)

// Calls returns how many calls a test records: what the variable KUBEWASM_REPLAY_CALLS says, or
// usual.
func Calls(t testing.TB, usual int) int {
	t.Helper()
	text := os.Getenv("KUBEWASM_REPLAY_CALLS")
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("KUBEWASM_REPLAY_CALLS: %v", err)
	}
	return n
}

// Verify repeats the calls of a recording, which must be closed, on the modules that were
// recorded, and holds that each crosses exactly as it did. At least that many calls must be
// repeated, and each must be of one of the modules.
func Verify(t testing.TB, rt *host.Runtime, dir string, least int, modules ...[]byte) {
	t.Helper()
	recorded, err := recording.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if problems := recorded.Problems(); len(problems) != 0 {
		t.Errorf("the recording has problems: %v", problems)
	}
	calls, exact := 0, 0
	for _, module := range modules {
		v, err := replay.Verify(t.Context(), rt, recorded, module, replay.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for n, d := range v.Differences {
			if n < 5 {
				t.Error(d)
			}
		}
		if v.Skipped != 0 || v.Unpromised != 0 {
			t.Errorf("%d calls were skipped, %d are not promised", v.Skipped, v.Unpromised)
		}
		calls, exact = calls+v.Calls, exact+v.Exact+v.Withheld
	}
	t.Logf("%s; %d repeated, %d of them exactly", recorded.Summary(), calls, exact)
	if calls != exact || calls != recorded.Calls() || calls < least {
		t.Errorf("%d calls are recorded, %d repeated, %d of them exactly; want %d at least", recorded.Calls(), calls, exact, least)
	}
}
