package serving

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/kubewasm/kubewasm/host"
)

// File is a file that is not read while it is being written: what it holds is
// what two looks have seen, one after the other.
type File struct {
	host.Watcher
	// last is what it held when it was last read.
	last []byte
}

const (
	// settleTime is the time between two looks.
	settleTime = 250 * time.Millisecond
	// settleLooks is how many looks a file gets that goes on changing.
	settleLooks = 20
)

// NewFile returns the file at a path.
func NewFile(path string) *File {
	return &File{Watcher: host.File(path).(host.Watcher)}
}

// Fetch implements host.Source. It is for one goroutine at a time.
func (s *File) Fetch(ctx context.Context) ([]byte, error) {
	seen, err := s.Watcher.Fetch(ctx)
	if err != nil || s.last != nil && bytes.Equal(seen, s.last) {
		return seen, err
	}
	wait := time.NewTicker(settleTime)
	defer wait.Stop()
	for range settleLooks {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-wait.C:
		}
		again, err := s.Watcher.Fetch(ctx)
		if err != nil {
			return nil, err
		}
		if bytes.Equal(seen, again) {
			s.last = again
			return again, nil
		}
		seen = again
	}
	return nil, errors.New("the file is being written all the time")
}
