package recording

import (
	"errors"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/host/record"
	"github.com/kubewasm/kubewasm/internal/testkit/fulldisk"
)

// A full disk takes no calls: it is said once, no file is left behind for each attempt, and the
// recording goes on when there is room again.
func TestAFullDiskIsReportedAndLeftAlone(t *testing.T) {
	dir := fulldisk.New(t, "1m")
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var reports []string
		r := newRecorder(t, record.Config{Path: dir, SequenceCalls: 1, Report: func(err error) {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				reports = append(reports, "recorded again")
			case errors.Is(err, syscall.ENOSPC):
				reports = append(reports, "no space")
			default:
				reports = append(reports, err.Error())
			}
		}})
		v := r.Version(answering)
		files := func() (names []string) {
			t.Helper()
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				if strings.HasSuffix(e.Name(), extension) {
					names = append(names, e.Name())
				}
			}
			return names
		}
		n := 0
		call := func() {
			t.Helper()
			n++
			tape, _ := v.Tape()
			ask(tape, n, strings.Repeat("pod", 1000), "no", 1, Returned)
			tape.Close()
			synctest.Wait()
		}
		call()
		empty := fulldisk.Fill(t, dir)
		attempts := map[int]bool{}
		for range 300 { // Five minutes.
			call()
			attempts[int(r.failures.Load())] = true
			if got := files(); len(got) > 1 {
				t.Fatalf("there are %v", got)
			}
			time.Sleep(time.Second)
		}
		if got := len(attempts); got > 20 {
			t.Errorf("it was tried %d times in five minutes", got)
		}
		mu.Lock()
		if len(reports) < 4 || len(reports) > 6 || reports[0] != "no space" {
			t.Errorf("it is reported as %q", reports)
		}
		reports = nil
		mu.Unlock()
		if s := r.Stats(); s.Recorded+s.Dropped != uint64(n) || s.Recorded > uint64(n)-290 {
			t.Errorf("%d calls are %d that were recorded and %d that were dropped", n, s.Recorded, s.Dropped)
		}

		empty()
		time.Sleep(lastRetry)
		before := r.Stats().Recorded
		for range 3 {
			call()
		}
		if got := r.Stats().Recorded - before; got != 3 {
			t.Errorf("%d calls are recorded, want 3", got)
		}
		if diff := cmp.Diff([]string{"recorded again"}, reports); diff != "" {
			t.Error(diff)
		}
		_ = r.Close()
		recording, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := uint64(recording.Calls())+recording.Dropped(), uint64(n); got != want {
			t.Errorf("the recording tells of %d calls, want %d", got, want)
		}
	})
}
