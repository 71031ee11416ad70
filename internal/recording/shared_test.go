package recording

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/host/record"
)

// eventually asks until it is true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for !ok() {
		if t.Context().Err() != nil {
			t.Fatal(what)
		}
		runtime.Gosched()
	}
}

// A recorder that is busy removes the files of one that is quiet in the same directory, but not
// the one that is written.
func TestAQuietRecorderBesideABusyOne(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "recording")
	quiet := newRecorder(t, record.Config{Path: dir, MaxBytes: 1 << 20})
	busy := newRecorder(t, record.Config{Path: dir, MaxBytes: 1 << 20, SequenceCalls: 50})
	tape, _ := quiet.Version(answering).Tape()
	ask(tape, 0, "first", "no", 2, Returned)
	eventually(t, "the first call is not written", func() bool { return quiet.Stats().Recorded == 1 })
	v := busy.Version(answering)
	for n := 0; busy.Stats().Removed < 3 && t.Context().Err() == nil; n++ {
		other, _ := v.Tape()
		if other == nil {
			runtime.Gosched() // The queue is full.
			continue
		}
		for k := 0; other.Next() && k < 50; k++ {
			ask(other, k, fmt.Sprintf("%01000d/%d", n, k), "no", 2, Returned)
		}
		other.Close()
	}
	ask(tape, 1, "second", "no", 2, Returned)
	if err := busy.Close(); err != nil {
		t.Error(err)
	}
	recording := closed(t, quiet)
	for _, s := range recording.Sequences() {
		if s.Version.Run == quiet.run && s.Len() == 2 {
			return
		}
	}
	t.Errorf("the calls of the quiet recorder are not there: %s", recording.Summary())
}

// A directory that is removed while a segment in it is written is made again, and what went
// nowhere is not counted as recorded.
func TestADirectoryThatIsRemoved(t *testing.T) {
	var reported []string
	r := newRecorder(t, record.Config{SequenceCalls: 1, Report: func(err error) { reported = append(reported, fmt.Sprint(err)) }})
	v := r.Version(answering)
	one := func() (sent bool) {
		tape, _ := v.Tape()
		if tape == nil {
			return false
		}
		ask(tape, 0, "a call", "no", 2, Returned)
		tape.Close()
		return true
	}
	one()
	eventually(t, "the first call is not written", func() bool { return r.Stats().Recorded == 1 })
	if err := os.RemoveAll(r.cfg.Path); err != nil {
		t.Fatal(err)
	}
	sent := uint64(1)
	eventually(t, "nothing is recorded any more", func() bool {
		if one() {
			sent++
			eventually(t, "a call is neither recorded nor dropped", func() bool { s := r.Stats(); return s.Recorded+s.Dropped == sent })
		}
		return r.Stats().Recorded > 1
	})
	_ = r.Close() // Its error is that of the directory.
	recording, err := Open(r.cfg.Path)
	if err != nil {
		t.Fatal(err)
	}
	stats := r.Stats()
	if got, want := uint64(recording.Calls()), stats.Recorded-1; got != want {
		t.Errorf("%d calls are there, %d were recorded since the directory was removed", got, want)
	}
	// A tick of the recorder may have found it before a call did, and then there is no failure.
	if len(reported) > 0 && (len(reported) != 2 || !strings.Contains(reported[0], "it was removed") || reported[1] != "<nil>") {
		t.Errorf("reported were %q", reported)
	}
}

// Calls of a plugin that is not called any more are removed when they are too old.
func TestOldCallsOfAnIdlePlugin(t *testing.T) {
	r := newRecorder(t, record.Config{MaxAge: time.Second})
	tape, _ := r.Version(answering).Tape()
	ask(tape, 0, "old", "no", 2, Returned)
	eventually(t, "the call is not written", func() bool { return r.Stats().Recorded == 1 })
	eventually(t, "the call is never removed", func() bool { return r.Stats().Removed == 1 })
	if files, err := segments(r.cfg.Path); err != nil || len(files) != 0 {
		t.Errorf("there are still %v, %v", files, err)
	}
}
