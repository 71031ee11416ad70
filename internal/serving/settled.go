package serving

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/kubewasm/kubewasm/host"
)

// File is a file that is not read while it is being written. Fetch returns contents that two
// successive reads have in common.
type File struct {
	host.Watcher
	// last is the content at the last read.
	last []byte
}

const (
	// settleTime is the time between two reads.
	settleTime = 250 * time.Millisecond
	// settleLooks is the maximum number of reads of a file that keeps changing.
	settleLooks = 20
)

// NewFile returns the file at a path.
func NewFile(path string) *File {
	return &File{Watcher: host.File(path).(host.Watcher)}
}

// Fetch implements host.Source. Only one goroutine may call it at a time.
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
	return nil, errors.New("the file keeps changing")
}
