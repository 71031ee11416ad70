//go:build amd64 || arm64

package wall

import (
	"errors"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestSpinsFollowTheOtherSide has turns that come at once and turns that never come.
func TestSpinsFollowTheOtherSide(t *testing.T) {
	parent, file, err := NewLane()
	if err != nil {
		t.Fatal(err)
	}
	defer parent.Close()
	defer unix.Close(file)
	child := parent.Other()
	never := errors.New("never")
	var got []time.Duration
	for n := range 40 {
		got = append(got, child.spin())
		if n == 20 { // A turn in time.
			parent.Send(Message{}, nil, 0)
			if err := child.Wait(nil); err != nil {
				t.Fatal(err)
			}
			child.Send(Message{}, nil, 0)
			continue
		}
		if err := child.Wait(func() error { return never }); err != never {
			t.Fatalf("wait %d ends with %v", n, err)
		}
	}
	for n, d := range got {
		want := minSpin
		switch n {
		case 0, 1, 16, 21, 22, 37: // The first two after a turn in time, and each 16th in a row.
			want = maxSpin
		}
		if d != want {
			t.Errorf("wait %d spins for %s, want %s", n, d, want)
		}
	}
	if child.Spin = 0; child.spin() != 0 {
		t.Error("a side that must not spin does")
	}
	if size := unsafe.Sizeof(page{}); size > headerBytes {
		t.Errorf("a page has %d bytes, more than its file", size)
	}
}
